"""Encoders: their interface and their table.

To add an encoder, add a file here with a subclass of `Encoder`, and a line to ENCODERS.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax

from bert_jax.errors import look_up
from bert_jax.lazy_table import LazyTable
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.module import Module
from bert_jax.models.rows import Rows

if TYPE_CHECKING:
    from bert_jax.models.cache import Cache, Memory


class EncoderOutput(NamedTuple):
    """The states of an encoder, in the compute dtype (float32 with compute.float32_residual).

    Attributes:
        hidden_BTD: states of the last layer (normalized, with norms before the layers).
        pooled_BD: pooled state of each row, or [B, S, D] of each sequence if the encoder was given
            first positions; None without a pooler.
        all_hidden_LBTD: if requested, the embeddings and the states of every layer: num_layers + 1
            entries, the last of which is hidden_BTD.
        decoded_BTD: states of a separate mask decoder, from which masked tokens are predicted;
            None: hidden_BTD.
        embedding_VE: fp32 [padded_vocab_size, embedding_width] token embeddings, which heads may be
            tied to; a `Model` adds them.
        parameters: the parameters of the encoder, for a head with `shares_encoder`, to which a
            `Model` gives them.
        cache: the cache of the rows with the keys and values of their tokens; None without one.
        memory: what a decoder reads instead of hidden_BTD, if a tuned prompt made the rows longer.
        query_BPD: states at the targets of a query stream, which have seen the positions of the
            targets but not their tokens; None without such a stream.
    """

    hidden_BTD: jax.Array
    pooled_BD: jax.Array | None
    all_hidden_LBTD: jax.Array | None = None
    decoded_BTD: jax.Array | None = None
    embedding_VE: jax.Array | None = None
    parameters: Mapping[str, Any] | None = None
    cache: 'Cache | None' = None
    memory: 'Memory | None' = None
    query_BPD: jax.Array | None = None


class Encoder(Module):
    """Base class of encoders: token ids in, states out.

    Subclasses define `setup`, with an `Embeddings` module as `self.embeddings`, and `__call__`.

    Attributes:
        supports_prefix: whether it reads `Rows.is_prefix_BT`.
    """

    supports_prefix: ClassVar[bool] = False

    def __call__(
        self,
        rows: Rows,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
        causal: bool = False,
    ) -> EncoderOutput:
        """Encode rows.

        Args:
            rows: what the encoder reads of them: ids, padding, token types (no effect if the
                architecture has fewer than two), and where packed sequences start.
            dropout_seeds_B: uint32, one per row (dropout.py); None for evaluation.
            all_hidden: also return the states of every layer.
            causal: positions do not attend to later positions.

        Raises:
            UserError: a sequence longer than architecture.max_length, or an option that this
                encoder does not support.
        """
        raise NotImplementedError

    def embedding_table(self) -> jax.Array | None:
        """fp32 [padded_vocab_size, embedding_width] token embeddings, for tied decoders.

        None: token vectors are made of characters.
        """
        table_VE: jax.Array | None = self.embeddings.token_VE
        return table_VE


ENCODERS: LazyTable[type[Encoder]] = LazyTable(
    {
        'transformer': 'bert_jax.models.encoders.transformer:Transformer',
        'recurrent': 'bert_jax.models.encoders.recurrent:Recurrent',
        'two_stream': 'bert_jax.models.encoders.two_stream:TwoStream',
    }
)


def build_encoder(architecture: Architecture, compute: Compute, **options: Any) -> Encoder:
    """Build the encoder that the architecture names; `options` go to the Flax module."""
    return look_up('encoder', architecture.encoder, ENCODERS)(architecture, compute, **options)
