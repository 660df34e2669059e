"""Prompt tuning: learned vectors in the embeddings (Lester et al. 2021, arXiv 2104.08691)."""

import dataclasses
from typing import ClassVar

import jax
from flax import linen as nn

from bert_jax.models.tuning.modules import AddedModule
from bert_jax.models.tuning_method import ModuleMaker, Tuning


@dataclasses.dataclass(frozen=True)
class PromptTuning(Tuning):
    """`length` vectors follow the first token of every sequence in the first layer.

    These vectors are normalized like token embeddings and have no position; positions of the text
    do not change. They are initialized to the embeddings of tokens drawn from the vocabulary
    (section 3.2).
    """

    method: str = 'prompt'
    length: int = 20

    published_rate: ClassVar[float | None] = 0.3

    def embeddings_module(self) -> ModuleMaker | None:
        return PromptVectors

    @property
    def prompt_length(self) -> int:
        return self.length


class PromptVectors(AddedModule):
    """The prompt."""

    @nn.compact
    def __call__(self, token_VE: jax.Array) -> jax.Array:
        """Return the vectors, fp32 [L, E]; `token_VE` are the embeddings for initialization."""
        architecture, length = self.architecture, self.tuning.length

        def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return token_VE[jax.random.randint(key, shape[:1], 0, architecture.vocab_size)]

        shape = (length, architecture.embedding_width)
        return self.added('vectors', init, shape, (None, 'embed'))
