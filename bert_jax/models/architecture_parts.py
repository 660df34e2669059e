"""Parts of an `Architecture`: frozen values that are checked when they are created."""

import dataclasses
import itertools
import math
import types
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from bert_jax import limits
from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.models.tuning_method import Tuning

Activation: TypeAlias = Literal[
    'gelu', 'gelu_rational', 'gelu_tanh', 'relu', 'relu_squared', 'silu', 'tanh'
]
PositionTerm: TypeAlias = Literal['content_to_position', 'position_to_content']
CHARACTERS = 261  # bytes, begin and end of a text, begin and end of a token, padding
WORD_LENGTH = 50  # characters of a token, its begin and its end included
FILTER_WIDTHS = range(1, 8)
_FILTER_SHARES = (1, 1, 2, 4, 8, 16, 32)
_MOST = {name: limits.VOCABULARY for name in ('vocab_size', 'skipped_id', 'mask_id')}
_MOST |= dict.fromkeys(('num_layers', 'layers', 'highways'), limits.LAYERS)
_MAY_BE_ZERO = ('type_vocab_size', 'first', 'layers', 'highways', 'skipped_id', 'mask_id')


def _problems_of_field(field: dataclasses.Field[Any], value: Any) -> Iterator[str]:
    is_union = typing.get_origin(field.type) in (typing.Union, types.UnionType)
    options = typing.get_args(field.type) if is_union else (field.type,)
    if value is None and types.NoneType in options:
        return
    known = [
        name
        for option in options
        if typing.get_origin(option) is Literal
        for name in typing.get_args(option)
    ]
    if known and value not in known:
        yield f'unknown {field.name} {value!r}; known: {", ".join(known)}'
    if int in options:
        least = 0 if field.name in _MAY_BE_ZERO else 1
        most = _MOST.get(field.name, limits.WIDTH)
        if not isinstance(value, int) or value < least:
            yield f'{field.name} is {value!r}, must be an integer ≥ {least}'
        elif value > most:
            yield f'{field.name} is {value:,}, above the limit of {most:,}'
    if float in options and field.name.endswith('dropout'):
        if not 0 <= value < 1:
            yield f'{field.name} is {value}, must be in [0, 1)'
    elif float in options and not 0 < value < math.inf:
        yield f'{field.name} is {value!r}, must be above 0 and finite'


