"""Predicting tokens from the two ends of the span that hides them."""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.models.linear import Dense, weight_init
from bert_jax.models.normalization import make_norm
from bert_jax.models.partitioning import constrain


class SpanBoundaryHead(nn.Module):
    """(left_BPD, right_BPD, place_BP, embedding_VD) → logits_BPV, fp32, V = padded_vocab_size.

    y = norm(gelu(W₂ norm(gelu(W₁ [left; right; p_place] + b₁)) + b₂)), then a product with the
    token embeddings and a bias of its own (Joshi et al. 2020, arXiv 1907.10529, equations 1–2;
    BertPairTargetPredictionHead of facebookresearch/SpanBERT). The second layer and the decoder are
    those of a masked language model.

    left, right: states of the unmasked tokens beside the span.
    place: int32, from 0 for the span's first token to num_places − 1.
    """

    architecture: Architecture
    compute: Compute
    num_places: int
    place_size: int

    @nn.compact
    def __call__(self, left_BPD, right_BPD, place_BP, embedding_VD):
        settings, size = (self.architecture, self.compute), self.architecture.hidden_size
        place_RD = self.param(
            'place',
            nn.with_logical_partitioning(weight_init(self.architecture), ('positions', None)),
            (self.num_places, self.place_size),
        )
        place_BPD = place_RD[place_BP].astype(self.compute.activation_dtype)
        x_BPD = jnp.concatenate([left_BPD, right_BPD, place_BPD], axis=-1)
        shape = (2 * size + self.place_size, size)
        x_BPD = Dense('BPE,ED->BPD', shape, ('features', 'embed'), *settings, name='first')(
            constrain(x_BPD, ('batch', None, None))
        )
        activation = self.architecture.prediction_act or self.architecture.hidden_act
        x_BPD = make_norm(*settings, name='first_norm')(ACTIVATIONS[activation](x_BPD))
        return MaskedLanguageModelHead(*settings, name='second')(x_BPD, embedding_VD)
