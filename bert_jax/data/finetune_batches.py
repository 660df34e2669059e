"""Batches of a fixed number of items, packed into rows of one static shape.

An item is what is trained on or answered at once: one sequence, or several that stay in one row.
Short ones share a row, kept apart by segment_ids as in data/packing.py, so that training and
evaluation run in one shape each with little padding.
"""

import collections
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.data import sampling
from bert_jax.data.example_source import Examples
from bert_jax.data.packing import best_fit

_DEAL, _PLACE = 200, 201  # purposes of random draws
_MOST = 16  # sequences of a row in evaluation at most: fixes a shape
_STRATA = 32  # batches whose items are dealt out together


class Sequence(NamedTuple):
    """ids, token_type_ids: int32 [n], special tokens included. tokens: by field a value for every
    token, [n, …]; values: by field one for the whole sequence, a number or a small array. Padding
    of both is 0, and a field says nothing of positions, which packing would move."""

    ids: np.ndarray
    token_type_ids: np.ndarray
    tokens: dict[str, np.ndarray]
    values: dict[str, np.ndarray | float | int]


Item = tuple[Sequence, ...]


class Shape(NamedTuple):
    """Rows R, length T and slots for sequences S of a batch."""

    rows: int
    length: int
    slots: int


class Items:
    """Many items in flat arrays, to be put into rows."""

    def __init__(self, items: list[Item], pad_id: int):
        """All sequences must have the same fields."""
        sequences = [sequence for item in items for sequence in item]
        self.pad_id = pad_id
        self.count_N = np.array([len(item) for item in items], np.int64)
        self._first_N = np.cumsum(self.count_N) - self.count_N
        self._length_E = np.array([len(sequence.ids) for sequence in sequences], np.int64)
        self._start_E = np.cumsum(self._length_E) - self._length_E
        self.length_N = np.add.reduceat(self._length_E, self._first_N)
        self._tokens = {
            'input_ids': np.concatenate([sequence.ids for sequence in sequences]),
            'token_type_ids': np.concatenate([sequence.token_type_ids for sequence in sequences]),
            'attention_mask': np.ones(self._length_E.sum(), np.int32),
        }
        for name in sequences[0].tokens:
            self._tokens[name] = np.concatenate([own.tokens[name] for own in sequences])
        self._values = {
            name: np.stack([np.asarray(own.values[name]) for own in sequences])
            for name in sequences[0].values
        }

    def __len__(self) -> int:
        return len(self.count_N)

    def rows(self, item_I: np.ndarray, row_I: np.ndarray, shape: Shape) -> dict[str, np.ndarray]:
        """These items one after the other in the rows named, in their order there:

        input_ids, token_type_ids, attention_mask, segment_ids int32 [R, T], the latter 1 … for the
        sequences of a row and 0 for padding; first_positions int32 [R, S], where each begins, −1
        where there is none; the fields of the tokens [R, T, …] and of the values [R, S, …].
        """
        rows, length, slots = shape
        sequence_E, row_E = self._sequences(item_I, row_I)
        length_E = self._length_E[sequence_E]
        nth_E = _within(np.bincount(row_E, minlength=rows))
        filled_E = np.cumsum(length_E) - length_E
        first_E = filled_E - filled_E[np.arange(len(row_E)) - nth_E]
        within_X = _within(length_E)
        source_X = np.repeat(self._start_E[sequence_E], length_E) + within_X
        place_X = np.repeat(row_E * length + first_E, length_E) + within_X
        batch = {
            'segment_ids': np.zeros((rows, length), np.int32),
            'first_positions': np.full((rows, slots), -1, np.int32),
        }
        batch['segment_ids'].ravel()[place_X] = np.repeat(nth_E + 1, length_E)
        batch['first_positions'][row_E, nth_E] = first_E
        for name, flat in self._tokens.items():
            padding = self.pad_id if name == 'input_ids' else 0
            padded = np.full((rows * length, *flat.shape[1:]), padding, flat.dtype)
            padded[place_X] = flat[source_X]
            batch[name] = padded.reshape(rows, length, *flat.shape[1:])
        for name, flat in self._values.items():
            batch[name] = np.zeros((rows, slots, *flat.shape[1:]), flat.dtype)
            batch[name][row_E, nth_E] = flat[sequence_E]
        return batch

    def _sequences(self, item_I, row_I):
        """The sequences of items and the row of each, row by row."""
        order_I = np.argsort(row_I, kind='stable')
        count_I = self.count_N[item_I[order_I]]
        first_E = np.repeat(self._first_N[item_I[order_I]], count_I)
        return first_E + _within(count_I), np.repeat(row_I[order_I], count_I)


