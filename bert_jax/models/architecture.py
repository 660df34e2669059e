"""What a model is (Architecture) and how it is computed (Compute), as plain values."""

import dataclasses

import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.activations import ACTIVATIONS

VOCABULARY_MULTIPLE = 128
_DTYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}
CHOICES = {
    'hidden_act': tuple(ACTIVATIONS),
    'positions': ('learned', 'counted', 'none'),
    'attention': ('plain', 'rotary', 'linear_bias'),
    'feedforward': ('dense', 'gated'),
    'norm': ('layer_norm', 'rms_norm'),
    'residual': ('post', 'pre'),
    'prediction_act': (None, *ACTIVATIONS),
    'pooling': ('pooler', 'first', 'mean'),
    'classifier': ('linear', 'dense', 'dropout_dense', 'dense_norm'),
    'classifier_act': tuple(ACTIVATIONS),
}
_MAY_BE_ZERO = ('type_vocab_size', 'first_position')


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Sizes, components and constants of an encoder; the mathematics, nothing about how it is run.

    vocab_size is the published one; the embedding matrix has `padded_vocab_size` rows, a multiple
    of 128, so that it can be sharded and multiplied fast. The extra rows are zero, are never
    trained and are not counted by `num_parameters`. type_vocab_size below 2 means that token types
    given to the encoder change nothing; with 0 there is no table of types either.

    The fields with a default choose components; the defaults are BERT's.
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
    # Width of the embeddings where a learnt projection takes them to hidden_size.
    embedding_size: int | None = None
    embedding_norm: bool = True
    # Position vectors added to the embeddings (embeddings.py).
    positions: str = 'learned'
    # The row of the first real position in the table of positions.
    first_position: int = 0
    # How scores depend on positions (attention.py).
    attention: str = 'plain'
    # Per layer: the largest distance that is attended to; None: any. None for all layers: any.
    attention_windows: tuple[int | None, ...] | None = None
    # Per layer: the base of the wavelengths of rotary attention.
    rope_thetas: tuple[float, ...] | None = None
    feedforward: str = 'dense'
    norm: str = 'layer_norm'
    # 'post': the sum is normalised; 'pre': what goes into attention and feed-forward, and the end.
    residual: str = 'post'
    # With residual 'pre': no norm before the first attention (its input is normalised already).
    first_norm: bool = True
    # Biases of products (a gated feed-forward has one at its output alone) and of layer norms.
    biases: bool = True
    # Kernels that add to the residual stream start smaller, by 1/√(2 num_layers).
    scaled_output_init: bool = False
    # One layer's parameters used num_layers times.
    shared_layers: bool = False
    # Whether the encoder ends in a learnt map of the first state (EncoderOutput.pooled_BD).
    pooler: bool = True
    # Of heads that predict tokens; None: hidden_act.
    prediction_act: str | None = None
    # The vector of a sequence, and what is done to it before its classes (heads/classification.py).
    pooling: str = 'pooler'
    classifier: str = 'linear'
    classifier_act: str = 'tanh'
    # None: hidden_dropout.
    classifier_dropout: float | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            self._check_field(field.name, field.type, getattr(self, field.name))
        if self.hidden_size % self.num_heads:
            raise UserError(
                f'architecture: hidden_size {self.hidden_size} does not divide into '
                f'{self.num_heads} heads (num_heads)'
            )
        for name, known in CHOICES.items():
            self._check_choice(name, known)
        for name in ('attention_windows', 'rope_thetas'):
            self._check_per_layer(name)
        if (self.attention == 'rotary') != (self.rope_thetas is not None):
            raise UserError('architecture: rope_thetas go with attention rotary and with no other')
        if self.attention == 'rotary' and self.head_size % 2:
            raise UserError(
                f'architecture: rotary attention needs an even head size, not {self.head_size} '
                '(hidden_size / num_heads)'
            )
        for name in ('hidden_dropout', 'attention_dropout', 'classifier_dropout'):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise UserError(f'architecture: {name} is {getattr(self, name)}, must be in [0, 1)')
        if self.max_length < 1:
            raise UserError(
                f'architecture: max_position_embeddings {self.max_position_embeddings} leaves no '
                f'position after the first {self.first_position} (first_position)'
            )

    def _check_field(self, name, kind, value):
        least = 0 if name in _MAY_BE_ZERO else 1
        if value is None and kind == int | None:
            return
        if kind in (int, int | None) and (not isinstance(value, int) or value < least):
            raise UserError(f'architecture: {name} is {value!r}, must be an integer ≥ {least}')

    def _check_choice(self, name, known):
        value = getattr(self, name)
        if value not in known:
            names = ', '.join(map(str, known))
            raise UserError(f'architecture: unknown {name} {value!r}; known: {names}')

    def _check_per_layer(self, name):
        values = getattr(self, name)
        if values is not None and len(values) != self.num_layers:
            raise UserError(
                f'architecture: {name} has {len(values)} entries for {self.num_layers} layers'
            )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def embedding_width(self) -> int:
        """The size of a token's vector in the table of embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def max_length(self) -> int:
        """The longest sequence that can be encoded."""
        return self.max_position_embeddings - self.first_position

    @property
    def equal_layers(self) -> bool:
        """Whether all layers have parameters of their own, of the same names and shapes, so that
        they can be stacked (Compute.scan_layers)."""
        return not self.shared_layers and self.first_norm


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a model is run; none of it changes the result beyond rounding.

    dtype: of activations and of the inputs of matrix products, 'float32' or 'bfloat16'.
        Parameters, sums inside products, softmax, norms and losses are fp32 either way.
    scan_layers: one compiled layer run in a loop over stacked parameters: shorter compilation.
        Only for architectures with equal_layers.
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
