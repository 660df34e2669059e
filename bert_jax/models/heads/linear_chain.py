"""The learned scores of a linear-chain conditional random field (models/crf.py)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.crf import DISALLOWED, TransitionScores, allowed_tags
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads import Head
from bert_jax.models.partitioning import param
from bert_jax.models.rows import Rows


class LinearChain(Head):
    """Learned scores, initially 0; DISALLOWED for sequences that the tagging scheme rules out.

    Attributes:
        labels: names of the tags.
        rate: multiplies the parameters, so that optimizers with normalized steps (Adam) move scores
            this many times faster; at an encoder's learning rate scores would hardly leave 0.
        constrained: whether to disallow sequences.
    """

    labels: tuple[str, ...]
    rate: float = 1.0
    constrained: bool = True

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> TransitionScores:
        """Return `scores`, which do not depend on the text."""
        return self.scores()

    @nn.compact
    def scores(self) -> TransitionScores:
        """Return the scores of the tags."""
        size = len(self.labels)
        shapes = {'transitions': (size, size), 'start': (size,), 'end': (size,)}
        scores = TransitionScores(*(self._scores(name, shape) for name, shape in shapes.items()))
        if not self.constrained:
            return scores
        pairs = zip(scores, allowed_tags(self.labels), strict=True)
        return TransitionScores(
            *(jnp.where(is_allowed, score, DISALLOWED) for score, is_allowed in pairs)
        )

    def _scores(self, name: str, shape: tuple[int, ...]) -> jax.Array:
        axes = ('labels', None)[: len(shape)]
        return self.rate * param(self, name, nn.initializers.zeros, shape, axes)
