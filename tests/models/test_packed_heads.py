"""Heads give each sequence of a packed row the logits it has alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import EncoderOutput, build_encoder
from bert_jax.models.heads.classification import (
    MultipleChoiceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)
from bert_jax.models.rows import Rows, masked_mean, sequence_members

VOCAB, LENGTH = 64, 20
LENGTHS, ROW, OFFSET = (5, 8, 4, 7, 9), (0, 0, 0, 1, 1), (0, 5, 13, 0, 7)
FIRST = np.array([[0, 5, 13, -1], [0, 7, -1, -1]], np.int32)
# Sequences have disjoint ids, so the gradient of an id's embedding belongs to one sequence.
OWN_IDS = 4 + 10 * np.arange(5)[:, None] + np.arange(10)
ARCHITECTURES = {
    'bert': {},
    'roberta': {'max_position_embeddings': LENGTH + 2},
    'distilbert': {},
    'modernbert': {'windows': (None, 3, 3), 'classifier.pooling': 'mean'},
    'deberta': {'attention.buckets': None},
    'bert first': {'classifier.pooling': 'first', 'pooler': False},
}


@functools.cache
def make(name: str):
    sizes = dict(vocab_size=VOCAB, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=24)
    sizes |= dict(max_position_embeddings=LENGTH, initializer_range=0.2)
    return architectures.build(name.split()[0], **sizes | ARCHITECTURES[name])


def batches():
    """(ids, mask, segments) with one sequence per row, and packed."""
    rng = np.random.default_rng(0)
    alone, rows = np.zeros((2, 5, LENGTH), np.int32), np.zeros((2, 2, LENGTH), np.int32)
    for number, (length, row, offset) in enumerate(zip(LENGTHS, ROW, OFFSET, strict=True)):
        ids = rng.choice(OWN_IDS[number], length)
        alone[0, number, :length], alone[1, number, :length] = ids, 1
        rows[0, row, offset : offset + length] = ids
        rows[1, row, offset : offset + length] = list(OFFSET).index(offset) + 1
    return (*alone, alone[1]), (rows[0], np.minimum(rows[1], 1), rows[1])


@pytest.mark.parametrize('name', ARCHITECTURES)
def test_each_sequence_has_the_logits_it_has_alone_and_ignores_its_neighbors(name):
    architecture = make(name)
    encoder = build_encoder(architecture, Compute())
    heads = {
        'sequence_classification': SequenceClassificationHead(architecture, Compute(), 3),
        'multiple_choice': MultipleChoiceHead(architecture, Compute()),
        'token_classification': TokenClassificationHead(architecture, Compute(), 3),
        'question_answering': QuestionAnsweringHead(architecture, Compute()),
    }
    (ids, mask, _), (packed_ids, packed_mask, segments) = batches()
    alone = Rows(ids, mask)
    packed = Rows(packed_ids, packed_mask, None, segments, FIRST)

    def init(key):
        encoded, params = encoder.init_with_output(key, alone)
        parts = {part: head.init(key, encoded, alone) for part, head in heads.items()}
        return nn.unbox(params | {'heads': parts})

    rng = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape, scale=0.3).astype(np.float32),
        jax.eval_shape(init, jax.random.key(0)),
    )

    @jax.jit
    def logits_alone(params):
        encoded = encoder.apply({'params': params['params']}, alone)
        return {n: head.apply(params['heads'][n], encoded, alone) for n, head in heads.items()}

    @jax.jit
    def logits_packed(params, is_selected_BS):
        """Logits, and the gradient of the selected sequences' logits by token embeddings."""

        def total(token_VD):
            embeddings = params['params']['embeddings'] | {'token': token_VD}
            own = {'params': params['params'] | {'embeddings': embeddings}}
            encoded = encoder.apply(own, packed)
            logits = {
                n: head.apply(params['heads'][n], encoded, packed) for n, head in heads.items()
            }
            asked = (
                logits['sequence_classification'][..., 0] + logits['multiple_choice']
            ) * is_selected_BS
            return asked.sum(), logits

        return jax.grad(total, has_aux=True)(params['params']['embeddings']['token'])

    theirs = logits_alone(params)
    for number, (row, offset) in enumerate(zip(ROW, OFFSET, strict=True)):
        slot = list(FIRST[row]).index(offset)
        is_selected_BS = np.zeros(FIRST.shape)
        is_selected_BS[row, slot] = 1
        gradient_VD, ours = logits_packed(params, is_selected_BS)
        moved = np.abs(gradient_VD).max(1)
        own = np.intersect1d(OWN_IDS[number], packed_ids)
        assert moved[own].max() > 1e-4
        assert not np.delete(moved, own).any()
        for part in ('sequence_classification', 'multiple_choice'):
            np.testing.assert_allclose(ours[part][row, slot], theirs[part][number], atol=1e-5)
        for part in ('token_classification', 'question_answering'):
            cut = ours[part][row, offset : offset + LENGTHS[number]]
            np.testing.assert_allclose(cut, theirs[part][number, : LENGTHS[number]], atol=1e-5)
    assert (ours['sequence_classification'].shape, ours['multiple_choice'].shape) == (
        (2, 4, 3),
        (2, 4),
    )
    assert np.isfinite(ours['sequence_classification']).all()


def test_dropout_differs_between_the_sequences_of_a_row():
    architecture = make('bert').changed({'classifier.dropout': 0.5})
    head = SequenceClassificationHead(architecture, Compute(), 3)
    encoded = EncoderOutput(jnp.zeros((2, LENGTH, 16)), jnp.ones((2, 4, 16)))
    mask, segments = np.ones((2, 2, LENGTH), np.int32)
    rows = Rows(mask, mask, None, segments, FIRST)
    params = head.init(jax.random.key(0), encoded, rows)
    logits = head.apply(params, encoded, rows, jnp.arange(2, dtype=jnp.uint32))
    assert len(np.unique(np.asarray(logits[..., 0]))) == 8


def test_means_are_taken_over_the_members_of_each_sequence():
    segments = jnp.array([[1, 1, 2, 2, 2, 0], [3, 0, 0, 0, 0, 0]])
    first = jnp.array([[0, 2, -1], [0, -1, -1]])
    members = sequence_members(segments, first)
    expected = np.zeros((2, 3, 6), bool)
    expected[0, 0, :2] = expected[0, 1, 2:5] = expected[1, 0, 0] = True
    np.testing.assert_array_equal(members, expected)
    hidden = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    means = masked_mean(jnp.asarray(hidden), members)
    np.testing.assert_allclose(means[0, 1], hidden[0, 2:5].mean(0), rtol=1e-5)
    assert not means[0, 2].any()
