"""A stack of Transformer layers: how they are initialized, made, shared, scanned and run."""

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture
from bert_jax.models.attention import Context, LayerConstants, layer_constants
from bert_jax.models.block import Block
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.module import Module
from bert_jax.types import Key, Tree

if TYPE_CHECKING:
    from bert_jax.models.cache import Cache
_CONVOLUTION, _OUTPUT = 2**29, 2**29 + 1  # dropout sites, beyond the numbers of layers
_class_lock = threading.Lock()


class LayerStack(Module):
    """Base of encoders and decoders whose layers are `Block`s, kept as `self.layers`.

    Attributes:
        block_options: further fields of the layers.
    """

    block_options: ClassVar[Mapping[str, Any]] = {}

    def make_layers(self) -> Any:
        """Make the list of layers or, with scan_layers, one module that stacks all layers."""
        architecture, settings = self.architecture, (self.architecture, self.compute)
        layer = self._layer_class()
        if self.compute.scan_layers:
            if not architecture.equal_layers:
                raise UserError(
                    'compute.scan_layers=True, but the layers of this architecture share '
                    'parameters or differ in them, so they cannot be stacked; set scan_layers=False'
                )
            return _make_class(  # holds the stacked parameters; `_scan_layers` runs the layers
                nn.scan,
                layer,
                variable_axes={'params': 0},
                split_rngs={'params': True},
                in_axes=nn.broadcast,
                length=architecture.num_layers,
                metadata_params={nn.PARTITION_NAME: 'layers'},
            )(*settings, **self.block_options)
        if not self.is_initializing():  # nn.jit would change the initial values
            layer = _make_class(nn.jit, layer)  # trace and lower equal layers once
        indices = range(max(architecture.layer_numbers) + 1)
        options = self.block_options
        if self._is_tuned_per_use:
            return [layer(self._tuned(index), self.compute, **options) for index in indices]
        skip_first = architecture.norms.placement == 'pre_except_first'
        skips = [skip_first and index == 0 for index in indices]
        return [layer(*settings, skip_norm=skip, **options) for skip in skips]

    @property
    def _is_tuned_per_use(self) -> bool:
        """Whether layers that share parameters have separate added parameters."""
        method = self.architecture.tuning
        return self.architecture.sharing is not None and method is not None and method.per_layer

    def _tuned(self, index: int, use: int = 0) -> Architecture:
        """Return the architecture of a layer with separate added parameters for each use."""
        uses = self.architecture.layer_numbers.count(index)
        method: Any = self.architecture.tuning
        method = dataclasses.replace(method, uses=uses, use=use)
        return dataclasses.replace(self.architecture, tuning=method)

    def layer(self, number: int) -> Callable[..., Tree]:
        """Return the layer at depth `number`."""
        *earlier, index = self.architecture.layer_numbers[: number + 1]
        layer: Block = self.layers[index]
        if not self._is_tuned_per_use or self.is_initializing():
            return layer
        architecture = self._tuned(index, earlier.count(index))
        tuned_layer = self._unbound_layer(architecture)
        return functools.partial(tuned_layer.apply, nn.unbox(layer.variables))

    def _unbound_layer(self, architecture: Architecture) -> Any:
        return self._layer_class()(architecture, self.compute, **self.block_options, parent=None)

    def _layer_class(self) -> Any:
        if not self.compute.remat:
            return Block
        return _make_class(nn.remat, Block, prevent_cse=not self.compute.scan_layers)

    def finish(self, x_BTD: jax.Array, seeds_B: jax.Array | None) -> jax.Array:
        """Normalize the states of the last layer."""
        x_BTD = self.final_norm(x_BTD)
        rate = self.architecture.hidden_dropout if self.architecture.output_dropout else 0.0
        return dropout(x_BTD, rate, fold_in(seeds_B, _OUTPUT))

    def run_layers(
        self, x_BTD: jax.Array, context: Context, seeds_B: jax.Array | None, cache: 'Cache | None'
    ) -> 'tuple[jax.Array, jax.Array, Cache | None]':
        """Return the last layer's states, all layers' states [L, B, T, D] and the new cache."""
        if not self.is_mutable_collection('intermediates'):  # which no kernel can record
            settings, is_training = (self.architecture, self.compute), seeds_B is not None
            checked = kernels.check_padding(*settings, x_BTD, context.visibility, is_training)
            x_BTD, context = checked[0], context._replace(visibility=checked[1])
        if self.compute.scan_layers:
            return *self._scan_layers(x_BTD, context, seeds_B), None
        states, layers, constants_L = [], [], layer_constants(self.architecture)
        known_L = None if context.memory is None else context.memory.layers
        past_L = [None] * self.architecture.num_layers if cache is None else cache.layers
        for number in range(self.architecture.num_layers):
            layer, seeds = self.layer(number), fold_in(seeds_B, 1 + number)
            past = past_L[number]
            known = None if known_L is None else known_L[number]
            arguments = (x_BTD, constants_L[number], context, seeds, past, known)
            after_BTD, past = layer(*arguments)
            layers.append(past)
            if number == 0 and self.architecture.convolution is not None:
                convolution_seeds_B = fold_in(seeds_B, _CONVOLUTION)
                segment_ids_BT = context.visibility.segment_ids_BT
                after_BTD = self.convolution(x_BTD, after_BTD, convolution_seeds_B, segment_ids_BT)
            x_BTD = after_BTD
            states.append(x_BTD)
        if cache is not None:
            cache = cache.replace(layers=tuple(layers))
        return x_BTD, jnp.stack(states), cache  # states are not computed unless used

    def _scan_layers(
        self, x_BTD: jax.Array, context: Context, seeds_B: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """`_run_layers` of stacked layers."""
        from bert_jax.models.encoders.layer_scan import scan_layers  # an option that few runs set

        if self.is_initializing():
            self.layers(x_BTD, LayerConstants(), context, None)  # creates the parameters
        # lax.scan cannot run a bound module, so one layer is applied to the parameters of each, and
        # what the layers record (`intermediates`) is handed back to Flax below.
        mutable = [name for name in ('intermediates',) if self.is_mutable_collection(name)]
        layer = self._unbound_layer(self.architecture)

        def apply_layer(x_BTD: jax.Array, inputs: Any, window: int | None) -> tuple[jax.Array, Any]:
            variables, seeds_B = inputs
            arguments = (x_BTD, LayerConstants(window), context, seeds_B)
            (x_BTD, _), collected = layer.apply(variables, *arguments, mutable=mutable)
            return x_BTD, (x_BTD, collected)

        windows = self.architecture.layer_windows
        numbers_L1 = np.arange(1, 1 + len(windows))[:, None]  # the seeds of `run_layers`
        inputs_L = (nn.unbox(self.layers.variables), fold_in(seeds_B, numbers_L1))
        x_BTD, (hidden_LBTD, collected_L) = scan_layers(apply_layer, x_BTD, inputs_L, windows)
        for name, value_L in collected_L.items():
            self.put_variable(name, 'layers', value_L)
        return x_BTD, hidden_LBTD

    def last_layer(self) -> Callable[..., Tree]:
        """Return the last layer, also if the layers are stacked."""
        if not self.compute.scan_layers:
            return self.layer(self.architecture.num_layers - 1)
        stacked = nn.unbox(self.layers.variables)
        last = jax.tree.map(lambda leaf_L: leaf_L[-1], stacked)
        layer = Block(self.architecture, self.compute, parent=None)
        return functools.partial(layer.apply, last)


def _make_class(transform: Callable[..., Any], layer: Any, **options: Any) -> Any:
    """Transform a class under a lock, because Flax modifies the bases of the class meanwhile."""
    with _class_lock:
        return transform(layer, **options)


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


def with_equal_layers(init: Callable[[Key], Tree]) -> Callable[[Key], Tree]:
    """Return `init` with the parameters of one layer for all its equals, which is traced sooner.

    Parameters outside of layers stay as they are: those of a module depend on the key and its name.
    """

    def init_once(key: Key) -> Tree:
        with nn.intercept_methods(_EqualLayers()):
            return init(key)

    return init_once


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
        # A head may initialize a module of its own, whose root is another one.
        if not is_layer or module.scope.root is not self._root:
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
