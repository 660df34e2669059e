"""DeBERTa v1, v2 and v3 against transformers, fp32: the states of every layer, the logits of masked
tokens with and without the mask decoder, and the gradients of all parameters.

Parameters are ten times the usual scale and biases not zero. Two arrays agree if they differ
nowhere by more than 1e-5 · max(1, max |theirs|), at real positions: nothing may depend on those of
padding, and the gradients would show if something did.
"""

import jax
import numpy as np
import pytest
import torch
import transformers
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.disentangled import log_buckets
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MaskedLanguageModelHead, ReplacedTokenHead
from bert_jax.models.parameters import num_parameters, stack_layers, unstack_layers
from tests.parity.agreement import agree, agree_trees

SIZES = dict(
    vocab_size=97,
    hidden_size=24,
    num_layers=2,
    num_heads=3,
    intermediate_size=40,
    max_position_embeddings=19,
)
C2P, P2C = 'content_to_position', 'position_to_content'
# name: (architecture, its sizes, length, whether masked tokens are predicted by the old head)
CASES = {
    'v1': ('deberta', dict(mask_decoder=True), 11, True),
    'v1_absolute_and_cut': (
        'deberta',
        dict(positions='learned', type_vocab_size=2, max_relative_positions=5, vocab_size=128),
        19,
        False,
    ),
    'v1_one_term': ('deberta', dict(position_terms=(P2C,), num_layers=1, num_heads=1), 7, True),
    'v3': ('deberta_v2', dict(position_buckets=6, mask_decoder=True, num_layers=3), 19, False),
    'v3_length_one': ('deberta_v2', dict(position_buckets=8, num_layers=1), 1, True),
    'v2_convolution': (
        'deberta_v2',
        dict(position_buckets=4, convolution_width=3, mask_decoder=True),
        17,
        True,
    ),
    'v2_own_projections': (
        'deberta_v2',
        dict(
            position_buckets=None,
            share_position_projections=False,
            relative_norm=False,
            max_relative_positions=7,
            convolution_width=5,
            convolution_act='tanh',
            num_heads=4,
        ),
        13,
        False,
    ),
    'v2_one_term': (
        'deberta_v2',
        dict(position_terms=(C2P,), position_buckets=10, hidden_size=20, num_heads=5),
        19,
        False,
    ),
}


def their_config(architecture, **options):
    """The same model as transformers describes it."""
    v1 = not architecture.key_bias
    names = {C2P: 'c2p', P2C: 'p2c'}
    own = {}
    if not v1:
        own = dict(
            position_buckets=architecture.position_buckets or -1,
            share_att_key=architecture.share_position_projections,
            norm_rel_ebd='layer_norm' if architecture.relative_norm else 'none',
            conv_kernel_size=architecture.convolution_width or 0,
            conv_act=architecture.convolution_act,
        )
    return (transformers.DebertaConfig if v1 else transformers.DebertaV2Config)(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        intermediate_size=architecture.intermediate_size,
        max_position_embeddings=architecture.max_position_embeddings,
        type_vocab_size=architecture.type_vocab_size,
        layer_norm_eps=architecture.layer_norm_eps,
        hidden_dropout_prob=architecture.hidden_dropout,
        attention_probs_dropout_prob=architecture.attention_dropout,
        relative_attention=True,
        max_relative_positions=architecture.max_relative_positions or -1,
        position_biased_input=architecture.positions == 'learned',
        pos_att_type=[names[term] for term in architecture.position_terms],
        **own,
        **options,
    )


def make_model(architecture, rng, legacy):
    """Their model with random weights, and the table of positions of the mask decoder."""
    kind = transformers.DebertaV2ForMaskedLM
    if not architecture.key_bias:
        kind = transformers.DebertaForMaskedLM
    model = kind(their_config(architecture, legacy=legacy)).eval()
    shape = (architecture.max_position_embeddings, architecture.hidden_size)
    model.register_parameter('decoder_positions', torch.nn.Parameter(torch.zeros(shape)))
    with torch.no_grad():
        for name, value in model.named_parameters():
            is_scale = value.ndim == 1 and name.endswith('weight')
            noise = 10 * architecture.initializer_range * rng.standard_normal(value.shape)
            value.copy_(torch.from_numpy(noise + is_scale))
    return model


