"""Classes of pairs of marked spans: relations, a word in two contexts, coreference."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout, fold
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.linear import Dense
from bert_jax.models.packed_rows import masked_mean, sequence_members
from bert_jax.models.partitioning import constrain

FIRST, SECOND = 1, 2  # bits of a position's marks


class MarkedPairHead(nn.Module):
    """(EncoderOutput, marks_BT, dropout_seeds_B, …) → logits_BSC, fp32.

    A pair is represented by [a; b; a ∘ b; |a − b|], of the means of the states of its two marks, on
    which there is a hidden layer (products as in Lee et al. 2017, arXiv 1707.07045, section 4;
    differences as in Conneau et al. 2017, arXiv 1705.02364, section 3.1).

    marks_BT: int32, FIRST for positions of the first mark, SECOND for the second, their sum for
        both. A mark of no position is a vector of zeros.
    dropout_seeds_B, segment_ids_BT, first_positions_BS: those given to the encoder.
    """

    architecture: Architecture
    compute: Compute
    num_labels: int

    @nn.compact
    def __call__(
        self,
        encoded: EncoderOutput,
        marks_BT,
        dropout_seeds_B=None,
        *,
        segment_ids_BT,
        first_positions_BS,
    ):
        architecture, settings = self.architecture, (self.architecture, self.compute)
        size, rate = architecture.hidden_size, architecture.classifier_dropout
        rate = architecture.hidden_dropout if rate is None else rate
        seeds_B = fold(dropout_seeds_B, architecture.num_layers + 1)  # fewer are the encoder's
        member_BST = sequence_members(segment_ids_BT, first_positions_BS)
        a_BSD, b_BSD = (
            masked_mean(encoded.hidden_BTD, member_BST & ((marks_BT & bit) > 0)[:, None])
            for bit in (FIRST, SECOND)
        )
        x_BSF = jnp.concatenate([a_BSD, b_BSD, a_BSD * b_BSD, jnp.abs(a_BSD - b_BSD)], axis=-1)
        x_BSF = dropout(constrain(x_BSF, ('batch', None, None)), rate, fold(seeds_B, 0))
        hidden = Dense(
            'BSF,FD->BSD',
            (4 * size, size),
            ('features', 'embed'),
            *settings,
            use_bias=True,
            name='hidden',
        )
        x_BSD = dropout(ACTIVATIONS[architecture.hidden_act](hidden(x_BSF)), rate, fold(seeds_B, 1))
        shape, names = (size, self.num_labels), ('embed', 'labels')
        output = Dense('BSD,DC->BSC', shape, names, *settings, use_bias=True, name='output')
        return output(x_BSD).astype(jnp.float32)
