"""BART, mBART, T5 and bert2bert agree with transformers in all states, logits and gradients.

As in test_family_parity, parameters have ten times the usual scale; sources and targets have
padding and differ in length.
"""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from bert_jax import tree_paths
from bert_jax.interop import conversion, families, huggingface, huggingface_export, state_dict_map
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.parameters import stack_layers, unstack_layers
from bert_jax.models.rows import Rows
from tests.interop import published
from tests.parity.agreement import TOLERANCE, agree, agree_trees

# Of all parameters. Scores of T5 are not divided by √K, so they are as large with less.
DEVIATION = {'bart': 0.2, 'mbart': 0.2, 't5': 0.1, 'mt5': 0.1, 'encoder-decoder': 0.2}
_BART = dict(
    vocab_size=97,
    d_model=24,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=40,
    decoder_ffn_dim=40,
    max_position_embeddings=30,
)
_T5 = dict(
    vocab_size=97,
    d_model=24,
    d_kv=10,
    d_ff=40,
    num_layers=2,
    num_decoder_layers=3,
    num_heads=3,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=12,
)
_ENCODER = dict(
    vocab_size=97,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=30,
)
_DECODER = _ENCODER | dict(num_hidden_layers=3, is_decoder=True, add_cross_attention=True)
_GATED = dict(feed_forward_proj='gated-gelu', tie_word_embeddings=False)


@dataclasses.dataclass(frozen=True)
class Case:
    """A class of transformers and the values of its config."""

    published: str
    config: Mapping[str, object]

    @functools.cached_property
    def model(self) -> torch.nn.Module:
        """The model with random parameters, without dropout."""
        kind = getattr(transformers, self.published)
        config = kind.config_class(**self.config, attn_implementation='eager')
        model = kind(config=config).eval()
        if not self.config.get('tie_word_embeddings', True):  # transformers 5 ties them anyway
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        published.randomize(model, 0, DEVIATION[config.model_type])
        if hasattr(model, 'final_logits_bias'):
            model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(1))
        return model

    @property
    def family(self):
        return families.of_config(self.model.config.to_dict())

    @property
    def architecture(self):
        return self.family.read_config(self.model.config.to_dict())

    def state(self) -> dict[str, np.ndarray]:
        return {name: array.numpy().copy() for name, array in self.model.state_dict().items()}


CASES = {
    'bart': Case('BartForConditionalGeneration', _BART),
    'mbart': Case('MBartForConditionalGeneration', _BART | dict(scale_embedding=True)),
    't5-1.0': Case('T5ForConditionalGeneration', _T5),
    't5-1.1': Case('T5ForConditionalGeneration', _T5 | _GATED),
    'mt5': Case('MT5ForConditionalGeneration', _T5 | _GATED),
}
for encoder in ('bert', 'roberta'):
    stacks = dict(encoder=_ENCODER, decoder=_DECODER)
    config = {name: stack | dict(model_type=encoder) for name, stack in stacks.items()}
    CASES[f'{encoder}2{encoder}'] = Case('EncoderDecoderModel', config)
# Pairs of RoBERTa differ from those of BERT in names and positions only.
# What these vary is also varied by the quick cases.
REPETITIONS = ('roberta2roberta', 'mbart', 't5-1.0', 'mt5')
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in REPETITIONS)) for name in CASES]
rng = np.random.default_rng(0)
SOURCE, TARGET = rng.integers(3, 97, (3, 17)), rng.integers(3, 97, (3, 8))
SOURCE_MASK = (np.arange(17) < [[17], [11], [1]]).astype(np.int32)
# A constant of BART, and a pooler that nothing reads.
NOT_TRAINED = {'seq2seq/head/bias', 'encoder/pooler/bias', 'encoder/pooler/kernel'}
TARGET_MASK = (np.arange(8) < [[5], [8], [2]]).astype(np.int32)
ROWS = Rows(SOURCE, SOURCE_MASK, target=Rows(TARGET, TARGET_MASK))


def run_theirs(model, weights_BUV):
    """States and logits; leaves the gradients of the weighted sum of logits in the model."""
    model.zero_grad()
    output = model(
        input_ids=torch.from_numpy(SOURCE),
        attention_mask=torch.from_numpy(SOURCE_MASK),
        decoder_input_ids=torch.from_numpy(TARGET),
        decoder_attention_mask=torch.from_numpy(TARGET_MASK),
        output_hidden_states=True,
    )
    (output.logits * torch.from_numpy(weights_BUV)).sum().backward()
    stacks = output.encoder_hidden_states, output.decoder_hidden_states
    states = [np.stack([state.detach().numpy() for state in stack]) for stack in stacks]
    return *states, output.logits.detach().numpy()


