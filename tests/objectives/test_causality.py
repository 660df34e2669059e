"""Causal language modeling never uses tokens to the right of a position."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.models.rows import Rows
from bert_jax.objectives.clm import next_tokens
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.mlm import cross_entropy
from bert_jax.objectives.model import PretrainingModel

LENGTH, VOCAB = 9, 30
SIZES = dict(vocab_size=VOCAB, hidden_size=16, num_layers=3, num_heads=2, intermediate_size=24)


@pytest.mark.parametrize('name', ['bert', 'modernbert', 'mosaicbert', 'deberta_v2', 'albert'])
def test_losses_have_no_gradient_with_respect_to_later_tokens(name):
    architecture = architectures.build(name, **SIZES)
    encoder, head = (
        kind(architecture, Compute()) for kind in (build_encoder, MaskedLanguageModelHead)
    )
    ids = np.arange(3, 3 + LENGTH, dtype=np.int32)[None]  # a different token at every position
    mask = np.ones_like(ids)
    masking = Masking(0.15, 0.8, 0.1, 'uniform', 2, (0, 1, 2), np.ones(VOCAB, int))

    @jax.jit
    def sensitivity(key):
        params = nn.unbox(encoder.init(key, Rows(ids, mask))['params'])
        params = jax.tree.map(
            lambda p: 3 * p + 0.1 * jnp.cos(jnp.arange(p.size)).reshape(p.shape), params
        )
        table = params['embeddings']['token']
        targets = next_tokens(masking, ids, mask)

        def losses(token):
            given = params | {'embeddings': params['embeddings'] | {'token': token}}
            hidden = encoder.apply({'params': given}, Rows(ids, mask), causal=True).hidden_BTD
            states = hidden[:, :-1]
            head_params = head.init(key, states, table, method='predict')
            logits = head.apply(head_params, states, table, method='predict')
            return cross_entropy(logits, targets.labels)[0]

        return jnp.abs(jax.jacrev(losses)(table)[:, ids[0]]).max(-1)  # [position, input]

    found = np.asarray(sensitivity(jax.random.key(0)))
    later = np.triu(np.ones(found.shape, bool), 1)
    assert (found[later] == 0).all()
    assert (found[~later] > 1e-7).all()  # every earlier token has an effect


def test_the_targets_are_the_next_tokens_that_are_not_special():
    masking = Masking(0.15, 0.8, 0.1, 'uniform', 2, (0, 1, 2), np.ones(VOCAB, int))
    ids = np.array([[1, 7, 8, 0, 9, 0], [1, 7, 0, 2, 2, 2]], np.int32)
    mask = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], np.int32)
    target = next_tokens(masking, ids, mask)
    np.testing.assert_array_equal(target.labels, ids[:, 1:])
    np.testing.assert_array_equal(target.weights, [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(target.input_ids, ids)


def test_architectures_with_a_convolution_cannot_be_causal():
    architecture = architectures.build('deberta_v2', **SIZES, convolution_width=3)
    ids = np.ones((1, 4), np.int32)
    with pytest.raises(UserError, match='convolution'):
        build_encoder(architecture, Compute()).init(jax.random.key(0), Rows(ids, ids), causal=True)


def test_the_causal_objective_hides_later_tokens_from_the_encoder():
    """The last token predicts nothing; without a causal mask earlier tokens would attend to it."""
    architecture = architectures.build('bert', **SIZES)
    model = PretrainingModel(architecture, Compute(), ('clm',))
    ids = np.arange(3, 3 + LENGTH, dtype=np.int32)[None]
    batch = {'input_ids': ids, 'attention_mask': np.ones_like(ids), 'token_type_ids': 0 * ids}
    masking = Masking(0.15, 0.8, 0.1, 'uniform', 2, (0, 1, 2), np.ones(VOCAB, int))
    targets = next_tokens(masking, ids, batch['attention_mask'])

    @jax.jit
    def gradient(key):
        params = nn.unbox(model.init(key, batch, targets))
        loss = lambda params: mean(model.apply(params, batch, targets)['clm_loss'])  # noqa: E731
        return jax.grad(loss)(params)['params']['encoder']['embeddings']['position']

    largest = np.abs(gradient(jax.random.key(0))).max(axis=1)
    assert (largest[: LENGTH - 1] > 0).all()
    assert largest[LENGTH - 1] == 0
