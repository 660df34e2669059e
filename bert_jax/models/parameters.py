"""Parameter counts, and conversion between separate and stacked layers."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture
from bert_jax.types import Params


def num_parameters(boxed_params: Params, architecture: Architecture) -> int:
    """Count parameters as published, without the padding rows of the vocabulary.

    Args:
        boxed_params: parameters with logical axis names, from `module.init` or its `eval_shape`.
    """
    count = 0
    for leaf in jax.tree.leaves(boxed_params, is_leaf=lambda x: isinstance(x, nn.Partitioned)):
        count += math.prod(
            architecture.vocab_size if name == 'vocab' else size
            for name, size in zip(leaf.names, leaf.value.shape, strict=True)
        )
    return count


def stack_layers(params: Params) -> dict[str, Any]:
    """Convert unboxed parameters of a Transformer to the form that scan_layers uses."""
    names = [f'layers_{i}' for i in range(len(params)) if f'layers_{i}' in params]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(params[name] for name in names))
    return {name: params[name] for name in params if name not in names} | {'layers': stacked}


def unstack_layers(params: Params) -> dict[str, Any]:
    """The inverse of `stack_layers`."""
    stacked = params['layers']
    num_layers = len(jax.tree.leaves(stacked)[0])
    layers = {
        f'layers_{i}': jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(num_layers)
    }
    return {name: params[name] for name in params if name != 'layers'} | layers
