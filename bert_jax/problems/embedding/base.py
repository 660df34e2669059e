"""The interface of losses that train vectors, most of them on the vectors of a whole batch."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.labels.examples import TextGroup
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Array

_EPSILON = 1e-12  # smallest norm that vectors are divided by


class VectorBatch(NamedTuple):
    """The vectors of B examples of N texts, and what is known about them.

    Attributes:
        vectors_BND: float32; of a query, its document, and documents that do not answer it.
        is_present_BN: bool; False for texts that an example lacks.
        texts_BN2: int32; equal texts have equal numbers.
        scores_BK: float32, the numbers of `TextGroup.scores`; K is 0 without scores.
        class_B: int32, number of the class + 1; 0 without classes.
        teacher_BNV: float32, the vectors of a teacher or guide; V is 0 without them.
    """

    vectors_BND: jax.Array
    is_present_BN: Array
    texts_BN2: Array
    scores_BK: Array
    class_B: Array
    teacher_BNV: Array


@dataclasses.dataclass(frozen=True)
class LossOptions(abc.ABC):
    """A loss that trains vectors of texts. Its fields are keys of the config's `problem`.

    Attributes:
        training: 'module:name' of the `base.Loss` that computes the loss.
        reads: the fields of `TextGroup` that training examples need besides texts.
        min_texts, max_texts: how many texts an example has; max_texts None: any number.
        copies: how often each text is encoded, with another dropout.
        may_lack_texts: whether examples may have fewer texts than others.
        min_examples: the smallest batch.
        batches: how batches are composed unless `problem.batches` says so.
    """

    training: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()
    min_texts: ClassVar[int] = 2
    max_texts: ClassVar[int | None] = 2
    copies: ClassVar[int] = 1
    may_lack_texts: ClassVar[bool] = False
    min_examples: ClassVar[int] = 1
    batches: ClassVar[str] = 'shuffled'

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(field.name for field in dataclasses.fields(cls))

    def compared_by(self) -> str:
        """Return what the loss compares texts by, and a search will: 'cosine', or 'dot'."""
        return 'cosine'

    def why_unusable(self, example: TextGroup) -> str:
        """Say why the loss cannot learn from an example with the texts and fields that it reads."""
        return ''

    def why_refused(self, examples: Sequence[TextGroup], tokenizer: Tokenizer) -> str:
        """Say why the loss cannot learn from the tokens of a train split; '' if it can."""
        return ''


class EmbeddingLoss(LossOptions):
    """A loss on all vectors of a batch."""

    training = 'bert_jax.problems.embedding.problem:EmbeddingTraining'

    @abc.abstractmethod
    def __call__(self, batch: VectorBatch) -> jax.Array:
        """Return the loss, a float32 scalar: the mean over the examples unless documented."""


def normalize(vectors_XD: jax.Array) -> jax.Array:
    """Divide vectors by their Euclidean norm, or by 1e-12 if that is smaller."""
    square_X1 = jnp.sum(jnp.square(vectors_XD), axis=-1, keepdims=True)
    return vectors_XD * jax.lax.rsqrt(jnp.maximum(square_X1, _EPSILON**2))


def dot(first_XD: jax.Array, second_XD: jax.Array) -> jax.Array:
    """Return the dot product of each pair of vectors, [X]."""
    return jnp.sum(first_XD * second_XD, axis=-1)


def cosine(first_XD: jax.Array, second_XD: jax.Array) -> jax.Array:
    """Return the cosine of each pair of vectors, [X]."""
    return dot(normalize(first_XD), normalize(second_XD))


def products(first_BD: jax.Array, second_MD: jax.Array) -> jax.Array:
    """Return all dot products of two sets of vectors in float32, [B, M]."""
    return jnp.einsum('BD,MD->BM', first_BD, second_MD, precision='highest')


def cosines(first_BD: jax.Array, second_MD: jax.Array) -> jax.Array:
    """Return all cosines between two sets of vectors, [B, M]."""
    return products(normalize(first_BD), normalize(second_MD))
