"""The mask decoder, detection head, buckets and sizes of DeBERTa agree with transformers.

Parameters have ten times the usual scale and biases are not zero. Arrays agree in fp32 if no entry
of a token differs by more than 1e-5 · max(1, max |theirs|). Gradients would show if anything
depended on padding.
"""

import jax
import numpy as np
import pytest
import torch
import transformers
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from bert_jax import tree_paths
from bert_jax.interop import conversion, state_dict_map
from bert_jax.interop.families import FAMILIES
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures, layer_stack
from bert_jax.models.architecture import Compute
from bert_jax.models.disentangled import log_buckets
from bert_jax.models.encoders import EncoderOutput, build_encoder
from bert_jax.models.heads.prediction import ReplacedTokenHead
from bert_jax.models.parameters import num_parameters, stack_layers, unstack_layers
from bert_jax.models.rows import Rows
from tests.interop.published import randomize
from tests.parity.agreement import TOLERANCE, agree, agree_trees
from tests.parity.families import make_batch, untied

SIZES = dict(
    vocab_size=97,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=19,
    type_vocab_size=0,
    relative_attention=True,
    pos_att_type=['c2p', 'p2c'],
    position_biased_input=False,
)
BUCKETS = dict(position_buckets=6, share_att_key=True, norm_rel_ebd='layer_norm')
# Family, length, config; all with the mask decoder (without it: test_family_parity.py).
CASES = {
    'v1': ('deberta', 11, SIZES),
    'v3': ('deberta-v2', 19, SIZES | BUCKETS | dict(num_hidden_layers=3, legacy=False)),
    'v2_convolution': (
        'deberta-v2',
        17,
        SIZES | BUCKETS | dict(position_buckets=4, conv_kernel_size=3, conv_act='gelu'),
    ),
}
POSITIONS = 'deberta.embeddings.position_embeddings.weight'


def make_model(case, seed, deviation):
    """Their model with random weights, and the position table of the mask decoder."""
    model_type, _, config = CASES[case]
    kind = transformers.DebertaV2ForMaskedLM
    if model_type == 'deberta':
        kind = transformers.DebertaForMaskedLM
    model = kind(kind.config_class(**config, attn_implementation='eager')).eval()
    shape = (config['max_position_embeddings'], config['hidden_size'])
    model.register_parameter('decoder_positions', torch.nn.Parameter(torch.zeros(shape)))
    randomize(model, seed, deviation)
    return model


def convert(case, model):
    """Our architecture and parameters, and a function that returns their gradients."""
    family = FAMILIES[CASES[case][0]]
    architecture = family.read_config(model.config.to_dict())
    architecture = architecture.changed({'positions': 'mask_decoder'})

    def named(values):
        state = {family.current_name(name): value for name, value in values.items()}
        return state | {POSITIONS: state.pop('decoder_positions')}

    state = named({name: value.detach().numpy().copy() for name, value in untied(model).items()})
    params, fresh = conversion.from_state_dict(family, architecture, state, case, ('mlm',))
    assert not fresh

    def gradients():
        places = state_dict_map.places(family.table, architecture, ('mlm',), 2)
        return state_dict_map.to_ours(
            places, named({name: value.grad.numpy() for name, value in untied(model).items()})
        )

    return architecture, params, gradients


class QueriesFromElsewhere(torch.nn.Module):
    """A joint projection [B, T, heads · (query, key, value)] with the queries of other states."""

    def __init__(self, linear, num_heads, states):
        super().__init__()
        self.linear, self.num_heads, self.states = linear, num_heads, states

    def forward(self, x):
        own, other = (
            self.linear(states).unflatten(-1, (self.num_heads, 3, -1))
            for states in (x, self.states)
        )
        return torch.cat([other[..., :1, :], own[..., 1:, :]], -2).flatten(-3)


