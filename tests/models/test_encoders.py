"""A new encoder is one file and one line: everything else knows encoders by their interface."""

import types

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import ENCODERS, build_encoder
from bert_jax.models.encoders.transformer import Transformer
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.mlm import MaskedLanguageModel
from bert_jax.tasks.initialization import initialize
from configs import base
from tests import extending

IDS = np.arange(12, dtype=np.int32).reshape(2, 6)
MASK = np.ones_like(IDS)


@pytest.fixture
def architecture(tmp_path, monkeypatch):
    encoder = extending.load('bag_of_words', tmp_path, monkeypatch).BagOfWords
    monkeypatch.setitem(ENCODERS, 'bag_of_words', encoder)
    sizes = dict(vocab_size=20, hidden_size=8, num_layers=1, pooler=False)
    return architectures.build('bert', encoder='bag_of_words', **sizes)


def test_the_transformer_is_the_default():
    encoder = build_encoder(architectures.build('bert_tiny'), Compute())
    assert isinstance(encoder, Transformer)


def test_an_unknown_encoder_is_an_error(architecture, monkeypatch):
    monkeypatch.delitem(ENCODERS, 'bag_of_words')
    with pytest.raises(
        UserError, match="unknown encoder 'bag_of_words'; known: recurrent, transformer"
    ):
        build_encoder(architecture, Compute())


def test_the_config_keys_of_the_docs_select_a_registered_encoder(architecture):
    config = base.get_config()
    config.model.update(encoder='bag_of_words', pooler=False)
    tokenizer = types.SimpleNamespace(vocab_size=20, pad_id=0)
    selected = initialize(config, None, tokenizer, ('mlm',)).architecture
    assert type(build_encoder(selected, Compute())).__name__ == 'BagOfWords'
    assert not selected.pooler


def test_a_registered_encoder_encodes(architecture):
    params = nn.unbox(loaded_model.init(architecture, ('mlm',), jax.random.key(0)))
    assert set(params['encoder']) == {'embeddings', 'dense'}
    computed = loaded_model.outputs(architecture, Compute(), params, Rows(IDS, MASK))
    assert computed['all_hidden'].shape == (2, 2, 6, 8)
    assert computed['mlm_logits'].shape == (2, 6, 20)


def test_a_registered_encoder_trains(architecture):
    chosen = (MaskedLanguageModel(),)
    model = objectives.build_model(architecture, Compute(), chosen)
    positions = np.tile(np.arange(6, dtype=np.int32), (2, 1))
    targets = Targets(positions, IDS, np.ones(IDS.shape, np.float32))
    rows = Rows(IDS, MASK, 0 * IDS, targets=targets)

    @jax.jit
    def step(params):
        def loss(params):
            output = model.apply({'params': params}, rows)
            return mean(objectives.compute_terms(chosen, output, rows)['mlm_loss'])

        value, grads = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)

    params = nn.unbox(model.init(jax.random.key(0), rows))['params']
    losses = []
    for _ in range(20):
        loss, params = step(params)
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]
