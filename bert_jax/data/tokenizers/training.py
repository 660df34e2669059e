"""Training a vocabulary on a stream of texts, of one language or a mixture."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from bert_jax import errors
from bert_jax.data import languages
from bert_jax.data.tokenizers import byte_bpe, sentence_piece, special_tokens, wordpiece
from bert_jax.data.tokenizers.tokenizer import Tokenizer, encodable

TRAINING_CHARACTERS = 2**26  # training sees at most this much text, taken evenly from all of it
TRAINERS = {
    'wordpiece': wordpiece.train,
    'bytebpe': byte_bpe.train,
    'unigram': functools.partial(sentence_piece.train, 'unigram'),
    'sentencepiece-bpe': functools.partial(sentence_piece.train, 'bpe'),
}


def train(spec: str, texts: Iterable[str], lowercase: bool = True) -> Tokenizer:
    """Trains a tokenizer, e.g. 'wordpiece:8000', on a stream of texts.

    The same texts in the same order give the same tokenizer. At most `TRAINING_CHARACTERS`
    characters are used and held in memory: beyond that, evenly spaced paragraphs.

    Raises UserError for an unknown kind, a bad size or texts without a word.
    """
    kind, size = parse_spec(spec)
    sample = [encodable(text) for text in evenly(texts, TRAINING_CHARACTERS)]
    return Tokenizer(json.dumps(TRAINERS[kind](size, sample, lowercase)))


def parse_spec(spec: str) -> tuple[str, int]:
    """'unigram:16000' → the kind and the size. Raises UserError if there is no such kind."""
    kind, _, size = spec.partition(':')
    if kind not in TRAINERS:
        raise errors.unknown('tokenizer kind', kind, TRAINERS)
    smallest = len(special_tokens.BERT)
    if not size.isdecimal() or int(size) <= smallest:
        raise errors.UserError(
            f'tokenizer {spec!r}: the vocabulary size must be a whole number above '
            f'{smallest}, as in {kind}:8000'
        )
    return kind, int(size)


def mixture(
    texts: Mapping[str, Callable[[], Iterator[str]]], alpha: float, limit: int = TRAINING_CHARACTERS
) -> Iterator[str]:
    """Lines in which languages have the shares q_i ∝ p_i^alpha, p_i by characters.

    texts: language → a function that streams its texts, called twice or more. The amount is that
    of all texts together, or `limit` characters if they are more. A language that gets less than
    it has gives evenly spaced lines; one that gets more is repeated.
    """
    amounts = {language: sum(map(len, stream())) for language, stream in texts.items()}
    total = min(sum(amounts.values()), limit)
    shares = languages.shares(list(amounts.values()), alpha)
    for (language, stream), share in zip(texts.items(), shares, strict=True):
        repeats, rest = divmod(share * total, amounts[language])
        for _ in range(int(repeats)):
            yield from stream()
        yield from _share_of(stream(), rest / amounts[language])


def _share_of(texts: Iterable[str], share: float) -> Iterator[str]:
    """Lines with a share of all characters, spaced evenly."""
    seen = taken = 0
    for text in texts:
        for line in text.split('\n'):
            seen += len(line) + 1
            if taken + len(line) / 2 < share * seen:
                taken += len(line) + 1
                yield line


def evenly(texts: Iterable[str], limit: int) -> list[str]:
    """At most about `limit` characters: every stride-th paragraph, evenly over the stream."""
    kept, characters, stride, index = [], 0, 1, 0
    for text in texts:
        for paragraph in text.split('\n\n'):
            if index % stride == 0:
                kept.append(paragraph)
                characters += len(paragraph)
                if characters > limit and len(kept) > 1:
                    kept = kept[::2]
                    characters = sum(map(len, kept))
                    stride *= 2
            index += 1
    return kept
