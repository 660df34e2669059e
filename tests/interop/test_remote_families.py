"""NeoBERT, Jina version 2 and MosaicBERT: states, logits and gradients of a few lines of torch.

Written from the published code, which the environment of the tests does not have.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn import functional

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export, state_dict_map
from bert_jax.interop.families import remote
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import alibi_slopes
from tests.parity.agreement import agree, agree_trees

VOCAB, WIDTH, HEADS, LAYERS, LENGTH = 97, 24, 2, 2, 11
SIZE = WIDTH // HEADS
COMMON = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS
)
NEO = {
    'model_type': 'neobert',
    'architectures': ['NeoBERTLMHead'],
    'auto_map': {'AutoModelForMaskedLM': 'model.NeoBERTLMHead'},
    'intermediate_size': 33,  # 22 features, rounded up to 24
    'max_length': 32,
    'norm_eps': 1e-5,
}
_BERT = {
    'model_type': 'bert',
    'intermediate_size': 40,
    'layer_norm_eps': 1e-12,
    'hidden_act': 'gelu',
}
JINA = _BERT | {
    'architectures': ['JinaBertForMaskedLM'],
    'auto_map': {'AutoModel': 'jinaai/jina-bert-implementation--modeling_bert.JinaBertForMaskedLM'},
    'position_embedding_type': 'alibi',
    'feed_forward_type': 'geglu',
    'emb_pooler': 'mean',
}
MOSAIC = _BERT | {
    'architectures': ['BertForMaskedLM'],
    'auto_map': {'AutoModelForMaskedLM': 'bert_layers.BertForMaskedLM'},
    'alibi_starting_size': 512,
}


@dataclasses.dataclass
class Case:
    config: dict
    family: object

    def shapes(self):
        inner = 24 if self.config is NEO else 40
        if self.config is NEO:
            yield 'model.encoder.weight', (VOCAB, WIDTH)
            for number in range(LAYERS):
                layer = f'model.transformer_encoder.{number}'
                yield f'{layer}.qkv.weight', (3 * WIDTH, WIDTH)
                yield f'{layer}.wo.weight', (WIDTH, WIDTH)
                yield f'{layer}.ffn.w12.weight', (2 * inner, WIDTH)
                yield f'{layer}.ffn.w3.weight', (WIDTH, inner)
                yield f'{layer}.attention_norm.weight', (WIDTH,)
                yield f'{layer}.ffn_norm.weight', (WIDTH,)
            yield 'model.layer_norm.weight', (WIDTH,)
            yield 'decoder.weight', (VOCAB, WIDTH)
            yield 'decoder.bias', (VOCAB,)
            return
        yield 'bert.embeddings.word_embeddings.weight', (VOCAB, WIDTH)
        yield 'bert.embeddings.token_type_embeddings.weight', (2, WIDTH)
        yield from _with_bias('bert.embeddings.LayerNorm', WIDTH)
        for number in range(LAYERS):
            layer = f'bert.encoder.layer.{number}'
            if self.config is JINA:
                for part in ('query', 'key', 'value'):
                    yield from _with_bias(f'{layer}.attention.self.{part}', WIDTH, WIDTH)
            else:
                yield from _with_bias(f'{layer}.attention.self.Wqkv', 3 * WIDTH, WIDTH)
            yield from _with_bias(f'{layer}.attention.output.dense', WIDTH, WIDTH)
            yield from _with_bias(f'{layer}.attention.output.LayerNorm', WIDTH)
            yield f'{layer}.mlp.gated_layers.weight', (2 * inner, WIDTH)
            yield from _with_bias(f'{layer}.mlp.wo', WIDTH, inner)
            yield from _with_bias(f'{layer}.mlp.layernorm', WIDTH)
        yield from _with_bias('cls.predictions.transform.dense', WIDTH, WIDTH)
        yield from _with_bias('cls.predictions.transform.LayerNorm', WIDTH)
        yield 'cls.predictions.bias', (VOCAB,)

    def state(self):
        """Weights ten times as large as usual; scales of norms have mean one."""
        rng = np.random.default_rng(0)
        state = {}
        for name, shape in self.shapes():
            is_scale = len(shape) == 1 and name.endswith('weight')
            state[name] = (is_scale + 0.2 * rng.standard_normal(shape)).astype(np.float32)
        return state


def _with_bias(name, *shape):
    yield f'{name}.weight', shape
    yield f'{name}.bias', shape[:1]


CASES = {
    'neobert': Case(NEO, remote.NEOBERT),
    'jina': Case(JINA, remote.JINA_V2),
    'mosaic': Case(MOSAIC, remote.MOSAIC),
}


def attend(query, key, value, bias):
    """Heads [B, H, T, K]."""
    scores = query @ key.transpose(-1, -2) / SIZE**0.5 + bias
    return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def neobert(w, ids, mask, types):
    def rms(x, name):
        return functional.rms_norm(x, (WIDTH,), w[name], 1e-5)

    def rotate(x):  # features 2k and 2k + 1 are a complex number
        angles = torch.outer(torch.arange(LENGTH), 10_000.0 ** -(torch.arange(0, SIZE, 2) / SIZE))
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    bias = torch.where(mask[:, None, None] > 0, 0.0, -torch.inf)
    states = [functional.embedding(ids, w['model.encoder.weight'])]
    for number in range(LAYERS):
        layer, x = f'model.transformer_encoder.{number}', states[-1]
        joint = rms(x, f'{layer}.attention_norm.weight') @ w[f'{layer}.qkv.weight'].T
        query, key, value = heads(joint).chunk(3, -1)
        x = x + attend(rotate(query), rotate(key), value, bias) @ w[f'{layer}.wo.weight'].T
        inner = rms(x, f'{layer}.ffn_norm.weight') @ w[f'{layer}.ffn.w12.weight'].T
        gate, up = inner.chunk(2, -1)
        states.append(x + (functional.silu(gate) * up) @ w[f'{layer}.ffn.w3.weight'].T)
    states[-1] = rms(states[-1], 'model.layer_norm.weight')
    return states, states[-1] @ w['decoder.weight'].T + w['decoder.bias']


def alibi_bert(w, ids, mask, types):
    def dense(x, name):
        return functional.linear(x, w[f'{name}.weight'], w.get(f'{name}.bias'))

    def norm(x, name):
        return functional.layer_norm(x, (WIDTH,), w[f'{name}.weight'], w[f'{name}.bias'], 1e-12)

    places = torch.arange(LENGTH)
    slopes = torch.from_numpy(np.asarray(alibi_slopes(HEADS)))
    bias = -(places[:, None] - places).abs() * slopes[:, None, None]
    bias = bias + torch.where(mask[:, None, None] > 0, 0.0, -torch.inf)
    words = w['bert.embeddings.word_embeddings.weight']
    x = functional.embedding(ids, words)
    x = x + functional.embedding(types, w['bert.embeddings.token_type_embeddings.weight'])
    states = [norm(x, 'bert.embeddings.LayerNorm')]
    for number in range(LAYERS):
        layer, x = f'bert.encoder.layer.{number}', states[-1]
        own = f'{layer}.attention.self'
        if f'{own}.Wqkv.weight' in w:
            parts = dense(x, f'{own}.Wqkv').chunk(3, -1)
        else:
            parts = [dense(x, f'{own}.{part}') for part in ('query', 'key', 'value')]
        attended = attend(*map(heads, parts), bias)
        output = f'{layer}.attention.output'
        x = norm(dense(attended, f'{output}.dense') + x, f'{output}.LayerNorm')
        gate, up = dense(x, f'{layer}.mlp.gated_layers').chunk(2, -1)
        wide = dense(functional.gelu(gate) * up, f'{layer}.mlp.wo')
        states.append(norm(wide + x, f'{layer}.mlp.layernorm'))
    x = functional.gelu(dense(states[-1], 'cls.predictions.transform.dense'))
    x = norm(x, 'cls.predictions.transform.LayerNorm')
    return states, x @ words.T + w['cls.predictions.bias']


@pytest.mark.parametrize('name', CASES)
def test_states_logits_and_gradients_agree_with_the_published_code(name, tmp_path):
    case = CASES[name]
    state = case.state()
    save_file(state, tmp_path / 'model.safetensors')
    (tmp_path / 'config.json').write_text(json.dumps(case.config | COMMON))
    loaded = huggingface.load(tmp_path)
    assert (loaded.family, loaded.heads) == (None, ('mlm',))
    rng = np.random.default_rng(1)
    mask = (np.arange(LENGTH) < np.array([[LENGTH], [7], [1]])).astype(np.int32)
    ids = rng.integers(1, VOCAB, mask.shape).astype(np.int32) * mask
    types = (np.arange(LENGTH) >= 5).astype(np.int32) * mask * (name != 'neobert')
    weight = rng.standard_normal((*mask.shape, VOCAB)).astype(np.float32) * mask[..., None]

    w = {key: torch.from_numpy(array).requires_grad_() for key, array in state.items()}
    given = (torch.from_numpy(array.astype(np.int64)) for array in (ids, mask, types))
    states, logits = (neobert if name == 'neobert' else alibi_bert)(w, *given)
    (logits * torch.from_numpy(weight)).sum().backward()

    rows = Rows(ids, mask, None if name == 'neobert' else types)
    architecture = loaded.architecture

    def loss(params):
        computed = loaded_model.outputs(architecture, Compute(), params, rows)
        return (computed['mlm_logits'] * weight).sum(), computed

    params = loaded.params
    if 'pooler' in params['encoder']:  # nothing reads it
        params['encoder'].pop('pooler')
        architecture = dataclasses.replace(architecture, pooler=False)
    gradients, computed = jax.jit(jax.grad(loss, has_aux=True))(params)
    real = mask > 0
    for number, expected in enumerate(states):
        agree(computed['all_hidden'][number][real], expected.detach().numpy()[real], f'{number}')
    agree(computed['mlm_logits'][real], logits.detach().numpy()[real])
    theirs = {key: tensor.grad.numpy() for key, tensor in w.items()}
    places = state_dict_map.places(case.family.table, architecture, ('mlm',), 2)
    agree_trees(tree_paths.flatten(gradients), state_dict_map.to_ours(places, theirs))
    with pytest.raises(UserError, match='belongs to no published family'):
        huggingface_export.save(loaded, tmp_path / 'out')


@pytest.mark.parametrize(
    ('name', 'change', 'message'),
    [
        ('neobert', {'rope': False}, 'rope is False; only True'),
        ('neobert', {'auto_map': {'AutoModel': 'other.NeoBERT'}}, 'auto_map'),
        (
            'jina',
            {'feed_forward_type': 'original'},
            "feed_forward_type is 'original'; only 'geglu'",
        ),
        ('jina', {'position_embedding_type': 'relative_key'}, 'auto_map is'),
    ],
)
def test_other_variants_are_refused(name, change, message, tmp_path):
    config = CASES[name].config | COMMON | change
    (tmp_path / 'config.json').write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        huggingface.load(tmp_path)