def to_tree(state, architecture):
    """Their arrays, weights or gradients, in our tree; every one must find its place."""
    state = dict(state)
    heads, size = architecture.num_heads, architecture.head_size
    padding = architecture.padded_vocab_size - architecture.vocab_size

    def take(name, ending):
        return state.pop(f'{name}.{ending}')

    def dense(name):
        return {'kernel': take(name, 'weight').T, 'bias': take(name, 'bias')}

    def norm(name):
        return {'scale': take(name, 'weight'), 'bias': take(name, 'bias')}

    def by_head(kernel, bias=None):
        made = {'kernel': kernel.T.reshape(-1, heads, size)}
        return made if bias is None else made | {'bias': bias.reshape(heads, size)}

    def attention(name):
        output = dense(f'{name}.output.dense')
        output['kernel'] = output['kernel'].reshape(heads, size, -1)
        name = f'{name}.self'
        if f'{name}.in_proj.weight' in state:
            joint = take(name, 'in_proj.weight').reshape(heads, 3, size, -1)
            query, key, value = (joint[:, part].reshape(heads * size, -1) for part in range(3))
            made = {
                'query': by_head(query, take(name, 'q_bias')),
                'key': by_head(key),
                'value': by_head(value, take(name, 'v_bias')),
            }
        else:
            made = {
                part: by_head(take(name, f'{part}_proj.weight'), take(name, f'{part}_proj.bias'))
                for part in ('query', 'key', 'value')
            }
        for ours, theirs in (
            ('position_key', 'pos_proj'),
            ('position_query', 'pos_q_proj'),
            ('position_key', 'pos_key_proj'),
            ('position_query', 'pos_query_proj'),
        ):
            if f'{name}.{theirs}.weight' in state:
                bias = state.pop(f'{name}.{theirs}.bias', None)
                made[ours] = by_head(take(name, f'{theirs}.weight'), bias)
        return made | {'output': output}

    def layer(name):
        return {
            'attention': attention(f'{name}.attention'),
            'attention_norm': norm(f'{name}.attention.output.LayerNorm'),
            'feedforward': {
                'input': dense(f'{name}.intermediate.dense'),
                'output': dense(f'{name}.output.dense'),
            },
            'feedforward_norm': norm(f'{name}.output.LayerNorm'),
        }

    token = take('deberta.embeddings.word_embeddings', 'weight')
    embeddings = {
        'token': np.pad(token, ((0, padding), (0, 0))),
        'norm': norm('deberta.embeddings.LayerNorm'),
    }
    position = state.pop('decoder_positions')
    if architecture.mask_decoder:
        embeddings['position'] = position
    if architecture.positions == 'learned':
        embeddings['position'] = take('deberta.embeddings.position_embeddings', 'weight')
    if architecture.type_vocab_size:
        embeddings['type'] = take('deberta.embeddings.token_type_embeddings', 'weight')
    relative = {'embedding': take('deberta.encoder.rel_embeddings', 'weight')}
    if architecture.relative_norm:
        relative['norm'] = norm('deberta.encoder.LayerNorm')
    encoder = {'embeddings': embeddings, 'relative_positions': relative}
    if architecture.convolution_width:
        convolution = dense('deberta.encoder.conv.conv')
        encoder['convolution'] = {
            'dense': convolution,  # its kernel [out, in, width] is turned round
            'norm': norm('deberta.encoder.conv.LayerNorm'),
        }
    for number in range(architecture.num_layers):
        encoder[f'layers_{number}'] = layer(f'deberta.encoder.layer.{number}')
    old = 'cls.predictions.bias' in state
    head = 'cls.predictions.transform' if old else 'lm_predictions.lm_head'
    bias = state.pop('cls.predictions.bias' if old else 'lm_predictions.lm_head.bias')
    mlm = {
        'transform': dense(f'{head}.dense'),
        'norm': norm(f'{head}.LayerNorm'),
        'bias': np.pad(bias, (0, padding)),
    }
    assert not state, sorted(state)
    return {'encoder': encoder, 'mlm': mlm}


