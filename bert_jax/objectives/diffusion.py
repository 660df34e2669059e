"""Masked diffusion: predict a random number of hidden tokens, from one to all.

The loss bounds the negative log likelihood of the text, and an encoder that was trained with it can
write text by unmasking. Sources: MDLM (Sahoo et al. 2024, arXiv 2406.07524), equation 10; LLaDA
(Nie et al. 2025, arXiv 2502.09992), equation 3.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.averages import Term, Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Corruption, Vocabulary
from bert_jax.objectives.mlm import cross_entropy, prediction_terms
from bert_jax.types import Array, Config, Key

WEIGHTS = ('bound', 'uniform')
_GOLDEN_RATIO = 2_654_435_769  # 2³² / φ, odd


@dataclasses.dataclass(frozen=True, eq=False)
class DiffusedText(Corruption):
    """The text with exactly k of its n tokens replaced by [MASK].

    k is one of 1, …, n, spread evenly over consecutive examples: the fractional parts of
    example_index / φ are, which lowers the variance of the loss of a batch. The targets are all
    tokens; the hidden ones have the weight n / k and the others 0.

    With k instead of a rate the expectation is the same, because
    ∫₀¹ C(n, k) tᵏ⁻¹ (1 − t)ⁿ⁻ᵏ dt = 1 / k.
    """

    allows_packing = False

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> 'DiffusedText':
        """Return the corruption; raises UserError if not all tokens of a row can be hidden."""
        for length, number in num_predictions.items():
            if number < length:
                raise UserError(
                    f'objective diffusion hides up to all tokens, but training.max_predictions is '
                    f'{number} for sequences of {length}; set it to {length}'
                )
        return cls(vocabulary)

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Hide tokens of each row."""
        can_choose_BT = rows.is_token_BT & ~self.vocabulary.is_special(rows.input_ids_BT)
        number_B = jnp.sum(can_choose_BT, axis=1)
        hidden_B = num_hidden(rows.labels['example_index'], number_B)
        draws_BT = jax.vmap(lambda key: jax.random.uniform(key, can_choose_BT.shape[1:]))(keys_B)
        order_BT = jnp.argsort(jnp.where(can_choose_BT, draws_BT, 2.0), axis=1)
        rank_T = jnp.arange(order_BT.shape[1])
        weights_BT = jnp.where(
            rank_T < hidden_B[:, None], (number_B / jnp.maximum(hidden_B, 1))[:, None], 0.0
        )
        ids_BT = jnp.take_along_axis(jnp.asarray(rows.input_ids_BT), order_BT, axis=1)
        targets = Targets(order_BT.astype(jnp.int32), ids_BT, weights_BT)
        new_BT = jnp.where(weights_BT > 0, self.vocabulary.mask_id, ids_BT)
        row_B1 = jnp.arange(len(order_BT))[:, None]
        corrupted_BT = jnp.asarray(rows.input_ids_BT).at[row_B1, order_BT].set(new_BT)
        return rows.replace(input_ids_BT=corrupted_BT, targets=targets)


def num_hidden(example_index_B: Array, number_B: Array) -> jax.Array:
    """Return how many of the n tokens of each example are hidden: int32 [B], 1 to n, 0 if n is 0.

    Args:
        example_index_B: int32, number of the example.
        number_B: int32, n, below 2¹⁶.
    """
    fraction_B = jnp.asarray(example_index_B).astype(jnp.uint32) * jnp.uint32(_GOLDEN_RATIO)
    below_B = ((fraction_B >> 16) * jnp.asarray(number_B).astype(jnp.uint32)) >> 16
    return jnp.where(number_B > 0, below_B.astype(jnp.int32) + 1, 0)


@dataclasses.dataclass(frozen=True)
class MaskedDiffusion(Objective):
    """Cross-entropy of the hidden tokens, weighted so that it bounds the likelihood of the text.

    Attributes:
        weight: 'bound', n / k; or 'uniform', which counts every hidden token once.
    """

    weight: str

    corruptions = ('diffused',)
    is_generative = True
    predicts_tokens = True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'mlm': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the loss and metrics.

        Terms: `diffusion_loss` (nats per token of the text, or per hidden token with uniform
        weights), `diffusion_accuracy`, `diffusion_bound` (Σ n/k · CE / Σ n, an upper bound on the
        negative log likelihood in nats per token) and `diffusion_rate`, the share of hidden tokens.
        """
        _, ids_BT, weights_BT = output.rows.chosen
        is_hidden_BT = (weights_BT > 0).astype(jnp.float32)
        logits_BTV = output.heads['mlm']
        bound = weighted_sum(cross_entropy(logits_BTV, ids_BT), weights_BT)
        used_BT = weights_BT if self.weight == 'bound' else is_hidden_BT
        terms = prediction_terms('diffusion', logits_BTV, ids_BT, used_BT)
        rate = Term(jnp.sum(is_hidden_BT), jnp.sum(weights_BT))
        return terms | {'diffusion_bound': bound, 'diffusion_rate': rate}
