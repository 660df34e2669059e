"""Classification of pairs of marked spans: relations, words in two contexts, coreference."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.dropout import head_dropout
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads import Head
from bert_jax.models.partitioning import constrain
from bert_jax.models.rows import Rows, masked_mean

FIRST, SECOND = 1, 2  # bits of a position's marks


class MarkedPairHead(Head):
    """Classes of each sequence's pair of marked spans, from the spans' mean states a and b.

    A hidden layer reads [a; b; a ∘ b; |a − b|] (products as in Lee et al. 2017, arXiv 1707.07045,
    section 4; differences as in Conneau et al. 2017, arXiv 1705.02364, section 3.1).
    """

    num_labels: int
    reads_head_states = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> jax.Array:
        """Return fp32 logits [B, S, C].

        `rows.labels['marks']`, int32 [B, T], is FIRST at positions of the first span, SECOND at
        positions of the second, their sum at positions of both. An empty span has a vector of
        zeros.
        """
        size, drop = self.architecture.hidden_size, head_dropout(self.architecture, dropout_seeds_B)
        member_BST, marks_BT = rows.members(), rows.labels['marks']
        # Comparisons, because export formats may lack bitwise operators.
        is_second_BT = marks_BT >= SECOND
        is_first_BT = marks_BT - SECOND * is_second_BT == FIRST
        a_BSD, b_BSD = (
            masked_mean(states.hidden_BTD, member_BST & is_marked_BT[:, None])
            for is_marked_BT in (is_first_BT, is_second_BT)
        )
        x_BSF = jnp.concatenate([a_BSD, b_BSD, a_BSD * b_BSD, jnp.abs(a_BSD - b_BSD)], axis=-1)
        x_BSF = drop(constrain(x_BSF, ('batch', None, None)), 0)
        shape, names = (x_BSF.shape[-1], size), ('features', 'embed')
        hidden = self.make_dense('BSF,FD->BSD', shape, names, use_bias=True, name='hidden')
        x_BSD = drop(ACTIVATIONS[self.architecture.hidden_act](hidden(x_BSF)), 1)
        shape, names = (size, self.num_labels), ('embed', 'labels')
        output = self.make_dense('BSD,DC->BSC', shape, names, use_bias=True, name='output')
        return output(x_BSD).astype(jnp.float32)