class QueriesFromElsewhere(torch.nn.Module):
    """A joint projection [B, T, heads · (query, key, value)] whose queries are those of other
    states."""

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
    """Their last layer with keys and values of `states`. That of v1 cannot take queries of its own
    in transformers (it fails), so its joint projection is exchanged meanwhile."""
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


def run_reference(model, architecture, batch):
    """Hidden states, and logits without and (if it is there) with the mask decoder."""
    tensors = {key: torch.from_numpy(np.int64(value)) for key, value in batch.items()}
    output = model(**tensors, output_hidden_states=True)
    logits = {'logits': output.logits}
    if architecture.mask_decoder:
        states, mask = output.hidden_states[-2], tensors['attention_mask']
        query = model.decoder_positions[: states.shape[1]] + states
        for _ in range(2):
            query = run_layer(model, query, states, mask)
        table = model.deberta.embeddings.word_embeddings
        logits['decoded'] = model.cls(query) if model.legacy else model.lm_predictions(query, table)
    return output.hidden_states, logits


def forward(architecture, compute, params, batch):
    """The same of ours."""
    output = Encoder(architecture, compute).apply(
        {'params': params['encoder']},
        batch['input_ids'],
        batch['attention_mask'],
        batch.get('token_type_ids'),
        all_hidden=True,
    )
    head = MaskedLanguageModelHead(architecture, compute)
    table_VD = params['encoder']['embeddings']['token']
    states = {'logits': output.hidden_BTD}
    if architecture.mask_decoder:
        states['decoded'] = output.decoded_BTD
    logits = {
        name: head.apply({'params': params['mlm']}, x_BTD, table_VD)[..., : architecture.vocab_size]
        for name, x_BTD in states.items()
    }
    return output.all_hidden_LBTD, logits


