"""Classification of pairs of marked spans: relations, words in two contexts, coreference."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout, fold_in
from bert_jax.models.encoders.base import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.linear import Dense
from bert_jax.models.packed_rows import masked_mean, sequence_members
from bert_jax.models.partitioning import constrain

FIRST, SECOND = 1, 2  # bits of a position's marks


class MarkedPairHead(nn.Module):
    """Classes of each sequence's pair of marked spans, from the mean states a and b of its spans.

    A hidden layer reads [a; b; a ∘ b; |a − b|] (products as in Lee et al. 2017, arXiv 1707.07045,
    section 4; differences as in Conneau et al. 2017, arXiv 1705.02364, section 3.1).
    """

    architecture: Architecture
    compute: Compute
    num_labels: int

    @nn.compact
    def __call__(
        self,
        encoded: EncoderOutput,
        marks_BT: jax.Array,
        dropout_seeds_B: jax.Array | None = None,
        *,
        segment_ids_BT: jax.Array,
        first_positions_BS: jax.Array,
    ) -> jax.Array:
        """Returns fp32 logits [B, S, C].

        Args:
            encoded: states of the batch.
            marks_BT: int32, FIRST at positions of the first span, SECOND at those of the second,
                their sum at positions of both. A span without positions has a vector of zeros.
            dropout_seeds_B: the encoder's, uint32; None for evaluation.
            segment_ids_BT: the encoder's.
            first_positions_BS: the encoder's.
        """
        architecture, settings = self.architecture, (self.architecture, self.compute)
        size, rate = architecture.hidden_size, architecture.classifier_dropout
        rate = architecture.hidden_dropout if rate is None else rate
        # A site beyond those of the encoder's layers.
        seeds_B = fold_in(dropout_seeds_B, architecture.num_layers + 1)
        member_BST = sequence_members(segment_ids_BT, first_positions_BS)
        a_BSD, b_BSD = (
            masked_mean(encoded.hidden_BTD, member_BST & ((marks_BT & bit) > 0)[:, None])
            for bit in (FIRST, SECOND)
        )
        x_BSF = jnp.concatenate([a_BSD, b_BSD, a_BSD * b_BSD, jnp.abs(a_BSD - b_BSD)], axis=-1)
        x_BSF = dropout(constrain(x_BSF, ('batch', None, None)), rate, fold_in(seeds_B, 0))
        hidden = Dense(
            'BSF,FD->BSD',
            (4 * size, size),
            ('features', 'embed'),
            *settings,
            use_bias=True,
            name='hidden',
        )
        x_BSD = ACTIVATIONS[architecture.hidden_act](hidden(x_BSF))
        x_BSD = dropout(x_BSD, rate, fold_in(seeds_B, 1))
        shape, names = (size, self.num_labels), ('embed', 'labels')
        output = Dense('BSD,DC->BSC', shape, names, *settings, use_bias=True, name='output')
        return output(x_BSD).astype(jnp.float32)
