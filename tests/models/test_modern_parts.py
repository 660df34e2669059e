"""Norms around sublayers and of queries and keys, squared ReLU, soft-capped logits, zero output."""

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests import jaxprs

SIZES = dict(
    vocab_size=30,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    pooler=False,
)
MODERN = {
    'attention.qk_norm': True,
    'norms.placement': 'both',
    'hidden_act': 'relu_squared',
    'prediction.transform': False,
    'prediction.soft_cap': 3.0,
}
IDS = np.random.default_rng(0).integers(0, 30, (2, 9)).astype(np.int32)
MASK = np.ones_like(IDS)
MASK[1, 6:] = 0


def model_and_params(scale=10, compute=None, **changes):
    architecture = architectures.build('bert', **SIZES, **changes)
    model = Model(architecture, compute or Compute(), {'mlm': {}})
    params = nn.unbox(model.init(jax.random.key(0), Rows(IDS, MASK))['params'])
    rng = np.random.default_rng(1)

    def spread(path, leaf):  # so that norms and biases have an effect
        is_one = 'norm' in str(path) and 'scale' in str(path)
        return scale * leaf + (0 if is_one else 0.3) * np.float32(rng.normal(size=leaf.shape))

    return model, jax.tree_util.tree_map_with_path(spread, params) if scale else params


def norm(x, params, name):
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * params[f'{name}/scale'] + params[f'{name}/bias']


def expected(params):
    """The logits of MODERN, one row, head and sublayer at a time, in float64."""
    p = {name: np.float64(leaf) for name, leaf in tree_paths.flatten(params).items()}
    logits = []
    for ids_T, mask_T in zip(IDS, MASK, strict=True):
        token, position, kind = (
            p[f'encoder/embeddings/{n}'] for n in ('token', 'position', 'type')
        )
        x = norm(token[ids_T] + position + kind[0], p, 'encoder/embeddings/norm')
        for layer in range(2):
            at = f'encoder/layers_{layer}'
            h, heads = norm(x, p, f'{at}/attention_norm'), []
            for head in range(3):
                query, key, value = (
                    h @ p[f'{at}/attention/{n}/kernel'][:, head]
                    + p[f'{at}/attention/{n}/bias'][head]
                    for n in ('query', 'key', 'value')
                )
                query = norm(query, p, f'{at}/attention/query_norm')
                key = norm(key, p, f'{at}/attention/key_norm')
                scores = np.where(mask_T > 0, query @ key.T / 2.0, -np.inf)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                heads.append(weights / weights.sum(-1, keepdims=True) @ value)
            output = sum(
                one @ p[f'{at}/attention/output/kernel'][head] for head, one in enumerate(heads)
            )
            output = output + p[f'{at}/attention/output/bias']
            x = x + norm(output, p, f'{at}/attention_output_norm')
            h = norm(x, p, f'{at}/feedforward_norm')
            h = h @ p[f'{at}/feedforward/input/kernel'] + p[f'{at}/feedforward/input/bias']
            output = np.maximum(h, 0) ** 2 @ p[f'{at}/feedforward/output/kernel']
            output = output + p[f'{at}/feedforward/output/bias']
            x = x + norm(output, p, f'{at}/feedforward_output_norm')
        x = norm(x, p, 'encoder/final_norm')
        logits.append(3 * np.tanh((x @ token.T + p['mlm/head/bias']) / 3))
    return np.stack(logits)[..., :30]


@pytest.mark.parametrize('scan_layers', [False, True])
def test_the_parts_compute_their_formulas(scan_layers):
    model, params = model_and_params(**MODERN)
    if scan_layers:
        from bert_jax.models.parameters import stack_layers

        model, _ = model_and_params(compute=Compute(scan_layers=True), **MODERN)
        params = params | {'encoder': stack_layers(params['encoder'])}
    logits = model.apply({'params': params}, Rows(IDS, MASK)).heads['mlm']
    unstacked = model_and_params(**MODERN)[1]
    real = MASK.astype(bool)
    ours, theirs = np.asarray(logits)[real][:, :30], expected(unstacked)[real]
    np.testing.assert_allclose(ours, theirs, atol=2e-4)
    assert abs(theirs).max() > 1  # the cap and the scale matter
    assert (np.asarray(logits)[..., 30:] < -1e8).all()


def test_rotary_attention_has_norms_of_queries_and_keys_too():
    sizes = {name: SIZES[name] for name in ('vocab_size', 'hidden_size', 'num_layers', 'num_heads')}
    architecture = architectures.build('modernbert', **sizes, **{'attention.qk_norm': True})
    model = Model(architecture, Compute(), {'mlm': {}})
    params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), Rows(IDS, MASK))['params'])
    names = [name for name in tree_paths.flatten(params) if '/query_norm/' in name]
    assert names == [f'encoder/layers_{n}/attention/query_norm/scale' for n in range(2)]


@pytest.mark.parametrize('remat', [False, True])
def test_rotations_of_known_positions_are_constants(remat):
    sizes = {name: SIZES[name] for name in ('vocab_size', 'hidden_size', 'num_layers', 'num_heads')}
    model = Model(architectures.build('modernbert', **sizes), Compute(remat=remat), {'mlm': {}})
    params = jax.eval_shape(model.init, jax.random.key(0), Rows(IDS, MASK))
    traced = jax.make_jaxpr(lambda params: model.apply(params, Rows(IDS, MASK)).heads)(params)
    assert not {'cos', 'sin'} & jaxprs.primitives(traced.jaxpr)


def test_layers_change_nothing_at_the_start_with_zero_output():
    model, params = model_and_params(scale=0, zero_output_init=True, **{'norms.placement': 'pre'})
    for name, leaf in tree_paths.flatten(params).items():
        is_zero = not np.any(leaf)
        assert is_zero == name.endswith(('output/kernel', 'bias')), name


def test_scaled_and_zero_output_exclude_each_other():
    with pytest.raises(UserError, match='exclude each other'):
        model_and_params(zero_output_init=True, scaled_output_init=True)


@pytest.mark.parametrize('changes', [{key: value} for key, value in MODERN.items()])
def test_only_what_transformers_computes_is_exported(changes):
    architecture = architectures.build('bert', **SIZES, **changes)
    if 'hidden_act' in changes:
        assert FAMILIES['bert'].write_config(architecture)['hidden_act'] == 'relu2'
    else:
        with pytest.raises(UserError, match='a bert config cannot express'):
            FAMILIES['bert'].write_config(architecture)
    zero = architectures.build('bert', **SIZES, zero_output_init=True)
    assert FAMILIES['bert'].write_config(zero)['hidden_size'] == 12