def their_gradients(case):
    """The gradients under our names."""
    tied = case.model._tied_weights_keys or {}
    parameters = dict(case.model.named_parameters(remove_duplicate=False))
    is_tied = case.architecture.prediction.tied
    state = {
        name: value.grad.numpy()
        for name, value in parameters.items()
        if value.grad is not None
        and (name not in tied or (name == 'lm_head.weight' and not is_tied))
    }
    state = state_dict_map.join(state, case.family.parts(case.architecture))
    places = state_dict_map.places(case.family.table, case.architecture, ('seq2seq',), 2)
    found = state_dict_map.to_ours(places, state)
    missing = places.keys() - found.keys()
    assert missing <= NOT_TRAINED
    return found


@pytest.mark.parametrize('name', NAMES)
def test_states_logits_and_gradients_agree_with_transformers(name):
    case = CASES[name]
    params, new = conversion.from_state_dict(case.family, case.architecture, case.state(), name)
    assert not new
    weights = np.random.default_rng(1).standard_normal((3, 8, 97)).astype(np.float32)
    weights *= TARGET_MASK[..., None] / TARGET_MASK.sum()
    encoder, decoder, logits = run_theirs(case.model, weights)

    def loss(params, compute):
        computed = loaded_model.outputs(case.architecture, compute, params, ROWS)
        return (computed['seq2seq_logits'] * weights).sum(), computed

    parts = ('encoder', 'decoder')
    for compute in (Compute(), Compute(scan_layers=True, remat=True)):
        arranged = dict(params)
        if compute.scan_layers:
            arranged |= {part: stack_layers(params[part]) for part in parts}
        step = jax.jit(jax.grad(functools.partial(loss, compute=compute), has_aux=True))
        gradients, computed = step(arranged)
        if compute.scan_layers:
            gradients = gradients | {part: unstack_layers(gradients[part]) for part in parts}
        is_source, is_target = SOURCE_MASK > 0, TARGET_MASK > 0
        agree(computed['all_hidden'][:, is_source], encoder[:, is_source], 'encoder', TOLERANCE)
        agree(computed['decoder_hidden'][:, is_target], decoder[:, is_target], 'decoder', TOLERANCE)
        agree(computed['seq2seq_logits'][is_target], logits[is_target], 'logits', TOLERANCE)
        found = tree_paths.flatten(gradients)
        expected = their_gradients(case)
        for constant in NOT_TRAINED & found.keys() - expected.keys():
            assert not np.any(found.pop(constant))
        agree_trees(found, expected)


@pytest.mark.parametrize('name', NAMES)
def test_folders_are_read_and_written_as_transformers_writes_them(name, tmp_path):
    """Every array keeps its name and its bytes, and transformers computes the same logits."""
    case = CASES[name]
    case.model.save_pretrained(tmp_path / 'theirs')
    loaded = huggingface.load(tmp_path / 'theirs')
    assert loaded.heads == ('seq2seq',)
    huggingface_export.save(loaded, tmp_path / 'ours')
    theirs, ours = (
        load_file(tmp_path / folder / 'model.safetensors') for folder in ('theirs', 'ours')
    )
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        assert array.tobytes() == ours[key].tobytes(), key
    reread = getattr(transformers, case.published).from_pretrained(
        tmp_path / 'ours', attn_implementation='eager'
    )
    _, _, expected = run_theirs(case.model, np.zeros((3, 8, 97), np.float32))
    _, _, found = run_theirs(reread, np.zeros((3, 8, 97), np.float32))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ('buckets', 'last'), [(32, 128), (8, 12), pytest.param(64, 512, marks=pytest.mark.slow)]
)
def test_buckets_are_those_of_transformers(buckets, last):
    from transformers.models.t5.modeling_t5 import T5Attention

    from bert_jax.models.architecture_parts import RelativeBias
    from bert_jax.models.relative_bias import distance_buckets

    distance = torch.arange(-last, last + 1)
    for is_causal in (False, True):
        expected = T5Attention._relative_position_bucket(-distance, not is_causal, buckets, last)
        found = distance_buckets(RelativeBias(buckets, last), is_causal)
        np.testing.assert_array_equal(found, expected.numpy())
