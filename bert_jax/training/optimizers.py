"""Optimizers by name, as optax transformations.

Their `update` takes three optional arguments in addition to optax's: `accept`, a bool scalar, False
to leave the moments unchanged (a skipped step), `norm`, the global norm of the gradients if it is
known already, and `position`, the argument of the schedule if it is not the step. Skipped steps
count in the schedule, so that the schedule still reaches its end. An entry of DIRECTIONS may be any
transformation of optax: `build` keeps its state in a skipped step.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from bert_jax import errors, lazy_table, tree_paths
from bert_jax.training.schedules import Schedule
from bert_jax.types import Array, Config, Tree

# A parameter with this path component is a stack of layers along its first axis (nn.scan).
STACK = 'layers'
_SMALL = 2**16  # largest number of entries of an array that `global_norm` concatenates


def build(config: Config, schedule: Schedule) -> optax.GradientTransformationExtraArgs:
    """Build the optimizer `config.name`, ready for `optax.apply_updates`.

    - 'bert_adam': Adam without bias correction (google-research/bert, optimization.py);
      published with beta1 0.9, beta2 0.999, eps 1e-6, weight_decay 0.01, clip_norm 1.
    - 'adamw': AdamW with bias correction (Loshchilov & Hutter 2019), as torch.optim.AdamW.
    - 'lamb': LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2) with φ the identity.
    - 'albert_lamb': LAMB without bias correction, and with trust ratio 1 for parameters that are
      not decayed (google-research/albert, lamb_optimizer.py).
    - 'stable_adamw': StableAdamW (Wortsman et al. 2023, arXiv 2304.13013, algorithm 2), which
      lowers the learning rate of an array whose gradient exceeds its second moment.
    - 'muon': Muon for the kernels of the encoder's layers, AdamW for the others (muon.py).

    In all of them eps is added outside the square root, and weight decay is decoupled from the
    moments but multiplied by the learning rate. Gradients are first clipped by their global norm.
    Moments have the dtype of the parameters.

    Args:
        config: `config.optimizer`. Parameters whose path matches (`re.search`) a pattern of
            `decay_exclude` are not decayed; a `clip_norm` of 0 does not clip.
        schedule: learning rate by number of previous steps, or by `position`.

    Raises:
        UserError: a pattern is not a regular expression.
    """
    patterns = tuple(config.decay_exclude)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise errors.UserError(
                f'optimizer.decay_exclude has {pattern!r}, an invalid regular expression: {error}'
            ) from None
    is_decayed = functools.partial(decay_mask, exclude=patterns)
    decay = optax.add_decayed_weights(config.weight_decay, is_decayed)
    directions = DIRECTIONS[config.name](decay, is_decayed, config)
    return optax.chain(
        clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity(),
        *map(keep_state_of_skipped_steps, directions),
        scale_by_learning_rate(schedule),
    )


class SkippingTransformation(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # Any
    """A transformation whose `update` itself keeps the state in a step that is not accepted."""


def keep_state_of_skipped_steps(
    transformation: optax.GradientTransformation,
) -> SkippingTransformation:
    """Return a transformation with the same updates, whose state skipped steps leave unchanged."""
    if isinstance(transformation, SkippingTransformation):
        return transformation
    inner = optax.with_extra_args_support(transformation)

    def update(
        grads: Tree,
        state: Tree,
        params: Tree = None,
        *,
        accept: Array | bool = True,
        **extra: object,
    ) -> tuple[Tree, Tree]:
        updates, new = inner.update(grads, state, params, accept=accept, **extra)
        return updates, jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, state)

    return SkippingTransformation(inner.init, update)


def scale_by_learning_rate(schedule: Schedule) -> optax.GradientTransformationExtraArgs:
    """Multiply updates by −schedule(step) or, if it is given, −schedule(position)."""
    by_step = optax.scale_by_learning_rate(schedule)

    def update(
        updates: Tree,
        state: Tree,
        params: Tree = None,
        *,
        position: Array | None = None,
        **_: object,
    ) -> tuple[Tree, Tree]:
        if position is None:
            stepped: tuple[Tree, Tree] = by_step.update(updates, state, params)
            return stepped
        rate = schedule(position)
        updates = jax.tree.map(lambda update: -rate * update, updates)
        return updates, state._replace(count=state.count + 1)

    return optax.GradientTransformationExtraArgs(by_step.init, update)


def decay_mask(params: Tree, exclude: Sequence[str]) -> Tree:
    """Return True for every parameter whose path matches no pattern of `exclude`, as a tree."""

    def is_decayed(path: tuple[object, ...], _: Tree) -> bool:
        return not any(re.search(pattern, tree_paths.path_name(path)) for pattern in exclude)

    return jax.tree_util.tree_map_with_path(is_decayed, params)


_USUAL = ('bias', 'norm')


def check_decay_exclude(exclude: Sequence[str], params: Tree) -> None:
    """Check that every pattern matches a parameter; a typo would silently decay LayerNorms.

    The patterns of the recipes need not match: the recurrent encoder has no norms.

    Args:
        exclude: regular expressions.
        params: all parameters, trained or not.

    Raises:
        UserError: a pattern matches no path.
    """
    paths = list(tree_paths.flatten(params))
    for pattern in exclude:
        if pattern not in _USUAL and not any(re.search(pattern, path) for path in paths):
            raise errors.UserError(
                f'the pattern {pattern!r} in optimizer.decay_exclude matches no parameter; their '
                f'paths look like {", ".join(paths[:4])}'
            )


def clip_by_global_norm(limit: float) -> optax.GradientTransformationExtraArgs:
    """Scale all gradients by limit / max(norm, limit), as tf.clip_by_global_norm."""

    def update(
        grads: Tree, state: Tree, params: Tree = None, *, norm: Array | None = None, **_: object
    ) -> tuple[Tree, Tree]:
        norm = global_norm(grads) if norm is None else norm
        scale = limit / jnp.maximum(norm, limit)
        return jax.tree.map(lambda grad: grad * scale, grads), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def global_norm(grads: Tree) -> jax.Array:
    """Return √Σ g² over all arrays of the tree.

    On one device the small arrays are concatenated first: separate sums of BERT-base's biases would
    be a sixth of the code to compile for a training step. On several devices arrays may have
    different shardings, and concatenation would require communication.
    """
    leaves = jax.tree.leaves(grads)
    if jax.sharding.get_abstract_mesh().size > 1:
        leaves_norm: jax.Array = optax.tree.norm(leaves)
        return leaves_norm
    small = [leaf.ravel() for leaf in leaves if leaf.size <= _SMALL]
    concatenated = [jnp.concatenate(small)] if small else []
    norm: jax.Array = optax.tree.norm(
        concatenated + [leaf for leaf in leaves if leaf.size > _SMALL]
    )
    return norm


class AdamState(NamedTuple):
    """The state of Adam. Checkpoints store it under these names.

    Attributes:
        first: running means of the gradients, shaped like the parameters.
        second: running means of the squared gradients, shaped like the parameters.
        count: number of accumulated gradients, an int32 scalar; None without bias correction.
    """

    first: Tree
    second: Tree
    count: jax.Array | None  # type: ignore[assignment]  # hides the method of tuples


def scale_by_adam(
    beta1: float, beta2: float, eps: float, bias_correction: bool
) -> SkippingTransformation:
    """Rescale gradients to first / (√second + eps), with moments that start at 0.

    With `bias_correction` each moment is divided by 1 − beta^count first (Kingma & Ba 2015,
    arXiv 1412.6980, algorithm 1).
    """

    def init(params: Tree) -> AdamState:
        first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return AdamState(first, second, jnp.zeros((), jnp.int32) if bias_correction else None)

    # `accept` selects here: if the old state were selected after the update, XLA's CPU compiler
    # would compute the moments a second time from copies of the old moments, 880 MB in each step of
    # BERT-base. Under jit, arrays of the same shape are traced and lowered only once.
    @jax.jit
    def direction(
        grad: Array,
        first: Array,
        second: Array,
        corrections: tuple[Array, ...],
        accept: Array | bool,
    ) -> tuple[Array, Array, Array]:
        first = jnp.where(accept, (1 - beta1) * grad + beta1 * first, first)
        second = jnp.where(accept, (1 - beta2) * jnp.square(grad) + beta2 * second, second)
        update = first / corrections[0] / (jnp.sqrt(second / corrections[1]) + eps)
        return update, first, second

    def update(
        grads: Tree,
        state: AdamState,
        params: Tree = None,
        *,
        accept: Array | bool = True,
        **_: object,
    ) -> tuple[Tree, AdamState]:
        count = None if state.count is None else state.count + accept
        corrections = _bias_correction(beta1, count), _bias_correction(beta2, count)
        trees = (grads, state.first, state.second)
        new = jax.tree.map(lambda *arrays: direction(*arrays, corrections, accept), *trees)
        updates, first, second = jax.tree.transpose(jax.tree.structure(grads), None, new)
        return updates, AdamState(first, second, count)

    return SkippingTransformation(init, update)


def _bias_correction(beta: float, count: jax.Array | None) -> jax.Array | float:
    """1 − beta^count, the sum of the weights of `count` gradients in a moment."""
    return 1.0 if count is None else 1 - beta ** jnp.float32(count)


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """Scale the update of each array to the norm of the array (LAMB, algorithm 2, line 11).

    An update is unchanged if one of the two norms is 0. In stacked layers every layer has its own
    ratio, so that scanning over layers does not change the update.
    """

    def scale(path: tuple[object, ...], update: Array, param: Array) -> Array:
        axes = _axes_of_one_layer(path, param)
        param_norm, update_norm = (
            jnp.sqrt(jnp.sum(jnp.square(array), axes, keepdims=True)) for array in (param, update)
        )
        has_ratio = (param_norm > 0) & (update_norm > 0)
        return update * jnp.where(has_ratio, param_norm / jnp.where(has_ratio, update_norm, 1), 1)

    return optax.stateless(
        lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates, params)
    )


def stable_adamw(
    decay: optax.GradientTransformation, beta1: float, beta2: float, eps: float
) -> SkippingTransformation:
    """AdamW with update clipping (Wortsman et al. 2023, arXiv 2304.13013, algorithm 2).

    The update of each array, including its decay, is divided by max(1, RMS), where RMS is the root
    mean square of gradient / max(√second, eps). In stacked layers every layer has its own RMS.
    """
    adamw = optax.chain(scale_by_adam(beta1, beta2, eps, bias_correction=True), decay)

    def update(grads: Tree, state: Tree, params: Tree = None, **extra: object) -> tuple[Tree, Tree]:
        updates, state = adamw.update(grads, state, params, **extra)
        adam = state[0]
        correction = _bias_correction(beta2, adam.count)

        def clip(path: tuple[object, ...], update: Array, grad: Array, second: Array) -> Array:
            ratio = jnp.square(grad) / jnp.maximum(second / correction, eps**2)
            rms = jnp.sqrt(jnp.mean(ratio, _axes_of_one_layer(path, grad), keepdims=True))
            return update / jnp.maximum(1, rms)

        return jax.tree_util.tree_map_with_path(clip, updates, grads, adam.second), state

    return SkippingTransformation(adamw.init, update)


def _axes_of_one_layer(path: tuple[object, ...], array: Array) -> tuple[int, ...]:
    """All axes of an array except the layer axis of stacked layers."""
    is_stack = STACK in tree_paths.path_name(path).split('/')
    return tuple(range(1 if is_stack else 0, array.ndim))


def _adam(config: Config, bias_correction: bool = True) -> optax.GradientTransformation:
    return scale_by_adam(config.beta1, config.beta2, config.eps, bias_correction)


# (weight decay, function of the parameters to whether each is decayed, `config.optimizer`) → the
# transformations from gradients to the direction of the update.
Directions: TypeAlias = Callable[
    [optax.GradientTransformation, Callable[[Tree], Tree], Config],
    list[optax.GradientTransformation],
]
DIRECTIONS: dict[str, Directions] = {
    'bert_adam': lambda decay, _, config: [_adam(config, False), decay],
    'adamw': lambda decay, _, config: [_adam(config), decay],
    'lamb': lambda decay, _, config: [_adam(config), decay, scale_by_trust_ratio()],
    'albert_lamb': lambda decay, is_decayed, config: [
        _adam(config, False),
        decay,
        optax.masked(scale_by_trust_ratio(), is_decayed),
    ],
    'stable_adamw': lambda decay, _, config: [
        stable_adamw(decay, config.beta1, config.beta2, config.eps)
    ],
    'muon': lambda decay, _, config: [
        lazy_table.load('bert_jax.training.muon:scale_by_muon')(config),
        decay,
    ],
}
