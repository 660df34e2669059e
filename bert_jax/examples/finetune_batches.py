"""Fine-tuning batches: a fixed number of items, packed into rows of one static shape.

An item is one sequence, or several that stay in the same row (the choices of a question). Short
items share a row and cannot attend to each other, as in examples/packing.py, so training and
evaluation use one shape each with little padding.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from bert_jax.examples.batch_orders import BatchOrder
from bert_jax.examples.example_source import ranges
from bert_jax.examples.packing import RowPacking, best_fit

_MIN_EVALUATION_SLOTS = 16  # per row
_PLANNED_STEPS = 4096  # steps whose rows are computed at once


class TokenSequence(NamedTuple):
    """A sequence of n tokens, with fields per token and per sequence.

    Attributes:
        ids: int32 [n], special tokens included.
        token_type_ids: int32 [n].
        tokens: Fields with a value per token, [n, …]; padding is 0. They must not hold positions,
            which packing would shift.
        values: Fields with one value for the sequence, a number or a small array.
    """

    ids: np.ndarray
    token_type_ids: np.ndarray
    tokens: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray | np.number | float | int]


Item: TypeAlias = tuple[TokenSequence, ...]


class BatchShape(NamedTuple):
    """Rows R, tokens per row T, and slots for sequences per row S."""

    rows: int
    length: int
    slots: int


class Items:
    """Many items, stored in flat arrays.

    Attributes:
        pad_id: Token id of padding.
        count_N: int64 [N], sequences of each item.
        length_N: int64 [N], tokens of each item.
    """

    def __init__(self, items: list[Item], pad_id: int):
        """Store the items; all sequences must have the same fields."""
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
        self._values = {}
        for name in sequences[0].tokens:
            self._tokens[name] = np.concatenate([sequence.tokens[name] for sequence in sequences])
        for name in sequences[0].values:
            self._values[name] = np.stack([sequence.values[name] for sequence in sequences])

    def __len__(self) -> int:
        return len(self.count_N)

    def batch(
        self, item_I: np.ndarray, row_I: np.ndarray, shape: BatchShape, is_numbered: bool = False
    ) -> dict[str, np.ndarray]:
        """Return a batch of I items; items of the same row keep their order.

        Args:
            item_I: Indices of the items.
            row_I: Row of each item.
            shape: Shape of the batch; the items of a row must fit.
            is_numbered: Whether to add item_number.

        Returns:
            input_ids, token_type_ids, attention_mask, segment_ids: int32 [R, T]; segment_ids is
                1, 2, … for the sequences of a row and 0 for padding.
            first_positions: int32 [R, S], first token of each sequence, −1 for empty slots.
            The fields per token [R, T, …] and per sequence [R, S, …].
            item_number: int32 [R, S], the place of each sequence's item in item_I + 1, or 0 for
                empty slots.
        """
        order_I = np.argsort(row_I, kind='stable')
        count_I = self.count_N[item_I[order_I]]
        sequence_E = np.repeat(self._first_N[item_I[order_I]], count_I) + ranges(count_I)
        row_E = np.repeat(row_I[order_I], count_I)
        rows = RowPacking(row_E, self._start_E[sequence_E], self._length_E[sequence_E], shape)
        batch = rows.indices()
        for name, flat in self._tokens.items():
            batch[name] = rows.tokens(flat, self.pad_id if name == 'input_ids' else 0)
        for name, flat in self._values.items():
            batch[name] = rows.values(flat[sequence_E])
        if is_numbered:
            batch['item_number'] = rows.values(np.repeat(order_I + 1, count_I).astype(np.int32))
        return batch


@dataclasses.dataclass(frozen=True, eq=False)
class TrainBatches:
    """Batches of groups of items; every group occurs once per epoch.

    A group is an item, or several, such as the texts of a pair: they are in the same batch, in any
    of its rows. All batches have as many rows as the fullest batch of the run needs. An order is
    best if groups of similar length are in different batches; all batches then need about as many
    rows.

    Attributes:
        items: Training items.
        order: The order of the groups in every epoch, and their number in a batch.
        shape: Shape of all batches.
        group_size: Items of a group, which follow each other in `items`; batches then number
            their items. None: every item is a group.
    """

    items: Items
    order: BatchOrder
    shape: BatchShape
    group_size: int | None = None

    @classmethod
    def plan(
        cls,
        items: Items,
        order: BatchOrder,
        length: int,
        steps: int,
        multiple: int = 1,
        group_size: int | None = None,
    ) -> 'TrainBatches':
        """Plan the batches of a run.

        Args:
            items: Training items.
            order: See the attribute.
            length: Tokens per row, T.
            steps: Steps of the run.
            multiple: The number of rows is rounded up to a multiple of this.
            group_size: See the attribute.
        """
        rows, slots = 1, 1
        batches = cls(items, order, BatchShape(rows, length, slots), group_size)
        for first in range(0, steps, _PLANNED_STEPS):
            item_GI = batches._batch_items(np.arange(first, min(first + _PLANNED_STEPS, steps)))
            row_GI = batches._first_fit_decreasing(item_GI)
            rows = max(rows, row_GI.max() + 1)
            flat_row_X = (np.arange(len(row_GI))[:, None] * rows + row_GI).ravel()
            slots = max(slots, np.bincount(flat_row_X, items.count_N[item_GI].ravel()).max())
        rows = -(-rows // multiple) * multiple
        return batches.with_shape(BatchShape(int(rows), length, int(slots)))

    @staticmethod
    def group_lengths(items: Items, group_size: int) -> np.ndarray:
        """Return the tokens of each group of items, int64 [N]."""
        lengths_N: np.ndarray = items.length_N.reshape(-1, group_size).sum(1)
        return lengths_N

    @property
    def batch_size(self) -> int:
        """Rows of a batch, R."""
        return self.shape.rows

    def with_shape(self, shape: BatchShape) -> 'TrainBatches':
        """Return these batches with more rows or slots, as padding."""
        return dataclasses.replace(self, shape=shape)

    @functools.cached_property
    def _epoch_order(self) -> Callable[[int], np.ndarray]:
        return functools.lru_cache(maxsize=2)(self.order.epoch)

    def batch(
        self, step: int | np.ndarray, rows: slice | np.ndarray = slice(None)
    ) -> dict[str, np.ndarray]:
        """Return these rows of the batch of a step.

        Args:
            step: Number of the step; or several, int [G], for arrays [G, R, …].
            rows: Rows of the global batch.

        Returns:
            See `Items.batch`; and example_index, int32 [R], the number of the row in the batch.
                Dropout is drawn from example_index, so it must not depend on R, which depends on
                the number of devices. For groups, also item_number, int32 [R, S]: item j of group
                g of the batch has the number g · group_size + j + 1; empty slots have 0.
        """
        if np.ndim(step):
            batches = [self.batch(int(number), rows) for number in np.asarray(step)]
            return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
        item_GI = self._batch_items(np.array([step]))
        (row_I,) = self._first_fit_decreasing(item_GI)
        batch = self.items.batch(item_GI[0], row_I, self.shape, self.group_size is not None)
        batch['example_index'] = np.arange(self.batch_size, dtype=np.int32)
        return {name: array[rows] for name, array in batch.items()}

    def num_tokens(self, steps: int) -> int:
        """Return the number of tokens, without padding, in the first `steps` batches."""
        return int(self.items.length_N[self._batch_items(np.arange(steps))].sum())

    def _batch_items(self, step_G: np.ndarray) -> np.ndarray:
        """The items of several batches: int64 [G, I], group by group."""
        size = self.order.batch_size
        number_GI = step_G[:, None] * size + np.arange(size)
        epoch_GI, position_GI = np.divmod(number_GI, self.order.size)
        group_GI = np.empty_like(number_GI)
        for epoch in np.unique(epoch_GI):
            is_in_epoch = epoch_GI == epoch
            group_GI[is_in_epoch] = self._epoch_order(int(epoch))[position_GI[is_in_epoch]]
        group_size = self.group_size or 1
        item_GIJ = group_GI[..., None] * group_size + np.arange(group_size)
        return item_GIJ.reshape(len(step_G), -1)

    def _first_fit_decreasing(self, item_GI: np.ndarray) -> np.ndarray:
        """The row of each item: int64 [G, I]."""
        length_GI = self.items.length_N[item_GI]
        space_GR = np.full(item_GI.shape, self.shape.length)
        row_GI = np.empty_like(item_GI)
        batches = np.arange(len(item_GI))
        for place_G in np.argsort(-length_GI, axis=1, kind='stable').T:
            length_G = length_GI[batches, place_G]
            row_G = (space_GR >= length_G[:, None]).argmax(axis=1)
            space_GR[batches, row_G] -= length_G
            row_GI[batches, place_G] = row_G
        return row_GI


class PlacedItem(NamedTuple):
    """The place of an item in a batch: its row and the slots of its sequences."""

    item: int
    row: int
    slots: list[int]


def evaluation_batches(
    items: Items, shape: BatchShape
) -> Iterator[tuple[dict[str, np.ndarray], list[PlacedItem]]]:
    """Pack all items best-fit decreasing into batches of one shape.

    Yields:
        A batch (see `Items.batch`) and the places of its items.
    """
    max_items = max(1, shape.slots // int(items.count_N.max()))
    waiting = collections.defaultdict(list)
    for item in reversed(range(len(items))):
        waiting[int(items.length_N[item])].append(item)
    patterns = best_fit(np.bincount(items.length_N), shape.length, max_items).elements()
    packed_rows = [[waiting[length].pop() for length in pattern] for pattern in patterns]
    for start in range(0, len(packed_rows), shape.rows):
        rows = packed_rows[start : start + shape.rows]
        placed = []
        for number, row in enumerate(rows):
            free_slots = iter(range(shape.slots))
            for item in row:
                slots = list(itertools.islice(free_slots, int(items.count_N[item])))
                placed.append(PlacedItem(item, number, slots))
        item_I, row_I = np.array([(place.item, place.row) for place in placed]).T
        yield items.batch(item_I, row_I, shape), placed


def evaluation_slots(items: Items, shape: BatchShape) -> int:
    """Return the slots per row for evaluation: enough for any item and for many short ones."""
    most = shape.length // int(items.length_N.min()) * int(items.count_N.max())
    return max(min(_MIN_EVALUATION_SLOTS, most), shape.slots, int(items.count_N.max()))


def unpack_outputs(
    batch: Mapping[str, np.ndarray],
    slots: Mapping[str, np.ndarray],
    tokens: Mapping[str, np.ndarray],
    placed: PlacedItem,
) -> list[dict[str, np.ndarray]]:
    """Return the outputs for each sequence of an item.

    Args:
        batch: The batch, with segment_ids.
        slots: Outputs per sequence, [R, S, …].
        tokens: Outputs per token, [R, T, …].
        placed: Where the item is in the batch.

    Returns:
        For each sequence, its outputs per sequence, […], and per token, [n, …].
    """
    outputs = []
    for slot in placed.slots:
        is_inside_T = batch['segment_ids'][placed.row] == slot + 1
        values = {name: array[placed.row, slot] for name, array in slots.items()}
        outputs.append(values | {k: array[placed.row, is_inside_T] for k, array in tokens.items()})
    return outputs


def row_length(longest: int, max_length: int) -> int:
    """Return the length of rows in which to pack items, a multiple of 64 if possible.

    Rows have space for several short items, but are not longer than the model's maximum.

    Args:
        longest: Tokens of the longest item.
        max_length: Longest sequence the model takes, in tokens.
    """
    wanted = max(longest, min(2 * longest, 128))
    return max(longest, min(-(-wanted // 64) * 64, max_length))
