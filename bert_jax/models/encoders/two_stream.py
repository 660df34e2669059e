"""The encoder of XLNet: a Transformer whose second stream predicts without seeing the token."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.attention import Context
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.encoders.transformer import Transformer
from bert_jax.models.linear import weight_init
from bert_jax.models.partitioning import param
from bert_jax.models.relative_attention import distance_vectors, visibility_bias
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import RelativeInputs, Visibility

_QUERY_STREAM, _DISTANCES = 2**28, 2**28 + 1  # dropout sites, beyond the numbers of layers


class TwoStream(Transformer):
    """A Transformer with relative attention over one stream of states or two (Yang et al. 2019).

    The content stream is that of any Transformer. For rows with an order (`Rows.ranks_BT`) and
    targets, the query stream has a state for each target. It starts from one learned vector,
    attends with the same layers to the content of the positions before the target, and thus knows
    the target's position but not its token. Both streams run as one sequence of T + P queries.

    Unlike in the original, no states are carried from one batch to the next (mem_len 0).

    Parameters, all fp32: those of `Transformer`, and query_start [1, 1, D].

    Raises:
        UserError: causal attention, a cache, or a tuned prompt.
    """

    def setup(self) -> None:
        super().setup()
        shape = (1, 1, self.architecture.hidden_size)
        init = weight_init(self.architecture)
        self.query_start_11D = param(self, 'query_start', init, shape, (None, None, 'embed'))

    def make_embeddings(self) -> Embeddings:
        """Make embeddings without token types, which only attention compares."""
        plain = {'encoder': 'transformer', 'attention': 'standard', 'type_vocab_size': 0}
        return Embeddings(self.architecture.changed(plain), self.compute)

    def __call__(
        self,
        rows: Rows,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
        causal: bool = False,
    ) -> EncoderOutput:
        self._check_rows(rows, causal)
        embedded_BTD = self.embeddings(rows, fold_in(dropout_seeds_B, 0))
        length = embedded_BTD.shape[1]
        streams = self._streams(rows, embedded_BTD, dropout_seeds_B)
        segment_ids_BT = rows.segment_ids_BT
        if segment_ids_BT is not None:
            segment_ids_BT = jnp.asarray(segment_ids_BT)
        visibility = Visibility(jnp.asarray(rows.attention_mask_BT), segment_ids_BT)
        context = Context(visibility, relative=streams.relative)
        x_BXD, hidden_LBXD, _ = self.run_layers(streams.x_BXD, context, dropout_seeds_B, None)
        hidden_LBTD = None
        if all_hidden:
            hidden_LBTD = jnp.concatenate([embedded_BTD[None], hidden_LBXD[:, :, :length]])
        query_BPD = None if streams.relative.extra_BP is None else x_BXD[:, length:]
        return EncoderOutput(x_BXD[:, :length], None, hidden_LBTD, query_BPD=query_BPD)

    def _streams(
        self, rows: Rows, embedded_BTD: jax.Array, seeds_B: jax.Array | None
    ) -> '_Streams':
        """Return the inputs of the layers."""
        architecture, x_BXD, extra_BP = self.architecture, embedded_BTD, None
        rate, length = architecture.hidden_dropout, embedded_BTD.shape[1]
        vectors_YRD = distance_vectors(length, architecture.hidden_size)[None]
        if seeds_B is not None and rate:
            vectors_YRD = jnp.broadcast_to(vectors_YRD, (len(seeds_B), *vectors_YRD.shape[1:]))
            vectors_YRD = dropout(vectors_YRD, rate, fold_in(seeds_B, _DISTANCES))
        bias_BXU = None
        if rows.ranks_BT is not None:
            extra_BP = jnp.asarray(rows.chosen.positions_BP)
            shape = (*extra_BP.shape, architecture.hidden_size)
            query_BPD = jnp.broadcast_to(self.query_start_11D, shape).astype(x_BXD.dtype)
            query_BPD = dropout(query_BPD, rate, fold_in(seeds_B, _QUERY_STREAM))
            x_BXD = jnp.concatenate([x_BXD, query_BPD], axis=1)
            bias_BXU = visibility_bias(jnp.asarray(rows.ranks_BT), extra_BP)
        differs_BXU = _differing_types(rows, extra_BP)
        dtype = self.compute.activation_dtype
        relative = RelativeInputs(vectors_YRD.astype(dtype), differs_BXU, bias_BXU, extra_BP)
        return _Streams(x_BXD.astype(self.compute.residual_dtype), relative)

    def _check_rows(self, rows: Rows, causal: bool) -> None:
        method = self.architecture.tuning
        if causal or rows.cache is not None:
            raise UserError(
                'the encoder two_stream attends in both directions; train it with objectives.plm, '
                'not with a causal objective'
            )
        if method is not None and method.prompt_length:
            raise UserError(
                f'transfer.method={method.method} inserts vectors into rows, which the encoder '
                'two_stream has no distances for; choose another method'
            )


class _Streams(NamedTuple):
    """Inputs of the layers.

    Attributes:
        x_BXD: states before the first layer: T of the content stream, then P of the query stream.
        relative: inputs of relative attention, which all layers share.
    """

    x_BXD: jax.Array
    relative: RelativeInputs


def _differing_types(rows: Rows, extra_BP: jax.Array | None) -> jax.Array | None:
    """Which pairs of query and key have different token types: bool [B, T + P, T]."""
    if rows.token_type_ids_BT is None:
        return None
    key_BU = query_BX = jnp.asarray(rows.token_type_ids_BT)
    if extra_BP is not None:
        query_BX = jnp.concatenate([key_BU, jnp.take_along_axis(key_BU, extra_BP, axis=1)], axis=1)
    return query_BX[:, :, None] != key_BU[:, None, :]
