"""What a model computes (`Architecture`) and how it is run (`Compute`), as plain values."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp

from bert_jax.errors import UserError, unknown

VOCABULARY_MULTIPLE = 128
POSITION_TERMS = ('content_to_position', 'position_to_content')
_MAY_BE_ZERO = ('type_vocab_size', 'first_position')
_DTYPES = {'float32': jnp.dtype('float32'), 'bfloat16': jnp.dtype('bfloat16')}
_ATTENTION_KERNELS = ('xla', 'cudnn', 'flash')
# Values that checkpoints of earlier versions hold under other names.
_RENAMED: dict[str, dict[str, str]] = {
    'positions': {'counted': 'offset_by_padding'},
    'attention': {'plain': 'standard', 'linear_bias': 'alibi'},
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The mathematics of an encoder: sizes, components and constants.

    `vocab_size` is the published size; the embedding matrix has `padded_vocab_size` rows, so that
    it shards and multiplies well. The extra rows are zero, never trained, and not part of
    `num_parameters`. With `type_vocab_size` 1 token types given to the encoder have no effect; with
    0 there is no table of types either.

    Fields with a default choose components; the defaults are those of BERT. Names of components are
    keys of the tables in models/ and are checked by `architectures.build`.

    Raises:
        UserError: sizes that do not fit together, or an invalid value.
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
    # The kind of encoder, a key of encoders.ENCODERS.
    encoder: str = 'transformer'
    # Size of the embeddings if they are projected to hidden_size.
    embedding_size: int | None = None
    # Whether the embeddings are normalized.
    embedding_norm: bool = True
    # Whether the embeddings of padding are set to zero.
    embedding_mask: bool = False
    # Position vectors added to the embeddings (embeddings.py).
    positions: Literal['learned', 'offset_by_padding', 'none'] = 'learned'
    # Row of the position table that belongs to the first token.
    first_position: int = 0
    # How attention scores depend on positions, a key of block.ATTENTIONS.
    attention: str = 'standard'
    # Disentangled attention: the terms of a score besides content-to-content (POSITION_TERMS).
    position_terms: tuple[str, ...] | None = None
    # Disentangled attention: distances are clipped to this; None: max_position_embeddings.
    max_relative_positions: int | None = None
    # Disentangled attention: number of distance buckets for both directions together. Half of them
    # hold one distance each, the others grow logarithmically. None: one bucket per distance.
    position_buckets: int | None = None
    # Disentangled attention: distance vectors use the query and key projections of the states.
    share_position_projections: bool = False
    # Disentangled attention: the table of distance vectors is normalized before use.
    relative_norm: bool = False
    # Largest attended distance per layer; None: unlimited (for a layer, or for all of them).
    attention_windows: tuple[int | None, ...] | None = None
    # Base of the wavelengths of rotary attention per layer.
    rope_thetas: tuple[float, ...] | None = None
    # A key of feedforward.FEEDFORWARDS.
    feedforward: str = 'dense'
    # A key of normalization.NORMS.
    norm: str = 'layer_norm'
    # 'post' normalizes the residual sum; 'pre' the input of attention and feed-forward, and the
    # final states.
    residual: Literal['post', 'pre'] = 'post'
    # With residual 'pre': whether the first attention normalizes its input, the embeddings.
    first_norm: bool = True
    # Whether projections and layer norms have biases; a gated feed-forward has one at its output.
    biases: bool = True
    # Whether key projections have biases, given that projections do.
    key_bias: bool = True
    # Kernels that write to the residual stream are initialized smaller, by 1/√(2 num_layers).
    scaled_output_init: bool = False
    # All layers share the parameters of one.
    shared_layers: bool = False
    # Width of the convolution over the embeddings whose output is added to the first layer's.
    convolution_width: int | None = None
    convolution_act: str = 'gelu'
    # Absolute positions enter only just before masked prediction (EncoderOutput.decoded_BTD).
    mask_decoder: bool = False
    # Whether the encoder has a pooler (EncoderOutput.pooled_BD).
    pooler: bool = True
    # Activation of the heads that predict tokens; None: hidden_act.
    prediction_act: str | None = None
    # Replaced-token head: the state of the first position is added to all, and normalized.
    detection_context: bool = False
    # What represents a sequence, and what precedes its logits (heads/classification.py).
    pooling: Literal['pooler', 'first', 'mean'] = 'pooler'
    # A key of heads.classification.CLASSIFIERS.
    classifier: str = 'linear'
    classifier_act: str = 'tanh'
    # None: hidden_dropout.
    classifier_dropout: float | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> 'Architecture':
        """Rebuilds an architecture from checkpoint metadata, also of earlier versions."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value  # JSON has no tuples
            for name, value in fields.items()
        }
        for name, renamed in _RENAMED.items():
            if name in values:
                values[name] = renamed.get(values[name], values[name])
        return cls(**values)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_field(field.name, field.type, getattr(self, field.name))
        if self.hidden_size % self.num_heads:
            raise UserError(
                f'architecture: hidden_size {self.hidden_size} is not divisible by num_heads '
                f'{self.num_heads}'
            )
        for name in ('attention_windows', 'rope_thetas'):
            self._check_per_layer(name)
        if (self.attention == 'rotary') != (self.rope_thetas is not None):
            raise UserError(
                'architecture: rope_thetas must be set with attention rotary, and only then'
            )
        if self.attention == 'rotary' and self.head_size % 2:
            raise UserError(
                f'architecture: rotary attention needs an even head size, not {self.head_size} '
                '(hidden_size / num_heads)'
            )
        self._check_relative_positions()
        if self.convolution_width is not None:
            self._check_convolution(self.convolution_width)
        if self.mask_decoder and (self.positions, self.residual) != ('none', 'post'):
            raise UserError('architecture: mask_decoder needs positions none and residual post')
        for name in ('hidden_dropout', 'attention_dropout', 'classifier_dropout'):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise UserError(f'architecture: {name} is {getattr(self, name)}, must be in [0, 1)')
        if self.max_length < 1:
            raise UserError(
                f'architecture: max_position_embeddings {self.max_position_embeddings} leaves no '
                f'positions after the first_position {self.first_position}'
            )

    def _check_field(self, name: str, kind: Any, value: object) -> None:
        if typing.get_origin(kind) is Literal and value not in typing.get_args(kind):
            known = ', '.join(typing.get_args(kind))
            raise UserError(f'architecture: unknown {name} {value!r}; known: {known}')
        if kind not in (int, int | None) or (value is None and kind == int | None):
            return
        least = 0 if name in _MAY_BE_ZERO else 1
        if not isinstance(value, int) or value < least:
            raise UserError(f'architecture: {name} is {value!r}, must be an integer ≥ {least}')

    def _check_relative_positions(self) -> None:
        terms, buckets = self.position_terms, self.position_buckets
        if (self.attention == 'disentangled') != (terms is not None):
            raise UserError(
                'architecture: position_terms must be set with attention disentangled, and only '
                'then'
            )
        if terms is not None and (not terms or set(terms) - set(POSITION_TERMS)):
            raise UserError(
                f'architecture: position_terms are {terms}; known: {", ".join(POSITION_TERMS)}, '
                'at least one'
            )
        if buckets is None:
            return
        # The logarithm must be defined for every distance beyond the buckets of a single distance.
        if buckets < 2 or self.max_length - 1 > buckets // 2 >= self.max_distance - 1:
            raise UserError(
                f'architecture: position_buckets is {buckets}; half of it must be at least 1 and '
                f'less than max_relative_positions - 1 = {self.max_distance - 1}'
            )

    def _check_convolution(self, width: int) -> None:
        if width % 2 == 0:
            raise UserError(f'architecture: convolution_width is {width}, must be odd')
        if not self.embedding_mask:
            raise UserError(
                'architecture: convolution_width needs embedding_mask, which keeps padding out of '
                'the convolution'
            )

    def _check_per_layer(self, name: str) -> None:
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
        """Rows of the embedding matrix: vocab_size rounded up to a multiple of 128."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def embedding_width(self) -> int:
        """Size of a token embedding."""
        return self.embedding_size or self.hidden_size

    @property
    def max_length(self) -> int:
        """The longest sequence the encoder accepts."""
        return self.max_position_embeddings - self.first_position

    @property
    def max_distance(self) -> int:
        """The distance to which larger ones are clipped."""
        return self.max_relative_positions or self.max_position_embeddings

    @property
    def relative_span(self) -> int:
        """Rows of the distance table per direction."""
        return self.position_buckets or self.max_distance

    @property
    def equal_layers(self) -> bool:
        """Whether layers can be stacked: separate parameters of equal names and shapes."""
        return not self.shared_layers and self.first_norm and self.convolution_width is None


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a model is run; changes results only by rounding.

    Attributes:
        dtype: 'float32' or 'bfloat16', of activations and of the inputs of matrix products.
            Parameters, sums inside products, softmax, norms and losses are fp32 either way.
        scan_layers: run one compiled layer in a loop over stacked parameters, which compiles
            faster. Needs an architecture with `equal_layers`.
        remat: recompute each layer in the backward pass, which saves memory and costs time.
        attention_kernel: 'xla' materializes all attention scores and runs anywhere; 'cudnn' (NVIDIA
            GPUs) and 'flash' (TPUs) do not (kernels.py).
    """

    dtype: str = 'float32'
    scan_layers: bool = False
    remat: bool = False
    attention_kernel: str = 'xla'

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise unknown('dtype', self.dtype, _DTYPES)
        if self.attention_kernel not in _ATTENTION_KERNELS:
            raise unknown('attention_kernel', self.attention_kernel, _ATTENTION_KERNELS)

    @property
    def activation_dtype(self) -> jnp.dtype:
        return _DTYPES[self.dtype]
