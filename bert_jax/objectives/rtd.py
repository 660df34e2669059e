"""Replaced token detection: find the tokens that a generator substituted.

Source: Clark et al. 2020 (ELECTRA, arXiv 2003.10555).
"""

from typing import Any

from bert_jax.averages import Terms
from bert_jax.models.architecture import Architecture
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads.prediction import ReplacedTokenHead
from bert_jax.models.rows import Rows
from bert_jax.objectives.base import EncodedBatch, Objective
from bert_jax.objectives.edit_detection import detection_flops, detection_terms
from bert_jax.objectives.generator import Generator, GeneratorOptions, ReplacedText
from bert_jax.objectives.mlm import masked_terms


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
        """Return the discriminator's terms and the generator's `masked_terms`.

        Discriminator: `rtd_loss` (nats per token), `rtd_accuracy`, and `rtd_share`, the share of
        replaced tokens.
        """
        replaced, batch = encoded.corrupted, encoded.batch
        logits_BT = self.head(EncoderOutput(encoded.hidden, None), Rows.of(batch))
        mask_BT = batch['attention_mask']
        terms = detection_terms('rtd', logits_BT, replaced.is_replaced, mask_BT > 0)
        return masked_terms(replaced.generator_logits, replaced.masked, mask_BT) | terms

    @staticmethod
    def head_flops(
        architecture: Architecture, options: Any, sequence_length: int, num_predictions: int
    ) -> int:
        """Every position is classified."""
        return detection_flops(architecture, sequence_length)
