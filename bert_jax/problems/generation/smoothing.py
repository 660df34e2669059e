"""Cross-entropy of tokens with label smoothing, in the two forms that are in use.

Smoothing ε gives every token of the vocabulary V a share of the target. 'uniform': (1 − ε) ·
one-hot + ε / V, as in torch and transformers (Szegedy et al. 2016). 'fairseq': 1 − ε for the token
and ε / (V − 1) for every other one (label_smoothed_cross_entropy in fairseq), which is the first
form with ε V / (V − 1).
"""

import jax
import jax.numpy as jnp

from bert_jax.objectives.mlm import cross_entropy
from bert_jax.types import Array

FORMS = ('uniform', 'fairseq')


def smoothed_cross_entropy(
    logits_XV: jax.Array, labels_X: Array, smoothing: float, form: str = 'uniform'
) -> jax.Array:
    """Return the cross-entropy with smoothed labels in nats, float32 [X].

    Args:
        logits_XV: fp32, of the tokens of the vocabulary, without padding.
        labels_X: int32.
        smoothing: ε; 0: the plain cross-entropy.
        form: one of FORMS.
    """
    nll_X = cross_entropy(logits_XV, labels_X)
    if not smoothing:
        return nll_X
    size = logits_XV.shape[-1]
    if form == 'fairseq':
        smoothing *= size / (size - 1)
    mean_nll_X = jax.nn.logsumexp(logits_XV, axis=-1) - jnp.mean(logits_XV, axis=-1)
    return (1 - smoothing) * nll_X + smoothing * mean_nll_X
