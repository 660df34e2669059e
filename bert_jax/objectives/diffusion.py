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
    example_index / φ are, which lowers the variance of the loss of a batch. The targets are the
    hidden tokens, or P random ones of them if there are more; m targets have the weight n / m,
    which keeps the expectation of the loss.

    With k instead of a rate the expectation is the same, because
    ∫₀¹ C(n, k) tᵏ⁻¹ (1 − t)ⁿ⁻ᵏ dt = 1 / k.

    Attributes:
        num_predictions: sequence length → P, the number of targets.
    """

    num_predictions: Mapping[int, int]

    allows_packing = False

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> 'DiffusedText':
        """Return the corruption; it has no settings."""
        return cls(vocabulary, num_predictions)

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Hide tokens of each row."""
        can_choose_BT = rows.is_token_BT & ~self.vocabulary.is_special(rows.input_ids_BT)
        num_rows, length = can_choose_BT.shape
        number_B = jnp.sum(can_choose_BT, axis=1)
        hidden_B = num_hidden(rows.labels['example_index'], number_B)
        draws_BT = jax.vmap(lambda key: jax.random.uniform(key, (length,)))(keys_B)
        order_BT = jnp.argsort(jnp.where(can_choose_BT, draws_BT, 2.0), axis=1)
        ids_BT = jnp.take_along_axis(jnp.asarray(rows.input_ids_BT), order_BT, axis=1)
        is_hidden_BT = jnp.arange(length) < hidden_B[:, None]
        new_BT = jnp.where(is_hidden_BT, self.vocabulary.mask_id, ids_BT)
        row_B1 = jnp.arange(num_rows)[:, None]
        corrupted_BT = jnp.asarray(rows.input_ids_BT).at[row_B1, order_BT].set(new_BT)
        most = self.num_predictions[length]
        weight_B = number_B / jnp.clip(hidden_B, 1, most)
        weights_BP = jnp.where(is_hidden_BT[:, :most], weight_B[:, None], 0.0)
        targets = Targets(order_BT[:, :most].astype(jnp.int32), ids_BT[:, :most], weights_BP)
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
        weights), `diffusion_accuracy`, `diffusion_bound` (Σ n/m · CE / Σ n, an upper bound on the
        negative log likelihood in nats per token) and `diffusion_rate`, the share of hidden tokens.
        """
        _, ids_BP, weights_BP = output.rows.chosen
        hidden_B = jnp.sum(output.rows.input_ids_BT != clean.input_ids_BT, axis=1)
        number_B = jnp.sum(weights_BP, axis=1)  # n, or 0
        logits_BPV = output.heads['mlm']
        bound = weighted_sum(cross_entropy(logits_BPV, ids_BP), weights_BP)
        rate_B = hidden_B / jnp.maximum(number_B, 1.0)
        used_BP = weights_BP if self.weight == 'bound' else weights_BP * rate_B[:, None]
        terms = prediction_terms('diffusion', logits_BPV, ids_BP, used_BP)
        rate = Term(jnp.sum(hidden_B).astype(jnp.float32), jnp.sum(number_B))
        return terms | {'diffusion_bound': bound, 'diffusion_rate': rate}