class Whole(Protocol):
    """What a part reads of the `Architecture` that it belongs to."""

    @property
    def num_layers(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def head_size(self) -> int: ...

    @property
    def max_position_embeddings(self) -> int: ...

    @property
    def max_length(self) -> int: ...

    @property
    def embedding_size(self) -> int | None: ...

    @property
    def embedding_width(self) -> int: ...

    @property
    def embedding_mask(self) -> bool: ...

    @property
    def kv_heads(self) -> int | None: ...

    @property
    def token_dropout(self) -> 'TokenDropout | None': ...

    @property
    def pooler(self) -> bool: ...

    @property
    def head_states(self) -> str: ...

    @property
    def encoder(self) -> str: ...

    @property
    def characters(self) -> 'Characters | None': ...

    @property
    def positions(self) -> 'AnyPositions': ...

    @property
    def attention(self) -> 'AnyAttention': ...

    @property
    def norms(self) -> 'Norms': ...

    @property
    def sharing(self) -> 'SharedLayers | None': ...

    @property
    def convolution(self) -> 'ConvolutionOptions | None': ...

    @property
    def prediction(self) -> 'Prediction': ...

    @property
    def tuning(self) -> 'Tuning | None': ...


class Checked:
    """Base of `Architecture` and its parts, dataclasses whose values are checked when created."""

    def __post_init__(self) -> None:
        of_fields = (
            _problems_of_field(field, getattr(self, field.name))
            for field in dataclasses.fields(self)  # type: ignore[arg-type]  # of subclasses
        )
        for problem in itertools.chain(*of_fields, self.problems()):
            raise UserError(f'{type(self).__name__}: {problem}')

    def problems(self) -> Iterator[str]:
        """Describe values that do not fit together."""
        return iter(())

    def problems_in(self, whole: Whole) -> Iterator[str]:
        """Describe what does not fit the other parts of `whole`, the `Architecture`."""
        return iter(())


@dataclasses.dataclass(frozen=True)
class LearnedPositions(Checked):
    """The vector of a token's index in the sequence is added to its embedding."""

    kind: Literal['learned'] = dataclasses.field(default='learned', init=False)


@dataclasses.dataclass(frozen=True)
class OffsetPositions(Checked):
    """As in fairseq: indices count tokens only, from `first` on; padding has `first` − 1.

    Padding may be left or right.

    Attributes:
        first: the index of the first token.
        counts_padding: as BART in transformers: padding has indices like a token.
    """

    first: int = 2
    counts_padding: bool = False
    kind: Literal['offset'] = dataclasses.field(default='offset', init=False)


@dataclasses.dataclass(frozen=True)
class MaskDecoderPositions(Checked):
    """Position vectors enter just before masked prediction (EncoderOutput.decoded_BTD)."""

    kind: Literal['mask_decoder'] = dataclasses.field(default='mask_decoder', init=False)

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if whole.norms.placement != 'post':
            yield f'positions mask_decoder needs norms.placement post, not {whole.norms.placement}'


@dataclasses.dataclass(frozen=True)
class NoPositions(Checked):
    """Embeddings do not depend on positions."""

    kind: Literal['none'] = dataclasses.field(default='none', init=False)


@dataclasses.dataclass(frozen=True)
class Standard(Checked):
    """Attention scores are products of queries and keys (attention.py).

    Attributes:
        qk_norm: queries and keys of each head are normalized (Henry et al. 2020, arXiv 2010.04245;
            Dehghani et al. 2023, arXiv 2302.05442, section 2).
    """

    qk_norm: bool = False
    kind: Literal['standard'] = dataclasses.field(default='standard', init=False)


@dataclasses.dataclass(frozen=True)
class Rotary(Checked):
    """Queries and keys are rotated by their positions.

    Attributes:
        theta: base of the wavelengths.
        local_theta: base in layers with a window; None: theta.
        qk_norm: see `Standard`; before the rotation.
        factor: positions are divided by this in layers that rotate by theta, which stretches them
            over longer texts (Chen et al. 2023, arXiv 2306.15595).
        precision: to which the angles per position are rounded; models that were trained in float16
            may need its rounding (ESM-2).
    """

    theta: float = 10_000.0
    local_theta: float | None = None
    qk_norm: bool = False
    factor: float = 1.0
    precision: Literal['float32', 'float16'] = 'float32'
    kind: Literal['rotary'] = dataclasses.field(default='rotary', init=False)

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if (size := whole.head_size) % 2:
            yield f'rotary attention needs an even head size, not {size} (hidden_size / num_heads)'

    @property
    def local(self) -> 'Rotary':
        """The rotation of layers with a window."""
        if self.local_theta is None:
            return self
        return Rotary(self.local_theta, precision=self.precision)


@dataclasses.dataclass(frozen=True)
class Alibi(Checked):
    """Scores fall linearly with the distance."""

    kind: Literal['alibi'] = dataclasses.field(default='alibi', init=False)


@dataclasses.dataclass(frozen=True)
class Disentangled(Checked):
    """Scores depend on learned vectors of distances (disentangled.py).

    Attributes:
        terms: the terms of a score besides content-to-content.
        max_distance: distances are clipped to this; None: max_position_embeddings.
        buckets: number of distance buckets of both directions together. Half of the buckets hold
            one distance each, the others grow logarithmically. None: one per distance.
        shared_projections: distance vectors use the query and key projections of the states.
        norm: the table of distance vectors is normalized before use.
    """

    terms: tuple[PositionTerm, ...] = typing.get_args(PositionTerm)
    max_distance: int | None = None
    buckets: int | None = None
    shared_projections: bool = False
    norm: bool = False
    kind: Literal['disentangled'] = dataclasses.field(default='disentangled', init=False)

    def problems(self) -> Iterator[str]:
        known = typing.get_args(PositionTerm)
        if not self.terms or set(self.terms) - set(known):
            yield f'attention.terms are {self.terms}; known: {", ".join(known)}, at least one'

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if (buckets := self.buckets) is None:
            return
        largest = self.largest_distance(whole.max_position_embeddings)
        # The logarithm must be defined for every distance beyond the buckets of one distance.
        if buckets < 2 or whole.max_length - 1 > buckets // 2 >= largest - 1:
            yield (
                f'attention.buckets is {buckets}; half of it must be at least 1 and less than '
                f'attention.max_distance - 1 = {largest - 1}'
            )

    def largest_distance(self, max_positions: int) -> int:
        """The maximum to which distances are clipped."""
        return self.max_distance or max_positions

    def span(self, max_positions: int) -> int:
        """Rows of the distance table per direction."""
        return self.buckets or self.largest_distance(max_positions)


@dataclasses.dataclass(frozen=True)
class Relative(Checked):
    """Scores depend on sinusoids of distances and on equal token types (relative_attention.py)."""

    kind: Literal['relative'] = dataclasses.field(default='relative', init=False)

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if whole.hidden_size % 2:
            yield f'relative attention needs an even hidden_size, not {whole.hidden_size}'


@dataclasses.dataclass(frozen=True)
class RelativeBias(Checked):
    """Scores are products plus a learned bias of the distance (relative_bias.py).

    Attributes:
        buckets: distances with a bias of their own. In an encoder each direction has half of them.
            Half of the buckets of a direction hold one distance each, the others grow
            logarithmically.
        max_distance: from this distance on, all distances share the last bucket.
        scaled: whether products are divided by the square root of the head size, as in MPNet (Song
            et al. 2020, arXiv 2004.09297); in T5 they are not.
    """

    buckets: int = 32
    max_distance: int = 128
    scaled: bool = False
    kind: Literal['relative_bias'] = dataclasses.field(default='relative_bias', init=False)

    def problems(self) -> Iterator[str]:
        if self.buckets < 4 or self.buckets % 4 or self.max_distance <= self.buckets // 2:
            yield (
                f'attention.buckets is {self.buckets}, attention.max_distance {self.max_distance}; '
                'buckets must be a multiple of 4, and max_distance above half of them'
            )


@dataclasses.dataclass(frozen=True)
class Norms(Checked):
    """Normalization of states.

    Attributes:
        function: a key of module.NORMS.
        placement: 'post' normalizes the residual sum; 'pre' the input of attention and
            feed-forward, and the final states; 'pre_except_first' not the first attention's input;
            'both' as 'pre', and also the outputs of attention and feed-forward before they are
            added (CogView's sandwich, Ding et al. 2021, arXiv 2105.13290, section 2.3).
        embeddings: whether the embeddings are normalized.
    """

    function: Literal['layer_norm', 'unbiased_layer_norm', 'rms_norm', 'centered_rms_norm'] = (
        'layer_norm'
    )
    placement: Literal['post', 'pre', 'pre_except_first', 'both'] = 'post'
    embeddings: bool = True


@dataclasses.dataclass(frozen=True)
class Biases(Checked):
    """Which projections have biases.

    Attributes:
        attention: all projections, all but those to keys, or none.
        feed_forward: both projections, the output, or none.
        others: of the embeddings, the convolution and hidden layers of heads.
    """

    attention: Literal['all', 'without_key', 'none'] = 'all'
    feed_forward: Literal['all', 'output', 'none'] = 'all'
    others: bool = True


NO_BIASES = Biases(attention='none', feed_forward='none', others=False)


@dataclasses.dataclass(frozen=True)
class SharedLayers(Checked):
    """Layers share parameters: each of `groups` consecutive groups repeats its own layers."""

    groups: int = 1
    layers_per_group: int = 1

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if whole.norms.placement == 'pre_except_first':
            yield 'sharing needs all norms: a shared layer is not only the first'
        groups, layers = self.groups, self.layers_per_group
        if whole.num_layers % layers or whole.num_layers < groups * layers:
            yield (
                f'num_layers is {whole.num_layers}, must be a multiple of '
                f'sharing.layers_per_group {layers}, for each of {groups} sharing.groups'
            )


@dataclasses.dataclass(frozen=True)
class ConvolutionOptions(Checked):
    """A convolution over the embeddings, whose output is added to the first layer's output."""

    width: int
    activation: Activation = 'gelu'

    def problems(self) -> Iterator[str]:
        if self.width % 2 == 0:
            yield f'convolution.width is {self.width}, must be odd'

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if not whole.embedding_mask:
            yield 'convolution needs embedding_mask, which keeps padding out of the convolution'


@dataclasses.dataclass(frozen=True)
class Prediction(Checked):
    """Heads that predict tokens.

    Attributes:
        activation: of the dense layer; None: hidden_act of the architecture.
        tied: whether tokens are predicted with the token embeddings instead of a separate matrix.
        bias: whether predicted tokens have a bias.
        fixed_bias: the bias is not trained, as `final_logits_bias` in transformers.
        transform: whether a dense layer, an activation and a norm precede the product with the
            token embeddings.
        scaled: states are divided by √hidden_size before the product with the token embeddings.
        soft_cap: logits become cap · tanh(logits / cap), which bounds them (Gemma Team 2024, arXiv
            2408.00118, section 2); None: they do not.
        width: of the separate matrix; None: of the token embeddings.
        shift: whether the head mlm predicts a token at the position before it.
    """

    activation: Activation | None = None
    tied: bool = True
    bias: bool = True
    fixed_bias: bool = False
    transform: bool = True
    scaled: bool = False
    soft_cap: float | None = None
    width: int | None = None
    shift: bool = False

    def problems_in(self, whole: Whole) -> Iterator[str]:
        width = self.width or whole.embedding_width
        if not self.transform and width != whole.hidden_size:
            yield (
                f'prediction.transform is False, which needs embeddings as wide as the states, not '
                f'{width} and {whole.hidden_size}'
            )
        if self.tied and self.width is not None:
            yield f'prediction.width is {self.width}, which needs prediction.tied False'

    @property
    def has_parameters(self) -> bool:
        """Whether heads have parameters of their own."""
        return self.transform or self.bias or not self.tied


@dataclasses.dataclass(frozen=True)
class Classifier(Checked):
    """Fine-tuning heads (heads/classification.py).

    Attributes:
        layers: the layers before the logits, a key of heads.classification.CLASSIFIERS.
        activation: of a dense layer among them.
        pooling: how a sequence becomes one vector: 'concat' is [last; max; mean]; 'late' averages
            the logits of its tokens instead.
        dropout: None: hidden_dropout of the architecture.
        bias: whether the logits of sequences have a bias.
        skipped_id: a token that cannot be the last one, as transformers skips the padding token by
            its id; None: the last token is any.
    """

    layers: Literal['none', 'linear', 'dense', 'dropout_dense', 'dense_norm'] = 'linear'
    activation: Activation = 'tanh'
    pooling: Literal['pooler', 'first', 'last', 'mean', 'concat', 'late'] = 'pooler'
    dropout: float | None = None
    bias: bool = True
    skipped_id: int | None = None


@dataclasses.dataclass(frozen=True)
class Recurrence(Checked):
    """Layers of the recurrent encoder, instead of attention (models/encoders/recurrent.py).

    Attributes:
        clip: bound of the absolute values of cells and of projected states.
    """

    clip: float = 3.0

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if whole.hidden_size % 2 or whole.embedding_size or whole.pooler:
            yield 'recurrence needs an even hidden_size, no embedding_size and no pooler'


@dataclasses.dataclass(frozen=True)
class Characters(Checked):
    """Vectors of tokens from their characters, instead of a table (models/characters.py).

    Attributes:
        size: of a character's vector.
        num_filters: of all convolutions together. Widths 1 to 7 have 1, 1, 2, 4, 8, 16 and 32
            sixty-fourths of them, which are the published ones of ELMo for 2048.
        highways: number of highway layers.
        spelling: how the tokens of the vocabulary are written (`characters.spell`).
    """

    size: int = 16
    num_filters: int = 2048
    highways: int = 2
    spelling: str = dataclasses.field(default='[]', repr=False)

    def problems(self) -> Iterator[str]:
        if self.num_filters % sum(_FILTER_SHARES):
            yield f'characters.num_filters is {self.num_filters}, must be a multiple of 64'

    def problems_in(self, whole: Whole) -> Iterator[str]:
        if whole.prediction.tied:
            yield 'characters leave no table of tokens to predict with; set prediction.tied False'
        method = whole.tuning
        if method is not None and method.prompt_length:
            yield f'transfer.method={method.method} needs a table of tokens, not characters'

    @property
    def filters(self) -> tuple[int, ...]:
        """The number of filters of each of FILTER_WIDTHS."""
        return tuple(share * self.num_filters // sum(_FILTER_SHARES) for share in _FILTER_SHARES)

    def flops(self, width: int) -> int:
        """Count the operations for one vector of this width."""
        convolutions = sum(
            number * length * self.size * (WORD_LENGTH - length + 1)
            for length, number in zip(FILTER_WIDTHS, self.filters, strict=True)
        )
        lookups = WORD_LENGTH * CHARACTERS * self.size
        highways = 2 * self.highways * self.num_filters**2
        return 2 * (lookups + convolutions + highways + self.num_filters * width)


@dataclasses.dataclass(frozen=True)
class TokenDropout(Checked):
    """Embeddings as ESM-2 reads them, in training and afterwards alike (Lin et al. 2023, Science).

    The vector of the mask token is zero, and all vectors of a row are multiplied by
    (1 − rate) / (1 − share of mask tokens in the row), so that their sum does not depend on the
    number of masks (fair-esm, esm/model/esm2.py, token_dropout).

    Attributes:
        mask_id: the mask token; set from the tokenizer where a model is made.
        rate: share of mask tokens in training: 15 % of the tokens, of which 80 % become the mask.
    """

    mask_id: int = 0
    rate: float = 0.15 * 0.8

    def problems(self) -> Iterator[str]:
        if self.rate >= 1:
            yield f'token_dropout.rate is {self.rate}, must be below 1'


@dataclasses.dataclass(frozen=True)
class HeadLSTM(Checked):
    """A bidirectional LSTM between the encoder and a fine-tuning head (models/recurrence.py).

    Attributes:
        layers: number of layers; 0: no LSTM.
        size: states of each direction.
    """

    layers: int = 0
    size: int = 768


@dataclasses.dataclass(frozen=True)
class DecoderStack(Checked):
    """The decoder of an encoder–decoder (models/decoders/transformer.py).

    Its layers have the sizes and parts of the encoder's layers, and attend to the encoder's states
    between attention and feed-forward.

    Attributes:
        num_layers: number of layers.
        start: the token before the first token of a target: [SEP] or </s>, [CLS] or <s>, padding,
            or the token of the target's language.
        shared_embeddings: whether the token embeddings are those of the encoder.
        forced_first: whether generation always writes [CLS] first (BART, if it starts with [SEP]).
        forced_last: whether generation always ends the longest text with [SEP] (BART, mBART).
    """

    num_layers: int = 6
    start: Literal['sep', 'cls', 'pad', 'language'] = 'sep'
    shared_embeddings: bool = True
    forced_first: bool = True
    forced_last: bool = True

    def problems_in(self, whole: Whole) -> Iterator[str]:
        parts = {
            'encoder': whole.encoder != 'transformer',
            'attention': whole.attention.kind == 'disentangled',
            'positions': whole.positions.kind == 'mask_decoder',
            'sharing': whole.sharing is not None,
            'convolution': whole.convolution is not None,
            'embedding_size': whole.embedding_size is not None,
            'characters': whole.characters is not None,
            'head_states': whole.head_states != 'last',
            'kv_heads': whole.kv_heads is not None,
            'token_dropout': whole.token_dropout is not None,
        }
        for name in (name for name, is_refused in parts.items() if is_refused):
            yield f'a model with a decoder cannot have {name} {getattr(whole, name)}'


AnyPositions: TypeAlias = LearnedPositions | OffsetPositions | MaskDecoderPositions | NoPositions
AnyAttention: TypeAlias = Standard | Rotary | Alibi | Disentangled | Relative | RelativeBias

# Part of an architecture → its kinds by name.
KINDS: dict[str, dict[str, type[Checked]]] = {
    part: {choice.kind: choice for choice in typing.get_args(union)}
    for part, union in {'positions': AnyPositions, 'attention': AnyAttention}.items()
}
