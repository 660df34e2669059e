"""A decoder that writes a text again from nothing but its sentence vector."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util
from flax.core import unfreeze

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.cache import Memory
from bert_jax.models.decoders.transformer import TransformerDecoder
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.flops import decoder_flops
from bert_jax.models.heads import Head
from bert_jax.models.heads.prediction import NextTokenHead
from bert_jax.models.pooling import POOLINGS
from bert_jax.models.rows import Rows
from bert_jax.types import Key, Params, Tree

_METHODS = (None, 'lora', 'bitfit')  # of tuning; they change neither positions nor attention


class ReconstructionHead(Head):
    """Logits of the next token at each position of `rows.target`, the texts that are written.

    The decoder has the layers of the encoder, with the same parameters and causal attention; only
    its attention to the sentence vector has parameters of its own (Wang et al. 2021, arXiv
    2104.06979, section 3; tie_encoder_decoder in sentence-transformers,
    losses/denoising_auto_encoder.py).

    Parameters: `decoder`, those that the encoder lacks, and `prediction`, as those of a head mlm.

    Attributes:
        pooling: a key of POOLINGS, from the states of a text to its vector.
    """

    pooling: str = 'mean'

    shares_encoder = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array | None:
        """Return fp32 logits [B, P, padded_vocab_size]; None for rows without a target.

        Sequence s of the target is written from the vector of sequence s of the rows; both have the
        same segment id.
        """
        target = rows.target
        if target is None and self.is_initializing():
            target = rows  # creates the parameters
        if target is None:
            return None
        shared, table_VE = states.parameters, states.embedding_VE
        assert shared is not None
        assert table_VE is not None
        own = self.param('decoder', lambda key: _without(self._init_decoder(key), shared))
        params = nn.unbox(_merged(shared, unfreeze(own)))
        arguments = (target, self._memory(states, rows), table_VE, dropout_seeds_B)
        decoded: Any = self._make_decoder().apply({'params': params}, *arguments)
        prediction = NextTokenHead(self.architecture, self.compute, name='prediction')
        return prediction(decoded._replace(embedding_VE=table_VE), target)

    def _memory(self, states: EncoderOutput, rows: Rows) -> Memory:
        """The vectors of the S sequences of each row, as states that the decoder attends to."""
        pool = POOLINGS[self.pooling]
        vectors_BSD = pool(states.hidden_BTD.astype(jnp.float32), rows.members())
        vectors_BSD = vectors_BSD.astype(states.hidden_BTD.dtype)
        if rows.segment_ids_BT is None or rows.first_positions_BS is None:
            return Memory(vectors_BSD, jnp.ones(vectors_BSD.shape[:2], jnp.int32))
        first_BS = jnp.asarray(rows.first_positions_BS)
        is_used_BS = (first_BS >= 0).astype(jnp.int32)
        segment_ids_BT = jnp.asarray(rows.segment_ids_BT)
        segment_BS = jnp.take_along_axis(segment_ids_BT, jnp.maximum(first_BS, 0), axis=1)
        return Memory(vectors_BSD, is_used_BS, segment_BS)

    @nn.nowrap
    def _make_decoder(self) -> TransformerDecoder:
        """Build the decoder without a parent, because most of its parameters are the encoder's."""
        architecture = with_decoder(self.architecture).of_decoder
        return TransformerDecoder(architecture, self.compute, parent=None)

    @nn.nowrap
    def _init_decoder(self, key: Key) -> dict[str, Tree]:
        ids, size = jnp.zeros((1, 1), jnp.int32), self.architecture.hidden_size
        memory = Memory(jnp.zeros((1, 1, size), self.compute.activation_dtype), ids + 1)
        width = self.architecture.embedding_width
        table_VE = jnp.zeros((self.architecture.padded_vocab_size, width))
        variables = self._make_decoder().init(key, Rows(ids, ids + 1), memory, table_VE)
        params: dict[str, Tree] = unfreeze(variables)['params']
        return params

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """Every position but the last predicts a token."""
        return sequence_length - 1

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """The layers of the decoder, which attends to one vector."""
        return decoder_flops(with_decoder(self.architecture), 1, sequence_length)


def with_decoder(architecture: Architecture) -> Architecture:
    """Return the architecture with a decoder of as many layers, which reads the same embeddings.

    Raises:
        UserError: the layers of the encoder cannot be a decoder, also because of their tuning, or
            the model has a decoder already.
    """
    if architecture.decoder is not None:
        raise UserError(
            'a text is reconstructed by the layers of its encoder, but the model has a decoder of '
            'its own; use an encoder such as BERT'
        )
    method = architecture.tuning.method if architecture.tuning is not None else None
    if method not in _METHODS:
        raise UserError(
            f'transfer.method={method} cannot tune an encoder whose layers also reconstruct texts; '
            'use full, lora or bitfit'
        )
    try:
        stack = DecoderStack(architecture.num_layers, start='cls')
        return dataclasses.replace(architecture, decoder=stack)
    except UserError as error:
        raise UserError(
            'a text is reconstructed by the layers of its encoder, which must be as those of BERT '
            f'or RoBERTa; {error}'
        ) from None


def _without(params: Params, shared: Params) -> dict[str, Tree]:
    """Return the parameters whose names are not in `shared`."""
    known = traverse_util.flatten_dict(shared)
    flat = traverse_util.flatten_dict(params)
    own: dict[str, Tree] = traverse_util.unflatten_dict(
        {name: leaf for name, leaf in flat.items() if name not in known}
    )
    return own


def _merged(shared: Params, own: Params) -> dict[str, Tree]:
    """Return the parameters of both."""
    flat = traverse_util.flatten_dict(shared) | traverse_util.flatten_dict(own)
    merged: dict[str, Tree] = traverse_util.unflatten_dict(flat)
    return merged
