"""Words in texts: where they are, their subwords, and pooling of the states of subwords."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.labels import word_spans
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.tokenizers import Tokenizer, alignment
from bert_jax.types import JsonView

POOLINGS = ('mean', 'sum', 'first')
Located = tuple[str, WordOffsets]  # a text, and the characters of its words or spans


class Aligned(NamedTuple):
    """The subwords of a text.

    Attributes:
        ids: int32 [N].
        ranges: int64 [W, 2], first and last + 1 subword of each word or span.
        split_points: number of subwords of a window → where windows may start and stop.
    """

    ids: np.ndarray
    ranges: np.ndarray
    split_points: Callable[[int], list[int]]


def locate(
    texts: Sequence[str | Sequence[str]], spans: Sequence[WordOffsets] | None, split: str
) -> list[Located]:
    """Find the words of texts; see `Predictor.embed_words`."""
    if split not in word_spans.SPLITTERS:
        raise unknown('way to split words', split, word_spans.SPLITTERS)
    if spans is not None and len(spans) != len(texts):
        raise UserError(
            f'texts has {len(texts)} entries, but spans has {len(spans)}; give a list of spans for '
            'each text'
        )
    located: list[Located] = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            words = word_spans.SPLITTERS[split](text) if spans is None else tuple(spans[index])
            located.append((text, words))
        elif (
            spans is not None
            or not isinstance(text, Sequence)
            or not all(isinstance(word, str) and word for word in text)
        ):
            expected = 'a string or a list of words' if spans is None else 'a string'
            raise UserError(f'text {index + 1} is {text!r:.40}, not {expected}')
        else:
            located.append(word_spans.join_words(list(text)))
    return located


def locate_record(record: JsonView, unit: str, split: str | None) -> Located:
    """Find the words or the spans of a JSON object.

    Args:
        record: 'words' (or 'tokens', or a 'text' to split) for words; 'text' and 'spans', lists
            of first character and end, for spans; 'id' names it in errors.
        unit: 'word' or 'span'.
        split: as for `Predictor.embed_words`; None: 'whitespace'.
    """
    text: Any = next((record[key] for key in ('words', 'tokens', 'text') if key in record), None)
    spans = record.get('spans') if unit == 'span' else None
    is_list = isinstance(spans, list) and all(
        isinstance(span, list) and [*map(type, span)] == [int, int] for span in spans
    )
    if unit == 'span' and not is_list:
        raise UserError(f'{record["id"]} has no "spans": a list of [start, end], in characters')
    spans_of_texts = None if spans is None else [tuple(map(tuple, spans))]
    try:
        (located,) = locate([text], spans_of_texts, split or 'whitespace')
        _disjoint(*located)
    except UserError as error:
        raise UserError(f'{record["id"]}: {error}') from None
    return located


def align(tokenizer: Tokenizer, text: str, spans: WordOffsets) -> Aligned:
    """Tokenize a text and find the subwords of spans, which may overlap and have any order.

    A subword that several disjoint spans touch belongs to the first of them; see
    `alignment.align`.

    Raises:
        UserError: a span is empty or outside the text.
    """
    parts = _disjoint(text, spans)
    aligned = alignment.align(tokenizer, text, parts)
    spans_W2 = np.array(spans, np.int64).reshape(-1, 2)
    starts_P, ends_P = np.array(parts, np.int64).reshape(-1, 2).T
    first_W = np.searchsorted(ends_P, spans_W2[:, 0], side='right')
    last_W = np.searchsorted(starts_P, spans_W2[:, 1]) - 1
    stops_P = aligned.first + aligned.count
    ranges_W2 = np.stack([aligned.first[first_W], stops_P[last_W]], axis=1)
    return Aligned(aligned.ids, ranges_W2, aligned.split_points)


def _disjoint(text: str, spans: WordOffsets) -> WordOffsets:
    """Split overlapping spans at all their ends into disjoint spans, in order, without blanks."""
    for start, end in spans:
        if not 0 <= start < end <= len(text) or not text[start:end].strip():
            raise UserError(
                f'span {start}:{end} is empty or outside the text of {len(text)} characters '
                f'({text[:40]!r})'
            )
    spans_W2 = np.array(spans, np.int64).reshape(-1, 2)
    bounds = np.unique(spans_W2)
    num_started = np.searchsorted(np.sort(spans_W2[:, 0]), bounds[:-1], side='right')
    num_ended = np.searchsorted(np.sort(spans_W2[:, 1]), bounds[:-1], side='right')
    is_inside = num_started > num_ended
    parts = zip(bounds[:-1][is_inside].tolist(), bounds[1:][is_inside].tolist(), strict=True)
    return tuple((start, end) for start, end in parts if text[start:end].strip())


def pool(states_NX: np.ndarray, ranges_W2: np.ndarray, pooling: str) -> np.ndarray:
    """The mean, sum or first of the states [N, …] of each range of subwords: float32 [W, …]."""
    if pooling == 'first' or not len(ranges_W2):
        return np.asarray(states_NX[ranges_W2[:, 0]])
    # Even sums are the sums of ranges; odd sums are of the subwords between two ranges.
    with_end_NX = np.concatenate([states_NX, np.zeros_like(states_NX[:1])])
    sums_WX = np.add.reduceat(with_end_NX, ranges_W2.reshape(-1))[::2]
    if pooling == 'sum':
        return sums_WX
    counts_W = (ranges_W2[:, 1] - ranges_W2[:, 0]).astype(np.float32)
    return np.asarray(sums_WX / np.expand_dims(counts_W, tuple(range(1, sums_WX.ndim))))


def pool_attention(weights_LHTT: np.ndarray, aligned: Aligned, start: int) -> np.ndarray:
    """Pool attention between tokens, [CLS] and [SEP] included, to words: float32 [L, H, W, W].

    The text starts at the token `start`.
    """
    inside = slice(start, start + len(aligned.ids))
    inner_TTLH = np.moveaxis(weights_LHTT[..., inside, inside], (2, 3), (0, 1))
    to_words_WTLH = pool(np.swapaxes(inner_TTLH, 0, 1), aligned.ranges, 'sum')
    between_WWLH = pool(np.swapaxes(to_words_WTLH, 0, 1), aligned.ranges, 'mean')
    return np.moveaxis(between_WWLH, (0, 1), (2, 3))
