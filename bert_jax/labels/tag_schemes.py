"""Conversion between spans and word tags in IOB1, BIO (= IOB2) and BIOES (= BILOU)."""

from collections.abc import Collection, Sequence

from bert_jax.errors import UserError

_PREFIXES = {'bio': 'BI', 'iob1': 'BI', 'bioes': 'BIESLU'}
SCHEMES = (*_PREFIXES, 'none')

WordSpan = tuple[int, int, str]  # first word, last word + 1, label


def tags_to_spans(tags: Sequence[str], scheme: str) -> tuple[list[WordSpan], int]:
    """Return the spans that tags describe.

    A tag that violates the scheme starts a new span, as in conlleval.

    Returns:
        (first word, last word + 1, label) of each span, and the number of violations.

    Raises:
        UserError: a prefix is not in the scheme.
    """
    spans: list[WordSpan] = []
    violations = 0
    previous, open_label = 'O', None
    for number, tag in enumerate(tags):
        prefix, label = _parse(tag, scheme)
        continues = label is not None and label == open_label and prefix in 'IEL'
        if continues and label is not None:
            start, _, _ = spans.pop()
            spans.append((start, number + 1, label))
        elif label is not None:
            spans.append((number, number + 1, label))
            violations += scheme != 'iob1' and prefix in 'IEL'
        # BIOES marks the last word, so B or I must not be the end of a span.
        violations += scheme == 'bioes' and previous in 'BI' and not continues
        previous = prefix
        open_label = None if prefix in 'OESLU' else label
    violations += scheme == 'bioes' and previous in 'BI'
    return spans, violations


def spans_to_tags(spans: Sequence[WordSpan], num_words: int, scheme: str) -> tuple[str, ...]:
    """Return the tags of spans that do not overlap, in scheme 'bio' or 'bioes'."""
    tags = ['O'] * num_words
    for start, end, label in spans:
        tags[start:end] = [f'I-{label}'] * (end - start)
        tags[start] = f'B-{label}'
        if scheme == 'bioes':
            tags[end - 1] = f'{"S" if end - start == 1 else "E"}-{label}'
    return tuple(tags)


def convert_tags(tags: Sequence[str], scheme: str, target: str) -> tuple[tuple[str, ...], int]:
    """Convert tags from `scheme` to `target`; with scheme 'none', tags are not converted.

    Returns:
        The tags and the number of violations that were repaired.

    Raises:
        UserError: a prefix that is not in the scheme.
    """
    if scheme == 'none':
        return tuple(tags), 0
    spans, violations = tags_to_spans(tags, scheme)
    return spans_to_tags(spans, len(tags), target), violations


def complete(tags: Collection[str]) -> set[str]:
    """Add the missing tags of a BIO or BIOES tag set, such as I-x and O if it has B-x.

    A tag set with I-x alone is complete.
    """
    inside = {tag for tag in tags if tag != 'O'}
    prefixes = {tag[:2] for tag in inside}
    if prefixes <= {'I-'} or not prefixes <= {'B-', 'I-', 'E-', 'S-'}:
        return set(tags)
    used = 'BIES' if prefixes & {'E-', 'S-'} else 'BI'
    return {'O'} | {f'{prefix}-{tag[2:]}' for tag in inside for prefix in used}


def _parse(tag: str, scheme: str) -> tuple[str, str | None]:
    if tag == 'O':
        return 'O', None
    prefix, dash, label = tag.partition('-')
    if not dash or not label or len(prefix) != 1 or prefix not in _PREFIXES[scheme]:
        known = ', '.join(f'{prefix}-' for prefix in _PREFIXES[scheme])
        raise UserError(
            f'tag {tag[:40]!r} is not valid in data.scheme={scheme!r}, which has O and {known}; '
            "set data.scheme, or 'none' to use the tags as they are"
        )
    return prefix, label
