"""Items are packed into batches of one shape: none is lost or changed, with little padding."""

import numpy as np
import pytest

from bert_jax.examples.batch_orders import Stratified
from bert_jax.examples.finetune_batches import (
    BatchShape,
    Items,
    TokenSequence,
    TrainBatches,
    evaluation_batches,
    evaluation_slots,
    row_length,
    unpack_outputs,
)

PAD = 9


def make(lengths, choices=1) -> Items:
    """Items whose token ids identify them: 1000 · item + 100 · sequence + position."""

    def sequence(item, number, length):
        ids = (1000 * item + 100 * number + np.arange(length)).astype(np.int32)
        fields = {'wide': np.stack([ids, -ids], axis=1)}
        return TokenSequence(ids, np.full(length, number, np.int32), fields, {'label': item + 1})

    return Items(
        [tuple(sequence(i, c, n) for c in range(choices)) for i, n in enumerate(lengths)], PAD
    )


def batches(items, num_items, length, steps, seed, multiple=1) -> TrainBatches:
    order = Stratified(items.length_N, num_items, seed)
    return TrainBatches.plan(items, order, length, steps, multiple)


def test_rows_are_numbered_alike_whatever_their_number_is_rounded_to():
    """Dropout is drawn from these numbers, and the rounding depends on the devices."""
    items = make([8] * 20)
    one, eight = (batches(items, 5, 16, 4, seed=0, multiple=m).batch(3) for m in (1, 8))
    rows = len(one['input_ids'])
    assert rows < len(eight['input_ids']) == len(set(eight['example_index'])) == 8
    for name in ('input_ids', 'example_index'):
        np.testing.assert_array_equal(one[name], eight[name][:rows])


@pytest.fixture(scope='module')
def lengths():
    return np.random.default_rng(0).geometric(0.08, size=300).clip(2, 60)


def sequences_of(batch):
    """Yield (ids, types, wide, label) of every sequence, by segment ids and first positions."""
    for row, firsts in enumerate(batch['first_positions']):
        for slot, first in enumerate(firsts):
            if first < 0:
                assert batch['label'][row, slot] == 0
                continue
            here = np.flatnonzero(batch['segment_ids'][row] == slot + 1)
            assert here[0] == first
            assert np.all(np.diff(here) == 1)
            assert np.all(batch['attention_mask'][row, here] == 1)
            yield tuple(
                batch[name][row, here] for name in ('input_ids', 'token_type_ids', 'wide')
            ) + (batch['label'][row, slot],)


def check(batch, lengths, choices=1) -> list[int]:
    """The items of a batch; checks that each is complete and in one place."""
    found = []
    for ids, types, wide, label in sequences_of(batch):
        item, number = label - 1, types[0]
        expected = 1000 * item + 100 * number + np.arange(lengths[item])
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(wide, np.stack([expected, -expected], axis=1))
        assert number == len(found) % choices
        found.append(item)
    padding = batch['segment_ids'] == 0
    assert np.all(batch['input_ids'][padding] == PAD)
    assert not batch['attention_mask'][padding].any()
    assert not batch['wide'][padding].any()
    return found[::choices]


def test_every_item_occurs_once_per_epoch(lengths):
    source = batches(make(lengths), 32, 64, steps=30, seed=3)
    seen = np.concatenate([check(source.batch(step), lengths) for step in range(30)])
    assert len(seen) == 960
    for epoch in range(3):  # 300 items: batches reach over the ends of epochs
        first, stop = -(-300 * epoch // 32), 300 * (epoch + 1) // 32
        own = seen[first * 32 : stop * 32]
        assert len(set(own)) == len(own)
    assert np.bincount(seen[:900], minlength=300).sum() == 900
    assert np.bincount(seen, minlength=300).min() >= 3


def test_epochs_and_seeds_differ(lengths):
    def labels(seed, step):
        return batches(make(lengths), 30, 64, 20, seed).batch(step)['label'].tolist()

    assert labels(0, 1) == labels(0, 1)
    assert labels(0, 1) != labels(1, 1)
    assert labels(0, 1) != labels(0, 11)


def test_batches_are_functions_of_the_step(lengths):
    one, other = (batches(make(lengths), 32, 64, 30, seed=3) for _ in range(2))
    steps = np.array([25, 2])
    together = one.batch(steps, np.array([1, 3]))
    for number, step in enumerate(steps):
        for name, array in other.batch(step).items():
            np.testing.assert_array_equal(together[name][number], array[[1, 3]])


def test_rows_are_nearly_full_and_their_number_is_a_multiple(lengths):
    source = batches(make(lengths), 32, 128, steps=28, seed=0, multiple=2)
    assert source.shape.rows % 2 == 0
    filled = source.num_tokens(28) / (28 * source.shape.rows * 128)
    assert filled > 0.75, filled
    assert source.num_tokens(28) == sum(source.batch(s)['attention_mask'].sum() for s in range(28))


def test_the_sequences_of_an_item_share_a_row():
    lengths = np.random.default_rng(1).integers(3, 12, size=50)
    source = batches(make(lengths, choices=3), 8, 40, steps=12, seed=0)
    for step in range(12):
        batch = source.batch(step)
        assert len(check(batch, lengths, choices=3)) == 8
        for labels in batch['label']:
            counts = np.bincount(labels)[1:]
            assert set(counts[counts > 0]) <= {3}


def test_evaluation_outputs_are_assigned_to_their_items(lengths):
    items = make(lengths, choices=2)
    shape = BatchShape(4, 128, 2)
    shape = shape._replace(slots=evaluation_slots(items, shape))
    found = {}
    for batch, places in evaluation_batches(items, shape):
        assert batch['input_ids'].shape == (4, 128)
        slots, tokens = {'label': batch['label']}, {'ids': batch['input_ids']}
        for placed in places:
            found[placed.item] = unpack_outputs(batch, slots, tokens, placed)
    assert sorted(found) == list(range(300))
    for item, parts in found.items():
        assert [part['label'] for part in parts] == [item + 1] * 2
        for number, part in enumerate(parts):
            expected = 1000 * item + 100 * number + np.arange(lengths[item])
            np.testing.assert_array_equal(part['ids'], expected)


def test_row_length():
    assert row_length(20, 512) == 64
    assert row_length(60, 512) == 128
    assert row_length(60, 64) == 64
    assert row_length(130, 512) == 192
    assert row_length(700, 512) == 700  # choices of one question, each no longer than 512
