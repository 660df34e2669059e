"""Dropout masks behave like independent coin flips."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.dropout import dropout, fold_in, weight_dropout

STREAMS, SIZE = 64, 4096


def masks(seeds, rate=0.5, shape=(SIZE,)):
    """bool [len(seeds), …]: which entries are dropped."""
    seeds = jnp.asarray(seeds, jnp.uint32)
    return np.asarray(dropout(jnp.ones((len(seeds), *shape)), rate, seeds) == 0)


def weight_masks(seeds, rate=0.5, shape=(2, 64, 96)):
    """bool [len(seeds), H, T, U]: which attention weights are dropped."""
    seeds = jnp.asarray(seeds, jnp.uint32)
    return np.asarray(weight_dropout(jnp.ones((len(seeds), *shape)), rate, seeds) == 0)


def largest_correlation(masks):
    """Over all pairs of streams, in standard deviations of independent coin flips."""
    signs = np.where(masks.reshape(len(masks), -1), 1.0, -1.0)
    products = signs @ signs.T / np.sqrt(signs.shape[1])
    return np.abs(products[~np.eye(len(masks), dtype=bool)]).max()


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.9, 0.001])
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_the_rate_and_the_scale_of_kept_entries_are_right(rate, dtype):
    x = jnp.full((8, 300, 400), 3, dtype)
    dropped = np.float32(dropout(x, rate, jnp.arange(8, dtype=jnp.uint32)))
    share = (dropped == 0).mean((1, 2))
    assert np.abs(share - rate).max() < 4 * np.sqrt(rate * (1 - rate) / 120_000)
    np.testing.assert_allclose(dropped[dropped > 0], 3 / (1 - rate), rtol=0.01)


def test_nothing_changes_without_seeds_or_rate():
    x = jnp.arange(6.0).reshape(2, 3)
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, jnp.zeros(2, jnp.uint32)) is x
    assert fold_in(None, 3) is None


SEED_SETS = {
    'neighboring': np.arange(STREAMS),
    'one_bit_apart': np.append(0, 1 << np.arange(32)),
    'multiples': np.arange(STREAMS) * SIZE,
    'examples_folded_alike': fold_in(jnp.arange(STREAMS, dtype=jnp.uint32), 3),
    'layers_of_one_example': [fold_in(jnp.uint32([5]), n)[0] for n in range(STREAMS)],
    'sites_in_layers': [
        fold_in(fold_in(jnp.uint32([9]), layer), site)[0]
        for layer in range(16)
        for site in range(4)
    ],
}


@pytest.mark.parametrize('name', SEED_SETS)
def test_streams_are_independent(name):
    drawn = masks(SEED_SETS[name])
    # At most 2,016 pairs: the largest of that many normal draws is below 4.8 (p < 0.004).
    assert largest_correlation(drawn) < 4.8
    # Nor is any stream a shifted copy of another.
    shifted = np.stack([np.roll(row, shift) for row in drawn[:3] for shift in range(1, 20)])
    assert largest_correlation(np.concatenate([shifted[::2], drawn[3:20]])) < 4.8


def test_positions_are_independent():
    rows = masks(np.arange(3), shape=(STREAMS, SIZE))
    for example in rows:
        assert largest_correlation(example) < 4.8
        assert largest_correlation(example.T[:STREAMS]) < 4.8 * 1.5
        neighbors = (example[:, 1:] == example[:, :-1]).mean()
        assert abs(neighbors - 0.5) < 4 * 0.5 / np.sqrt(example.size)


def test_every_seed_bit_moves_half_of_the_mask():
    base = np.uint32(0xDEADBEEF)
    drawn = masks(np.append(base, base ^ (np.uint32(1) << np.arange(32, dtype=np.uint32))))
    changed = (drawn[1:] != drawn[0]).mean(1)
    assert np.abs(changed - 0.5).max() < 4 * 0.5 / np.sqrt(SIZE)


def test_folded_seeds_hardly_collide():
    seeds = jnp.arange(1000, dtype=jnp.uint32)
    folded = np.stack([fold_in(seeds, number) for number in range(100)])
    expected = folded.size**2 / 2**33
    assert folded.size - len(np.unique(folded)) < 4 * expected + 5


def test_the_mask_of_an_example_does_not_depend_on_its_batch():
    seeds = jax.random.bits(jax.random.key(0), (6,))
    x = jax.random.normal(jax.random.key(1), (6, 5, 7))
    whole = dropout(x, 0.3, seeds)
    assert np.array_equal(whole[4:], dropout(x[4:], 0.3, seeds[4:]))


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.001])
def test_the_share_of_dropped_attention_weights_is_right(rate):
    masks = weight_masks(range(8), rate, (4, 128, 160))
    for axes in ((1, 2, 3), (0, 1, 2), (0, 1, 3), (0, 2, 3)):  # examples, keys, queries, heads
        count = masks.size / masks.mean(axes).size
        deviation = np.sqrt(rate * (1 - rate) / count)
        assert np.abs(masks.mean(axes) - rate).max() < 5 * deviation


@pytest.mark.parametrize('streams', ['examples', 'heads', 'queries', 'keys'])
def test_dropout_of_attention_weights_is_independent(streams):
    axis = ('examples', 'heads', 'queries', 'keys').index(streams)
    masks = np.moveaxis(weight_masks(range(32), shape=(32, 32, 64)), axis, 0)
    assert largest_correlation(masks) < 5
    # Keys 8 apart share a hash.
    signs = np.where(weight_masks(range(32)), 1.0, -1.0)
    for distance in (1, 2, 8, 16):
        products = signs[..., distance:] * signs[..., :-distance]
        assert np.abs(products.sum()) < 4.5 * np.sqrt(products.size)
