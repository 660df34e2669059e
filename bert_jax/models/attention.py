"""Multi-head self-attention (Vaswani et al. 2017, section 3.2)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import dropout
from bert_jax.models.partitioning import constrain
from bert_jax.models.products import Dense, product

# Finite, so that a row without any real position gives equal weights and not NaN; so large that
# any other score vanishes beside it in fp32.
MASKED = -1e9


def mask_bias(attention_mask_BT: jax.Array) -> jax.Array:
    """fp32 [B, 1, 1, T] to add to scores: 0 where the mask is 1, MASKED where it is 0."""
    return jnp.where(attention_mask_BT[:, None, None, :] > 0, 0.0, MASKED)


class Attention(nn.Module):
    """(x_BTD, bias_B11T, seeds_B) → [B, T, D]: each position takes from all unmasked ones."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, x_BTD, bias_B11T, seeds_B):
        architecture, dtype = self.architecture, self.compute.activation_dtype
        settings = (architecture, self.compute)
        size, heads = architecture.hidden_size, architecture.num_heads
        head_size = architecture.head_size
        query_BTHK, key_BTHK, value_BTHK = (
            constrain(
                Dense(
                    'BTD,DHK->BTHK',
                    (size, heads, head_size),
                    ('embed', 'heads', 'head_dim'),
                    *settings,
                    name=name,
                )(x_BTD),
                ('batch', 'length', 'heads', 'head_dim'),
            )
            for name in ('query', 'key', 'value')
        )
        scores_BHTS = product('BTHK,BSHK->BHTS', query_BTHK, key_BTHK, dtype)
        weights_BHTS = jax.nn.softmax(scores_BHTS * head_size**-0.5 + bias_B11T)
        weights_BHTS = dropout(weights_BHTS, architecture.attention_dropout, seeds_B)
        x_BTHK = product('BHTS,BSHK->BTHK', weights_BHTS, value_BTHK, dtype).astype(dtype)
        return Dense(
            'BTHK,HKD->BTD',
            (heads, head_size, size),
            ('heads', 'head_dim', 'embed'),
            *settings,
            name='output',
        )(x_BTHK)
