"""Counting parameters, and converting between separate and stacked layers."""

import math
import re

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture


def num_parameters(boxed_params, architecture: Architecture) -> int:
    """Parameters of a tree with logical axis names (module.init or its eval_shape, not unboxed),
    as the published models count them: without the padding rows of the vocabulary."""
    count = 0
    for leaf in jax.tree.leaves(boxed_params, is_leaf=lambda x: isinstance(x, nn.Partitioned)):
        count += math.prod(
            architecture.vocab_size if name == 'vocab' else size
            for name, size in zip(leaf.names, leaf.value.shape, strict=True)
        )
    return count


def stack_layers(params: dict) -> dict:
    """An encoder's (unboxed) parameters as its twin with scan_layers has them."""
    names = sorted(
        (name for name in params if re.fullmatch(r'layers_\d+', name)),
        key=lambda name: int(name.split('_')[1]),
    )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(params[name] for name in names))
    return {name: params[name] for name in params if name not in names} | {'layers': stacked}


def unstack_layers(params: dict) -> dict:
    """The inverse of stack_layers."""
    stacked = params['layers']
    num_layers = len(jax.tree.leaves(stacked)[0])
    layers = {
        f'layers_{i}': jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(num_layers)
    }
    return {name: params[name] for name in params if name != 'layers'} | layers