def run_layer(model, query, states, mask):
    """Run their last layer with keys and values of `states`.

    Separate queries fail in the v1 of transformers, so its joint projection is replaced meanwhile.
    """
    encoder = model.deberta.encoder
    layer = encoder.layer[-1]
    inputs = dict(
        attention_mask=encoder.get_attention_mask(mask),
        relative_pos=encoder.get_rel_pos(states),
        rel_embeddings=encoder.get_rel_embedding(),
    )
    attention = layer.attention.self
    if not hasattr(attention, 'in_proj'):
        return layer(states, query_states=query, **inputs)[0]
    joint = attention.in_proj
    attention.in_proj = QueriesFromElsewhere(joint, attention.num_attention_heads, query)
    attended = attention(states, **inputs)[0]
    attention.in_proj = joint
    attended = layer.attention.output(attended, query)
    return layer.output(layer.intermediate(attended), attended)


def run_reference(model, batch):
    """Hidden states, and the logits of the mask decoder."""
    ids, mask, _ = (torch.from_numpy(np.int64(value)) for value in batch)
    states_L = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    states = states_L[-2]
    query = model.decoder_positions[: states.shape[1]] + states
    for _ in range(2):
        query = run_layer(model, query, states, mask)
    table = model.deberta.embeddings.word_embeddings
    logits = model.cls(query) if model.legacy else model.lm_predictions(query, table)
    return torch.stack(states_L), logits


def compare(ours, their_hidden, their_logits, real_BT, tolerance):
    for number, theirs in enumerate(their_hidden):
        state = ours['all_hidden'][number]
        agree(state[real_BT], theirs.numpy()[real_BT], f'state {number}', tolerance)
    agree(ours['mlm_logits'][real_BT], their_logits.numpy()[real_BT], 'logits', tolerance)


@pytest.mark.parametrize(
    'case', [pytest.param(case, marks=[pytest.mark.slow] * (case != 'v3')) for case in CASES]
)
def test_the_mask_decoder_and_its_gradients_agree_with_transformers(case):
    seed = list(CASES).index(case)
    model = make_model(case, seed, 0.2)
    architecture, params, their_gradients = convert(case, model)
    batch = make_batch(architecture, CASES[case][1], seed)
    real_BT = batch[1] > 0
    their_hidden, their_logits = run_reference(model, batch)
    weights = np.random.default_rng(seed).standard_normal(their_logits.shape).astype(np.float32)
    weights *= real_BT[..., None] / real_BT.sum()
    (their_logits * torch.from_numpy(weights)).sum().backward()
    compute = Compute(scan_layers=case == 'v3', remat=case == 'v3')

    def loss(params):
        computed = loaded_model.outputs(architecture, compute, params, Rows(*batch))
        return (computed['mlm_logits'] * weights).sum(), computed

    arranged = params
    if compute.scan_layers:
        arranged = params | {'encoder': stack_layers(params['encoder'])}
    ours, computed = jax.jit(jax.grad(loss, has_aux=True))(arranged)
    if compute.scan_layers:
        ours = ours | {'encoder': unstack_layers(ours['encoder'])}
    compare(computed, their_hidden.detach(), their_logits.detach(), real_BT, TOLERANCE)
    agree_trees(tree_paths.flatten(ours), their_gradients())


def test_bf16_is_close_to_transformers():
    """With the usual scale of parameters, within 2 % of the largest value everywhere."""
    model = make_model('v3', 0, 0.02)
    architecture, params, _ = convert('v3', model)
    batch = make_batch(architecture, CASES['v3'][1], 0)
    with torch.no_grad():
        their_hidden, their_logits = run_reference(model, batch)
    computed = loaded_model.outputs(architecture, Compute(dtype='bfloat16'), params, Rows(*batch))
    compare(computed, their_hidden, their_logits, batch[1] > 0, 0.02)


