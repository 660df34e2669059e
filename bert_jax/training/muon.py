"""Muon: the update of a matrix is its momentum with all singular values near 1.

Jordan et al. 2024, github.com/KellerJordan/Muon; scaled as in Liu et al. 2025, arXiv 2502.16982.
"""

import math
import re

import jax
import numpy as np
import optax
from optax import contrib
from optax.contrib import MuonDimensionNumbers

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.models.tuning_method import ADDED
from bert_jax.training.optimizers import (
    STACK,
    SkippingTransformation,
    keep_state_of_skipped_steps,
    scale_by_adam,
)
from bert_jax.types import Array, Config, Tree

# Root mean square of an update, about that of AdamW's updates (arXiv 2502.16982, section 2.2), so
# that rates and weight decays of AdamW are a start.
RMS = 0.2
_KERNEL_OF_LAYER = re.compile(rf'(^|/){STACK}(_\d+)?/.*kernel$')


def scale_by_muon(config: Config) -> SkippingTransformation:
    """Scale the kernels of the encoder's layers by Muon, and all other parameters by Adam.

    The heads of a projection are one matrix, [D, H · K]; the two halves of a gated feed-forward
    kernel are two. Layers on a stack axis are separate matrices. Embeddings, prediction heads,
    norms and biases have Adam with bias correction.

    Args:
        config: `config.optimizer`.

    Raises:
        UserError: by `init`, if no kernel of a layer is trained.
    """
    muon = optax.chain(
        contrib.scale_by_muon(beta=config.muon_momentum, weight_dimension_numbers=_matrices),
        optax.stateless(lambda updates, _: _scale(updates, config.muon_rate * RMS)),
    )
    adam = scale_by_adam(config.beta1, config.beta2, config.eps, bias_correction=True)
    parts = optax.partition({'muon': keep_state_of_skipped_steps(muon), 'adam': adam}, _labels)

    def init(params: Tree) -> Tree:
        if params_exist(params) and 'muon' not in jax.tree.leaves(_labels(params)):
            raise UserError(
                "optimizer.name is 'muon', but no kernel of a layer is trained; choose another "
                'optimizer, such as adamw'
            )
        return parts.init(params)

    return SkippingTransformation(init, parts.update)


def params_exist(params: Tree) -> bool:
    """Whether a tree has parameters; optax also calls `init` with a placeholder for them."""
    return bool(jax.tree.leaves(params))


def dimensions(path: str, ndim: int) -> MuonDimensionNumbers | None:
    """Return the axes of a parameter's matrix; None for parameters that are updated by Adam.

    Args:
        path: its name, such as encoder/layers_0/attention/query/kernel.
        ndim: its number of axes. The first one is the layer if the path has STACK.
    """
    if not _KERNEL_OF_LAYER.search(path) or ADDED in path.split('/'):
        return None
    *_, module, name, _ = path.split('/')
    first, last = int(STACK in path.split('/')), ndim - 1
    if module != 'attention':  # [D, F], [F, D], or the two parts of [D, 2, F]
        return MuonDimensionNumbers(first, last)
    if name == 'output':  # [H, K, D]
        return MuonDimensionNumbers(tuple(range(first, last)), last)
    return MuonDimensionNumbers(first, tuple(range(first + 1, ndim)))  # [D, H, K]


def _labels(params: Tree) -> Tree:
    """Return 'muon' or 'adam' for each parameter."""

    def label(path: tuple[object, ...], param: Array) -> str:
        is_matrix = dimensions(tree_paths.path_name(path), param.ndim)
        return 'muon' if is_matrix else 'adam'

    return jax.tree_util.tree_map_with_path(label, params)


def _matrices(params: Tree) -> Tree:
    """Return the axes of the parameters that Muon updates; the others are masked."""
    return jax.tree_util.tree_map_with_path(
        lambda path, param: dimensions(tree_paths.path_name(path), param.ndim), params
    )


def _scale(updates: Tree, rms: float) -> Tree:
    """Scale matrices [M, N] whose singular values are 1 to a root mean square of about `rms`."""

    def scale(path: tuple[object, ...], update: Array) -> Array:
        matrix = dimensions(tree_paths.path_name(path), update.ndim)
        assert matrix is not None
        sizes = [math.prod(update.shape[axis] for axis in np.atleast_1d(axes)) for axes in matrix]
        return update * (rms * math.sqrt(max(sizes)))

    return jax.tree_util.tree_map_with_path(scale, updates)
