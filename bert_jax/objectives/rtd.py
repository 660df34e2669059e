"""Replaced token detection: find the tokens that a generator substituted.

Source: Clark et al. 2020 (ELECTRA, arXiv 2003.10555).
"""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.model import HeadOptions, Model, ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives import Objective
from bert_jax.objectives.edit_detection import detection_terms
from bert_jax.objectives.generator import GeneratorOptions, ModelWithGenerator


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(Objective, GeneratorOptions):
    """Binary cross-entropy over all tokens that are not padding, special tokens included.

    The generator is trained by masked language modeling with the weight of `mlm`.
    """

    corruptions = ('replaced',)
    companions = ('mlm',)

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'rtd': {}}

    def make_model(
        self, architecture: Architecture, compute: Compute, heads: Mapping[str, HeadOptions]
    ) -> Model:
        """Return a model with a generator, which has the head of masked language modeling.

        Raises:
            UserError: the encoder has no table of tokens, which the generator would share.
        """
        if architecture.characters is not None:
            raise UserError(
                'objective rtd: the generator shares the table of token embeddings, and this '
                'encoder reads characters; use another objective'
            )
        others = {name: options for name, options in heads.items() if name != 'mlm'}
        return ModelWithGenerator(architecture, compute, others, options=self)

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the discriminator's terms.

        `rtd_loss` (nats per token), `rtd_accuracy`, and `rtd_share`, the share of replaced tokens:
        a sample of the generator that equals the original token counts as original.
        """
        rows = output.rows
        is_replaced_BT = jnp.asarray(rows.input_ids_BT) != clean.input_ids_BT
        return detection_terms('rtd', output.heads['rtd'], is_replaced_BT, rows.is_token_BT)
