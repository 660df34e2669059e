"""Masked diffusion: exactly k of n tokens are hidden, and the loss bounds the likelihood."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import averages
from bert_jax.models.model import ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.diffusion import DiffusedText, MaskedDiffusion, num_hidden
from configs import base

VOCAB, LENGTH, ROWS = 30, 16, 4096
P_V = np.r_[np.zeros(5), np.arange(1, VOCAB - 4)] / np.arange(1, VOCAB - 4).sum()


@pytest.fixture(scope='module')
def corruption():
    vocabulary = Vocabulary(4, 0, (0, 1, 2, 3, 4), np.ones(VOCAB, int))
    return DiffusedText.build(base.get_config(), vocabulary, {LENGTH: LENGTH})


def clean_rows(first=0):
    """Rows of tokens drawn from P_V, of 1 to 14 tokens between [CLS] and [SEP]."""
    rng = np.random.default_rng(first)
    ids = rng.choice(VOCAB, (ROWS, LENGTH), p=P_V).astype(np.int32)
    number = rng.integers(1, LENGTH - 1, ROWS)
    ids[:, 0], ids[np.arange(ROWS), number + 1] = 2, 3
    mask = np.arange(LENGTH) <= number[:, None] + 1
    index = np.arange(first, first + ROWS, dtype=np.int32)
    return Rows(np.where(mask, ids, 0), mask.astype(np.int32), labels={'example_index': index})


def corrupt(corruption, clean, seed=0):
    keys_B = jax.random.split(jax.random.key(seed), len(clean.input_ids_BT))
    return jax.device_get(jax.jit(corruption)(keys_B, clean))


def test_exactly_k_tokens_are_hidden_and_the_weights_are_n_over_k(corruption):
    clean = clean_rows()
    rows = corrupt(corruption, clean)
    is_text = clean.input_ids_BT > 4
    is_hidden = rows.input_ids_BT == 4
    assert not (is_hidden & ~is_text).any()
    np.testing.assert_array_equal(
        np.where(is_hidden, 0, rows.input_ids_BT), np.where(is_hidden, 0, clean.input_ids_BT)
    )
    number, hidden = is_text.sum(1), is_hidden.sum(1)
    assert hidden.min() >= 1
    for row in range(50):
        positions, ids, weights = (array[row] for array in rows.targets)
        used = weights > 0
        assert sorted(positions[used]) == np.flatnonzero(is_hidden[row]).tolist()
        np.testing.assert_array_equal(ids[used], clean.input_ids_BT[row][positions[used]])
        np.testing.assert_allclose(weights[used], number[row] / hidden[row], rtol=1e-6)
    assert (corrupt(corruption, clean, seed=1).input_ids_BT != rows.input_ids_BT).any()


@pytest.mark.parametrize(('number', 'first'), [(1, 0), (7, 3), (14, 10**6), (510, 2**30)])
def test_every_k_is_equally_often_in_consecutive_examples(number, first):
    index = np.arange(first, first + 20 * number, dtype=np.int32)
    hidden = np.asarray(num_hidden(index, np.full(len(index), number)))
    counts = collections.Counter(hidden.tolist())
    assert set(counts) == set(range(1, number + 1))
    assert max(abs(count - 20) for count in counts.values()) <= 2
    fractions = (index.astype(object) * 2_654_435_769) % 2**32
    expected = [int(fraction) * number // 2**32 + 1 for fraction in fractions]
    assert np.mean(hidden == np.array(expected)) > 0.99  # 16 of the 32 bits are used


def test_the_bound_of_a_predictor_without_context_is_the_entropy(corruption):
    logits_V = np.log(np.maximum(P_V, 1e-30)).astype(np.float32)
    entropy = -(P_V[5:] * np.log(P_V[5:])).sum()
    terms = {}
    for first in (0, ROWS):
        clean = clean_rows(first)
        rows = corrupt(corruption, clean)
        logits = jnp.broadcast_to(logits_V, (ROWS, LENGTH, VOCAB))
        output = ModelOutput(rows, None, {'mlm': logits})
        terms = averages.add(terms, MaskedDiffusion('bound').terms(output, clean))
    means = averages.means(jax.device_get(terms))
    assert means['diffusion_loss'] == means['diffusion_bound']
    assert means['diffusion_bound'] == pytest.approx(entropy, rel=0.005)
    assert means['diffusion_rate'] == pytest.approx(0.5 * (1 + 1 / 7.5), abs=0.02)
    uniform = MaskedDiffusion('uniform').terms(output, clean)
    is_hidden = rows.targets.weights_BP > 0
    cross_entropy = -logits_V[rows.targets.ids_BP[is_hidden]]
    total, count = uniform['diffusion_loss']
    assert float(total / count) == pytest.approx(cross_entropy.mean(), rel=1e-5)


def test_a_row_without_tokens_counts_for_nothing(corruption):
    clean = clean_rows()
    empty = clean.replace(attention_mask_BT=np.zeros_like(clean.attention_mask_BT))
    rows = corrupt(corruption, empty)
    assert not rows.targets.weights_BP.any()
    np.testing.assert_array_equal(rows.input_ids_BT, empty.input_ids_BT)


def test_fewer_targets_than_hidden_tokens_keep_the_bound(corruption):
    most = 3
    few = DiffusedText(corruption.vocabulary, {LENGTH: most})
    clean = clean_rows()
    rows, complete = corrupt(few, clean), corrupt(corruption, clean)
    np.testing.assert_array_equal(rows.input_ids_BT, complete.input_ids_BT)
    positions_BP, ids_BP, weights_BP = rows.targets
    assert positions_BP.shape == (ROWS, most)
    hidden_B, number_B = (rows.input_ids_BT == 4).sum(1), (clean.input_ids_BT > 4).sum(1)
    np.testing.assert_array_equal((weights_BP > 0).sum(1), np.minimum(hidden_B, most))
    np.testing.assert_allclose(weights_BP.sum(1), number_B, rtol=1e-6)
    row_B1 = np.arange(ROWS)[:, None]
    assert (rows.input_ids_BT[row_B1, positions_BP][weights_BP > 0] == 4).all()
    np.testing.assert_array_equal(clean.input_ids_BT[row_B1, positions_BP], ids_BP)

    logits_V = np.log(np.maximum(P_V, 1e-30)).astype(np.float32)
    output = ModelOutput(rows, None, {'mlm': jnp.broadcast_to(logits_V, (ROWS, most, VOCAB))})
    means = averages.means(jax.device_get(MaskedDiffusion('bound').terms(output, clean)))
    assert means['diffusion_bound'] == pytest.approx(-(P_V[5:] * logits_V[5:]).sum(), rel=0.01)
    assert means['diffusion_rate'] == pytest.approx(hidden_B.sum() / number_B.sum(), rel=1e-5)
    uniform, count = MaskedDiffusion('uniform').terms(output, clean)['diffusion_loss']
    assert float(count) == pytest.approx(hidden_B.sum(), rel=1e-5)
    assert np.isfinite(uniform)
