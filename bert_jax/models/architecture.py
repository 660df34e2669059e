"""What a model is (Architecture) and how it is computed (Compute), as plain values."""

import dataclasses

import jax.numpy as jnp

from bert_jax.errors import UserError, unknown
from bert_jax.models.activations import ACTIVATIONS

VOCABULARY_MULTIPLE = 128
_ATTENTION_KERNELS = ('xla', 'cudnn', 'flash')
_DTYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}
CHOICES = {
    'hidden_act': tuple(ACTIVATIONS),
    'positions': ('learned', 'counted', 'none'),
    'attention': ('plain', 'rotary', 'linear_bias', 'disentangled'),
    'feedforward': ('dense', 'gated'),
    'norm': ('layer_norm', 'rms_norm'),
    'residual': ('post', 'pre'),
    'convolution_act': tuple(ACTIVATIONS),
    'prediction_act': (None, *ACTIVATIONS),
    'pooling': ('pooler', 'first', 'mean'),
    'classifier': ('linear', 'dense', 'dropout_dense', 'dense_norm'),
    'classifier_act': tuple(ACTIVATIONS),
}
POSITION_TERMS = ('content_to_position', 'position_to_content')
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
    # Width of the embeddings where a learned projection takes them to hidden_size.
    embedding_size: int | None = None
    embedding_norm: bool = True
    # Embeddings of padding are set to zero.
    embedding_mask: bool = False
    # Position vectors added to the embeddings (embeddings.py).
    positions: str = 'learned'
    # The row of the first real position in the table of positions.
    first_position: int = 0
    # How scores depend on positions (attention.py).
    attention: str = 'plain'
    # With disentangled attention (disentangled.py), the parts of a score beside content-to-content,
    # of POSITION_TERMS.
    position_terms: tuple[str, ...] | None = None
    # Distances further than this are cut to it; None: max_position_embeddings.
    max_relative_positions: int | None = None
    # Buckets of distances of either sign: half of them hold one distance each, the rest grow with
    # its logarithm. None: one for each distance.
    position_buckets: int | None = None
    # Vectors of distances become keys and queries by the same maps as states.
    share_position_projections: bool = False
    # The table of distances is normalized before it is used.
    relative_norm: bool = False
    # Per layer: the largest distance that is attended to; None: any. None for all layers: any.
    attention_windows: tuple[int | None, ...] | None = None
    # Per layer: the base of the wavelengths of rotary attention.
    rope_thetas: tuple[float, ...] | None = None
    feedforward: str = 'dense'
    norm: str = 'layer_norm'
    # 'post': the sum is normalized; 'pre': what goes into attention and feed-forward, and the end.
    residual: str = 'post'
    # With residual 'pre': no norm before the first attention (its input is normalized already).
    first_norm: bool = True
    # Biases of products (a gated feed-forward has one at its output alone) and of layer norms.
    biases: bool = True
    # Whether keys, of states and of positions, have biases too.
    key_bias: bool = True
    # Kernels that add to the residual stream start smaller, by 1/√(2 num_layers).
    scaled_output_init: bool = False
    # One layer's parameters used num_layers times.
    shared_layers: bool = False
    # Positions that a convolution of the embeddings, added to the first layer's output, sees.
    convolution_width: int | None = None
    convolution_act: str = 'gelu'
    # Absolute positions enter in front of masked prediction alone (EncoderOutput.decoded_BTD).
    mask_decoder: bool = False
    # Whether the encoder ends in a learned map of the first state (EncoderOutput.pooled_BD).
    pooler: bool = True
    # Of heads that predict tokens; None: hidden_act.
    prediction_act: str | None = None
    # Of the head that detects replaced tokens: the first state is added to all, and normalized.
    detection_context: bool = False
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
        self._check_relative_positions()
        if self.convolution_width is not None:
            self._check_convolution()
        if self.mask_decoder and (self.positions, self.residual) != ('none', 'post'):
            raise UserError('architecture: mask_decoder needs positions none and residual post')
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

    def _check_relative_positions(self):
        terms, buckets = self.position_terms, self.position_buckets
        if (self.attention == 'disentangled') != (terms is not None):
            raise UserError(
                'architecture: position_terms go with attention disentangled and with no other'
            )
        if terms is not None and (not terms or set(terms) - set(POSITION_TERMS)):
            raise UserError(
                f'architecture: position_terms are {terms}; known: {", ".join(POSITION_TERMS)}, '
                'at least one'
            )
        if buckets is None:
            return
        # No distance that occurs may lie beyond the middle without a logarithm to place it.
        if buckets < 2 or self.max_length - 1 > buckets // 2 >= self.max_distance - 1:
            raise UserError(
                f'architecture: position_buckets is {buckets}, but half of them must be at least 1 '
                f'and less than max_relative_positions - 1 = {self.max_distance - 1}'
            )

    def _check_convolution(self):
        if self.convolution_width % 2 == 0:
            raise UserError(
                f'architecture: convolution_width is {self.convolution_width}, must be odd'
            )
        if not self.embedding_mask:
            raise UserError(
                'architecture: with convolution_width, embedding_mask must be set: padding must '
                'not reach its neighbors'
            )

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
    def max_distance(self) -> int:
        """The largest distance that is told from those beyond it."""
        return self.max_relative_positions or self.max_position_embeddings

    @property
    def relative_span(self) -> int:
        """Rows of the table of distances for either sign."""
        return self.position_buckets or self.max_distance

    @property
    def equal_layers(self) -> bool:
        """Whether all layers have parameters of their own, of the same names and shapes, so that
        they can be stacked (Compute.scan_layers)."""
        return not self.shared_layers and self.first_norm and self.convolution_width is None


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a model is run; none of it changes the result beyond rounding.

    dtype: of activations and of the inputs of matrix products, 'float32' or 'bfloat16'.
        Parameters, sums inside products, softmax, norms and losses are fp32 either way.
    scan_layers: one compiled layer run in a loop over stacked parameters: shorter compilation.
        Only for architectures with equal_layers.
    remat: recompute each layer in the backward pass: less memory, more time.
    attention_kernel: 'xla' computes all scores, anywhere; 'cudnn' and 'flash' keep them out of
        memory, on NVIDIA GPUs and TPUs (models/kernels.py).
    """

    dtype: str = 'float32'
    scan_layers: bool = False
    remat: bool = False
    attention_kernel: str = 'xla'

    def __post_init__(self):
        if self.dtype not in _DTYPES:
            raise unknown('dtype', self.dtype, _DTYPES)
        if self.attention_kernel not in _ATTENTION_KERNELS:
            raise unknown('attention_kernel', self.attention_kernel, _ATTENTION_KERNELS)

    @property
    def activation_dtype(self):
        return _DTYPES[self.dtype]