def make_batch(architecture, length, rng):
    """Five sequences: whole, padded right, left, on both sides, and of one token."""
    starts = np.array([0, 0, length // 3, length // 4, 0])
    ends = np.array([length, (length + 1) // 2, length, length - length // 3, 1])
    at = np.arange(length)
    mask = ((at >= starts[:, None]) & (at < ends[:, None])).astype(np.int32)
    ids = rng.integers(1, architecture.vocab_size, mask.shape)
    batch = {'input_ids': ids * mask, 'attention_mask': mask}
    if architecture.type_vocab_size:
        batch['token_type_ids'] = (at >= (starts + ends)[:, None] // 2) * mask
    return batch


@pytest.mark.parametrize('case', CASES)
def test_states_logits_and_gradients_equal_transformers(case):
    name, sizes, length, legacy = CASES[case]
    rng = np.random.default_rng(sorted(CASES).index(case))
    architecture = architectures.build(name, **(SIZES | sizes))
    batch = make_batch(architecture, length, rng)
    real_BT = batch['attention_mask'] > 0
    model = make_model(architecture, rng, legacy)
    their_hidden, their_logits = run_reference(model, architecture, batch)
    weights = {
        key: rng.standard_normal(value.shape).astype(np.float32)
        * real_BT[..., None]
        / real_BT.sum()
        for key, value in their_logits.items()
    }
    sum((their_logits[key] * torch.from_numpy(weights[key])).sum() for key in weights).backward()
    tied = model._tied_weights_keys or {}
    trained = {key: value for key, value in model.named_parameters() if key not in tied}
    params = to_tree({key: value.detach().numpy() for key, value in trained.items()}, architecture)
    grads = {
        key: np.zeros(value.shape, np.float32) if value.grad is None else value.grad.numpy()
        for key, value in trained.items()
    }
    expected = to_tree(grads, architecture)

    def loss(params, compute):
        hidden_LBTD, logits = forward(architecture, compute, params, batch)
        return sum((logits[key] * weights[key]).sum() for key in logits), (hidden_LBTD, logits)

    compute = Compute(scan_layers=case == 'v3', remat=case == 'v3')
    arranged = params
    if compute.scan_layers:
        arranged = params | {'encoder': stack_layers(params['encoder'])}
    gradient = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    ours, (hidden, logits) = gradient(arranged, compute)
    if compute.scan_layers:
        ours = ours | {'encoder': unstack_layers(ours['encoder'])}
    assert len(hidden) == len(their_hidden)
    for number, theirs in enumerate(their_hidden):
        agree(hidden[number][real_BT], theirs.detach().numpy()[real_BT], f'state {number}')
    for key, theirs in their_logits.items():
        agree(logits[key][real_BT], theirs.detach().numpy()[real_BT], key)
    agree_trees(ours, expected)


def test_bf16_is_near_transformers():
    """At the usual scale of parameters, everywhere within 2 % of the largest value."""
    name, sizes, length, legacy = CASES['v3']
    rng = np.random.default_rng(0)
    architecture = architectures.build(name, **(SIZES | sizes))
    batch = make_batch(architecture, length, rng)
    real_BT = batch['attention_mask'] > 0
    model = make_model(architecture, rng, legacy)
    with torch.no_grad():
        for value in model.parameters():
            value -= 0.9 * value * (abs(value) < 0.5)  # scales of norms stay
        their_hidden, their_logits = run_reference(model, architecture, batch)
    tied = model._tied_weights_keys or {}
    state = {key: value.numpy() for key, value in model.state_dict().items() if key not in tied}
    params = to_tree(state, architecture)
    hidden, logits = jax.jit(forward, static_argnums=(0, 1))(
        architecture, Compute(dtype='bfloat16'), params, batch
    )
    pairs = list(zip(hidden, their_hidden, strict=True))
    for ours, theirs in [*pairs, *((logits[key], their_logits[key]) for key in logits)]:
        ours, theirs = np.float32(ours)[real_BT], theirs.numpy()[real_BT]
        error = abs(ours - theirs).max() / abs(theirs).max()
        assert error < 0.02


def test_detection_of_replaced_tokens():
    """The head that transformers leaves out, as microsoft/DeBERTa has it."""
    architecture = architectures.build('deberta_v2', **SIZES, position_buckets=6)
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
    agree(head.apply({'params': params}, hidden_BTD), theirs[..., 0].numpy())


# What the published config.json say, and how many parameters transformers gives such a model.
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
def test_published_sizes(name):
    config, count = PUBLISHED[name]
    with torch.device('meta'):
        theirs = transformers.AutoModel.from_config(config).num_parameters()
    architecture = architectures.build(name)
    ids = jax.ShapeDtypeStruct((1, 2), np.int32)
    compute = Compute(scan_layers=architecture.equal_layers)
    encoder = Encoder(architecture, compute)
    params = jax.eval_shape(encoder.init, jax.random.key(0), ids, ids)['params']
    assert num_parameters(params, architecture) == theirs == count
    assert architecture.num_heads == config.num_attention_heads


@pytest.mark.parametrize(('num_buckets', 'max_distance'), [(256, 512), (6, 19), (64, 128), (7, 30)])
def test_buckets_equal_transformers(num_buckets, max_distance):
    distances = np.arange(-2 * max_distance, 2 * max_distance + 1)
    theirs = make_log_bucket_position(torch.from_numpy(distances), num_buckets, max_distance)
    ours = log_buckets(distances, num_buckets, max_distance)
    np.testing.assert_array_equal(ours, theirs.long().numpy())
