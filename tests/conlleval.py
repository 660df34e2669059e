"""Entities and scores of tags by seqscore, with conlleval's reading of invalid sequences."""

from collections.abc import Iterator, Sequence

from seqscore import encoding, scoring


def _as_bio(tags: Sequence[str]) -> Iterator[str]:
    """Write E and S as I and B, and what follows them as B: conlleval ends an entity there."""
    has_ended = False
    for tag in tags:
        prefix, _, label = tag.partition('-')
        starts = prefix in 'BS' or has_ended
        yield tag if prefix == 'O' else f'{"B" if starts else "I"}-{label}'
        has_ended = prefix in 'ES'


def _repaired(tags: Sequence[str]) -> list[str]:
    return encoding.get_encoding('BIO').repair_labels([*_as_bio(tags)], encoding.REPAIR_CONLL)


def decode(tags: Sequence[str], scheme: str) -> list[tuple[int, int, str]]:
    """Return (start, end, label) of the entities of valid tags, as seqscore decodes them."""
    mentions = encoding.get_encoding(scheme).decode_labels(tags)
    return [(one.span.start, one.span.end, one.type) for one in mentions]


def entities(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return (start, end, label) of the entities of any B-x, I-x, E-x, S-x and O."""
    return decode(_repaired(tags), 'BIO')


def score(
    gold: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]
) -> scoring.ClassificationScore:
    """Score the entities of tagged sentences."""
    guessed, wanted = ([_repaired(tags) for tags in side] for side in (guesses, gold))
    found, _ = scoring.score_label_sequences(guessed, wanted, 'BIO', repair=None)
    return found