class TrainBatches(Examples):
    """Every batch has `num_items` items, each of which comes once an epoch; the number of rows is
    what the fullest batch of the run needs.

    An epoch is shuffled so that the items of near lengths go to different batches: all batches
    then need about the same room.

    Attributes:
      batch_size: rows of a batch, R, a multiple of `multiple`.
      num_examples: rows of an epoch, about.
      shape: of a batch.
    """

    def __init__(
        self, items: Items, num_items: int, length: int, steps: int, seed: int, multiple: int = 1
    ):
        self._items, self._num_items, self._length, self._seed = items, num_items, length, seed
        self._epochs = {}
        rows, slots = 1, 1
        for first in range(0, steps, 4096):
            item_GI = self._chosen(np.arange(first, min(first + 4096, steps)))
            row_GI = self._placed(item_GI)
            rows = max(rows, row_GI.max() + 1)
            slots = max(slots, _most_in_a_row(row_GI, items.count_N[item_GI]))
        rows = -(-rows // multiple) * multiple
        self.shape = Shape(int(rows), length, int(slots))
        self.batch_size = self.shape.rows
        self.num_examples = max(1, len(items) * self.batch_size // num_items)

    def batch(self, step, rows=slice(None)) -> dict[str, np.ndarray]:
        """These rows of the batch of a step, as Items.rows makes them, and example_index int32 [R],
        the row's number modulo 2^31; for an int array of steps [G] arrays [G, R, …]."""
        if np.ndim(step):
            batches = [self.batch(int(one), rows) for one in step]
            return {name: np.stack([own[name] for own in batches]) for name in batches[0]}
        item_GI = self._chosen(np.array([step]))
        (row_I,) = self._placed(item_GI)
        batch = self._items.rows(item_GI[0], row_I, self.shape)
        index_R = (int(step) * self.batch_size + np.arange(self.batch_size)) % 2**31
        batch['example_index'] = index_R.astype(np.int32)
        return {name: array[rows] for name, array in batch.items()}

    def tokens(self, steps: int) -> int:
        """Real tokens of the first `steps` batches."""
        return int(self._items.length_N[self._chosen(np.arange(steps))].sum())

    def _chosen(self, step_G: np.ndarray) -> np.ndarray:
        """int64 [G, I] items of batches."""
        number_GI = step_G[:, None] * self._num_items + np.arange(self._num_items)
        epoch_GI, position_GI = np.divmod(number_GI, len(self._items))
        item_GI = np.empty_like(number_GI)
        for epoch in np.unique(epoch_GI):
            of_it = epoch_GI == epoch
            item_GI[of_it] = self._epoch(int(epoch))[position_GI[of_it]]
        return item_GI

    def _epoch(self, epoch: int) -> np.ndarray:
        """The items in the order of an epoch."""
        if epoch not in self._epochs:
            order_N = _dealt(self._items.length_N, self._num_items, self._seed, epoch)
            self._epochs = {epoch: order_N} | {k: v for k, v in self._epochs.items() if k < epoch}
            self._epochs = dict(list(self._epochs.items())[:2])
        return self._epochs[epoch]

    def _placed(self, item_GI: np.ndarray) -> np.ndarray:
        """int64 [G, I]: the row of each item, first-fit decreasing."""
        length_GI = self._items.length_N[item_GI]
        left_GR = np.full(item_GI.shape, self._length)
        row_GI = np.empty_like(item_GI)
        batches = np.arange(len(item_GI))
        for place_G in np.argsort(-length_GI, axis=1, kind='stable').T:
            length_G = length_GI[batches, place_G]
            row_G = (left_GR >= length_G[:, None]).argmax(axis=1)
            left_GR[batches, row_G] -= length_G
            row_GI[batches, place_G] = row_G
        return row_GI


def _dealt(length_N: np.ndarray, num_items: int, seed: int, epoch: int) -> np.ndarray:
    """A shuffled order of items in which any num_items neighbors are of all lengths.

    Shuffled, then in stretches of _STRATA batches: sorted by length, the k longest each to another
    batch, and so on, and the order inside a batch shuffled again.
    """
    total = len(length_N)
    order_N = sampling.permute(np.arange(total), total, sampling.key(seed, epoch, _DEAL))
    random_N = sampling.random_bits(sampling.key(seed, epoch, _PLACE), np.arange(total), 2)
    stretch = _STRATA * num_items
    for start in range(0, total, stretch):
        own = order_N[start : start + stretch]
        batches = -(-len(own) // num_items)
        own = own[np.argsort(-length_N[own], kind='stable')]
        draw, again = random_N[:, start : start + len(own)]
        stratum = np.arange(len(own)) // batches
        own = own[np.lexsort((draw, stratum))]
        batch = np.arange(len(own)) % batches
        order_N[start : start + stretch] = own[np.lexsort((again, batch))]
    return order_N


def _most_in_a_row(row_GI: np.ndarray, count_GI: np.ndarray) -> int:
    """The most sequences in any row of any batch."""
    rows = row_GI.max() + 1
    flat = (np.arange(len(row_GI))[:, None] * rows + row_GI).ravel()
    return int(np.bincount(flat, count_GI.ravel()).max())


class Placed(NamedTuple):
    """Where the sequences of an item are in a batch: row, slots and their first positions."""

    item: int
    row: int
    slots: list[int]


def evaluation_batches(
    items: Items, shape: Shape
) -> Iterator[tuple[dict[str, np.ndarray], list[Placed]]]:
    """All items packed best-fit decreasing into batches of a shape, and where they are there."""
    most = max(1, shape.slots // int(items.count_N.max()))
    waiting = collections.defaultdict(list)
    for number in np.argsort(items.length_N, kind='stable')[::-1].tolist():
        waiting[int(items.length_N[number])].append(number)
    lengths = np.bincount(items.length_N, minlength=shape.length + 1)
    full_rows = [
        [waiting[length].pop() for length in pattern]
        for pattern, count in best_fit(lengths, shape.length, most).items()
        for _ in range(count)
    ]
    for start in range(0, len(full_rows), shape.rows):
        own = full_rows[start : start + shape.rows]
        item_I = np.array([item for row in own for item in row])
        row_I = np.repeat(np.arange(len(own)), [len(row) for row in own])
        yield items.rows(item_I, row_I, shape), list(_places(items, item_I, row_I))


def _places(items: Items, item_I: np.ndarray, row_I: np.ndarray) -> Iterator[Placed]:
    used = collections.Counter()
    for item, row in zip(item_I.tolist(), row_I.tolist(), strict=True):
        count = int(items.count_N[item])
        yield Placed(item, row, list(range(used[row], used[row] + count)))
        used[row] += count


def evaluation_slots(items: Items, shape: Shape) -> int:
    """Slots of a row for evaluation: enough for every item, and for several short ones."""
    return max(_MOST, shape.slots, int(items.count_N.max()))


def unpacked(batch, slots: dict, tokens: dict, placed: Placed) -> list[dict[str, np.ndarray]]:
    """Of each sequence of an item: what was computed for its slot and for its tokens [n, …]."""
    parts = []
    for slot in placed.slots:
        here_T = batch['segment_ids'][placed.row] == slot + 1
        own = {name: array[placed.row, slot] for name, array in slots.items()}
        parts.append(own | {name: array[placed.row][here_T] for name, array in tokens.items()})
    return parts


def row_length(longest: int, max_length: int) -> int:
    """A length for rows in which items of at most `longest` tokens are packed: some multiple of 64
    with room for several, and no more than a model takes."""
    wanted = max(longest, min(2 * longest, 128))
    return max(longest, min(-(-wanted // 64) * 64, max_length))


def _within(count_N: np.ndarray) -> np.ndarray:
    """0 … count − 1 for each of the counts, one after the other."""
    return np.arange(count_N.sum()) - np.repeat(np.cumsum(count_N) - count_N, count_N)
