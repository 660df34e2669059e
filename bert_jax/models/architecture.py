"""What a model computes (`Architecture`) and how it is run (`Compute`), as plain values."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import jax.numpy as jnp

from bert_jax.errors import UserError, unknown
from bert_jax.models.architecture_parts import (
    KINDS,
    Activation,
    AnyAttention,
    AnyPositions,
    Biases,
    Characters,
    Checked,
    Classifier,
    ConvolutionOptions,
    DecoderStack,
    HeadLSTM,
    LearnedPositions,
    NoPositions,
    Norms,
    Prediction,
    Recurrence,
    SharedLayers,
    Standard,
    TokenDropout,
)
from bert_jax.models.tuning_method import Tuning

VOCABULARY_MULTIPLE = 128
_DTYPES = {'float32': jnp.dtype('float32'), 'bfloat16': jnp.dtype('bfloat16')}
_ATTENTION_KERNELS = ('auto', 'xla', 'cudnn', 'flash')


@dataclasses.dataclass(frozen=True)
class Architecture(Checked):
    """The mathematics of a model: sizes, components and constants.

    `vocab_size` is the published size; the embedding matrix has `padded_vocab_size` rows, so that
    it shards and multiplies well. The extra rows are zero, never trained, and not part of
    `num_parameters`. With `type_vocab_size` 1, token types given to the encoder have no effect;
    with 0, there is no table of types either. Relative attention only compares token types.

    The defaults are BERT base. A part with a `kind` is one of several, each with its own fields, so
    that fields which need each other are set together.

    Raises:
        UserError: sizes that do not fit together, or an invalid value.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: Activation = 'gelu'
    layer_norm_eps: float = 1e-12
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    # Dropout between the two projections of a feed-forward layer.
    feedforward_dropout: float = 0.0
    # Whether dropout follows the norm after the last layer.
    output_dropout: bool = False
    initializer_range: float = 0.02
    # Size of the queries, keys and values of a head; None: hidden_size / num_heads.
    size_per_head: int | None = None
    # Heads of keys and values; each is shared by num_heads / kv_heads heads of queries (Ainslie et
    # al. 2023, arXiv 2305.13245). None: num_heads.
    kv_heads: int | None = None
    # The kind of encoder, a key of encoders.ENCODERS.
    encoder: str = 'transformer'
    # Size of the embeddings if they are projected to hidden_size.
    embedding_size: int | None = None
    # Whether token embeddings are multiplied by √embedding_width.
    scaled_embeddings: bool = False
    # Token vectors from characters instead of a table; None: a table.
    characters: Characters | None = None
    # Whether the embeddings of padding are set to zero.
    embedding_mask: bool = False
    # The mask token has no vector, and the others are scaled; None: it has one.
    token_dropout: TokenDropout | None = None
    # Position vectors added to the embeddings.
    positions: AnyPositions = LearnedPositions()
    # How attention scores depend on positions.
    attention: AnyAttention = Standard()
    # Largest attended distance of each layer, repeated over the layers; None: unlimited.
    windows: tuple[int | None, ...] = (None,)
    # A key of feedforward.FEEDFORWARDS.
    feedforward: Literal['dense', 'gated'] = 'dense'
    norms: Norms = Norms()
    biases: Biases = Biases()
    # Kernels that write to the residual stream are initialized smaller, by 1/√(2 num_layers).
    scaled_output_init: bool = False
    # These kernels are initialized with 0: at the start, layers change nothing.
    zero_output_init: bool = False
    # Each kernel is initialized by the number of its inputs, token embeddings with 1 (linear.py).
    fan_in_init: bool = False
    # The decoder, which attends to the encoder's states; None: the model is an encoder.
    decoder: DecoderStack | None = None
    # How layers share parameters; None: they do not.
    sharing: SharedLayers | None = None
    convolution: ConvolutionOptions | None = None
    # Layers of the encoder 'recurrent', whose cells have intermediate_size values; None: attention.
    recurrence: Recurrence | None = None
    # Whether the encoder has a pooler (EncoderOutput.pooled_BD).
    pooler: bool = True
    # What the heads of pairs (nsp, sop) read: the pooler, or the state of the first position.
    pair_pooling: Literal['pooler', 'first'] = 'pooler'
    prediction: Prediction = Prediction()
    classifier: Classifier = Classifier()
    # The states that fine-tuning heads read: a name of layer_names.py, or 'mix' (head_states.py).
    head_states: str = 'last'
    # A bidirectional LSTM between these states and the head.
    head_lstm: HeadLSTM = HeadLSTM()
    # Replaced-token head: the state of the first position is added to all, and normalized.
    detection_context: bool = False
    # What parameter-efficient tuning adds to the encoder (models/tuning); None: nothing.
    tuning: Tuning | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], source: object = 'architecture') -> Self:
        """Rebuild an architecture from what `dataclasses.asdict` made.

        Raises:
            UserError: a key is missing, unknown, or has a wrong value; `source` is its file.
        """
        from bert_jax import schema  # a run that starts reads no architecture

        return schema.read(cls, fields, source)

    def changed(self, changes: Mapping[str, Any]) -> 'Architecture':
        """Copy the architecture with other values.

        Args:
            changes: field, or field of a part ('attention.theta') → new value; of a part with
                kinds also the name of a kind.

        Raises:
            UserError: a part of this kind has no such field, or values do not fit together.
        """
        fields: dict[str, Any] = {}
        for name, value in sorted(changes.items(), key=lambda change: '.' in change[0]):
            part, _, field = name.partition('.')
            if field:
                old = fields.get(part, getattr(self, part))
                known = dataclasses.fields(old) if dataclasses.is_dataclass(old) else ()
                if field not in {option.name for option in known if option.init}:
                    raise UserError(f'architecture: {name} is {value!r}, but {old} has no {field}')
                value = dataclasses.replace(old, **{field: value})
            elif isinstance(value, str) and part in KINDS:
                if value not in KINDS[part]:
                    raise UserError(f'architecture: {unknown(part, value, KINDS[part])}')
                value = KINDS[part][value]()
            fields[part] = value
        return dataclasses.replace(self, **fields)

    def values(self) -> dict[str, Any]:
        """The values by name as in `changed`, with the fields of parts."""
        values: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            is_part = isinstance(value, dict)
            values |= {f'{name}.{n}': value[n] for n in value} if is_part else {name: value}
        return values

    def problems(self) -> Iterator[str]:
        """Describe values that do not fit together: of sizes, of the encoder, of each part."""
        if self.size_per_head is None and self.hidden_size % self.num_heads:
            yield f'hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}'
        if self.num_heads % self.num_kv_heads:
            yield f'num_heads {self.num_heads} is not a multiple of kv_heads {self.kv_heads}'
        if self.kv_heads and self.attention.kind not in ('standard', 'rotary'):
            yield f'attention {self.attention.kind} has no kv_heads; standard and rotary have'
        if self.max_length < 1:
            yield (
                f'max_position_embeddings {self.max_position_embeddings} leaves no positions after '
                f'the first position {self.first_position}'
            )
        if not self.windows or not all(window is None or window > 0 for window in self.windows):
            yield f'windows are {self.windows}; each must be above 0, or None for no limit'
        if self.scaled_output_init + self.zero_output_init + self.fan_in_init > 1:
            yield 'scaled_output_init, zero_output_init and fan_in_init exclude each other'
        yield from self._problems_of_encoder()
        for part in vars(self).values():
            if isinstance(part, Checked):
                yield from part.problems_in(self)
        try:
            self._resolve_head_states()
        except UserError as error:
            yield f'head_states: {error}'

    def _problems_of_encoder(self) -> Iterator[str]:
        if (self.encoder == 'recurrent') != (self.recurrence is not None):
            yield f'encoder is {self.encoder!r}, but recurrence is {self.recurrence}; set both'
        is_two_stream = self.encoder == 'two_stream'
        if is_two_stream != (self.attention.kind == 'relative'):
            yield (
                f'encoder is {self.encoder!r} and attention {self.attention.kind!r}; the encoder '
                'two_stream and attention relative need each other'
            )
        if is_two_stream and (self.positions.kind != 'none' or self.pooler):
            yield 'the encoder two_stream needs positions none and no pooler'
        if is_two_stream and (set(self.windows) - {None} or self.convolution):
            yield 'the encoder two_stream has no windows and no convolution'

    @property
    def of_decoder(self) -> 'Architecture':
        """The decoder's layers as an architecture of their own."""
        assert self.decoder is not None
        layers = self.decoder.num_layers
        return dataclasses.replace(self, num_layers=layers, decoder=None, pooler=False)

    @property
    def head_layer(self) -> int | None:
        """The layer that fine-tuning heads read; None: a combination."""
        layer = self._resolve_head_states()
        return layer if isinstance(layer, int) else None

    def _resolve_head_states(self) -> int | str:
        if self.head_states == 'last':
            return self.num_layers
        from bert_jax.models import layer_names  # pretraining does without it

        return layer_names.resolve(self.head_states, self.num_layers, 'the encoder', ('mix',))

    @property
    def reads_last_layer(self) -> bool:
        """Whether fine-tuning heads read the states of the last layer."""
        return self.head_states == 'last' and not self.head_lstm.layers

    @property
    def head_inputs(self) -> tuple[str, HeadLSTM, str]:
        """What fine-tuning heads read; heads with other inputs cannot be exchanged."""
        lstm = self.head_lstm if self.head_lstm.layers else HeadLSTM()
        return self.head_states, lstm, self.pooling

    @property
    def pooling(self) -> str:
        """How a sequence becomes one vector; 'first' where no pooler reads the head's states."""
        pooling = self.classifier.pooling
        has_pooler = self.pooler and self.reads_last_layer
        return 'first' if pooling == 'pooler' and not has_pooler else pooling

    @property
    def head_size(self) -> int:
        return self.size_per_head or self.hidden_size // self.num_heads

    @property
    def num_kv_heads(self) -> int:
        return self.kv_heads or self.num_heads

    @property
    def longest_sum(self) -> int:
        """Number of products in the longest sums of a layer; see bert_jax/rounding.py."""
        return max(self.hidden_size, self.intermediate_size)

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding matrix: vocab_size rounded up to a multiple of 128."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def embedding_width(self) -> int:
        """Size of a token embedding; with recurrence, also of the states of each direction."""
        return self.embedding_size or self.hidden_size // (2 if self.recurrence else 1)

    @property
    def prediction_act(self) -> Activation:
        """Activation of the heads that predict tokens."""
        return self.prediction.activation or self.hidden_act

    @property
    def prediction_width(self) -> int:
        """Size of the vectors that predict tokens."""
        return self.prediction.width or self.embedding_width

    @property
    def first_position(self) -> int:
        """Row of the position table that belongs to the first token."""
        return self.positions.first if self.positions.kind == 'offset' else 0

    @property
    def max_length(self) -> int:
        """The longest sequence the encoder accepts."""
        return self.max_position_embeddings - self.first_position

    @property
    def layer_windows(self) -> tuple[int | None, ...]:
        """Largest attended distance per layer; None: unlimited."""
        return tuple(itertools.islice(itertools.cycle(self.windows), self.num_layers))

    def without_mask_decoder(self) -> 'Architecture':
        """Copy the architecture without positions that only masked prediction sees."""
        if self.positions.kind != 'mask_decoder':
            return self
        return dataclasses.replace(self, positions=NoPositions())

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """The index of the parameters that each layer uses."""
        if self.sharing is None:
            return tuple(range(self.num_layers))
        groups, layers = self.sharing.groups, self.sharing.layers_per_group
        rounds = self.num_layers // layers
        firsts = [int(number / (rounds / groups)) * layers for number in range(rounds)]
        return tuple(first + member for first in firsts for member in range(layers))

    @property
    def equal_layers(self) -> bool:
        """Whether layers can be stacked: no shared parameters, equal names and shapes."""
        has_first_norm = self.norms.placement != 'pre_except_first'
        return self.sharing is None and has_first_norm and self.convolution is None


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
