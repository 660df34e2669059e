"""Every family agrees with transformers in all states, logits and gradients.

Parameters have ten times the usual scale and biases are not zero: at scale 0.02 a missing term can
pass unnoticed. Arrays agree in fp32 if no entry differs by more than 1e-5 · max(1, max |theirs|).
States of padding are not compared; gradients would show if anything depended on them.
"""

import jax
import numpy as np
import pytest
import torch

from bert_jax import tree_paths
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.parameters import stack_layers, unstack_layers
from bert_jax.models.rows import Rows
from tests.interop import published
from tests.parity.agreement import TOLERANCE, agree, agree_trees
from tests.parity.families import (
    CASES,
    FAMILIES,
    convert,
    convert_gradients,
    is_real,
    make_batch,
    make_models,
)

DEVIATION = 0.2
# Largest |ours − theirs| in bf16, relative to the largest |theirs|.
BF16_TOLERANCE = 0.05


def test_every_head_of_every_family_has_cases():
    renamed = {'camembert', 'data2vec-text', 'ernie'}  # other names only
    others = {*published.ENCODER_DECODERS}  # test_encoder_decoder_parity
    for name in FAMILIES.keys() - renamed - others:
        family = FAMILIES[name]
        cases = [case for case in CASES.values() if case.family == name]
        published_heads = {head for heads in family.classes.values() for head in heads}
        assert {head for heads in cases[0].classes.values() for head in heads} == published_heads
        assert 1 in {case.length for case in cases} or name == 'xlm-roberta'


def run_theirs(models, batch, weights):
    """Hidden states and the logits of all heads.

    Leaves the gradients of the weighted sum of logits, or of states without them, in the models.
    """
    logits = {}
    for model in models.values():
        computed = published.compute(model, batch)
        weighted = computed.keys() & weights.keys()
        loss = sum((computed[key] * torch.from_numpy(weights[key])).sum() for key in weighted)
        loss.backward()
        hidden = computed.pop('all_hidden').detach()
        logits |= {key: value.detach().numpy() for key, value in computed.items()}
    return hidden.numpy(), logits


def make_weights(models, batch, architecture, rng):
    """The factor of each logit in the differentiated sum, or of each state; 0 for padding."""
    weights = {}
    for model in models.values():
        shapes = {key: value.shape for key, value in published.outputs(model, batch).items()}
        if len(shapes) == 1:  # no head
            weights = {'all_hidden': rng.standard_normal(shapes['all_hidden']).astype(np.float32)}
            weights['all_hidden'][:, batch[1] == 0] = 0
            weights['all_hidden'][:-1] = 0  # those of the last layer depend on all others
        del shapes['all_hidden']
        for key, shape in shapes.items():
            weights[key] = rng.standard_normal(shape).astype(np.float32) / batch[1].sum()
            weights[key][~is_real(key.removesuffix('_logits'), architecture, batch[1])] = 0
    return weights


# One case a family, and what no other case varies; the rest is nightly.
QUICK = {
    *(name for name in CASES if name.endswith('-odd')),
    *('roberta-one', 'electra-one', 'distilbert-one'),  # instead of their odd cases
    *('gte-most', 'deberta-v2-one-term', 'modernbert-most'),
}
QUICK -= {'roberta-odd', 'xlm-roberta-odd', 'electra-odd', 'distilbert-odd'}
# Stacked layers, recomputed in the backward pass: absolute and relative positions.
SCANNED = ('bert-odd', 'deberta-v2-odd')


@pytest.mark.parametrize(
    'name',
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES],
)
def test_states_logits_and_gradients_agree_with_transformers(name):
    case, seed = CASES[name], list(CASES).index(name)
    models = make_models(case, 100 * seed, DEVIATION)
    architecture, params = convert(case, models)
    batch = make_batch(architecture, case.length, seed)
    is_causal = FAMILIES[case.family].is_causal
    weights = make_weights(models, batch, architecture, np.random.default_rng(seed))
    their_hidden, their_logits = run_theirs(models, batch, weights)
    their_gradients = convert_gradients(case, architecture, models)

    scan_layers = name in SCANNED
    for compute in [Compute()] + [Compute(scan_layers=True, remat=True)] * scan_layers:

        def loss(params, compute=compute):
            computed = loaded_model.outputs(architecture, compute, params, Rows(*batch), is_causal)
            return sum((computed[key] * weights[key]).sum() for key in weights), computed

        arranged = params
        if compute.scan_layers:
            arranged = params | {'encoder': stack_layers(params['encoder'])}
        compiled = jax.jit(jax.grad(loss, has_aux=True))
        gradients, computed = compiled(arranged)
        if compute.scan_layers:
            gradients = gradients | {'encoder': unstack_layers(gradients['encoder'])}
        compare_numbers(architecture, batch, computed, their_hidden, their_logits, TOLERANCE)
        agree_trees(tree_paths.flatten(gradients), their_gradients)


def compare_numbers(architecture, batch, ours, their_hidden, their_logits, tolerance):
    real_BT = batch[1] > 0
    assert ours['all_hidden'].shape == their_hidden.shape
    for number, theirs in enumerate(their_hidden):
        state = ours['all_hidden'][number]
        agree(state[real_BT], theirs[real_BT], f'state {number}', tolerance)
    assert ours.keys() == {'all_hidden', *their_logits}
    for key, theirs in their_logits.items():
        real = is_real(key.removesuffix('_logits'), architecture, batch[1])
        agree(ours[key][real], theirs[real], key, tolerance)


# The others are made of the same parts.
BF16 = ('bert-odd', 'deberta-v2-odd', 'modernbert-odd')


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in BF16))
        for name in CASES
        if name.endswith('odd')
    ],
)
def test_bf16_is_close_to_transformers(name):
    case = CASES[name]
    models = make_models(case, 7, DEVIATION)
    architecture, params = convert(case, models)
    batch = make_batch(architecture, case.length, 7)
    logits = {}
    for model in models.values():
        computed = published.outputs(model, batch)
        hidden = computed.pop('all_hidden')
        logits |= computed
    compute, is_causal = Compute(dtype='bfloat16'), FAMILIES[case.family].is_causal
    ours = loaded_model.outputs(architecture, compute, params, Rows(*batch), is_causal)
    compare_numbers(architecture, batch, jax.device_get(ours), hidden, logits, BF16_TOLERANCE)


@pytest.mark.parametrize('name', ['bert-odd', pytest.param('electra-odd', marks=pytest.mark.slow)])
def test_the_scale_is_large_enough_to_reveal_a_missing_bias(name):
    case = CASES[name]
    architecture, params = convert(case, make_models(case, 0, DEVIATION))
    batch = make_batch(architecture, case.length, 0)
    complete = loaded_model.outputs(architecture, Compute(), params, Rows(*batch))
    for path, leaf in tree_paths.flatten(params).items():
        if path.endswith('bias') and 'key' not in path:  # the bias of keys cancels in softmax
            lacking = jax.tree.map(lambda x, y=leaf: np.zeros_like(x) if x is y else x, params)
            changed = loaded_model.outputs(architecture, Compute(), lacking, Rows(*batch))
            assert max(abs(changed[key] - complete[key]).max() for key in complete) > 1e-2, path
