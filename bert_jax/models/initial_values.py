"""Normally distributed initial parameters, and drawing all parameters of a model on the host.

A program that draws all parameters takes XLA longer to compile than a training step: on an H200, 89
of the 160 s before the first step of BERT-base (27 November 2026). Even one program per size takes
a CPU 0.25 s for each. Here all normal arrays, whatever their size, share one program.
"""

import concurrent.futures
import functools
import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.extend import random as random_bits
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from bert_jax import tree_paths
from bert_jax.types import Key, Tree

Initializer = Callable[[Key, tuple[int, ...]], jax.Array]

_BLOCK = 2**16  # numbers that one call of `_block` draws
_BOUND = np.float32(2)  # of truncated normals, in standard deviations
_NO_MESH = jax.sharding.Mesh(np.empty((), object), ())


def normal(stddev: float) -> Initializer:
    """Return an initializer for float32 arrays of normally distributed numbers."""
    return lambda key, shape: draw_normal(key, stddev, shape)


def truncated_normal(stddev: float) -> Initializer:
    """Like `normal`, but numbers beyond two standard deviations do not occur.

    The numbers are not rescaled afterwards, as in tf.truncated_normal_initializer.
    """
    return lambda key, shape: draw_truncated_normal(key, stddev, shape)


# Functions of their own, so that a traced program has them by name for `_ON_HOST`.
@functools.partial(jax.jit, static_argnums=2)
def draw_normal(key: Key, stddev: jax.typing.ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """float32 normal numbers of a mean of 0."""
    drawn: jax.Array = jax.random.normal(key, shape) * jnp.float32(stddev)
    return drawn


@functools.partial(jax.jit, static_argnums=2)
def draw_truncated_normal(
    key: Key, stddev: jax.typing.ArrayLike, shape: tuple[int, ...]
) -> jax.Array:
    """float32 normal numbers of a mean of 0 within two standard deviations."""
    standard: jax.Array = jax.random.truncated_normal(key, -_BOUND, _BOUND, shape)
    drawn: jax.Array = standard * jnp.float32(stddev)
    return drawn


def draw(
    init: Callable[[Key], Tree], seed: int, names: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Compute parameters that `init` returns, on the host.

    Args:
        init: returns the parameters for a key, boxed or not.
        seed: seed of the key.
        names: '/'-joined names of the parameters to draw; None: all.

    Returns:
        The arrays by '/'-joined name, bit for bit those of `jax.jit(init)` on a CPU. They do not
        depend on the mesh or the number of processes.
    """
    if names is not None and not names:
        return {}
    with jax.set_mesh(_NO_MESH), jax.default_device(_host()):
        key = jax.random.key(seed)
        jaxpr, shapes = jax.make_jaxpr(lambda key: nn.unbox(init(key)), return_shape=True)(key)
        every = list(tree_paths.flatten(shapes))
        drawn = [name for name in every if names is None or name in names]
        needed, _ = dce_jaxpr(jaxpr.jaxpr, [name in drawn for name in every], instantiate=True)
        arrays = _evaluate(ClosedJaxpr(needed, jaxpr.consts), key)
    return {name: np.asarray(array) for name, array in zip(drawn, arrays, strict=True)}


def _host() -> jax.Device:
    """Return the CPU, or the first device if JAX_PLATFORMS leaves the CPU out."""
    platforms: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]
    has_cpu = not platforms or 'cpu' in platforms.split(',')
    return jax.local_devices(backend='cpu' if has_cpu else None)[0]


def _evaluate(program: ClosedJaxpr, key: Key) -> list[Any]:
    """Evaluate a program of a key: `_ON_HOST` if possible, else as one program per operation."""
    jaxpr, is_counted = program.jaxpr, _is_counted(key)
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
    values |= {variable: key for variable in jaxpr.invars}

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        compute = _ON_HOST.get(equation.params.get('name', equation.primitive.name))
        # Arrays of keys come from functions that map `init`, such as nn.scan.
        is_scalar = all(not atom.aval.shape for atom in equation.invars)
        if compute is not None and is_scalar and is_counted:
            shape = equation.outvars[0].aval.shape
            outputs = [compute(*map(value, equation.invars), shape)]
        else:
            inputs = [atom for atom in equation.invars if not isinstance(atom, Literal)]
            parts = dict(constvars=[], invars=inputs, eqns=[equation], outvars=equation.outvars)
            outputs = jaxpr_as_fun(ClosedJaxpr(jaxpr.replace(**parts), ()))(*map(value, inputs))
        values |= dict(zip(equation.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _is_counted(key: Key) -> bool:
    """Whether number i of an array depends on the key and on i alone, as `_block` has it."""
    is_partitionable: bool = getattr(jax.config, 'jax_threefry_partitionable', True)
    return is_partitionable and str(jax.random.key_impl(key)) == 'threefry2x32'


def _in_blocks(key: Key, stddev: float, shape: tuple[int, ...], *limits: np.float32) -> np.ndarray:
    """Return the numbers of `draw_normal` or, within limits, `draw_truncated_normal`."""
    words = jax.device_put(jax.random.key_data(key), _host())  # so that all threads compute there
    values = np.empty(math.prod(shape), np.float32)

    def fill(start: int) -> None:
        part = values[start : start + _BLOCK]
        block = _block(words, np.uint32(start), *limits)
        np.multiply(np.asarray(block)[: len(part)], np.float32(stddev), out=part)

    first, *others = range(0, max(1, len(values)), _BLOCK)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        threads.submit(fill, first).result()  # compiles the program
        for _ in threads.map(fill, others):
            pass
    return values.reshape(shape)


_ON_HOST: Mapping[str, Callable[..., np.ndarray]] = {
    'broadcast_in_dim': lambda value, shape: np.full(shape, value),
    'draw_normal': _in_blocks,
    'draw_truncated_normal': lambda *inputs: _in_blocks(*inputs, -_BOUND, _BOUND),
}


@jax.jit
def _block(words_2: jax.Array, start: jax.Array, *limits: jax.Array) -> jax.Array:
    """Numbers `start` to `start` + _BLOCK of an array that jax.random draws for a key.

    The i-th number is a hash of i and the key (Salmon et al. 2011, Parallel random numbers: as easy
    as 1, 2, 3), as a uniform number in [low, high), which the inverse of the distribution function
    makes normal.
    """
    low_words = start + jnp.arange(_BLOCK, dtype=jnp.uint32)
    counts = jnp.concatenate([jnp.zeros_like(low_words), low_words])
    bits = random_bits.threefry_2x32(words_2, counts).reshape(2, _BLOCK)
    mantissas = ((bits[0] ^ bits[1]) >> 9) | np.float32(1).view(np.uint32)
    shares = jax.lax.bitcast_convert_type(mantissas, jnp.float32) - 1
    root = np.float32(np.sqrt(2))
    bounds: Any = np.nextafter(np.float32(-1), np.float32(0)), np.float32(1)
    if limits:
        bounds = tuple(jax.lax.erf(limit / root) for limit in limits)
    low, high = bounds
    values = root * jax.lax.erf_inv(jnp.maximum(low, shares * (high - low) + low))
    if not limits:
        return values
    least, most = (jax.lax.nextafter(limit, jnp.zeros_like(limit)) for limit in limits)
    return jnp.clip(values, least, most)
