"""A causal model that reads a text in parts, with a cache, computes what it computes at once."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.cache import Cache
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests.random_parameters import random_parameters

VOCAB, LENGTH = 40, 12
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=24,
    max_position_embeddings=LENGTH + 4,
)
ARCHITECTURES = {
    'bert': {},
    'roberta': {},
    'modernbert': {'windows': (None, 3, 2)},
    'mosaicbert': {},
    'albert': {},
    'eurobert': {'kv_heads': 1},
}
LENGTHS = np.array([LENGTH, 7, 3])  # of the texts, in one batch
IDS = np.random.default_rng(0).integers(3, VOCAB, (3, LENGTH), dtype=np.int32)
MASK = (np.arange(LENGTH) < LENGTHS[:, None]).astype(np.int32)


@functools.cache
def make(name):
    architecture = architectures.build(name, **SIZES | ARCHITECTURES.get(name, {}))
    model = Model(architecture, Compute(), {'clm': {}}, is_causal=True)
    params = random_parameters(model, Rows(IDS, MASK), deviation=0.3)
    return model, params


@functools.cache
def whole(name):
    model, params = make(name)
    return np.asarray(model.apply({'params': params}, Rows(IDS, MASK)).heads['clm'])


def read(name, parts, num_slots=LENGTH):
    """The logits of every token of the texts, read in parts of these lengths."""
    model, params = make(name)
    step = jax.jit(lambda rows: model.apply({'params': params}, rows))
    cache = Cache.empty(model.architecture, Compute(), len(IDS), num_slots)
    logits, start = [], 0
    for length in parts:
        part = slice(start, start + length)
        output = step(Rows(IDS[:, part], MASK[:, part], cache=cache))
        logits.append(output.heads['clm'])
        cache, start = output.states.cache, start + length
    np.testing.assert_array_equal(cache.length_B, LENGTHS)
    return np.concatenate(logits, axis=1)


@pytest.mark.parametrize('name', ARCHITECTURES)
def test_texts_of_different_lengths_read_in_parts_have_the_logits_of_whole_texts(name):
    for parts in ((LENGTH,), (5, 1, 6), (1,) * LENGTH):
        found, expected = read(name, parts), whole(name)
        error = np.abs(found - expected)[..., :VOCAB]
        assert error[MASK > 0].max() <= 1e-5 * np.abs(expected[..., :VOCAB]).max()


@pytest.mark.slow
@pytest.mark.parametrize('name', ARCHITECTURES)
@pytest.mark.parametrize('first', range(1, LENGTH))
def test_every_split_gives_the_same_logits(name, first):
    found, expected = read(name, (first, LENGTH - first), LENGTH + 2), whole(name)
    error = np.abs(found - expected)[..., :VOCAB]
    assert error[MASK > 0].max() <= 1e-5 * np.abs(expected[..., :VOCAB]).max()


def test_what_is_in_slots_beyond_the_length_has_no_effect():
    model, params = make('modernbert')
    apply = jax.jit(lambda rows: model.apply({'params': params}, rows))
    caches = [Cache.empty(model.architecture, Compute(), 3, LENGTH) for _ in range(2)]
    caches[1] = jax.tree.map(lambda leaf: leaf + 7 * (leaf.ndim > 1), caches[1])
    first, second = (apply(Rows(IDS[:, :5], MASK[:, :5], cache=cache)) for cache in caches)
    np.testing.assert_array_equal(first.heads['clm'], second.heads['clm'])


def test_taken_rows_continue_the_rows_that_they_were_taken_from():
    model, params = make('bert')
    apply = jax.jit(lambda rows: model.apply({'params': params}, rows))
    cache = Cache.empty(model.architecture, Compute(), 3, LENGTH)
    cache = apply(Rows(IDS[:, :3], MASK[:, :3], cache=cache)).states.cache
    order = np.array([0, 0, 1])
    rows = Rows(IDS[order, 3:4], MASK[order, 3:4], cache=cache.take(order))
    found = apply(rows).heads['clm'][:, 0]
    np.testing.assert_allclose(found, whole('bert')[order, 3], atol=1e-5)


def test_more_positions_than_the_model_has_are_refused():
    architecture = architectures.build('roberta', **SIZES)
    with pytest.raises(UserError, match='15 tokens exceed the 14 positions'):
        Cache.empty(architecture, Compute(), 1, 15)


def test_models_without_a_cache_are_refused():
    model, params = make('deberta_v2')
    cache = Cache.empty(model.architecture, Compute(), 3, LENGTH)
    with pytest.raises(UserError, match='disentangled attention cannot generate text'):
        model.apply({'params': params}, Rows(IDS, MASK, cache=cache))
