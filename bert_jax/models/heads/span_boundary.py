"""Span-boundary objective: predicts each token of a masked span from the states at its ends."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.linear import weight_init
from bert_jax.models.module import Module
from bert_jax.models.partitioning import constrain, param


class SpanBoundaryHead(Module):
    """norm(gelu(W₂ norm(gelu(W₁ [left; right; p_place] + b₁)) + b₂)), then a decoder.

    Joshi et al. 2020, arXiv 1907.10529, equations 1–2; BertPairTargetPredictionHead in
    facebookresearch/SpanBERT. The second layer and the decoder, a product with the token embeddings
    and a bias, are a masked-language-model head.

    Attributes:
        num_places: number of learned place vectors.
        place_size: size of a place vector.
    """

    num_places: int
    place_size: int

    @nn.compact
    def __call__(
        self,
        left_BPD: jax.Array,
        right_BPD: jax.Array,
        place_BP: jax.Array,
        embedding_VE: jax.Array,
    ) -> jax.Array:
        """Return fp32 logits [B, P, padded_vocab_size].

        Args:
            left_BPD: states of the unmasked tokens left of the spans.
            right_BPD: states of the unmasked tokens right of the spans.
            place_BP: int32 place of the token in its span, 0 … num_places − 1.
            embedding_VE: the encoder's token embeddings.
        """
        architecture, place_shape = self.architecture, (self.num_places, self.place_size)
        place_init = weight_init(architecture)
        place_XE = param(self, 'place', place_init, place_shape, ('positions', None))
        place_BPE = place_XE[place_BP].astype(self.compute.activation_dtype)
        x_BPF = jnp.concatenate([left_BPD, right_BPD, place_BPE], axis=-1)
        shape = (x_BPF.shape[-1], architecture.hidden_size)
        first = self.make_dense('BPF,FD->BPD', shape, ('features', 'embed'), name='first')
        x_BPD = first(constrain(x_BPF, ('batch', None, None)))
        activation = ACTIVATIONS[architecture.prediction_act or architecture.hidden_act]
        x_BPD = self.make_norm('first_norm')(activation(x_BPD))
        second = MaskedLanguageModelHead(architecture, self.compute, name='second')
        return second.predict(x_BPD, embedding_VE)
