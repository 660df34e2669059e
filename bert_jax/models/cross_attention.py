"""Attention of a decoder to the states of an encoder (Vaswani et al. 2017, section 3.2.3)."""

import jax

from bert_jax.models.attention import Attention, Context
from bert_jax.models.cache import KeysValues
from bert_jax.models.partitioning import constrain
from bert_jax.models.visibility import Visibility


class CrossAttention(Attention):
    """softmax(Q Kᵀ / √K) V with keys and values of the encoder's states; positions do not matter.

    After attention with a relative bias, dot products are not scaled either.
    """

    def attend_to(
        self,
        x_BTD: jax.Array,
        context: Context,
        seeds_B: jax.Array | None,
        known: KeysValues | None = None,
    ) -> jax.Array:
        """Return [B, T, D].

        Args:
            x_BTD: states of the decoder. Their rows may be a multiple of the encoder's rows: row
                b · N + n belongs to row b of the encoder, as for beams.
            context: `memory` is the encoder's output.
            seeds_B: uint32 dropout seeds; None for evaluation.
            known: keys and values of the encoder's states; None: they are computed.
        """
        memory = context.memory
        assert memory is not None
        query_BTHK = constrain(self.query(x_BTD), ('batch', 'length', 'heads', 'head_dim'))
        if self._has_qk_norm:
            query_BTHK = self.query_norm(query_BTHK)
        known = self.keys_values(memory.states_BUD) if known is None else known
        key_BUHK, value_BUHK = known.key_BUHK, known.value_BUHK
        shape = query_BTHK.shape
        visibility = Visibility(
            memory.attention_mask_BU,
            context.visibility.segment_ids_BT,
            memory.segment_ids_BU,
        )
        if len(key_BUHK) < shape[0]:  # the queries of N rows are those of one
            query_BTHK = query_BTHK.reshape(len(key_BUHK), -1, *shape[2:])
        states, prefix = (query_BTHK, key_BUHK, value_BUHK), self._prefix(query_BTHK)
        output_BTHK = self.attend(*states, visibility, prefix, Context(visibility), seeds_B)
        return self.output(output_BTHK.reshape(shape))

    def keys_values(self, states_BUD: jax.Array) -> KeysValues:
        """Project the states of an encoder."""
        projected = (self.key(states_BUD), self.value(states_BUD))
        axes = ('batch', 'length', 'heads', 'head_dim')
        key_BUHK, value_BUHK = (constrain(x_BUHK, axes) for x_BUHK in projected)
        return KeysValues(self.key_norm(key_BUHK) if self._has_qk_norm else key_BUHK, value_BUHK)

    def kernel(self, length: int, is_training: bool, visibility: Visibility) -> str:
        """As for self-attention; 'xla' for much fewer queries than keys, as in decoding.

        The kernels of TPUs pad the shorter of queries and keys to the length of the other.
        """
        mask_BU = visibility.attention_mask_BU
        assert mask_BU is not None
        shorter, longer = sorted((length, mask_BU.shape[1]))
        kernel = super().kernel(longer, is_training, visibility)
        if 2 * shorter < longer or super().kernel(shorter, is_training, visibility) != kernel:
            return 'xla'
        return kernel

    @property
    def score_scale(self) -> float:
        attention = self.architecture.attention
        is_scaled = attention.kind != 'relative_bias' or attention.scaled
        return super().score_scale if is_scaled else 1.0
