"""What a model computes (`Architecture`) and how it is run (`Compute`), as plain values."""

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import jax.numpy as jnp

from bert_jax import limits
from bert_jax.errors import UserError, unknown
from bert_jax.models.tuning_method import Tuning

VOCABULARY_MULTIPLE = 128
POSITION_TERMS = ('content_to_position', 'position_to_content')
_MOST = {'vocab_size': limits.VOCABULARY, 'num_layers': limits.LAYERS}
_MAY_BE_ZERO = ('type_vocab_size', 'first_position')
_POSITIVE = ('layer_norm_eps', 'initializer_range', 'rope_thetas')
_DTYPES = {'float32': jnp.dtype('float32'), 'bfloat16': jnp.dtype('bfloat16')}
_ATTENTION_KERNELS = ('auto', 'xla', 'cudnn', 'flash')


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The mathematics of an encoder: sizes, components and constants.

    `vocab_size` is the published size; the embedding matrix has `padded_vocab_size` rows, so that
    it shards and multiplies well. The extra rows are zero, never trained, and not part of
    `num_parameters`. With `type_vocab_size` 1, token types given to the encoder have no effect;
    with 0, there is no table of types either.

    Fields with a default choose components; the defaults are BERT's. Names of components are keys
    of the tables in models/ and are checked by `architectures.build`.

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
    # Disentangled attention: number of distance buckets of both directions together. Half of the
    # buckets hold one distance each, the others grow logarithmically. None: one per distance.
    position_buckets: int | None = None
    # Disentangled attention: distance vectors use the query and key projections of the states.
    share_position_projections: bool = False
    # Disentangled attention: the table of distance vectors is normalized before use.
    relative_norm: bool = False
    # Largest attended distance per layer; None: unlimited (for one layer or for all layers).
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
    # Override `biases` where not None. With True a gated feed-forward has biases at its input, too.
    attention_biases: bool | None = None
    feedforward_biases: bool | None = None
    norm_biases: bool | None = None
    # Whether predicted tokens have a bias.
    decoder_bias: bool = True
    # Whether key projections have biases if the other projections of attention do.
    key_bias: bool = True
    # Kernels that write to the residual stream are initialized smaller, by 1/√(2 num_layers).
    scaled_output_init: bool = False
    # Layers share parameters: each of layer_groups consecutive groups repeats its own group_layers
    # layers (`layer_numbers`).
    shared_layers: bool = False
    layer_groups: int = 1
    group_layers: int = 1
    # Width of a convolution over the embeddings, whose output is added to the first layer's output.
    convolution_width: int | None = None
    convolution_act: str = 'gelu'
    # Absolute positions enter only just before masked prediction (EncoderOutput.decoded_BTD).
    mask_decoder: bool = False
    # Whether the encoder has a pooler (EncoderOutput.pooled_BD).
    pooler: bool = True
    # Whether tokens are predicted with the token embeddings instead of a separate matrix.
    tied_decoder: bool = True
    # Activation of the heads that predict tokens; None: hidden_act.
    prediction_act: str | None = None
    # Replaced-token head: the state of the first position is added to all, and normalized.
    detection_context: bool = False
    # How classification heads pool a sequence into one vector (heads/classification.py).
    pooling: Literal['pooler', 'first', 'mean'] = 'pooler'
    # A key of heads.classification.CLASSIFIERS.
    classifier: str = 'linear'
    classifier_act: str = 'tanh'
    # None: hidden_dropout.
    classifier_dropout: float | None = None
    # What parameter-efficient tuning adds to the encoder (models/tuning); None: nothing.
    tuning: Tuning | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> 'Architecture':
        """Rebuild an architecture from checkpoint metadata."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value  # JSON has no tuples
            for name, value in fields.items()
        }
        return cls(**values)

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise UserError(f'architecture: {problem}')

    def _problems(self) -> Iterator[str]:
        """Describe invalid values and values that do not fit together."""
        for field in dataclasses.fields(self):
            yield from _problems_of_field(field, getattr(self, field.name))
        if self.hidden_size % self.num_heads:
            yield f'hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}'
        for name in ('attention_windows', 'rope_thetas'):
            values = getattr(self, name)
            if values is not None and len(values) != self.num_layers:
                yield f'{name} has {len(values)} entries for {self.num_layers} layers'
        if (self.attention == 'rotary') != (self.rope_thetas is not None):
            yield 'rope_thetas must be set with attention rotary, and only then'
        if self.attention == 'rotary' and self.head_size % 2:
            yield (
                f'rotary attention needs an even head size, not {self.head_size} '
                '(hidden_size / num_heads)'
            )
        terms, buckets = self.position_terms, self.position_buckets
        if (self.attention == 'disentangled') != (terms is not None):
            yield 'position_terms must be set with attention disentangled, and only then'
        if terms is not None and (not terms or set(terms) - set(POSITION_TERMS)):
            yield f'position_terms are {terms}; known: {", ".join(POSITION_TERMS)}, at least one'
        # The logarithm must be defined for every distance beyond the buckets of a single distance.
        if buckets is not None and (
            buckets < 2 or self.max_length - 1 > buckets // 2 >= self.max_distance - 1
        ):
            yield (
                f'position_buckets is {buckets}; half of it must be at least 1 and less than '
                f'max_relative_positions - 1 = {self.max_distance - 1}'
            )
        if self.convolution_width is not None and self.convolution_width % 2 == 0:
            yield f'convolution_width is {self.convolution_width}, must be odd'
        if self.convolution_width is not None and not self.embedding_mask:
            yield (
                'convolution_width needs embedding_mask, which keeps padding out of the convolution'
            )
        if self.mask_decoder and (self.positions, self.residual) != ('none', 'post'):
            yield 'mask_decoder needs positions none and residual post'
        for name in ('hidden_dropout', 'attention_dropout', 'classifier_dropout'):
            if not 0 <= (getattr(self, name) or 0) < 1:
                yield f'{name} is {getattr(self, name)}, must be in [0, 1)'
        if max(self.layer_groups, self.group_layers) > 1 and not self.shared_layers:
            yield 'layer_groups and group_layers need shared_layers'
        if self.shared_layers and not self.first_norm:
            yield 'shared_layers needs first_norm: a shared layer is not only the first'
        rounds, rest = divmod(self.num_layers, self.group_layers)
        if rest or rounds < self.layer_groups:
            yield (
                f'num_layers is {self.num_layers}, must be a multiple of group_layers '
                f'{self.group_layers}, and at least layer_groups {self.layer_groups} times as large'
            )
        if self.max_length < 1:
            yield (
                f'max_position_embeddings {self.max_position_embeddings} leaves no positions after '
                f'the first_position {self.first_position}'
            )

    def with_global_theta(self, theta: float) -> 'Architecture':
        """Return the architecture with another rotary base in the layers without a window.

        Raises:
            UserError: attention is not rotary.
        """
        if self.rope_thetas is None:
            raise UserError(f'model.global_theta needs rotary attention, not {self.attention!r}')
        windows = self.attention_windows or (None,) * self.num_layers
        old_thetas = zip(windows, self.rope_thetas, strict=True)
        thetas = tuple(theta if window is None else old for window, old in old_thetas)
        return dataclasses.replace(self, rope_thetas=thetas)

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
        """The maximum to which distances are clipped."""
        return self.max_relative_positions or self.max_position_embeddings

    @property
    def relative_span(self) -> int:
        """Rows of the distance table per direction."""
        return self.position_buckets or self.max_distance

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The index of the parameters that each layer uses."""
        if not self.shared_layers:
            return tuple(range(self.num_layers))
        rounds = self.num_layers // self.group_layers
        firsts = [int(i / (rounds / self.layer_groups)) * self.group_layers for i in range(rounds)]
        return tuple(first + member for first in firsts for member in range(self.group_layers))

    @property
    def equal_layers(self) -> bool:
        """Whether layers can be stacked: no shared parameters, equal names and shapes."""
        return not self.shared_layers and self.first_norm and self.convolution_width is None


