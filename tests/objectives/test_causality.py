"""Causal language modeling never uses tokens to the right of a position."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import ConvolutionOptions
from bert_jax.models.encoders import build_encoder
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.rows import Rows
from bert_jax.objectives.clm import CausalLanguageModel, CausalText
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.mlm import cross_entropy

LENGTH, VOCAB = 9, 30
SIZES = dict(vocab_size=VOCAB, hidden_size=16, num_layers=3, num_heads=2, intermediate_size=24)
NEXT_TOKENS = CausalText(Vocabulary(2, 0, (0, 1, 2), np.ones(VOCAB, int)))


@pytest.mark.parametrize('name', ['bert', 'modernbert', 'mosaicbert', 'deberta_v2', 'albert'])
def test_losses_have_no_gradient_with_respect_to_later_tokens(name):
    architecture = architectures.build(name, **SIZES)
    encoder, head = (
        kind(architecture, Compute()) for kind in (build_encoder, MaskedLanguageModelHead)
    )
    ids = np.arange(3, 3 + LENGTH, dtype=np.int32)[None]  # a different token at every position
    mask = np.ones_like(ids)

    @jax.jit
    def sensitivity(key):
        params = nn.unbox(encoder.init(key, Rows(ids, mask))['params'])
        params = jax.tree.map(
            lambda p: 3 * p + 0.1 * jnp.cos(jnp.arange(p.size)).reshape(p.shape), params
        )
        table = params['embeddings']['token']
        rows = NEXT_TOKENS(None, Rows(ids, mask))

        def losses(token):
            given = params | {'embeddings': params['embeddings'] | {'token': token}}
            hidden = encoder.apply({'params': given}, rows, causal=True).hidden_BTD
            states = hidden[:, :-1]
            head_params = head.init(key, states, table, method='predict')
            logits = head.apply(head_params, states, table, method='predict')
            return cross_entropy(logits, rows.targets.ids_BP)[0]

        return jnp.abs(jax.jacrev(losses)(table)[:, ids[0]]).max(-1)  # [position, input]

    found = np.asarray(sensitivity(jax.random.key(0)))
    later = np.triu(np.ones(found.shape, bool), 1)
    assert (found[later] == 0).all()
    assert (found[~later] > 1e-7).all()  # every earlier token has an effect


def test_the_targets_are_the_next_tokens_that_are_not_special():
    ids = np.array([[1, 7, 8, 0, 9, 0], [1, 7, 0, 2, 2, 2]], np.int32)
    mask = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], np.int32)
    rows = NEXT_TOKENS(None, Rows(ids, mask))
    np.testing.assert_array_equal(rows.targets.ids_BP, ids[:, 1:])
    np.testing.assert_array_equal(rows.targets.weights_BP, [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(rows.input_ids_BT, ids)


def test_architectures_with_a_convolution_cannot_be_causal():
    architecture = architectures.build('deberta_v2', **SIZES, convolution=ConvolutionOptions(3))
    ids = np.ones((1, 4), np.int32)
    with pytest.raises(UserError, match='convolution'):
        build_encoder(architecture, Compute()).init(jax.random.key(0), Rows(ids, ids), causal=True)


def test_the_causal_objective_hides_later_tokens_from_the_encoder():
    """The last token predicts nothing; without a causal mask earlier tokens would attend to it."""
    architecture = architectures.build('bert', **SIZES)
    chosen = (CausalLanguageModel(),)
    model = objectives.build_model(architecture, Compute(), chosen)
    ids = np.arange(3, 3 + LENGTH, dtype=np.int32)[None]
    clean = Rows(ids, np.ones_like(ids), 0 * ids)
    rows = NEXT_TOKENS(None, clean)

    @jax.jit
    def gradient(key):
        params = nn.unbox(model.init(key, rows))

        def loss(params):
            output = model.apply(params, rows)
            return mean(objectives.compute_terms(chosen, output, clean)['clm_loss'])

        return jax.grad(loss)(params)['params']['encoder']['embeddings']['position']

    largest = np.abs(gradient(jax.random.key(0))).max(axis=1)
    assert (largest[: LENGTH - 1] > 0).all()
    assert largest[LENGTH - 1] == 0
