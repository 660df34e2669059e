"""The counter-based hash passes tests of randomness, and `permute` is a permutation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bert_jax import sampling

COUNTERS = np.arange(100_000)


def test_the_stream_of_random_bits_never_changes():
    # A different stream would silently change the data of a run that resumes with new code.
    bits = sampling.random_bits(sampling.key(7, 3), np.array([0, 1, 2**40]), lanes=2)
    assert bits.tolist() == [
        [3827544751006511609, 11012453653248285810, 14047114816987136966],
        [15783665320271523221, 268375950180033438, 15003867016643523682],
    ]
    permuted = sampling.permute(np.arange(8), 1000, sampling.key(7, 3))
    assert permuted.tolist() == [376, 533, 721, 725, 102, 545, 902, 282]


def test_bits_are_fair_and_independent():
    counters = np.arange(30_000)
    lanes = sampling.random_bits(sampling.key(1), counters, lanes=2)
    shift = np.arange(64, dtype=np.uint64)[:, None]
    bits = np.concatenate([lanes[0] >> shift & 1, lanes[1] >> shift & 1]).astype(np.float64)
    following = np.roll(bits, 1, axis=1)  # the neighboring counter
    correlation = np.corrcoef(np.concatenate([bits, following]))
    np.fill_diagonal(correlation, 0)
    bound = 5.5 / np.sqrt(counters.size)  # 5.5 standard deviations over 33,000 pairs
    assert np.abs(bits.mean(1) - 0.5).max() < bound / 2
    assert np.abs(correlation).max() < bound


def test_keys_depend_on_seed_parts_and_their_order():
    keys = [sampling.key(*parts) for parts in itertools.product(range(-20, 20), range(10))]
    assert len({int(key[0]) for key in keys}) == 400
    array = sampling.key(5, np.arange(10))
    assert [int(key) for key in array] == [int(sampling.key(5, part)[0]) for part in range(10)]


def test_uniform_and_integers_are_uniform():
    bits = sampling.random_bits(sampling.key(2), COUNTERS, lanes=2)
    assert stats.kstest(sampling.uniform(bits[0]), 'uniform').pvalue > 1e-4
    drawn = sampling.integers(bits[1], 7)
    assert drawn.dtype == np.int64
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-4
    bounds = COUNTERS % 13 + 1
    assert (sampling.integers(bits[1], bounds) < bounds).all()


@pytest.mark.parametrize('count', [1, 5, 63, 64, 65, 200])
def test_fair_coins_are_binomial(count):
    bits = sampling.random_bits(sampling.key(3), COUNTERS, lanes=1)[0]
    heads = sampling.fair_coins(bits, np.full(COUNTERS.shape, count))
    expected = stats.binom(count, 0.5).pmf(np.arange(count + 1)) * COUNTERS.size
    rare = expected < 10
    observed = np.bincount(heads, minlength=count + 1)
    observed = np.append(observed[~rare], observed[rare].sum() + 1)
    expected = np.append(expected[~rare], expected[rare].sum() + 1)
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_fair_coins_of_different_counts():
    bits = sampling.random_bits(sampling.key(4), COUNTERS, lanes=1)[0]
    counts = COUNTERS % 300
    heads = sampling.fair_coins(bits, counts)
    assert ((heads >= 0) & (heads <= counts)).all()
    assert (heads[counts == 0] == 0).all()
    z = (heads - counts / 2)[counts > 0] / np.sqrt(counts[counts > 0] / 4)
    assert abs(z.mean()) < 0.02
    assert abs(z.var() - 1) < 0.03


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
def test_permute_is_a_bijection(size, seed):
    permuted = sampling.permute(np.arange(size), size, sampling.key(seed))
    assert np.array_equal(np.sort(permuted), np.arange(size))


@pytest.mark.parametrize('size', [2**31 - 1, 10**10 + 19, 2**40])
def test_permute_of_very_large_sets(size):
    index = np.concatenate([np.arange(50_000), np.arange(size - 50_000, size)])
    permuted = sampling.permute(index, size, sampling.key(5))
    assert permuted.min() >= 0
    assert permuted.max() < size
    assert len(np.unique(permuted)) == len(index)
    assert stats.kstest(permuted / size, 'uniform').pvalue > 1e-4


def test_permute_with_a_key_for_each_index():
    keys = sampling.key(6, np.arange(50) // 10)
    permuted = sampling.permute(np.arange(50) % 10, 10, keys)
    for epoch, part in enumerate(permuted.reshape(5, 10)):
        alone = sampling.permute(np.arange(10), 10, sampling.key(6, epoch))
        assert np.array_equal(part, alone)


@pytest.mark.parametrize('size', [4, 12, 100])
def test_permutations_of_many_keys_are_uniform(size):
    keys = sampling.key(7, np.arange(20_000))
    first = sampling.permute(np.zeros(20_000, np.int64), size, keys)
    second = sampling.permute(np.ones(20_000, np.int64), size, keys)
    assert stats.chisquare(np.bincount(first, minlength=size)).pvalue > 1e-4
    if size < 100:
        together = np.bincount(first * size + second, minlength=size**2).reshape(size, size)
        assert stats.chisquare(together[~np.eye(size, dtype=bool)]).pvalue > 1e-4


def test_several_sets_are_permuted_as_if_alone():
    sizes = [1, 2, 3, 48, 49, 50, 10_000, 2**40 + 1]
    keys = sampling.key(0, np.arange(len(sizes)))
    index = [np.arange(min(size, 300)) for size in sizes]
    counts = [len(numbers) for numbers in index]
    together = sampling.permute(
        np.concatenate(index), np.repeat(sizes, counts), np.repeat(keys, counts)
    )
    alone = [sampling.permute(*one) for one in zip(index, sizes, keys, strict=True)]
    assert np.array_equal(together, np.concatenate(alone))
