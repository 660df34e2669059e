"""Prefix language modeling: which positions see which, what is predicted, and generation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference import next_tokens
from bert_jax.inference.decoding import Constraints
from bert_jax.models import architectures, kernels
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import MASKED, Pattern, Visibility
from bert_jax.objectives.clm import CausalText
from bert_jax.objectives.corruption import Vocabulary
from tests.random_parameters import random_parameters

VOCAB, LENGTH = 40, 12
VOCABULARY = Vocabulary(2, 0, (0, 1, 2), np.ones(VOCAB, int))
SEGMENTS = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 12], np.int32)
MASK = (SEGMENTS > 0).astype(np.int32)
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=24,
    max_position_embeddings=24,
)


def test_the_visible_pairs_are_those_of_a_loop():
    prefix = np.array([[1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], [1] * 7 + [0] * 5], np.int32)
    fields = dict(segment_ids_BT=SEGMENTS, is_causal=True, is_prefix_BU=prefix, window=4)
    bias_BTU = np.broadcast_to(Visibility(MASK, **fields).bias(LENGTH, LENGTH), (2, 1, 12, 12))[
        :, 0
    ]
    for row, query, key in np.ndindex(2, LENGTH, LENGTH):
        is_visible = MASK[row, key] > 0 and SEGMENTS[row, query] == SEGMENTS[row, key]
        is_visible &= key <= query or prefix[row, key] > 0
        is_visible &= abs(query - key) <= 4
        assert bias_BTU[row, query, key] == (0 if is_visible else MASKED)
    assert not Visibility(MASK, window=1, is_causal=True, is_prefix_BU=prefix).is_local(4096)
    assert Visibility(MASK, window=1, is_causal=True).is_local(4096)


def test_every_sequence_has_a_prefix_of_every_length_and_the_rest_is_predicted():
    ids = np.random.default_rng(0).integers(3, VOCAB, (2, LENGTH), dtype=np.int32)
    keys = jax.random.split(jax.random.key(0), 2)
    rows, number = Rows(ids, MASK, segment_ids_BT=SEGMENTS), 500
    corrupt = jax.jit(
        lambda keys, share: CausalText(VOCABULARY, share)(keys, rows), static_argnums=1
    )
    lengths = {5: [], 4: [], 12: []}
    for seed in range(number):
        keys = jax.random.split(jax.random.key(seed), 2)
        found = corrupt(keys, 1.0)
        prefix = np.asarray(found.is_prefix_BT)
        for row, start, size in ((0, 0, 5), (0, 5, 4), (1, 0, 12)):
            part = prefix[row, start : start + size]
            lengths[size].append(int(part.sum()))
            assert (np.diff(part) <= 0).all()
            weights = np.asarray(found.targets.weights_BP)[row, start : start + size - 1]
            np.testing.assert_array_equal(weights, 1 - part[1:])
        assert not prefix[MASK == 0].any()
    for size, seen in lengths.items():
        counts = np.bincount(seen, minlength=size)[1:]
        assert len(counts) == size - 1
        np.testing.assert_allclose(counts, number / (size - 1), rtol=0.6)
    shares = [
        np.asarray(corrupt(jax.random.split(jax.random.key(s), 2), 0.3).is_prefix_BT)[1, 0]
        for s in range(300)
    ]
    assert np.mean(shares) == pytest.approx(0.3, abs=0.1)


def make(name, **more):
    architecture = architectures.build(name, **SIZES | more)
    model = Model(architecture, Compute(), {'clm': {}}, is_causal=True)
    ids = np.zeros((1, 4), np.int32)
    return model, random_parameters(model, Rows(ids, np.ones_like(ids)), deviation=0.3)


@pytest.mark.parametrize(
    ('name', 'more'), [('gpt2', {}), ('modernbert', {'windows': (None, 3, 2)})]
)
def test_texts_written_with_a_cache_are_those_without(name, more):
    model, params = make(name, **more)
    rng, lengths, number = np.random.default_rng(0), np.array([1, 5, 8]), 5
    ids = rng.integers(3, VOCAB, (3, 8), dtype=np.int32)
    predict, keys = next_tokens.CausalPredict(model), jax.vmap(jax.random.key)(np.arange(3))
    texts = next_tokens.read_prompts(model, params, ids, lengths, number, prefix_lm=True)
    for _ in range(number):
        texts = next_tokens.write_token(predict, params, texts, Constraints(number), None, keys)
    whole = jax.jit(lambda rows: model.apply({'params': params}, rows).heads['clm'])
    written, cached = np.asarray(texts.ids_BT), np.asarray(texts.log_p_BN)
    is_prefix = (np.arange(written.shape[1]) < lengths[:, None]).astype(np.int32)
    mask = (np.arange(written.shape[1]) < (lengths + number)[:, None]).astype(np.int32)
    logits = whole(Rows(written, mask, is_prefix_BT=is_prefix))
    log_p = np.asarray(jax.nn.log_softmax(logits[..., :VOCAB]))
    for row, length in enumerate(lengths):
        for step in range(number):
            place = length + step
            assert written[row, place] == log_p[row, place - 1].argmax()
            expected = log_p[row, place - 1, written[row, place]]
            np.testing.assert_allclose(cached[row, step], expected, atol=1e-5)
    causal = np.asarray(whole(Rows(written, mask)))
    assert np.abs(causal - logits)[2, 7].max() > 1e-2  # the prefix makes a difference


def test_only_causal_transformers_have_a_prefix_and_kernels_leave_it_to_xla(monkeypatch):
    model, params = make('bert')
    rows = Rows(np.ones((1, 4), np.int32), np.ones((1, 4), np.int32), is_prefix_BT=np.ones((1, 4)))
    both = Model(model.architecture, Compute(), {'clm': {}})
    with pytest.raises(UserError, match='needs a causal Transformer'):
        both.apply({'params': params}, rows)
    monkeypatch.setattr(kernels, 'platform', lambda: 'tpu')
    arguments = (model.architecture, Compute(), 128, True)
    assert kernels.choose(*arguments) == 'flash'
    assert kernels.choose(*arguments, Pattern(has_prefix=True)) == 'xla'
    assert 'prefix' in kernels.describe(
        model.architecture, Compute(), 128, Pattern(has_prefix=True)
    )
    flash = Compute(attention_kernel='flash')
    with pytest.raises(UserError, match='does not support a prefix'):
        kernels.choose(model.architecture, flash, 128, True, Pattern(has_prefix=True))


def test_without_a_prefix_nothing_is_random():
    ids = np.arange(3, 3 + LENGTH, dtype=np.int32)[None]
    rows = CausalText(VOCABULARY)(None, Rows(ids, np.ones_like(ids)))
    assert rows.is_prefix_BT is None
    assert jnp.all(rows.targets.weights_BP == 1)
