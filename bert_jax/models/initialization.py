"""Initial parameters: their shapes, and drawing them without one program for all of them."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from bert_jax import tree_paths
from bert_jax.models.block import Block
from bert_jax.types import Key, Tree

_NO_MESH = jax.sharding.Mesh(np.empty((), object), ())


def abstract(init: Callable[[Key], Tree]) -> Tree:
    """Return what `init` returns for a key, as shapes; equal layers are traced once.

    Args:
        init: initializes the parameters of one module by its `init`.

    Returns:
        The same tree with jax.ShapeDtypeStruct in place of arrays, boxes included.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    with nn.intercept_methods(_EqualLayers()):
        shapes: Tree = jax.eval_shape(init, key)
    return shapes


def draw(
    init: Callable[[Key], Tree], seed: int, names: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Compute parameters that `init` returns, on the host, operation by operation.

    Each operation is a program that all arrays of one shape share. XLA needs much longer for one
    program that draws all parameters: 89 s of 160 s before the first step of BERT-base on an H200.

    Args:
        init: returns the parameters for a key, boxed or not.
        seed: seed of the key.
        names: '/'-joined names of the parameters to draw; None: all.

    Returns:
        The arrays by '/'-joined name. They do not depend on the mesh or the number of processes.
    """
    with jax.set_mesh(_NO_MESH), jax.default_device(_host()):
        key = jax.random.key(seed)
        jaxpr, shapes = jax.make_jaxpr(lambda key: nn.unbox(init(key)), return_shape=True)(key)
        every = list(tree_paths.flatten(shapes))
        drawn = [name for name in every if names is None or name in names]
        needed, _ = dce_jaxpr(jaxpr.jaxpr, [name in drawn for name in every], instantiate=True)
        arrays = jaxpr_as_fun(ClosedJaxpr(needed, jaxpr.consts))(key)
    return {name: np.asarray(array) for name, array in zip(drawn, arrays, strict=True)}


def _host() -> jax.Device:
    """Return the CPU, or the first device if JAX_PLATFORMS leaves the CPU out."""
    platforms: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]
    has_cpu = not platforms or 'cpu' in platforms.split(',')
    return jax.local_devices(backend='cpu' if has_cpu else None)[0]


class _EqualLayers:
    """Flax interceptor that calls one layer of each kind; its equals get the same parameters."""

    def __init__(self) -> None:
        self._first: dict[Any, tuple[nn.Module, Any]] = {}  # kind → layer and its outputs
        self._root: Any = None

    def __call__(
        self,
        call: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        context: nn.module.InterceptorContext,
    ) -> Any:
        module = context.module
        assert module.scope is not None
        self._root = self._root or module.scope.root
        is_layer = isinstance(module, Block) and context.method_name == '__call__'
        if not is_layer or module.scope.root is not self._root:  # or initialized by a head
            return call(*arguments, **options)
        kind = (_settings(module), str(jax.tree.map(np.shape, (arguments, options))))
        if kind not in self._first:
            self._first[kind] = (module, call(*arguments, **options))
        first, outputs = self._first[kind]
        if module.path != first.path:
            for name, value in first.variables['params'].items():
                module.put_variable('params', name, value)
        return outputs


def _settings(module: nn.Module) -> tuple[Any, ...]:
    """Return the class and the fields of a module, without its place in the model."""
    names = [field.name for field in dataclasses.fields(module)]
    return type(module).__qualname__, *(
        getattr(module, name) for name in names if name not in ('parent', 'name')
    )
