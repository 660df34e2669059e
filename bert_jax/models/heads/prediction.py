"""Pretraining heads: masked tokens, sentence pairs, replaced tokens."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.linear import Dense, add_bias, product
from bert_jax.models.normalization import make_norm
from bert_jax.models.packed_rows import gather_positions
from bert_jax.models.partitioning import constrain, param

PADDED_LOGIT = -1e9


class MaskedLanguageModelHead(nn.Module):
    """Dense, activation, norm, then a product with the token embeddings and a bias.

    google-research/bert run_pretraining.py, get_masked_lm_output. The dense layer maps to the width
    of the embeddings. Logits beyond vocab_size are about −10⁹, so their probabilities and all
    gradients through them are exactly 0.
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, hidden_BPD: jax.Array, embedding_VE: jax.Array) -> jax.Array:
        """Returns fp32 logits [B, P, padded_vocab_size]."""
        architecture, settings = self.architecture, (self.architecture, self.compute)
        activation = architecture.prediction_act or architecture.hidden_act
        shape = (architecture.hidden_size, architecture.embedding_width)
        x_BPE = Dense('BPD,DE->BPE', shape, ('embed', 'features'), *settings, name='transform')(
            constrain(hidden_BPD, ('batch', None, 'embed'))
        )
        x_BPE = make_norm(*settings, name='norm')(ACTIVATIONS[activation](x_BPE))
        x_BPE = constrain(x_BPE, ('batch', None, 'embed'))
        embedding_VE = constrain(embedding_VE, ('vocab', None))
        logits_BPV = product('BPE,VE->BPV', x_BPE, embedding_VE, self.compute.activation_dtype)
        num_logits = architecture.padded_vocab_size
        bias_V = param(self, 'bias', nn.initializers.zeros, (num_logits,), ('vocab',))
        is_token_V = jnp.arange(num_logits) < architecture.vocab_size
        logits_BPV = add_bias(logits_BPV, jnp.where(is_token_V, bias_V, PADDED_LOGIT))
        return constrain(logits_BPV, ('batch', None, 'vocab'))


class NextSentenceHead(nn.Module):
    """Whether the second segment follows the first: class 0 yes, class 1 no.

    Class 1 is a random segment (NSP), or the two segments swapped (SOP).
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, pooled_BD: jax.Array | None) -> jax.Array:
        """[B, D] → fp32 logits [B, 2], or [B, S, D] → [B, S, 2].

        Raises:
            UserError: the encoder has no pooler.
        """
        if pooled_BD is None:
            raise UserError('the objectives nsp and sop need an architecture with a pooler')
        shape, names = (self.architecture.hidden_size, 2), ('embed', 'labels')
        settings = (self.architecture, self.compute)
        letters = 'BS'[: pooled_BD.ndim - 1]
        dense = Dense(
            f'{letters}D,DC->{letters}C', shape, names, *settings, use_bias=True, name='dense'
        )
        return dense(pooled_BD).astype(jnp.float32)


class ReplacedTokenHead(nn.Module):
    """Logits of each token having been replaced: dense, activation, dense.

    ELECTRA (Clark et al. 2020, arXiv 2003.10555). With the architecture's detection_context the
    state of the sequence's first position is first added to every state, and the sum normalized (He
    et al. 2023, arXiv 2111.09543; LMMaskPredictionHead in microsoft/DeBERTa,
    replaced_token_detection_model.py).
    """

    architecture: Architecture
    compute: Compute

    @nn.compact
    def __call__(self, hidden_BTD: jax.Array, first_BT: jax.Array | None = None) -> jax.Array:
        """Returns fp32 logits [B, T].

        Args:
            hidden_BTD: states of the encoder.
            first_BT: int32, the first position of each position's sequence, in rows that pack
                several sequences.
        """
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
