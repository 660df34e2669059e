"""Optimizers by name, as optax transformations: clip, moments, decay by name, trust ratio, rate.

Their `update` takes two things beside what optax gives it: `good`, with False of which the state
stays as it was, and the gradients' `norm`, where it is known.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax import errors, tree_paths

Tree = Any  # a pytree of arrays

# A parameter below a path component of this name is a stack over its leading axis (nn.scan).
STACK = 'layers'
_SMALL = 2**16  # entries


def build(config: Any, schedule: Callable) -> optax.GradientTransformationExtraArgs:
    """The optimizer `config.name`, ready for `optax.apply_updates`.

    - 'bert_adam': Adam without bias correction (google-research/bert, optimization.py);
      published with beta1 .9, beta2 .999, eps 1e-6, weight_decay .01, clip_norm 1.
    - 'adamw': Loshchilov & Hutter 2019, with bias correction; as torch.optim.AdamW.
    - 'lamb': You et al. 2020, algorithm 2, the scaling function φ being the identity.
    - 'stable_adamw': Wortsman et al. 2023, arXiv 2304.13013, algorithm 2: AdamW with a smaller
      rate for an array whose gradient is larger than its second moment expects.

    In all of them eps is added outside the square root and the decay is part of the direction
    that the rate multiplies. Parameters whose '/'-joined path matches (`re.search`) one of
    `decay_exclude` are not decayed. Gradients are first scaled to a global norm of at most
    `clip_norm` (0: never). Moments are kept in the parameters' dtype.

    `config` has the attributes name, beta1, beta2, eps, weight_decay, clip_norm, decay_exclude.
    Raises UserError for an unknown name.
    """
    if config.name not in _DIRECTIONS:
        raise errors.unknown('optimizer', config.name, _DIRECTIONS)
    patterns = tuple(config.decay_exclude)
    decay = optax.add_decayed_weights(config.weight_decay, lambda tree: decay_mask(tree, patterns))
    return optax.chain(
        clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity(),
        *_DIRECTIONS[config.name](decay, config.beta1, config.beta2, config.eps),
        scale_by_learning_rate(schedule),
    )


def decay_mask(params: Tree, exclude: Sequence[str]) -> Tree:
    """True for every parameter to decay: no pattern of `exclude` is found in its path."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: (
            not any(re.search(pattern, tree_paths.path_name(path)) for pattern in exclude)
        ),
        params,
    )


def check_decay_exclude(exclude: Sequence[str], params: Tree):
    """Raises UserError naming a pattern found in no path at all: a typo would decay the LayerNorms
    unseen. `params` are all there are, trained or not."""
    paths = list(tree_paths.flatten(params))
    for pattern in exclude:
        if not any(re.search(pattern, path) for path in paths):
            raise errors.UserError(
                f'decay_exclude: the pattern {pattern!r} matches no parameter; their names look'
                f' like {", ".join(paths[:4])}'
            )


def clip_by_global_norm(limit: float) -> optax.GradientTransformationExtraArgs:
    """Scales all gradients by limit / max(norm, limit), as tf.clip_by_global_norm."""

    def update(grads, state, params=None, *, norm=None, **_):
        norm = global_norm(grads) if norm is None else norm
        scale = limit / jnp.maximum(norm, limit)
        return jax.tree.map(lambda grad: grad * scale, grads), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def global_norm(grads: Tree) -> jax.Array:
    """√Σ g² over all arrays of the tree.

    On one device the small ones are summed as one vector: a sum of its own for each of BERT-base's
    biases would be a sixth of what there is to compile in a training step. On several they may be
    laid out differently, and would first have to be exchanged.
    """
    leaves = jax.tree.leaves(grads)
    if jax.sharding.get_abstract_mesh().size > 1:
        return optax.tree.norm(leaves)
    small = [leaf.ravel() for leaf in leaves if leaf.size <= _SMALL]
    pieces = [jnp.concatenate(small)] if small else []
    return optax.tree.norm(pieces + [leaf for leaf in leaves if leaf.size > _SMALL])


def scale_by_learning_rate(schedule: Callable) -> optax.GradientTransformationExtraArgs:
    """Multiplies by −schedule(count of the good updates before this one)."""
    scaling = optax.scale_by_learning_rate(schedule)

    def update(updates, state, params=None, *, good=True, **_):
        updates, counted = scaling.update(updates, state, params)
        return updates, jax.tree.map(lambda new, old: jnp.where(good, new, old), counted, state)

    return optax.GradientTransformationExtraArgs(scaling.init, update)


