"""What is put on top of an encoder to predict something."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.normalization import LayerNorm
from bert_jax.models.partitioning import constrain
from bert_jax.models.products import Dense, add_bias, product

PADDED_LOGIT = -1e9


class MaskedLanguageModelHead(nn.Module):
    """(hidden_BPD, embedding_VD) → logits_BPV, fp32, V = padded_vocab_size.

    Dense, activation, LayerNorm, then a product with the token embeddings and a bias of its own
    (google-research/bert run_pretraining.py, get_masked_lm_output). Logits beyond vocab_size are
    about −10⁹: their probability and every gradient through them are exactly 0.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, hidden_BPD, embedding_VD):
        architecture, settings = self.architecture, (self.architecture, self.compute)
        size = architecture.hidden_size
        x_BPD = Dense(
            'BPD,DE->BPE', (size, size), ('embed', 'features'), *settings, name='transform'
        )(constrain(hidden_BPD, ('batch', None, 'embed')))
        x_BPD = LayerNorm(*settings, name='norm')(ACTIVATIONS[architecture.hidden_act](x_BPD))
        x_BPD = constrain(x_BPD, ('batch', None, 'embed'))
        embedding_VD = constrain(embedding_VD, ('vocab', None))
        logits_BPV = product('BPD,VD->BPV', x_BPD, embedding_VD, self.compute.activation_dtype)
        bias_V = self.param(
            'bias',
            nn.with_logical_partitioning(nn.initializers.zeros, ('vocab',)),
            (architecture.padded_vocab_size,),
        )
        is_real_V = jnp.arange(architecture.padded_vocab_size) < architecture.vocab_size
        logits_BPV = add_bias(logits_BPV, jnp.where(is_real_V, bias_V, PADDED_LOGIT))
        return constrain(logits_BPV, ('batch', None, 'vocab'))


class NextSentenceHead(nn.Module):
    """pooled_BD → logits_B2, fp32; class 0: the second segment follows the first, 1: random."""

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, pooled_BD):
        shape, names = (self.architecture.hidden_size, 2), ('embed', 'labels')
        dense = Dense('BD,DC->BC', shape, names, self.architecture, self.compute, name='dense')
        return dense(pooled_BD).astype(jnp.float32)
