"""The interface of losses on the scores of queries and their documents."""

import abc
import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.averages import Term, weighted_sum
from bert_jax.types import Array


class ScoreBatch(NamedTuple):
    """The scores of the N documents of B queries.

    Attributes:
        logits_BN: float32.
        labels_BN: float32, relevance or the score of a teacher.
        is_present_BN: bool; False for documents that a query lacks.
    """

    logits_BN: jax.Array
    labels_BN: Array
    is_present_BN: Array


@dataclasses.dataclass(frozen=True)
class RankingLoss(abc.ABC):
    """A loss on the scores of a batch. Its fields are keys of the config's `problem`.

    Attributes:
        min_documents: how many documents a query has at least.
        needs_order: whether it learns nothing from a query whose labels are all equal.
        activation: what turns a logit into the answer of a trained model: 'sigmoid', or 'identity'.
    """

    min_documents: ClassVar[int] = 2
    needs_order: ClassVar[bool] = False
    activation: ClassVar[str] = 'identity'

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(field.name for field in dataclasses.fields(cls))

    def why_unusable(self, labels: tuple[float, ...]) -> str:
        """Say why the loss cannot learn from a query with these labels; '' if it can."""
        return ''

    @abc.abstractmethod
    def __call__(self, batch: ScoreBatch) -> Term:
        """Return the sum and the number of what is averaged, such as documents or queries."""


def mean_over_queries(losses_B: jax.Array, batch: ScoreBatch) -> Term:
    """Return the term of one loss for each query that has documents."""
    return weighted_sum(losses_B, jnp.asarray(batch.is_present_BN).any(-1))


def mean_over_documents(losses_BN: jax.Array, batch: ScoreBatch) -> Term:
    """Return the term of one loss for each document."""
    return weighted_sum(losses_BN, jnp.asarray(batch.is_present_BN))
