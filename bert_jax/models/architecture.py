"""What a model is (Architecture) and how it is computed (Compute), as plain values."""

import dataclasses

import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.activations import ACTIVATIONS

VOCABULARY_MULTIPLE = 128
_DTYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Sizes and constants of an encoder; the mathematics, nothing about how it is run.

    vocab_size is the published one; the embedding matrix has `padded_vocab_size` rows, a multiple
    of 128, so that it can be sharded and multiplied fast. The extra rows are zero, are never
    trained and are not counted by `num_parameters`.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    layer_norm_eps: float
    hidden_dropout: float
    attention_dropout: float
    initializer_range: float

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or value < 1):
                raise UserError(f'architecture: {field.name} is {value!r}, must be an integer ≥ 1')
        if self.hidden_size % self.num_heads:
            raise UserError(
                f'architecture: hidden_size {self.hidden_size} does not divide into '
                f'{self.num_heads} heads (num_heads)'
            )
        if self.hidden_act not in ACTIVATIONS:
            raise UserError(
                f'architecture: unknown hidden_act {self.hidden_act!r}; '
                f'known: {", ".join(ACTIVATIONS)}'
            )
        for name in ('hidden_dropout', 'attention_dropout'):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f'architecture: {name} is {getattr(self, name)}, must be in [0, 1)')

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a model is run; none of it changes the result beyond rounding.

    dtype: of activations and of the inputs of matrix products, 'float32' or 'bfloat16'.
        Parameters, sums inside products, softmax, norms and losses are fp32 either way.
    scan_layers: one compiled layer run in a loop over stacked parameters: shorter compilation.
    remat: recompute each layer in the backward pass: less memory, more time.
    """

    dtype: str = 'float32'
    scan_layers: bool = False
    remat: bool = False

    def __post_init__(self):
        if self.dtype not in _DTYPES:
            raise UserError(f'unknown dtype {self.dtype!r}; known: {", ".join(_DTYPES)}')

    @property
    def activation_dtype(self):
        return _DTYPES[self.dtype]