def _problems_of_field(field: dataclasses.Field, value: object) -> Iterator[str]:
    known = typing.get_args(field.type)
    if typing.get_origin(field.type) is Literal and value not in known:
        yield f'unknown {field.name} {value!r}; known: {", ".join(known)}'
    least = 0 if field.name in _MAY_BE_ZERO else 1
    is_integer = field.type is int or (field.type == int | None and value is not None)
    if is_integer and (not isinstance(value, int) or value < least):
        yield f'{field.name} is {value!r}, must be an integer ≥ {least}'
    elif isinstance(value, int) and is_integer and value > _MOST.get(field.name, limits.WIDTH):
        most = _MOST.get(field.name, limits.WIDTH)
        yield f'{field.name} is {value:,}, above the limit of {most:,}'
    numbers = value if isinstance(value, tuple) else (value,)
    if field.name in _POSITIVE and not all(n is None or 0 < n < math.inf for n in numbers):
        yield f'{field.name} is {value!r}, must be above 0 and finite'


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a model is run; changes results only by rounding.

    Attributes:
        dtype: 'float32' or 'bfloat16', of activations and of the inputs of matrix products.
            Parameters, sums inside products, softmax, norms and losses are fp32 either way.
        float32_residual: keep the sums of residual connections in float32 beside bfloat16 products,
            as PyTorch's automatic mixed precision does.
        scan_layers: run one compiled layer in a loop over stacked parameters, which compiles
            faster. Needs an architecture with `equal_layers`.
        remat: recompute each layer in the backward pass, which saves memory and costs time.
        attention_kernel: 'cudnn' (NVIDIA GPUs) and 'flash' (TPUs) never write attention scores to
            memory (kernels.py); 'xla' does and runs anywhere; 'auto' picks the platform's kernel
            if it supports the encoder, else 'xla'.
    """

    dtype: str = 'float32'
    float32_residual: bool = False
    scan_layers: bool = False
    remat: bool = False
    attention_kernel: str = 'auto'

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise unknown('dtype', self.dtype, _DTYPES)
        if self.attention_kernel not in _ATTENTION_KERNELS:
            raise unknown('attention_kernel', self.attention_kernel, _ATTENTION_KERNELS)

    @property
    def activation_dtype(self) -> jnp.dtype:
        return _DTYPES[self.dtype]

    @property
    def residual_dtype(self) -> jnp.dtype:
        return _DTYPES['float32' if self.float32_residual else self.dtype]