class Moments(NamedTuple):
    """Running means of the gradient and of its square, each shaped like the parameters, and the
    int32 number of gradients in them, where that is needed."""

    first: Tree
    second: Tree
    count: jax.Array | None


def scale_by_adam(
    beta1: float, beta2: float, eps: float, corrected: bool
) -> optax.GradientTransformationExtraArgs:
    """first / (√second + eps), the moments starting at 0. With `corrected` each is first divided by
    1 − beta^count (Kingma & Ba 2015, algorithm 1)."""

    def init(params):
        first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return Moments(first, second, jnp.zeros((), jnp.int32) if corrected else None)

    # Were `good` asked after the update, of the whole state, XLA's CPU compiler would form the
    # moments a second time, from the old ones, of which it then needs copies: 880 MB in each step
    # of BERT-base. Under jit, arrays of the same shape are traced and lowered once.
    @jax.jit
    def direction(grad, first, second, shares, good):
        first = jnp.where(good, (1 - beta1) * grad + beta1 * first, first)
        second = jnp.where(good, (1 - beta2) * jnp.square(grad) + beta2 * second, second)
        return first / shares[0] / (jnp.sqrt(second / shares[1]) + eps), first, second

    def update(grads, state, params=None, *, good=True, **_):
        count = state.count + good if corrected else None
        shares = _shares(beta1, beta2, count) if corrected else (1.0, 1.0)
        new = jax.tree.map(
            lambda *arrays: direction(*arrays, shares, good), grads, state.first, state.second
        )
        updates, first, second = jax.tree.transpose(jax.tree.structure(grads), None, new)
        return updates, Moments(first, second, count)

    return optax.GradientTransformationExtraArgs(init, update)


def _shares(beta1: float, beta2: float, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What the moments hold, after `count` gradients, of the means they stand for."""
    return 1 - beta1 ** jnp.float32(count), 1 - beta2 ** jnp.float32(count)


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """Scales the update of each weight array to the norm of that array (LAMB, line 11).

    Where one of the two norms is 0 the update is left alone. The arrays of stacked layers are
    treated one layer at a time, so that scanning over layers does not change the update.
    """

    def scale(path, update, param):
        axes = _axes(path, param)
        param_norm, update_norm = (
            jnp.sqrt(jnp.sum(jnp.square(array), axes, keepdims=True)) for array in (param, update)
        )
        usable = (param_norm > 0) & (update_norm > 0)
        return update * jnp.where(usable, param_norm / jnp.where(usable, update_norm, 1), 1)

    return optax.stateless(
        lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates, params)
    )


def stable_adamw(
    decay: optax.GradientTransformation, beta1: float, beta2: float, eps: float
) -> optax.GradientTransformationExtraArgs:
    """Adam's direction and the decay, divided for each array by max(1, RMS), where RMS is the root
    of the mean of gradient² / max(second moment, eps²). Stacked layers: one layer at a time."""
    adamw = optax.chain(scale_by_adam(beta1, beta2, eps, corrected=True), decay)

    def update(grads, state, params=None, **good):
        updates, state = adamw.update(grads, state, params, **good)
        moments = state[0]
        share = _shares(beta1, beta2, moments.count)[1]

        def calm(path, update, grad, second):
            surprise = jnp.square(grad) / jnp.maximum(second / share, eps**2)
            rms = jnp.sqrt(jnp.mean(surprise, _axes(path, grad), keepdims=True))
            return update / jnp.maximum(1, rms)

        return jax.tree_util.tree_map_with_path(calm, updates, grads, moments.second), state

    return optax.GradientTransformationExtraArgs(adamw.init, update)


def _axes(path, array) -> tuple[int, ...]:
    """The axes of one weight array, without that of a stack."""
    return tuple(range(1 if _is_stack(path) else 0, array.ndim))


def _is_stack(path) -> bool:
    return STACK in tree_paths.path_name(path).split('/')


_DIRECTIONS = {
    'bert_adam': lambda decay, *constants: [scale_by_adam(*constants, corrected=False), decay],
    'adamw': lambda decay, *constants: [scale_by_adam(*constants, corrected=True), decay],
    'lamb': lambda decay, *constants: [
        scale_by_adam(*constants, corrected=True),
        decay,
        scale_by_trust_ratio(),
    ],
    'stable_adamw': lambda decay, *constants: [stable_adamw(decay, *constants)],
}
