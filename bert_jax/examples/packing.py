"""Packs several short examples into one row; segment ids keep them from attending to each other.

Examples are packed by length, once: a histogram of lengths gives a few hundred patterns such as
"917 rows of 60, 40 and 28 tokens" (Krell et al. 2021, arXiv 2107.02027). Which examples of these
lengths share a row, and the order of the rows, are drawn for every epoch, as a pure function of the
seed; every example occurs exactly once per epoch.
"""

import bisect
import collections
from collections.abc import Iterator

import numpy as np

from bert_jax import sampling
from bert_jax.examples.example_source import ExampleSource, ranges
from bert_jax.examples.text_example_source import TextExampleSource

_ROW_ORDER, _EXAMPLE_ORDER = 100, 101  # random streams that sources do not use
_MIN_AVERAGE_LENGTH = 8  # tokens; bounds the number of examples in a row
_SORTED_CHUNKS = 2**16  # chunks whose lengths are computed and sorted at once


class PackedRows(ExampleSource):
    """The examples of a source, packed best-fit decreasing into rows of its sequence length.

    The number of rows is at most 11/9 of the optimum plus 4 (Johnson et al. 1974), except for the
    limit of sequence_length // 8 examples per row, which fixes the shapes. Uses 8 bytes of memory
    per example, and 12 during construction.

    Attributes:
        batch_size: Rows of a global batch.
        num_examples: Rows of an epoch.
        max_examples: S, the maximum number of examples in a row.
    """

    def __init__(self, source: TextExampleSource, seed: int):
        self.batch_size, sequence_length = source.batch_size, source.sequence_length
        self.max_examples = max(1, sequence_length // _MIN_AVERAGE_LENGTH)
        self._source = source
        self._keys = [sampling.key(seed, stream) for stream in (_ROW_ORDER, _EXAMPLE_ORDER)]
        # Chunks sorted by length. The patterns number the chunks of each length; which chunk has
        # which number is permuted in every epoch.
        self._chunk_N, self._count_L = sort_by_length(source)
        self._first_L = np.cumsum(self._count_L) - self._count_L
        patterns = best_fit(self._count_L, sequence_length, self.max_examples)
        self._lengths_PS = np.zeros((len(patterns), self.max_examples), np.int64)
        self._slot_PS = np.full_like(self._lengths_PS, -1)
        next_L = self._first_L.copy()
        for pattern, (lengths, count) in enumerate(patterns.items()):
            for place, length in enumerate(lengths):
                self._lengths_PS[pattern, place] = length
                # The `count` rows of the pattern take as many successive chunks of this length, so
                # the first number is enough: row i takes number + i.
                self._slot_PS[pattern, place] = next_L[length]
                next_L[length] += count
        count_P = np.array(list(patterns.values()))
        self._end_P = np.cumsum(count_P)
        self._begin_P = self._end_P - count_P
        self.num_examples = int(self._end_P[-1])
        length_L = np.arange(sequence_length + 1)
        self._padding = self.num_examples * sequence_length - int(self._count_L @ length_L)

    def statistics(self) -> dict[str, int]:
        """Return the counts of the source, rows_per_epoch and padding_per_epoch.

        padding_per_epoch is in tokens. It does not include padding of examples that are shorter
        than their bound in `TextExampleSource.lengths`.
        """
        return self._source.statistics() | {
            'rows_per_epoch': self.num_examples,
            'padding_per_epoch': self._padding,
        }

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return the rows with these numbers: B rows of at most S examples.

        Returns:
            input_ids, token_type_ids, attention_mask: int32 [B, T], as the source makes them.
            segment_ids: int32 [B, T], 1, 2, … for the examples of a row, 0 for padding.
            first_positions: int32 [B, S], first token of each example, −1 for empty slots.
            The labels of the source: int32 [B, S], 0 for empty slots.
            example_index: int32 [B], number of the row modulo 2^31.
        """
        # 1. The row at each position of its epoch. Rows are numbered pattern by pattern.
        epoch_B, position_B = np.divmod(number_B, self.num_examples)
        order_B = sampling.fold(self._keys[0], epoch_B)
        row_B = sampling.permute(position_B, self.num_examples, order_B)
        # 2. The numbers of its chunks, by the pattern and by the place of the row among its rows.
        pattern_B = self._end_P.searchsorted(row_B, side='right')
        slot_BS = self._slot_PS[pattern_B]
        present_BS = slot_BS >= 0
        slot_BS += (row_B - self._begin_P[pattern_B])[:, None]
        slot_E, length_E = slot_BS[present_BS], self._lengths_PS[pattern_B][present_BS]
        # 3. The chunks that have these numbers in this epoch: those of one length change places
        # with each other alone, so the patterns of the first epoch fit all epochs.
        epoch_E = np.repeat(epoch_B, present_BS.sum(axis=1))
        first_E = self._first_L[length_E]
        order_E = sampling.fold(self._keys[1], epoch_E, length_E)
        nth_E = sampling.permute(slot_E - first_E, self._count_L[length_E], order_E)
        number_E = epoch_E * len(self._chunk_N) + slot_E
        examples = self._source.chunk_examples(number_E, self._chunk_N[first_E + nth_E])
        batch = pack(examples, present_BS, self._source.pad_id)
        return batch | {'example_index': (number_B % 2**31).astype(np.int32)}


def sort_by_length(source: TextExampleSource) -> tuple[np.ndarray, np.ndarray]:
    """Sort the chunks of an epoch by length, a part at a time to save memory.

    Returns:
        The chunks, shortest first, in a stable order: int64 [N].
        The number of chunks of each length: int64 [T + 1].
    """
    number, num_lengths = source.num_examples, source.sequence_length + 1
    parts = [slice(start, start + _SORTED_CHUNKS) for start in range(0, number, _SORTED_CHUNKS)]
    length_N = np.empty(number, np.uint32)
    count_PL = np.empty((len(parts), num_lengths), np.int64)
    for part, count_L in zip(parts, count_PL, strict=True):
        length_N[part] = source.lengths(np.arange(*part.indices(number)))
        count_L[:] = np.bincount(length_N[part], minlength=num_lengths)
    total_L = count_PL.sum(axis=0)
    chunk_N = np.empty(number, np.int64)
    next_L = np.cumsum(total_L) - total_L
    for part, count_L in zip(parts, count_PL, strict=True):
        place_N = np.repeat(next_L, count_L) + ranges(count_L)
        chunk_N[place_N] = part.start + np.argsort(length_N[part], kind='stable')
        next_L += count_L
    return chunk_N, total_L


def pack(
    examples: dict[str, np.ndarray], present_BS: np.ndarray, pad_id: int
) -> dict[str, np.ndarray]:
    """Pack E examples into rows, in order.

    Args:
        examples: Examples of a source: arrays [E, T], padded at the end, and labels [E].
        present_BS: bool [B, S], the slots to fill, from the left; the examples of a row must fit
            into T tokens.
        pad_id: Token id of padding.

    Returns:
        See `PackedRows.examples`, without example_index.
    """
    num_rows, slots = present_BS.shape
    length_E = examples['attention_mask'].sum(axis=1)
    sequence_length = examples['input_ids'].shape[1]
    start_E = np.arange(len(length_E)) * sequence_length
    row_E = np.nonzero(present_BS)[0]
    rows = RowPacking(row_E, start_E, length_E, (num_rows, sequence_length, slots))
    packed = rows.indices()
    for name, array in examples.items():
        if array.ndim == 2:
            packed[name] = rows.tokens(array.ravel(), pad_id if name == 'input_ids' else 0)
        elif name != 'example_index':
            packed[name] = rows.values(array)
    return packed


class RowPacking:
    """Copies E sequences from flat arrays into rows, side by side."""

    def __init__(
        self,
        row_E: np.ndarray,
        start_E: np.ndarray,
        length_E: np.ndarray,
        shape: tuple[int, int, int],
    ):
        """Compute where each token goes.

        Args:
            row_E: Row of each sequence, ascending.
            start_E: First token of each sequence in the flat arrays.
            length_E: Tokens of each sequence.
            shape: Rows R, tokens T and slots for sequences S of the result.
        """
        num_rows, row_length, _ = self._shape = shape
        self._row_E = row_E
        self._slot_E = ranges(np.bincount(row_E, minlength=num_rows))
        # Tokens before a sequence in its row: all before it, less those before the row's first one.
        total_E = np.cumsum(length_E) - length_E
        self._first_E = total_E - total_E[np.arange(len(row_E)) - self._slot_E]
        self._length_E = length_E
        within_X = ranges(length_E)
        self._source_X = np.repeat(start_E, length_E) + within_X
        self._target_X = np.repeat(row_E * row_length + self._first_E, length_E) + within_X

    def indices(self) -> dict[str, np.ndarray]:
        """Return segment_ids, int32 [R, T], and first_positions, int32 [R, S].

        segment_ids is 1, 2, … for the sequences of a row and 0 for padding; first_positions is
        the first token of each sequence, −1 for empty slots.
        """
        rows, length, slots = self._shape
        segment_ids = np.zeros(rows * length, np.int32)
        segment_ids[self._target_X] = np.repeat(self._slot_E + 1, self._length_E)
        first_positions = np.full((rows, slots), -1, np.int32)
        first_positions[self._row_E, self._slot_E] = self._first_E
        return {
            'segment_ids': segment_ids.reshape(rows, length),
            'first_positions': first_positions,
        }

    def tokens(self, flat: np.ndarray, padding: int) -> np.ndarray:
        """Copy values per token, [tokens, …], into an array [R, T, …]."""
        rows, length, _ = self._shape
        packed = np.full((rows * length, *flat.shape[1:]), padding, flat.dtype)
        packed[self._target_X] = flat[self._source_X]
        return packed.reshape(rows, length, *flat.shape[1:])

    def values(self, value_E: np.ndarray) -> np.ndarray:
        """Copy values per sequence, [E, …], into an array [R, S, …]; empty slots are 0."""
        rows, _, slots = self._shape
        packed = np.zeros((rows, slots, *value_E.shape[1:]), value_E.dtype)
        packed[self._row_E, self._slot_E] = value_E
        return packed


def best_fit(
    count_L: np.ndarray, row_length: int, max_sequences: int
) -> collections.Counter[tuple[int, ...]]:
    """Pack sequences into rows by their lengths, best-fit decreasing.

    Sequences are placed longest first, each in the fullest row that can take it. Sequences of
    equal length are placed together: after the first, its row is still the fullest one.

    Args:
        count_L: Number of sequences of each length.
        row_length: Tokens that fit into a row.
        max_sequences: Sequences that fit into a row.

    Returns:
        Pattern → number of rows; a pattern is the lengths of a row's sequences, longest first.
    """
    full_rows: collections.Counter[tuple[int, ...]] = collections.Counter()
    rows_by_space: dict[int, collections.Counter[tuple[int, ...]]] = {}
    spaces: list[int] = []  # the keys of rows_by_space, ascending
    for length in np.flatnonzero(count_L)[::-1].tolist():
        number = int(count_L[length])
        # Collected and added below: a row that has just got this length must not get it again.
        placed = []  # (space left, pattern, rows)
        for space in spaces[bisect.bisect_left(spaces, length) :]:
            for pattern in list(rows_by_space[space]):
                fit = min(space // length, max_sequences - len(pattern))
                for copies, rows in _distribute(number, fit, rows_by_space[space][pattern]):
                    rows_by_space[space][pattern] -= rows
                    placed.append((space - copies * length, (*pattern, *[length] * copies), rows))
                    number -= copies * rows
        fit = min(row_length // length, max_sequences)
        for copies, rows in _distribute(number, fit, number):
            placed.append((row_length - copies * length, (length,) * copies, rows))
        for space, pattern, rows in placed:
            if space == 0 or len(pattern) == max_sequences:
                full_rows[pattern] += rows
            else:
                rows_by_space.setdefault(space, collections.Counter())[pattern] += rows
        rows_by_space = {space: +rows for space, rows in rows_by_space.items() if +rows}
        spaces = sorted(rows_by_space)
    return sum(rows_by_space.values(), full_rows)


def _distribute(number: int, fit: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield (sequences per row, rows) if `number` sequences fill `rows` rows of `fit` each."""
    full = min(number // fit, rows)
    if full:
        yield fit, full
    if full < rows and number % fit:
        yield number - full * fit, 1
