"""Attention probabilities of a text: those of transformers, for every kind of attention."""

import jax
import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.loaded.record import RunRecord
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.encoders.transformer import attention_probabilities
from bert_jax.models.parameters import stack_layers
from bert_jax.models.rows import Rows
from bert_jax.training.checkpoints import Checkpoints
from tests.interop import published
from tests.parity.agreement import agree

TEXT = 'the cow and the barn and the field near the moon'
TOKENS = ['[CLS]', *TEXT.split(), '[SEP]']


@pytest.mark.parametrize(
    'name',
    [
        'BertForPreTraining',
        'AlbertForPreTraining',  # shared layers
        'DebertaForMaskedLM',  # disentangled
        'DebertaV2ForMaskedLM',  # buckets, a convolution
        'ModernBertForMaskedLM',  # rotary, windows
    ],
)
def test_attention_equals_that_of_transformers(name, tmp_path):
    folder = published.folder(tmp_path / 'published', name)
    theirs = getattr(transformers, name).from_pretrained(folder, attn_implementation='eager').eval()
    ids = torch.tensor([[published.vocabulary().index(token) for token in TOKENS]])
    with torch.no_grad():
        expected = torch.cat(theirs(input_ids=ids, output_attentions=True).attentions).numpy()
    tokens, weights_LHTT = bert_jax.load(folder).attention(TEXT)
    assert tokens == TOKENS
    assert weights_LHTT.dtype == np.float32
    agree(weights_LHTT, expected)
    assert np.abs(expected - 1 / len(TOKENS)).max() > 0.1


def test_attention_of_a_run_with_scan_layers_equals_that_without(tmp_path):
    folder = published.folder(tmp_path / 'published')
    model = huggingface.load(folder)
    stacked = stack_layers(model.params['encoder'])
    record = RunRecord(
        task='pretraining',
        family='bert',
        architecture=model.architecture,
        base=None,
        tokenizer=model.tokenizer.to_json(),
        tokenizer_fingerprint=model.tokenizer.fingerprint,
        is_causal=False,
        has_prefix=False,
        is_generative=False,
        config={},
        train_seconds=0.0,
        is_evaluated=True,
    )
    writer = Checkpoints.open(tmp_path / 'run' / 'checkpoints', keep=1)
    writer.save(1, {'params': {'encoder': stacked}}, record.to_json())
    writer.close()
    _, expected_LHTT = bert_jax.load(folder).attention(TEXT)
    _, weights_LHTT = bert_jax.load(tmp_path / 'run').attention(TEXT)
    np.testing.assert_array_equal(weights_LHTT, expected_LHTT)

    encoder = build_encoder(model.architecture, Compute(scan_layers=True))
    ids = np.array([[model.tokenizer.vocab.index(token) for token in TOKENS]], np.int32)
    run = jax.jit(lambda params, *given: encoder.apply(params, *given, mutable='intermediates'))
    _, variables = run({'params': stacked}, Rows(ids, np.ones_like(ids)))
    weights_LBHTU = attention_probabilities(model.architecture, variables['intermediates'])
    agree(weights_LBHTU[:, 0], expected_LHTT)


def test_attention_costs_nothing_unless_it_is_asked_for():
    architecture = architectures.build('bert', vocab_size=9, hidden_size=8, num_layers=1)
    encoder = build_encoder(architecture, Compute())
    ids = np.ones((1, 4), np.int32)
    variables = jax.eval_shape(encoder.init, jax.random.key(0), Rows(ids, ids))
    assert variables.keys() == {'params'}
    output = jax.eval_shape(encoder.apply, variables, Rows(ids, ids))
    assert output.hidden_BTD.shape == (1, 4, 8)


def test_attention_says_why_it_cannot_answer(tmp_path):
    model = bert_jax.load(published.folder(tmp_path / 'published'))
    with pytest.raises(UserError, match=r'the text has 18 tokens; attention supports up to 17'):
        model.attention('the ' * 18)
    with pytest.raises(UserError, match='this encoder does not compute attention probabilities'):
        attention_probabilities(model.architecture, {})
