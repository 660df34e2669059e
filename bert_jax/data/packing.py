"""Several short examples in one row, each for itself: the encoder keeps them apart by segment_ids.

The examples of an epoch are packed once, by their lengths: a histogram of lengths gives a few
hundred patterns ('a row of 60 and 40 and 28 tokens, 917 times'), after Krell et al. 2021
(arXiv 2107.02027). Which examples of the right lengths meet in a row, and the order of the rows,
are drawn anew in every epoch, statelessly; each example comes exactly once.
"""

import bisect
import collections

import numpy as np

from bert_jax.data import sampling
from bert_jax.data.example_source import Examples
from bert_jax.data.sentence_pairs import TextExamples

_ROW_ORDER, _EXAMPLE_ORDER = 100, 101  # purposes of random draws, beside those of the source
_LEAST = 8  # tokens an example of a full row has on average at least


class PackedRows(Examples):
    """The examples of a source, packed best-fit decreasing into rows of its sequence length.

    Rows are at most 11/9 of the fewest possible, and 4 more (Johnson et al. 1974), but for the
    limit of max_examples = sequence_length // 8 examples in a row, which keeps shapes fixed; see
    `statistics` for the padding that is left. Uses 8 bytes of memory an example.

    Attributes:
      num_examples: rows of an epoch.
      max_examples: S, the most examples in a row.
    """

    def __init__(self, source: TextExamples, seed: int):
        self.batch_size, sequence_length = source.batch_size, source.sequence_length
        self.max_examples = max(1, sequence_length // _LEAST)
        self._source = source
        self._keys = [sampling.key(seed, purpose) for purpose in (_ROW_ORDER, _EXAMPLE_ORDER)]
        length_N = source.lengths()
        # The chunks by length. Slot k of a length is for the k-th of its chunks, permuted.
        self._chunk_N = np.argsort(length_N, kind='stable')
        self._count_L = np.bincount(length_N, minlength=sequence_length + 1)
        self._first_L = np.cumsum(self._count_L) - self._count_L
        patterns = best_fit(self._count_L, sequence_length, self.max_examples)
        self._lengths_PS = np.zeros((len(patterns), self.max_examples), np.int64)
        self._slot_PS = np.full_like(self._lengths_PS, -1)
        next_L = self._first_L.copy()
        for pattern, (lengths, count) in enumerate(patterns.items()):
            for place, length in enumerate(lengths):
                self._lengths_PS[pattern, place] = length
                self._slot_PS[pattern, place] = next_L[length]
                next_L[length] += count
        count_P = np.array(list(patterns.values()))
        self._end_P = np.cumsum(count_P)
        self._begin_P = self._end_P - count_P
        self.num_examples = int(self._end_P[-1])
        self._padding = self.num_examples * sequence_length - int(length_N.sum())

    def statistics(self) -> dict[str, int]:
        """The source's counts, and: rows_per_epoch; padding_per_epoch, tokens, not counting those
        that an example has less than its length (TextExamples.lengths)."""
        return self._source.statistics() | {
            'rows_per_epoch': self.num_examples,
            'padding_per_epoch': self._padding,
        }

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """The rows of these numbers, B of S examples at most:

        input_ids, token_type_ids, attention_mask int32 [B, T], as the source makes them;
        segment_ids int32 [B, T], 1 … for the examples of a row, 0 for padding;
        first_positions int32 [B, S], where each example begins, −1 where there is none;
        labels of the source int32 [B, S], 0 where there is none;
        example_index int32 [B], the row's number modulo 2^31.
        """
        epoch_B, position_B = np.divmod(number_B, self.num_examples)
        order_B = sampling.fold(self._keys[0], epoch_B)
        row_B = sampling.permute(position_B, self.num_examples, order_B)
        pattern_B = self._end_P.searchsorted(row_B, side='right')
        slot_BS = self._slot_PS[pattern_B]
        present_BS = slot_BS >= 0
        slot_BS += (row_B - self._begin_P[pattern_B])[:, None]
        slot_E, length_E = slot_BS[present_BS], self._lengths_PS[pattern_B][present_BS]
        epoch_E = np.repeat(epoch_B, present_BS.sum(axis=1))
        first_E = self._first_L[length_E]
        order_E = sampling.fold(self._keys[1], epoch_E, length_E)
        nth_E = sampling.permute(slot_E - first_E, self._count_L[length_E], order_E)
        number_E = epoch_E * len(self._chunk_N) + slot_E
        parts = self._source.cut(number_E, self._chunk_N[first_E + nth_E])
        batch = pack(parts, present_BS, self._source.pad_id)
        return batch | {'example_index': (number_B % 2**31).astype(np.int32)}


def pack(
    parts: dict[str, np.ndarray], present_BS: np.ndarray, pad_id: int
) -> dict[str, np.ndarray]:
    """Examples one after the other in rows: in row 0 as many as are present there, and so on.

    parts: as a source makes them, arrays [E, T] with the tokens in front, and labels [E]. Returns
    what PackedRows.examples does but for example_index; those together must fit into T.
    """
    shape_BT = len(present_BS), parts['input_ids'].shape[1]
    length_E = parts['attention_mask'].sum(axis=1)
    length_BS = np.zeros(present_BS.shape, np.int64)
    length_BS[present_BS] = length_E
    first_BS = np.cumsum(length_BS, axis=1) - length_BS
    row_E, nth_E = np.nonzero(present_BS)
    within_N = np.arange(length_E.sum()) - np.repeat(np.cumsum(length_E) - length_E, length_E)
    source_N = np.repeat(np.arange(len(length_E)) * shape_BT[1], length_E) + within_N
    start_E = row_E * shape_BT[1] + first_BS[present_BS]
    place_N = np.repeat(start_E, length_E) + within_N
    rows = {'segment_ids': np.zeros(shape_BT, np.int32)}
    rows['segment_ids'].ravel()[place_N] = np.repeat(nth_E + 1, length_E)
    rows['first_positions'] = np.where(present_BS, first_BS, -1).astype(np.int32)
    for name, array in parts.items():
        if array.ndim == 2:
            rows[name] = np.full(shape_BT, pad_id if name == 'input_ids' else 0, np.int32)
            rows[name].ravel()[place_N] = array.ravel()[source_N]
        elif name != 'example_index':
            rows[name] = np.zeros(present_BS.shape, np.int32)
            rows[name][present_BS] = array
    return rows


def best_fit(count_L: np.ndarray, room: int, most: int) -> dict[tuple[int, ...], int]:
    """{lengths of a row, longest first: number of such rows} for count_L[ℓ] pieces of length ℓ.

    Longest first, each piece goes to the fullest row that can take it (best-fit decreasing). Equal
    pieces are placed together: after the first, the row it went to is still the fullest one. No row
    gets more than `most` pieces, or more than `room` in length.
    """
    done, rows_by_left = collections.Counter(), collections.defaultdict(collections.Counter)
    lefts = []  # the keys of rows_by_left in order
    for length in np.flatnonzero(count_L)[::-1].tolist():
        number = int(count_L[length])
        placed = []
        for left in lefts[bisect.bisect_left(lefts, length) :]:
            for lengths in list(rows_by_left[left]):
                fit = min(left // length, most - len(lengths))
                for copies, count in _shares(number, fit, rows_by_left[left][lengths]):
                    rows_by_left[left][lengths] -= count
                    placed.append((left - copies * length, (*lengths, *[length] * copies), count))
                    number -= copies * count
        fit = min(room // length, most)
        for copies, count in _shares(number, fit, number):
            placed.append((room - copies * length, (length,) * copies, count))
        for left, lengths, count in placed:
            full = len(lengths) == most or left == 0
            (done if full else rows_by_left[left])[lengths] += count
        rows_by_left = collections.defaultdict(
            collections.Counter, {left: +rows for left, rows in rows_by_left.items() if +rows}
        )
        lefts = sorted(rows_by_left)
    for rows in rows_by_left.values():
        done += rows
    return dict(done)


def _shares(number: int, fit: int, rows: int):
    """How `number` pieces fill `rows` rows that take `fit` each: (pieces a row, rows)."""
    full = min(number // fit, rows)
    if full:
        yield fit, full
    if full < rows and number % fit:
        yield number - full * fit, 1