def test_the_replaced_token_head_agrees_with_microsofts():
    """transformers does not have this head; the reference is that of microsoft/DeBERTa."""
    architecture = architectures.build('deberta_v2', hidden_size=24, num_heads=3)
    rng, size = np.random.default_rng(0), architecture.hidden_size
    norm = torch.nn.LayerNorm(size, architecture.layer_norm_eps)
    dense, classifier = torch.nn.Linear(size, size), torch.nn.Linear(size, 1)
    for value in (*norm.parameters(), *dense.parameters(), *classifier.parameters()):
        torch.nn.init.normal_(value)
    hidden_BTD = rng.standard_normal((2, 5, size), np.float32)
    with torch.no_grad():
        states = torch.from_numpy(hidden_BTD)
        theirs = classifier(torch.nn.functional.gelu(dense(norm(states[:, :1] + states))))
    params = {
        'norm': {'scale': norm.weight, 'bias': norm.bias},
        'transform': {'kernel': dense.weight.T, 'bias': dense.bias},
        'output': {'kernel': classifier.weight.T, 'bias': classifier.bias},
    }
    params = jax.tree.map(lambda value: value.detach().numpy(), params)
    head = ReplacedTokenHead(architecture, Compute())
    states, ids = EncoderOutput(hidden_BTD, None), np.zeros(hidden_BTD.shape[:2], np.int32)
    agree(head.apply({'params': params}, states, Rows(ids, ids)), theirs[..., 0].numpy())


# The published configs, and the parameter counts of transformers.
V1 = dict(vocab_size=50265, relative_attention=True, pos_att_type='c2p|p2c')
V2 = dict(
    vocab_size=128100,
    relative_attention=True,
    pos_att_type='p2c|c2p',
    position_buckets=256,
    norm_rel_ebd='layer_norm',
    share_att_key=True,
)
CONVOLUTION = dict(conv_kernel_size=3, conv_act='gelu')


def published(base, hidden_size, num_layers, num_heads, **others):
    sizes = dict(
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        intermediate_size=4 * hidden_size,
        position_biased_input=False,
    )
    kind = transformers.DebertaConfig if base is V1 else transformers.DebertaV2Config
    return kind(**(base | sizes | others))


PUBLISHED = {
    'deberta_base': (published(V1, 768, 12, 12), 138_601_728),
    'deberta_large': (published(V1, 1024, 24, 16), 405_163_008),
    'deberta_xlarge': (published(V1, 1024, 48, 16), 757_804_032),
    'deberta_v2_xlarge': (published(V2, 1536, 24, 24, **CONVOLUTION), 884_593_152),
    'deberta_v2_xxlarge': (published(V2, 1536, 48, 24, **CONVOLUTION), 1_564_549_632),
    'deberta_v3_xsmall': (published(V2, 384, 12, 6), 70_682_112),
    'deberta_v3_small': (published(V2, 768, 6, 12), 141_304_320),
    'deberta_v3_base': (published(V2, 768, 12, 12), 183_831_552),
    'deberta_v3_large': (published(V2, 1024, 24, 16), 434_012_160),
    'mdeberta_v3_base': (published(V2, 768, 12, 12, vocab_size=251000), 278_218_752),
}


@pytest.mark.parametrize('name', PUBLISHED)
def test_published_parameter_counts(name):
    config, count = PUBLISHED[name]
    with torch.device('meta'):
        theirs = transformers.AutoModel.from_config(config).num_parameters()
    architecture = architectures.build(name)
    ids = np.ones((1, 2), np.int32)
    encoder = build_encoder(architecture, Compute())
    params = layer_stack.abstract(lambda key: encoder.init(key, Rows(ids, ids)))['params']
    assert num_parameters(params, architecture) == theirs == count
    assert architecture.num_heads == config.num_attention_heads


@pytest.mark.parametrize(('num_buckets', 'max_distance'), [(256, 512), (6, 19), (64, 128), (7, 30)])
def test_buckets_agree_with_transformers(num_buckets, max_distance):
    distances = np.arange(-2 * max_distance, 2 * max_distance + 1)
    theirs = make_log_bucket_position(torch.from_numpy(distances), num_buckets, max_distance)
    ours = log_buckets(distances, num_buckets, max_distance)
    np.testing.assert_array_equal(ours, theirs.long().numpy())
