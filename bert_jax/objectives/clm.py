"""Causal language modeling: predict each token from the tokens to its left.

The row "LTR & No NSP" of BERT's ablation (Devlin et al. 2019, section 5.1).
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Corruption, Vocabulary
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Config, Key


@dataclasses.dataclass(frozen=True, eq=False)
class CausalText(Corruption):
    """The clean text, with the next token as the target of every position but the last.

    The weight is 0 where that token is special, padding or part of a prefix.

    Attributes:
        prefix: share of the sequences whose first 1, …, n − 1 of n tokens, a number drawn evenly,
            are seen by all positions and not predicted (a prefix language model: Dong et al. 2019,
            UniLM, arXiv 1905.03197, section 2.3, with the split of T5, arXiv 1910.10683, section
            3.2.3).
    """

    prefix: float = 0.0

    hides_tokens = False

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> 'CausalText':
        """Return the corruption with the settings `config.clm`."""
        return cls(vocabulary, config.clm.prefix)

    @property
    def has_prefix(self) -> bool:
        return self.prefix > 0

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Return the clean rows with their targets; only prefixes are random."""
        if self.has_prefix:
            rows = rows.replace(is_prefix_BT=self._draw(keys_B, rows))
        counts_BT = rows.is_token_BT & ~self.vocabulary.is_special(rows.input_ids_BT)
        if rows.is_prefix_BT is not None:
            counts_BT &= rows.is_prefix_BT == 0
        return rows.replace(targets=Targets.of_next(rows.input_ids_BT, counts_BT))

    def _draw(self, keys_B: Key, rows: Rows) -> jax.Array:
        """int32 [B, T]: 1 for the tokens of prefixes; every sequence of a row has its own draw."""
        is_token_BT = rows.is_token_BT
        starts_BT = rows.starts()
        if starts_BT is None:
            starts_BT = jnp.zeros(is_token_BT.shape, jnp.int32)

        def of_row(key: Key, is_token_T: jax.Array, starts_T: jax.Array) -> jax.Array:
            draws_T2 = jax.random.uniform(key, (len(starts_T), 2))[starts_T]
            number_T = jnp.zeros(len(starts_T), jnp.int32).at[starts_T].add(is_token_T)[starts_T]
            length_T = 1 + (draws_T2[:, 1] * (number_T - 1)).astype(jnp.int32)
            is_first_T = jnp.arange(len(starts_T)) - starts_T < length_T
            return is_first_T & is_token_T & (draws_T2[:, 0] < self.prefix)

        return jax.vmap(of_row)(keys_B, is_token_BT, starts_BT).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class CausalLanguageModel(Objective):
    """Cross-entropy of every token that is not special, given the tokens before it.

    Attributes:
        prefix: see `CausalText`.
    """

    prefix: float = 0.0

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
