"""Adaptive masking: tokens that the model predicts well are hidden less often.

AMLM (arXiv 2510.20475; serdardoesml/babylm25, train_mask.py). Each token of the vocabulary has a
weight, which follows from how often its hidden occurrences were predicted. The weights are part of
the state of the run (`TrainState.memory`), since they depend on all steps before.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from bert_jax.averages import Term, Terms
from bert_jax.models.model import ModelOutput
from bert_jax.models.rows import Rows
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import TokenRow, Tokens
from bert_jax.objectives.mlm import MaskedLanguageModel, is_best
from bert_jax.types import Key

_KEPT = 0.2  # share of the old weight in a new one
_LOWEST = 0.005  # weight
_BY_TOKEN = 'mlm_accuracy_by_token'

TaskType = TypeVar('TaskType')


@dataclasses.dataclass(frozen=True)
class AdaptiveTokens(Tokens):
    """Single tokens without replacement, drawn in proportion to the weights of the vocabulary.

    A row has as many chosen tokens as with `Tokens`; AMLM instead decides on each token alone, so
    that `rate` is only a mean.

    Attributes:
        adapt_every: Number of updates of the model between updates of the weights.
        weights_V: float32, above 0, in the step of a run; None: all tokens are equally likely, as
            in evaluation.
    """

    adapt_every: int
    weights_V: jax.Array | None = None

    objective: ClassVar[str | None] = 'mlm'
    adapts: ClassVar[bool] = True

    @classmethod
    def options(cls) -> tuple[str, ...]:
        return tuple(name for name in super().options() if name != 'weights_V')

    def scores(self, key: Key, row: TokenRow) -> jax.Array:
        """Return uniform draws u^(1 / w), in a form without underflow and with the same order.

        The largest of them are a weighted sample (Efraimidis and Spirakis 2006).
        """
        uniform_T = super().scores(key, row)
        if self.weights_V is None:
            return uniform_T
        return 1 / (1 - jnp.log(uniform_T) / self.weights_V[row.input_ids_T])


class MaskingState(NamedTuple):
    """What a run has learned about the tokens of its vocabulary.

    Attributes:
        weights_V: float32. Their mean is the masking rate of their last update.
        correct_V: int32, hidden occurrences that were predicted since the last update.
        hidden_V: int32, all hidden occurrences since the last update.
    """

    weights_V: jax.Array
    correct_V: jax.Array
    hidden_V: jax.Array


def updated_weights(state: MaskingState, rate: ArrayLike) -> jax.Array:
    """Return the weights after an update, float32 [V].

    A token with c of n hidden occurrences predicted has the accuracy a = (c + 1/2) / (n + 1) and
    the weight max(0.2 w + 0.8 rate (1 − a), 0.005); the mean of all weights is set to `rate`.
    """
    accuracy_V = (state.correct_V + 0.5) / (state.hidden_V + 1)
    weights_V = _KEPT * state.weights_V + (1 - _KEPT) * rate * (1 - accuracy_V)
    weights_V = jnp.maximum(weights_V, _LOWEST)
    scaled_V: jax.Array = weights_V * (rate / jnp.mean(weights_V))
    return scaled_V


@dataclasses.dataclass(frozen=True)
class CountedMaskedLanguageModel(MaskedLanguageModel):
    """Masked language modeling that also counts correct predictions by token.

    Attributes:
        vocab_size: Number of tokens.
    """

    vocab_size: int

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the terms of `MaskedLanguageModel`, and a term of arrays [V]."""
        _, ids_BP, weights_BP = output.rows.chosen
        zeros_V = jnp.zeros(self.vocab_size, jnp.float32)
        correct_BP = weights_BP * is_best(output.heads['mlm'], ids_BP)
        by_token = Term(zeros_V.at[ids_BP].add(correct_BP), zeros_V.at[ids_BP].add(weights_BP))
        return super().terms(output, clean) | {_BY_TOKEN: by_token}


@dataclasses.dataclass(frozen=True, eq=False)
class MaskingMemory(Generic[TaskType]):
    """The `TaskMemory` (training/task.py) of a run with the scheme 'adaptive'.

    Attributes:
        corruption: The corruption of the run.
        scheme: Its masking scheme.
        change: Returns the task with another corruption and another objective mlm.
    """

    corruption: MaskedText
    scheme: AdaptiveTokens
    change: Callable[[MaskedText, MaskedLanguageModel], TaskType]

    @classmethod
    def of(
        cls,
        corruption: MaskedText,
        change: Callable[[MaskedText, MaskedLanguageModel], TaskType],
    ) -> 'MaskingMemory[TaskType]':
        """Return the memory of a task; the arguments are the attributes."""
        assert isinstance(corruption.scheme, AdaptiveTokens)
        return cls(corruption, corruption.scheme, change)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.corruption.vocabulary.unigram_counts_V)

    def init(self) -> MaskingState:
        """Return equal weights and no counts."""
        zeros_V = jnp.zeros(self.vocab_size, jnp.int32)
        rate = self.corruption.at(0.0).scheme.rate
        weights_V = jnp.full(self.vocab_size, rate, jnp.float32)
        return MaskingState(weights_V, zeros_V, jnp.copy(zeros_V))

    def recall(self, state: MaskingState) -> TaskType:
        """Return the task that masks by the weights and counts predictions."""
        scheme = dataclasses.replace(self.scheme, weights_V=state.weights_V)
        corruption = dataclasses.replace(self.corruption, scheme=scheme)
        return self.change(corruption, CountedMaskedLanguageModel(self.vocab_size))

    def update(
        self, state: MaskingState, terms: Terms, progress: ArrayLike, num_updates: ArrayLike
    ) -> tuple[MaskingState, Terms]:
        """Count the predictions of a step; update the weights when it is time."""
        rest = dict(terms)
        correct_V, hidden_V = (
            jnp.round(sums_V).astype(jnp.int32) for sums_V in rest.pop(_BY_TOKEN)
        )
        counted = MaskingState(
            state.weights_V, state.correct_V + correct_V, state.hidden_V + hidden_V
        )
        weights_V = updated_weights(counted, self.corruption.at(progress).scheme.rate)
        zeros_V = jnp.zeros_like(hidden_V)
        is_due = jnp.asarray(num_updates) % self.scheme.adapt_every == 0
        fresh = MaskingState(weights_V, zeros_V, zeros_V)
        kept: MaskingState = jax.tree.map(
            lambda new, old: jnp.where(is_due, new, old), fresh, counted
        )
        return kept, rest
