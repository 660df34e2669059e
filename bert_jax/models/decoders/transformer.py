"""The Transformer decoder (Vaswani et al. 2017, section 3.1)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from bert_jax.models.attention import Context
from bert_jax.models.block import ATTENTIONS
from bert_jax.models.cache import Memory
from bert_jax.models.dropout import fold_in
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.layer_stack import LayerStack
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Visibility

_SEEDS = 2**27  # dropout site that separates the decoder's masks from the encoder's


class TransformerDecoder(LayerStack):
    """Layers with causal attention, attention to an encoder, and feed-forward.

    Its architecture is `Architecture.of_decoder`. Parameters, all fp32: embeddings, without token
    embeddings if they are the encoder's; layers_0 … layers_{L−1} or `layers` as in the encoder;
    final_norm unless norms follow the layers; relative_positions with a relative bias.

    Attributes:
        has_tokens: whether the decoder has token embeddings of its own.
    """

    block_options: ClassVar[Mapping[str, Any]] = {'has_cross_attention': True}
    has_tokens: bool = False

    def setup(self) -> None:
        settings = (self.architecture, self.compute)
        self.embeddings = Embeddings(*settings, has_tokens=self.has_tokens)
        self.layers = self.make_layers()
        if self.architecture.norms.placement != 'post':
            self.final_norm = self.make_norm()
        if make_positions := ATTENTIONS[self.architecture.attention.kind].relative_positions:
            self.relative_positions = make_positions(*settings)

    def __call__(
        self,
        rows: Rows,
        memory: Memory,
        token_VE: jax.Array,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
    ) -> EncoderOutput:
        """Compute the states of the rows.

        Args:
            rows: the target's ids, its first token excepted; with a cache, rows that continue it.
            memory: the encoder's output. With more rows than the memory has, rows b · N … b · N +
                N − 1 attend to row b of the memory.
            token_VE: token embeddings, used unless the decoder has its own.
            dropout_seeds_B: uint32, one per row; None for evaluation.
            all_hidden: also return the states of every layer.

        Raises:
            UserError: a target longer than architecture.max_length.
        """
        seeds_B, cache = fold_in(dropout_seeds_B, _SEEDS), rows.cache
        tokens_VE = None if self.has_tokens else token_VE
        embedded_BTD = self.embeddings(rows, fold_in(seeds_B, 0), token_VE=tokens_VE)
        context = Context(_visibility(rows), memory=memory)
        if ATTENTIONS[self.architecture.attention.kind].relative_positions:
            length = embedded_BTD.shape[1]
            num_keys = length if cache is None else cache.num_slots
            context = self.relative_positions(context, length, num_keys)
        embedded_BTD = embedded_BTD.astype(self.compute.residual_dtype)
        x_BTD, hidden_LBTD, cache = self.run_layers(embedded_BTD, context, seeds_B, cache)
        if cache is not None:
            count_B = jnp.asarray(rows.attention_mask_BT).sum(1, dtype=jnp.int32)
            cache = cache.replace(length_B=cache.length_B + count_B)
        if self.architecture.norms.placement != 'post':
            x_BTD = self.finish(x_BTD, seeds_B)
            hidden_LBTD = hidden_LBTD.at[-1].set(x_BTD)
        all_hidden_LBTD = None
        if all_hidden:
            all_hidden_LBTD = jnp.concatenate([embedded_BTD[None], hidden_LBTD])
        return EncoderOutput(x_BTD, None, all_hidden_LBTD, cache=cache)

    def remember(self, memory: Memory) -> Memory:
        """Add the keys and values of the encoder's states in every layer, for decoding."""
        layers = tuple(layer.keys_values(memory.states_BUD) for layer in self.layers)
        return memory.replace(layers=layers)

    def token_table(self, shared_VE: jax.Array) -> jax.Array:
        """fp32 [padded_vocab_size, embedding_width]: the token embeddings that the decoder uses."""
        table_VE = self.embeddings.token_VE if self.has_tokens else shared_VE
        assert table_VE is not None
        return table_VE


def _visibility(rows: Rows) -> Visibility:
    """Which positions of the target attend to which."""
    if rows.cache is not None:  # causality hides the slots that are not written yet
        return Visibility(None, is_causal=True, query_positions_BT=rows.positions())
    segment_ids_BT = rows.segment_ids_BT
    if segment_ids_BT is not None:
        segment_ids_BT = jnp.asarray(segment_ids_BT)
    return Visibility(jnp.asarray(rows.attention_mask_BT), segment_ids_BT, is_causal=True)
