"""Heads that are pretrained: what a token is, whether it is the original, and the next sentence."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.linear import Dense, add_bias, product
from bert_jax.models.normalization import make_norm
from bert_jax.models.packed_rows import gather_positions
from bert_jax.models.partitioning import constrain

PADDED_LOGIT = -1e9


class MaskedLanguageModelHead(nn.Module):
    """(hidden_BPD, embedding_VD) → logits_BPV, fp32, V = padded_vocab_size.

    Dense, activation, norm, then a product with the token embeddings and a bias of its own
    (google-research/bert run_pretraining.py, get_masked_lm_output). Embeddings of a width of their
    own are met by the dense map. Logits beyond vocab_size are about −10⁹: their probability and
    every gradient through them are exactly 0.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, hidden_BPD, embedding_VD):
        architecture, settings = self.architecture, (self.architecture, self.compute)
        activation = architecture.prediction_act or architecture.hidden_act
        shape = (architecture.hidden_size, architecture.embedding_width)
        x_BPD = Dense('BPD,DE->BPE', shape, ('embed', 'features'), *settings, name='transform')(
            constrain(hidden_BPD, ('batch', None, 'embed'))
        )
        x_BPD = make_norm(*settings, name='norm')(ACTIVATIONS[activation](x_BPD))
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
    """pooled_BD → logits_B2, or [B, S, D] → [B, S, 2], fp32; class 0: the second segment follows
    the first, 1: it does not (random; or, where the order is predicted, the two are swapped).

    Raises UserError for an encoder without a pooler.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, pooled_BD):
        if pooled_BD is None:
            raise UserError('predicting the next sentence needs an architecture with a pooler')
        shape, names = (self.architecture.hidden_size, 2), ('embed', 'labels')
        settings = (self.architecture, self.compute)
        letters = 'BS'[: pooled_BD.ndim - 1]
        dense = Dense(
            f'{letters}D,DC->{letters}C', shape, names, *settings, use_bias=True, name='dense'
        )
        return dense(pooled_BD).astype(jnp.float32)


class ReplacedTokenHead(nn.Module):
    """hidden_BTD → logits_BT, fp32, of each token not being the original one (ELECTRA, Clark et al.
    2020, arXiv 2003.10555): dense, activation, dense.

    With the architecture's detection_context the first state is added to every one, and the sum
    normalized, before that (He et al. 2023, arXiv 2111.09543; LMMaskPredictionHead of
    microsoft/DeBERTa, replaced_token_detection_model.py). first_BT: int32, where that state is for
    each position, if there are several sequences in a row.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, hidden_BTD, first_BT=None):
        size, settings = self.architecture.hidden_size, (self.architecture, self.compute)
        x_BTD = constrain(hidden_BTD, ('batch', 'length', 'embed'))
        if self.architecture.detection_context:
            first_BTD = x_BTD[:, :1] if first_BT is None else gather_positions(x_BTD, first_BT)
            x_BTD = make_norm(*settings, name='norm')(first_BTD + x_BTD)
        x_BTD = Dense(
            'BTD,DE->BTE', (size, size), ('embed', 'features'), *settings, name='transform'
        )(x_BTD)
        x_BTD = ACTIVATIONS[self.architecture.hidden_act](x_BTD)
        names = ('embed', 'labels')
        output = Dense('BTD,DC->BTC', (size, 1), names, *settings, use_bias=True, name='output')
        return output(x_BTD)[..., 0].astype(jnp.float32)
