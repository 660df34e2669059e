"""Schemes of writing spans as a tag a word: IOB1, BIO (also IOB2), BIOES (also BILOU)."""

from bert_jax.errors import UserError, unknown

_PREFIXES = {'bio': 'BI', 'iob1': 'BI', 'bioes': 'BIESLU'}
SCHEMES = (*_PREFIXES, 'none')


def spans(tags: list[str], scheme: str) -> tuple[list[tuple[int, int, str]], int]:
    """(first word, last + 1, label) of the spans that tags describe, and how many tags had no place
    in the scheme: they begin a span of their own, as in conlleval.

    Raises:
        UserError: a tag that is not of the scheme.
    """
    found, repaired = [], 0
    before, open_label = 'O', None
    for number, tag in enumerate(tags):
        prefix, label = _parse(tag, scheme)
        goes_on = label is not None and label == open_label and prefix in 'IEL'
        if goes_on:
            start, _, _ = found.pop()
            found.append((start, number + 1, label))
        elif label is not None:
            found.append((number, number + 1, label))
            repaired += scheme != 'iob1' and prefix in 'IEL'
        # What was left open by B or I where the scheme says how a span ends.
        repaired += scheme == 'bioes' and before in 'BI' and not goes_on
        before = prefix
        open_label = None if prefix in 'OESLU' else label
    repaired += scheme == 'bioes' and before in 'BI'
    return found, repaired


def write(found: list[tuple[int, int, str]], num_words: int, scheme: str) -> tuple[str, ...]:
    """The tags of spans that do not overlap, in 'bio' or 'bioes'."""
    if scheme not in ('bio', 'bioes'):
        raise unknown('data.tags_as', scheme, ('bio', 'bioes'))
    tags = ['O'] * num_words
    for start, end, label in found:
        tags[start:end] = [f'I-{label}'] * (end - start)
        tags[start] = f'B-{label}'
        if scheme == 'bioes':
            tags[end - 1] = f'{"S" if end - start == 1 else "E"}-{label}'
    return tuple(tags)


def converted(tags: list[str], scheme: str, written: str) -> tuple[tuple[str, ...], int]:
    """Tags of one scheme in another, and how many had to be repaired; scheme 'none': as they are.

    Raises:
        UserError: an unknown scheme, a tag that is not of the scheme.
    """
    if scheme not in SCHEMES:
        raise unknown('data.scheme', scheme, SCHEMES)
    if scheme == 'none':
        return tuple(tags), 0
    found, repaired = spans(tags, scheme)
    return write(found, len(tags), written), repaired


def _parse(tag: str, scheme: str) -> tuple[str, str | None]:
    if tag == 'O':
        return 'O', None
    prefix, dash, label = tag.partition('-')
    if not dash or not label or len(prefix) != 1 or prefix not in _PREFIXES[scheme]:
        raise UserError(
            f'unknown prefix of tag {tag!r}: data.scheme {scheme!r} knows O and '
            f'{", ".join(f"{known}-" for known in _PREFIXES[scheme])}; '
            "data.scheme='none' takes tags as they are"
        )
    return prefix, label
