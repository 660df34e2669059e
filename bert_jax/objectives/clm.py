"""Causal language modeling: predict each token from the tokens to its left.

The row "LTR & No NSP" of BERT's ablation (Devlin et al. 2019, section 5.1).
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jax.typing import ArrayLike

from bert_jax.averages import Terms
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Key


class CausalText(Corruption):
    """The clean text, with the next token as the target of every position but the last.

    The weight is 0 where that token is special or padding.
    """

    hides_tokens = False

    def __call__(self, keys_B: Key, rows: Rows, progress: ArrayLike = 1.0) -> Rows:
        """Return the clean rows with their targets; nothing is random."""
        ids_BP = rows.input_ids_BT[:, 1:]
        positions_BP = jnp.broadcast_to(jnp.arange(ids_BP.shape[1]), ids_BP.shape)
        counts_BP = rows.is_token_BT[:, 1:] & ~self.vocabulary.is_special(ids_BP)
        targets = Targets(positions_BP, ids_BP, counts_BP.astype(jnp.float32))
        return rows.replace(targets=targets)


class CausalLanguageModel(Objective):
    """Cross-entropy of every token that is not special, given the tokens before it."""

    corruptions = ('causal',)
    is_causal = True
    is_generative = True
    predicts_tokens = True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'clm': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the terms `clm_loss` (nats per token), `clm_accuracy` and `clm_empty`."""
        _, ids_BP, weights_BP = output.rows.chosen
        terms = prediction_terms('clm', output.heads['clm'], ids_BP, weights_BP)
        return terms | empty_rows('clm', weights_BP, output.rows)
