"""Classification heads: inputs, layers and dropout; tests/parity compares values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import Classifier
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import HEADS, has_token_rows, published_heads
from bert_jax.models.heads.classification import (
    MultipleChoiceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)
from bert_jax.models.heads.prediction import NextSentenceHead
from bert_jax.models.rows import Rows

SIZES = dict(hidden_size=8, num_heads=2, num_layers=1, initializer_range=1.0)
REAL = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
ROWS = Rows(REAL, REAL)


def encoded(pooled=True):
    hidden, pooled_BD = np.random.default_rng(0).normal(size=(2, 3, 4, 8)).astype(np.float32)
    return EncoderOutput(jnp.asarray(hidden), jnp.asarray(pooled_BD[:, 0]) if pooled else None)


def run(head, inputs, seeds=None):
    params = nn.unbox(head.init(jax.random.key(0), inputs, ROWS))['params']
    return head.apply({'params': params}, inputs, ROWS, seeds), params


@pytest.mark.parametrize('pooling', ['first', 'mean'])
def test_padding_has_no_effect_and_a_row_of_padding_gives_finite_logits(pooling):
    architecture = architectures.build('bert', classifier=Classifier(pooling=pooling), **SIZES)
    head, inputs = SequenceClassificationHead(architecture, Compute(), 3), encoded()
    logits, _ = run(head, inputs)
    assert logits.shape == (3, 3)
    assert np.isfinite(logits).all()
    changed = jnp.where(REAL[:, :, None] > 0, inputs.hidden_BTD, 7.0)
    after, _ = run(head, EncoderOutput(changed, None))
    np.testing.assert_array_equal(after[:2], logits[:2])
    vector = np.asarray(inputs.hidden_BTD[1])[1:]
    vector = vector[0] if pooling == 'first' else vector.mean(0)
    params = nn.unbox(head.init(jax.random.key(0), inputs, ROWS))['params']['output']
    np.testing.assert_allclose(logits[1], vector @ params['kernel'], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ('name', 'parts'),
    [
        ('bert', {'output'}),
        ('roberta', {'transform', 'output'}),
        ('electra', {'transform', 'output'}),
        ('distilbert', {'transform', 'output'}),
        ('modernbert', {'transform', 'norm', 'output'}),
    ],
)
def test_each_architecture_has_the_published_layers(name, parts):
    architecture = architectures.build(name, **SIZES)
    inputs = encoded(architecture.pooler)
    _, params = run(SequenceClassificationHead(architecture, Compute()), inputs)
    assert set(params) == parts
    for_tokens = parts if 'norm' in parts else {'output'}
    logits, params = run(TokenClassificationHead(architecture, Compute(), 5), inputs)
    assert (logits.shape, set(params)) == ((3, 4, 5), for_tokens)
    logits, params = run(QuestionAnsweringHead(architecture, Compute()), inputs)
    assert (logits.shape, set(params)) == ((3, 4, 2), for_tokens)
    logits, params = run(MultipleChoiceHead(architecture, Compute()), inputs)
    assert (logits.shape, set(params)) == ((3,), parts)
    # With a pooler multiple choice reads only the pooler.
    with_pooler = architecture.changed({'pooler': True})
    _, params = run(MultipleChoiceHead(with_pooler, Compute()), encoded(pooled=True))
    assert set(params) == {'output'}


def test_dropout_has_the_rate_of_the_classifier():
    architecture = architectures.build('bert', classifier=Classifier(dropout=0.5), **SIZES)
    head, inputs = TokenClassificationHead(architecture, Compute(), 1), encoded()
    seeds = jnp.arange(3, dtype=jnp.uint32)
    clean, _ = run(head, inputs)
    assert (run(head, inputs, seeds)[0] != clean).all()
    without = architectures.build('bert', classifier=Classifier(dropout=0.0), **SIZES)
    np.testing.assert_array_equal(
        run(TokenClassificationHead(without, Compute(), 1), inputs, seeds)[0], clean
    )
    np.testing.assert_array_equal(
        run(QuestionAnsweringHead(architecture, Compute()), inputs, seeds)[0],
        run(QuestionAnsweringHead(architecture, Compute()), inputs)[0],
    )


def test_dropout_before_the_dense_layer_depends_on_the_classifier():
    inputs, seeds = encoded(), jnp.arange(3, dtype=jnp.uint32)

    def logits(classifier, rate):
        architecture = architectures.build(
            'bert', classifier=Classifier(classifier, pooling='first', dropout=rate), **SIZES
        )
        return run(SequenceClassificationHead(architecture, Compute()), inputs, seeds)[0]

    np.testing.assert_array_equal(logits('dense', 0.0), logits('dropout_dense', 0.0))
    assert (logits('dense', 0.3) != logits('dropout_dense', 0.3)).any(axis=1).all()
    assert (logits('dense', 0.3) != logits('dense', 0.0)).any(axis=1).all()


@pytest.mark.parametrize('pooled', [True, False])
def test_one_matrix_reads_the_raw_state_of_the_first_token(pooled):
    architecture = architectures.build('bert', pair_pooling='first', **SIZES)
    head, inputs = NextSentenceHead(architecture, Compute()), encoded(pooled)
    logits, params = run(head, inputs)
    kernel_DC, bias_C = params['dense']['kernel'], params['dense']['bias']
    expected = np.asarray(inputs.hidden_BTD)[:, 0] @ kernel_DC + bias_C
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert not head.reads_pooler()
    with pytest.raises(UserError, match="or model.pair_pooling='first'"):
        run(NextSentenceHead(architectures.build('bert', **SIZES), Compute()), encoded(False))


def test_without_a_pooler_a_classifier_reads_the_first_state():
    architecture = architectures.build('bert', pooler=False, **SIZES)
    assert architecture.pooling == 'first'
    named = architecture.changed({'classifier.pooling': 'first'})
    found, wanted = (
        run(SequenceClassificationHead(own, Compute()), encoded(pooled=False))[0]
        for own in (architecture, named)
    )
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize('name', ['bert', 'roberta', 'modernbert'])
def test_initial_kernels_have_the_configured_standard_deviation(name):
    """After truncation, not before."""
    sizes = dict(hidden_size=256, num_heads=2, num_layers=1, initializer_range=0.02)
    head = SequenceClassificationHead(architectures.build(name, **sizes), Compute(), 256)
    state = EncoderOutput(jnp.zeros((1, 2, 256)), jnp.zeros((1, 256)))
    params = nn.unbox(head.init(jax.random.key(0), state, Rows(np.ones((1, 2)), np.ones((1, 2)))))[
        'params'
    ]
    kernels = [leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    assert kernels
    for kernel in kernels:
        assert kernel.std() == pytest.approx(0.02, rel=0.02)


def test_a_head_under_another_name_is_not_one_of_published_checkpoints(monkeypatch):
    monkeypatch.setitem(HEADS, 'document_start', NextSentenceHead)
    assert published_heads({'rtd', 'nsp', 'document_start', 'permutation', 'mlm', 'encoder'}) == (
        'mlm',
        'nsp',
        'rtd',
    )
    assert HEADS['document_start'].is_pair


def test_parameters_with_a_row_for_each_token():
    names = ['encoder/embeddings/token', 'mlm/head/bias', 'clm/head/decoder', 'bilm/head/bias']
    assert all(map(has_token_rows, names))
    others = ['encoder/embeddings/type', 'mlm/head/transform/bias', 'rtd/head/output/bias', 'crf/x']
    assert not any(map(has_token_rows, others))
