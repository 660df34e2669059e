"""The Transformer encoder: embeddings, a stack of blocks, a pooler."""

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.models.attention import Context, layer_constants
from bert_jax.models.block import ATTENTIONS, Block, Convolution
from bert_jax.models.dropout import fold_in
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoders import Encoder, EncoderOutput
from bert_jax.models.partitioning import constrain
from bert_jax.models.rows import PromptRows, Rows, gather_positions, prompt_rows
from bert_jax.models.visibility import Visibility
from bert_jax.types import Array, Tree

if TYPE_CHECKING:
    from bert_jax.models.cache import Cache

_CONVOLUTION, _DECODER = 2**29, 2**30  # dropout sites, beyond the numbers of layers
_class_lock = threading.Lock()


class Transformer(Encoder):
    """A bidirectional Transformer encoder (Devlin et al. 2019, section 3).

    Parameters, all fp32: embeddings; layers_0 … layers_{L−1}, or one stacked `layers` with
    compute.scan_layers (`stack_layers`), or fewer if layers share parameters; final_norm unless
    norms follow the layers; pooler, relative_positions and convolution if the architecture has
    them.

    Raises:
        UserError: scan_layers for layers that cannot be stacked, causal attention with a
            convolution, a cache that this architecture cannot use, or an attention kernel that
            cannot run this architecture here.
    """

    def setup(self) -> None:
        settings = (self.architecture, self.compute)
        self.embeddings = self.make_embeddings()
        self.layers = self._make_layers()
        if self.architecture.norms.placement != 'post':
            self.final_norm = self.make_norm()
        if make_positions := ATTENTIONS[self.architecture.attention.kind].relative_positions:
            self.relative_positions = make_positions(*settings)
        if self.architecture.convolution is not None:
            self.convolution = Convolution(*settings)
        if self.architecture.pooler:
            size, names = self.architecture.hidden_size, ('embed', 'features')
            self.pooler = self.make_dense('XD,DE->XE', (size, size), names, use_bias=True)

    def make_embeddings(self) -> Embeddings:
        """Make the embeddings of the architecture."""
        return Embeddings(self.architecture, self.compute)

    def _make_layers(self) -> Any:
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
            )(*settings)
        if not self.is_initializing():  # nn.jit would change the initial values
            layer = _make_class(nn.jit, layer)  # trace and lower equal layers once
        indices = range(max(architecture.layer_numbers) + 1)
        if self._is_tuned_per_use:
            return [layer(self._tuned(index), self.compute) for index in indices]
        skip_first = architecture.norms.placement == 'pre_except_first'
        return [layer(*settings, skip_norm=skip_first and index == 0) for index in indices]

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

    def _layer(self, number: int) -> Callable[..., Tree]:
        """Return the layer at depth `number`."""
        *earlier, index = self.architecture.layer_numbers[: number + 1]
        layer: Block = self.layers[index]
        if not self._is_tuned_per_use or self.is_initializing():
            return layer
        architecture = self._tuned(index, earlier.count(index))
        tuned_layer = self._layer_class()(architecture, self.compute, parent=None)
        return functools.partial(tuned_layer.apply, nn.unbox(layer.variables))

    def _layer_class(self) -> Any:
        if not self.compute.remat:
            return Block
        return _make_class(nn.remat, Block, prevent_cse=not self.compute.scan_layers)

    def __call__(
        self,
        rows: Rows,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
        causal: bool = False,
    ) -> EncoderOutput:
        architecture = self.architecture
        if causal and architecture.convolution is not None:
            raise UserError(
                'causal attention: this architecture has a convolution, which sees later tokens'
            )
        if rows.cache is not None:
            self._check_cache(rows, causal)
        all_hidden_LBTD, prompts = None, self._prompt_rows(rows)
        embedded_BTD = self.embeddings(rows, fold_in(dropout_seeds_B, 0), prompts)
        positions_BT, mask_BT = rows.positions(), jnp.asarray(rows.attention_mask_BT)
        segment_ids_BT = rows.segment_ids_BT
        if segment_ids_BT is not None:
            segment_ids_BT = jnp.asarray(segment_ids_BT)
        if prompts is not None:  # from here until after the layers, rows are longer
            if positions_BT is None:
                positions_BT = jnp.broadcast_to(jnp.arange(mask_BT.shape[1]), mask_BT.shape)
            positions_BT = prompts.insert_first_values(positions_BT, absent=0)
            mask_BT = prompts.insert_first_values(mask_BT, absent=0)
            if segment_ids_BT is not None:
                segment_ids_BT = prompts.insert_first_values(segment_ids_BT, absent=-1)
        visibility = Visibility(mask_BT, segment_ids_BT, is_causal=causal)
        if rows.cache is not None:  # causality hides the slots that are not written yet
            visibility = Visibility(None, is_causal=True, query_positions_BT=positions_BT)
        context = Context(visibility)
        if ATTENTIONS[architecture.attention.kind].relative_positions:
            relative_RD, rows_TU = self.relative_positions(embedded_BTD.shape[1])
            context = context._replace(relative_RD=relative_RD, rows_TU=jnp.asarray(rows_TU))
        embedded_BTD = embedded_BTD.astype(self.compute.residual_dtype)
        arguments = (embedded_BTD, context, dropout_seeds_B, rows.cache)
        x_BTD, hidden_LBTD, cache = self._run_layers(*arguments)
        if cache is not None:
            length_B = cache.length_B + mask_BT.sum(1, dtype=jnp.int32)
            cache = cache.replace(length_B=length_B)
        decoded_BTD = x_BTD
        if architecture.positions.kind == 'mask_decoder':
            before_BTD = hidden_LBTD[-2] if architecture.num_layers > 1 else embedded_BTD
            decoded_BTD = self._decode(before_BTD, positions_BT, context, dropout_seeds_B)
        if architecture.norms.placement != 'post':
            x_BTD = decoded_BTD = self.final_norm(x_BTD)
            hidden_LBTD = hidden_LBTD.at[-1].set(x_BTD)
        if prompts is not None:
            x_BTD, decoded_BTD, embedded_BTD = map(prompts.text, (x_BTD, decoded_BTD, embedded_BTD))
            hidden_LBTD = jax.vmap(prompts.text)(hidden_LBTD)
        pooled_BD = self._pool(x_BTD, rows.first_positions_BS) if architecture.pooler else None
        if all_hidden:
            all_hidden_LBTD = jnp.concatenate([embedded_BTD[None], hidden_LBTD])
        return EncoderOutput(x_BTD, pooled_BD, all_hidden_LBTD, decoded_BTD, cache=cache)

    def _check_cache(self, rows: Rows, causal: bool) -> None:
        """Raise UserError for an architecture that cannot use a cache."""
        assert causal
        assert rows.segment_ids_BT is None
        assert not self.compute.scan_layers
        attention, method = self.architecture.attention.kind, self.architecture.tuning
        if ATTENTIONS[attention].relative_positions:
            raise UserError(f'{attention} attention cannot generate text: it has no cache')
        if method is not None and method.prompt_length:
            raise UserError(
                f'a model tuned with transfer.method={method.method} cannot generate text: a tuned '
                'prompt has no place in the cache'
            )

    def _prompt_rows(self, rows: Rows) -> PromptRows | None:
        """Where tuned prompts are in the rows; None without prompts."""
        method = self.architecture.tuning
        length = 0 if method is None else method.prompt_length
        return prompt_rows(rows, length) if length else None

    def _run_layers(
        self, x_BTD: jax.Array, context: Context, seeds_B: jax.Array | None, cache: 'Cache | None'
    ) -> 'tuple[jax.Array, jax.Array, Cache | None]':
        """Return the last layer's states, all layers' states [L, B, T, D] and the new cache."""
        if self.compute.scan_layers:
            return *self._scan_layers(x_BTD, context, seeds_B), None
        states, layers, constants_L = [], [], layer_constants(self.architecture)
        past_L = [None] * self.architecture.num_layers if cache is None else cache.layers
        for number in range(self.architecture.num_layers):
            layer, seeds = self._layer(number), fold_in(seeds_B, 1 + number)
            past = past_L[number]
            after_BTD, past = layer(x_BTD, constants_L[number], context, seeds, past)
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

        constants_L = layer_constants(self.architecture)
        if self.is_initializing():
            self.layers(x_BTD, constants_L[0], context, None)  # creates the parameters
        mutable = [name for name in ('intermediates',) if self.is_mutable_collection(name)]
        layer = self._layer_class()(self.architecture, self.compute, parent=None)

        def apply_layer(x_BTD: jax.Array, inputs: Any, window: int | None) -> tuple[jax.Array, Any]:
            variables, constants, seeds_B = inputs
            constants = dataclasses.replace(constants, window=window)
            arguments = (x_BTD, constants, context, seeds_B)
            (x_BTD, _), collected = layer.apply(variables, *arguments, mutable=mutable)
            return x_BTD, (x_BTD, collected)

        windows = [constants.window for constants in constants_L]
        equal_L = [dataclasses.replace(constants, window=None) for constants in constants_L]
        numbers_L1 = np.arange(1, 1 + len(windows))[:, None]
        inputs_L = (
            nn.unbox(self.layers.variables),
            jax.tree.map(lambda *leaves: np.stack(leaves), *equal_L),
            fold_in(seeds_B, numbers_L1),
        )
        x_BTD, (hidden_LBTD, collected_L) = scan_layers(apply_layer, x_BTD, inputs_L, windows)
        for name, value_L in collected_L.items():
            self.put_variable(name, 'layers', value_L)
        return x_BTD, hidden_LBTD

    def _decode(
        self,
        before_BTD: jax.Array,
        positions_BT: jax.Array | None,
        context: Context,
        seeds_B: jax.Array | None,
    ) -> jax.Array:
        """Run the last layer twice with absolute positions added to the queries.

        Keys, values and the first queries come from the states before the last layer (He et al.
        2021, section 3.2; EnhancedMaskDecoder in microsoft/DeBERTa, masked_language_model.py).
        """
        context = context._replace(source_BTD=before_BTD)
        constants = layer_constants(self.architecture)[-1]
        position_TD = self.embeddings.position_vectors(before_BTD.shape[1], positions_BT)
        x_BTD = (before_BTD + position_TD).astype(before_BTD.dtype)
        for number in range(2):
            layer_seeds_B = fold_in(seeds_B, _DECODER + 1 + number)
            x_BTD, _ = self._last_layer()(x_BTD, constants, context, layer_seeds_B)
        return x_BTD

    def _last_layer(self) -> Callable[..., Tree]:
        if not self.compute.scan_layers:
            return self._layer(self.architecture.num_layers - 1)
        stacked = nn.unbox(self.layers.variables)
        last = jax.tree.map(lambda leaf_L: leaf_L[-1], stacked)
        return functools.partial(Block(self.architecture, self.compute, parent=None).apply, last)

    def _pool(self, x_BTD: jax.Array, first_positions_BS: Array | None) -> jax.Array:
        if first_positions_BS is None:
            return jnp.tanh(self.pooler(constrain(x_BTD[:, 0], ('batch', 'embed'))))
        x_BSD = gather_positions(x_BTD, jnp.maximum(first_positions_BS, 0))
        x_XD = constrain(x_BSD.reshape(-1, x_BSD.shape[-1]), ('batch', 'embed'))
        return jnp.tanh(self.pooler(x_XD)).reshape(x_BSD.shape)


def attention_probabilities(
    architecture: Architecture, intermediates: Mapping[str, Tree]
) -> jax.Array:
    """Return the attention probabilities of all layers, fp32 [L, B, H, T, U].

    Args:
        intermediates: collected by `Transformer.apply(…, mutable='intermediates')`.

    Raises:
        UserError: nothing was collected, by an encoder or a kernel without attention probabilities.
    """
    # One entry per call of a layer; a mask decoder calls the last layer twice more.
    calls = {name: layer['attention']['attention_BHTU'] for name, layer in intermediates.items()}
    if not calls:
        raise UserError('this encoder does not compute attention probabilities')
    if 'layers' in calls:
        probabilities: jax.Array = calls['layers'][0]
        return probabilities
    iterators = {name: iter(layer_calls) for name, layer_calls in calls.items()}
    return jnp.stack([next(iterators[f'layers_{i}']) for i in architecture.layer_numbers])


def _make_class(transform: Callable[..., Any], layer: Any, **options: Any) -> Any:
    """Transform a class under a lock, because Flax modifies the bases of the class meanwhile."""
    with _class_lock:
        return transform(layer, **options)
