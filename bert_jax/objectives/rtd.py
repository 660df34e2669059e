"""Replaced token detection: find the tokens that a generator substituted.

Source: Clark et al. 2020 (ELECTRA, arXiv 2003.10555).
"""

from typing import Any

import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads.prediction import ReplacedTokenHead
from bert_jax.objectives.base import EncodedBatch, Objective
from bert_jax.objectives.edit_detection import detection_flops, detection_terms
from bert_jax.objectives.generator import Generator, GeneratorOptions, ReplacedText


class ReplacedTokenDetection(Objective):
    """Binary cross-entropy over all tokens that are not padding, special tokens included.

    The generator is trained by masked language modeling with the weight of `mlm`.
    """

    corruptions = (ReplacedText,)
    options_type = GeneratorOptions
    companions = Generator.trained_by
    generator = Generator

    def setup(self) -> None:
        self.head = ReplacedTokenHead(self.architecture, self.compute)

    def __call__(self, encoded: EncodedBatch) -> Terms:
        """Return the discriminator's terms.

        `rtd_loss` (nats per token), `rtd_accuracy`, and `rtd_share`, the share of replaced tokens:
        a sample of the generator that equals the original token counts as original.
        """
        rows = encoded.rows
        is_replaced_BT = jnp.asarray(rows.input_ids_BT) != encoded.clean.input_ids_BT
        logits_BT = self.head(EncoderOutput(encoded.hidden, None), rows)
        return detection_terms('rtd', logits_BT, is_replaced_BT, rows.is_token_BT)

    @staticmethod
    def head_flops(
        architecture: Architecture, options: Any, sequence_length: int, num_predictions: int
    ) -> int:
        """Every position is classified."""
        return detection_flops(architecture, sequence_length)
