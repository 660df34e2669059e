"""The interface of heads, through which models, objectives and problems use them."""

from typing import Any, ClassVar

import jax
from flax import linen as nn

from bert_jax.models.encoders.base import EncoderOutput
from bert_jax.models.module import Module
from bert_jax.models.rows import Rows


class Head(Module):
    """Encoder states in, predictions out. Further fields of a subclass are the head's options.

    Attributes:
        architecture: the encoder's architecture.
        compute: precision and kernels.
        reads_decoded: whether the head reads `EncoderOutput.decoded_BTD`, of a mask decoder.
        reads_head_states: whether `states.hidden_BTD` are those that `architecture.head_states`
            and `head_lstm` describe, which may be wider; otherwise those of the last layer.
    """

    reads_decoded: ClassVar[bool] = False
    reads_head_states: ClassVar[bool] = False

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> Any:
        """Compute predictions, such as fp32 logits.

        Args:
            states: the encoder's states for the rows.
            rows: the rows that were encoded, with the `targets` and `labels` that say where to
                predict.
            dropout_seeds_B: uint32, one per row (dropout.py); None for evaluation.
        """
        raise NotImplementedError

    @nn.nowrap
    def reads_pooler(self) -> bool:
        """Whether the head reads the pooled state."""
        return False

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """Return how many states per sequence are projected onto the vocabulary.

        Args:
            sequence_length: tokens per sequence.
            num_predictions: maximum number of masked tokens per sequence.
        """
        return 0

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """Return the forward operations per sequence of the other matrix products."""
        return 0
