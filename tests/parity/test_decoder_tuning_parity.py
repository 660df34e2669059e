"""Tuned BART and T5 agree with transformers, in which hooks apply the formulas of the papers.

Parameters have ten times the usual scale, added ones included.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import torch
from flax import linen as nn
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.interop import conversion
from bert_jax.loaded import loaded_model, tuned
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.tuning_method import ADDED
from tests.parity import torch_tuning
from tests.parity.agreement import TOLERANCE, agree, agree_trees
from tests.parity.test_encoder_decoder_parity import (
    CASES,
    ROWS,
    SOURCE,
    SOURCE_MASK,
    TARGET,
    TARGET_MASK,
)

SMALL = {'rank': 2, 'bottleneck': 3, 'length': 3}
METHODS = [method for method in tuning.METHODS if method not in ('bitfit', 'prompt')]
QUICK = [('bart', 'mam'), ('t5-1.0', 'mam')]
PAIRS = [
    pytest.param(name, method, marks=() if (name, method) in QUICK else pytest.mark.slow)
    for name in ('bart', 't5-1.0')
    for method in METHODS
]
WEIGHTS = np.random.default_rng(1).standard_normal((3, 8, 97)).astype(np.float32)
WEIGHTS *= TARGET_MASK[..., None] / TARGET_MASK.sum()


@functools.cache
def base_params(name):
    case = CASES[name]
    params, _ = conversion.from_state_dict(case.family, case.architecture, case.state(), name)
    return tree_paths.flatten(params)


def with_method(name, method):
    """The architecture with a method, and random values of its parameters."""
    names = tuning.settings(method)
    chosen = tuning.build(method, {key: SMALL[key] for key in SMALL if key in names})
    architecture = dataclasses.replace(CASES[name].architecture, tuning=chosen)
    shapes = tree_paths.flatten(nn.unbox(loaded_model.abstract(architecture, ('seq2seq',))))
    rng = np.random.default_rng(2)
    added = {
        leaf: rng.normal(float(leaf.endswith('/scale')), 0.2, shape.shape).astype(np.float32)
        for leaf, shape in shapes.items()
        if ADDED in leaf.split('/')
    }
    return architecture, added


def run_ours(architecture, name, added):
    """Logits, and the gradients of added parameters."""

    def loss(added):
        params = traverse_util.unflatten_dict({**base_params(name), **added}, sep='/')
        logits = loaded_model.outputs(architecture, Compute(), params, ROWS)['seq2seq_logits']
        return (logits * WEIGHTS).sum(), logits

    gradients, logits = jax.jit(jax.grad(loss, has_aux=True))(added)
    return logits, gradients


def run_theirs(model, added, **inputs):
    """Logits; leaves gradients in the added parameters."""
    logits = model(
        **{key: torch.from_numpy(np.asarray(value)) for key, value in inputs.items()},
        decoder_input_ids=torch.from_numpy(TARGET),
        decoder_attention_mask=torch.from_numpy(TARGET_MASK),
    ).logits
    (logits * torch.from_numpy(WEIGHTS)).sum().backward()
    return logits.detach().numpy(), {name: leaf.grad.numpy() for name, leaf in added.items()}


@pytest.mark.parametrize(('name', 'method'), PAIRS)
def test_logits_and_gradients_of_tuned_models_agree_with_transformers(name, method):
    architecture, added = with_method(name, method)
    assert added
    leaves = {key: torch.tensor(array, requires_grad=True) for key, array in added.items()}
    model = CASES[name].model
    with torch_tuning.tuned(model, architecture.tuning, leaves):
        expected = run_theirs(model, leaves, input_ids=SOURCE, attention_mask=SOURCE_MASK)
    logits, gradients = run_ours(architecture, name, added)
    is_target = TARGET_MASK > 0
    agree(logits[is_target], expected[0][is_target], 'logits', TOLERANCE)
    agree_trees(gradients, expected[1])


def test_a_tuned_prompt_follows_the_first_token_of_the_source():
    """T5 has no absolute positions, so that the vectors can be given as embeddings."""
    name = 't5-1.0'
    architecture, added = with_method(name, 'prompt')
    ((key, array),) = added.items()
    leaves = {key: torch.tensor(array, requires_grad=True)}
    model = CASES[name].model
    prompt = leaves[key].expand(3, -1, -1)
    embedded = model.shared(torch.from_numpy(SOURCE)).detach()
    embedded = torch.cat([embedded[:, :1], prompt, embedded[:, 1:]], dim=1)
    mask = np.concatenate([np.ones((3, SMALL['length']), np.int32), SOURCE_MASK], axis=1)
    logits = model(
        inputs_embeds=embedded,
        attention_mask=torch.from_numpy(mask),
        decoder_input_ids=torch.from_numpy(TARGET),
        decoder_attention_mask=torch.from_numpy(TARGET_MASK),
    ).logits
    (logits * torch.from_numpy(WEIGHTS)).sum().backward()
    found, gradients = run_ours(architecture, name, added)
    is_target = TARGET_MASK > 0
    agree(found[is_target], logits.detach().numpy()[is_target], 'logits', TOLERANCE)
    agree_trees(gradients, {key: leaves[key].grad.numpy()})


@pytest.mark.parametrize('method', ['ia3', pytest.param('lora', marks=pytest.mark.slow)])
def test_merged_models_compute_the_same(method):
    architecture, added = with_method('bart', method)
    params = traverse_util.unflatten_dict({**base_params('bart'), **added}, sep='/')
    merged = tuned.merge(LoadedModel('bart', architecture, params))
    assert tree_paths.flatten(merged.params).keys() == base_params('bart').keys()
    expected, found = (
        loaded_model.outputs(model.architecture, Compute(), model.params, ROWS)['seq2seq_logits']
        for model in (LoadedModel('bart', architecture, params), merged)
    )
    agree(found, expected)
