"""The Transformer encoder: embeddings, a stack of blocks, a pooler."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.models.attention import Context, layer_constants
from bert_jax.models.block import ATTENTIONS, Convolution
from bert_jax.models.dropout import fold_in
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoders import Encoder, EncoderOutput
from bert_jax.models.layer_stack import LayerStack
from bert_jax.models.partitioning import constrain
from bert_jax.models.rows import PromptRows, Rows, gather_positions, prompt_rows
from bert_jax.models.visibility import Visibility
from bert_jax.types import Array, Tree

_DECODER = 2**30  # dropout site, beyond the numbers of layers


class Transformer(LayerStack, Encoder):
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

    supports_prefix = True

    def setup(self) -> None:
        settings = (self.architecture, self.compute)
        self.embeddings = self.make_embeddings()
        self.layers = self.make_layers()
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
        causal_B = None if rows.causal_B is None else jnp.asarray(rows.causal_B)
        prefix_BT = self._prefix(rows, prompts)
        visibility = Visibility(
            mask_BT, segment_ids_BT, is_causal=causal, causal_B=causal_B, is_prefix_BU=prefix_BT
        )
        if rows.cache is not None:  # causality hides the slots that are not written yet
            prefix_BU = None if prefix_BT is None else rows.cache.slots_of(prefix_BT * mask_BT)
            visibility = Visibility(
                None, is_causal=True, query_positions_BT=positions_BT, is_prefix_BU=prefix_BU
            )
        context = Context(visibility)
        if ATTENTIONS[architecture.attention.kind].relative_positions:
            length = embedded_BTD.shape[1]
            num_keys = length if rows.cache is None else rows.cache.num_slots
            context = self.relative_positions(context, length, num_keys)
        embedded_BTD = embedded_BTD.astype(self.compute.residual_dtype)
        arguments = (embedded_BTD, context, dropout_seeds_B, rows.cache)
        x_BTD, hidden_LBTD, cache = self.run_layers(*arguments)
        if cache is not None:
            length_B = cache.length_B + mask_BT.sum(1, dtype=jnp.int32)
            cache = cache.replace(length_B=length_B)
        decoded_BTD = x_BTD
        if architecture.positions.kind == 'mask_decoder':
            before_BTD = hidden_LBTD[-2] if architecture.num_layers > 1 else embedded_BTD
            decoded_BTD = self._decode(before_BTD, positions_BT, context, dropout_seeds_B)
        if architecture.norms.placement != 'post':
            x_BTD = self.finish(x_BTD, dropout_seeds_B)
            decoded_BTD = x_BTD
            hidden_LBTD = hidden_LBTD.at[-1].set(x_BTD)
        memory = None
        if prompts is not None:
            if architecture.decoder is not None:
                from bert_jax.models.cache import Memory  # encoders do without it

                memory = Memory(x_BTD, mask_BT, segment_ids_BT)
            x_BTD, decoded_BTD, embedded_BTD = map(prompts.text, (x_BTD, decoded_BTD, embedded_BTD))
            hidden_LBTD = jax.vmap(prompts.text)(hidden_LBTD)
        pooled_BD = self._pool(x_BTD, rows.first_positions_BS) if architecture.pooler else None
        if all_hidden:
            all_hidden_LBTD = jnp.concatenate([embedded_BTD[None], hidden_LBTD])
        return EncoderOutput(
            x_BTD, pooled_BD, all_hidden_LBTD, decoded_BTD, cache=cache, memory=memory
        )

    def _check_cache(self, rows: Rows, causal: bool) -> None:
        """Raise UserError for an architecture that cannot use a cache."""
        assert causal
        assert rows.segment_ids_BT is None
        assert not self.compute.scan_layers
        attention, method = self.architecture.attention.kind, self.architecture.tuning
        if not ATTENTIONS[attention].has_cache:
            raise UserError(f'{attention} attention cannot generate text: it has no cache')
        if method is not None and method.prompt_length:
            raise UserError(
                f'a model tuned with transfer.method={method.method} cannot generate text: a tuned '
                'prompt has no place in the cache'
            )

    def _prefix(self, rows: Rows, prompts: PromptRows | None) -> jax.Array | None:
        """Which positions all others see, int [B, T]; a tuned prompt is as the first token."""
        if rows.is_prefix_BT is None:
            return None
        attention = self.architecture.attention.kind
        if not ATTENTIONS[attention].has_cache:
            raise UserError(f'{attention} attention has no prefix that all positions see')
        prefix_BT = jnp.asarray(rows.is_prefix_BT)
        return prefix_BT if prompts is None else prompts.insert_first_values(prefix_BT, absent=0)

    def _prompt_rows(self, rows: Rows) -> PromptRows | None:
        """Where tuned prompts are in the rows; None without prompts."""
        method = self.architecture.tuning
        length = 0 if method is None else method.prompt_length
        return prompt_rows(rows, length) if length else None

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
            x_BTD, _ = self.last_layer()(x_BTD, constants, context, layer_seeds_B)
        return x_BTD

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
