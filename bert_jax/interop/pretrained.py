"""A pretrained model in memory: architecture, parameters, heads, tokenizer, labels."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders import EncoderOutput, build_encoder
from bert_jax.models.heads import (
    MaskedLanguageModelHead,
    MultipleChoiceHead,
    NextSentenceHead,
    QuestionAnsweringHead,
    ReplacedTokenHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)
from bert_jax.models.rows import Rows
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Array, Key, Params


class HeadType(NamedTuple):
    """A type of head.

    Attributes:
        module: the module's class; takes architecture, compute and, with `has_labels`, num_labels.
        inputs: selects the module's arguments from the encoder's output, the rows and the token
            embeddings [V, D].
        has_labels: whether the user chooses the number of classes.
        needs_pooler: whether the head reads the pooled state.
    """

    module: Callable[..., nn.Module]
    inputs: Callable[[EncoderOutput, Rows, Array], tuple]
    has_labels: bool = False
    needs_pooler: bool = False


def _pooled(encoded: EncoderOutput, rows: Rows, table_VD: Array) -> tuple:
    return (encoded.pooled_BD,)


def _all_states(encoded: EncoderOutput, rows: Rows, table_VD: Array) -> tuple:
    return encoded, rows


HEADS = {
    'mlm': HeadType(
        MaskedLanguageModelHead, lambda encoded, _, table_VD: (encoded.decoded_BTD, table_VD)
    ),
    'nsp': HeadType(NextSentenceHead, _pooled, needs_pooler=True),
    'sop': HeadType(NextSentenceHead, _pooled, needs_pooler=True),
    'clm': HeadType(
        MaskedLanguageModelHead, lambda encoded, _, table_VD: (encoded.hidden_BTD, table_VD)
    ),
    'rtd': HeadType(ReplacedTokenHead, lambda encoded, *_: (encoded.hidden_BTD,)),
    'sequence_classification': HeadType(SequenceClassificationHead, _all_states, has_labels=True),
    'token_classification': HeadType(TokenClassificationHead, _all_states, has_labels=True),
    'question_answering': HeadType(QuestionAnsweringHead, _all_states),
    'multiple_choice': HeadType(MultipleChoiceHead, _all_states),
}
LABEL_HEADS = tuple(name for name, head in HEADS.items() if head.has_labels)
PRETRAINING_HEADS = ('mlm', 'nsp', 'sop', 'clm', 'rtd')
POOLER_HEADS = tuple(name for name, head in HEADS.items() if head.needs_pooler)
# Value of `activation_fn` → activation.
ACTIVATIONS: dict[str | None, str] = {
    'torch.nn.modules.linear.Identity': 'identity',
    'torch.nn.modules.activation.Sigmoid': 'sigmoid',
}
# Parameters with a row for each token of the vocabulary.
TOKEN_ROWS = (
    'encoder/embeddings/token',
    *(f'{head}/head/{name}' for head in ('mlm', 'clm') for name in ('bias', 'decoder')),
)


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model that was loaded or is about to be saved.

    Attributes:
        family: key of `interop.families.FAMILIES`; None for an architecture without a published
            family.
        params: float32 NumPy arrays with unstacked layers: 'encoder', and one part for each head,
            named as in HEADS.
        tokenizer: None if the folder has none.
        labels: class names in the order of their ids, if the model has classes.
        newly_initialized: names of the parameters that no file contains.
        other_parts: parameters of a checkpoint that belong neither to the encoder nor to HEADS, by
            part.
        metadata: `step` and the metadata of a bert_jax checkpoint; empty for other folders.
        problem_type: what config.json says about a sequence classifier: 'regression',
            'single_label_classification', 'multi_label_classification' or None.
        activation_fn: class of torch that a CrossEncoder applies to its logits; None if the folder
            does not name one.
        is_causal: whether tokens attend only to themselves and earlier tokens.
        card: model card of the run in Markdown; '' if there is none.
        sentence_modules: modules after the encoder in a sentence-transformers folder.
    """

    family: str | None
    architecture: Architecture
    params: dict
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    newly_initialized: tuple[str, ...] = ()
    other_parts: dict = dataclasses.field(default_factory=dict)
    metadata: dict = dataclasses.field(default_factory=dict)
    problem_type: str | None = None
    activation_fn: str | None = None
    is_causal: bool = False
    card: str = ''
    sentence_modules: SentenceModules | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the model's heads, in the order of HEADS."""
        return tuple(name for name in HEADS if name in self.params)

    @property
    def activation(self) -> str:
        """Function that gives the answer of a sequence classifier from its logits.

        'identity', 'sigmoid' or 'softmax', as the text-classification pipeline of transformers and
        CrossEncoder choose it, or the class of torch if it is another one.
        """
        if num_labels(self.params) == 1:
            chosen = 'identity' if self.problem_type == 'regression' else 'sigmoid'
            return ACTIVATIONS.get(self.activation_fn, self.activation_fn) or chosen
        by_type = {'regression': 'identity', 'multi_label_classification': 'sigmoid'}
        if ACTIVATIONS.get(self.activation_fn) == 'sigmoid':
            return 'sigmoid'
        return by_type.get(self.problem_type or '', 'softmax')


def reads_pooler(head: str, architecture: Architecture) -> bool:
    """Whether a head of HEADS reads the output of the encoder's pooler."""
    if head == 'sequence_classification':
        return architecture.pooling == 'pooler'
    return HEADS[head].needs_pooler or (head == 'multiple_choice' and architecture.pooler)


def num_labels(params: Params) -> int:
    """Return the number of classes of the classification heads; 2 without such a head."""
    for name in LABEL_HEADS:
        if name in params:
            return len(params[name]['head']['output']['bias'])
    return 2


def init(
    architecture: Architecture, heads: Iterable[str], key: Key, num_labels: int = 2
) -> dict[str, Any]:
    """Parameters of an encoder with heads, boxed with their logical axis names."""
    keys = dict(zip(('encoder', *HEADS), jax.random.split(key, 1 + len(HEADS)), strict=True))
    encoder = build_encoder(architecture, Compute())
    rows = Rows(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.int32))
    encoded, variables = encoder.init_with_output(keys['encoder'], rows)
    params = {'encoder': variables['params']}
    table_VD: Any = encoder.apply(nn.unbox(variables), method='embedding_table')
    for name in heads:
        head = _make_head(name, architecture, Compute(), num_labels)
        inputs = HEADS[name].inputs(encoded, rows, table_VD)
        params[name] = {'head': head.init(keys[name], *inputs)['params']}
    return params


@functools.cache
def abstract(architecture: Architecture, heads: tuple[str, ...], num_labels: int = 2) -> dict:
    """Shapes and axis names of `init`, without computing anything."""
    return jax.eval_shape(lambda: init(architecture, heads, jax.random.key(0), num_labels))


def abstract_leaves(
    architecture: Architecture, heads: tuple[str, ...], num_labels: int = 2
) -> dict[str, nn.Partitioned]:
    """The leaves of `abstract`, boxed with their axis names, by '/'-joined name."""
    boxed = abstract(architecture, heads, num_labels)
    return tree_paths.flatten(boxed, lambda leaf: isinstance(leaf, nn.meta.AxisMetadata))


def fill(
    known: Mapping[str, np.ndarray],
    architecture: Architecture,
    heads: tuple[str, ...],
    num_labels: int = 2,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Complete parameters with newly initialized ones.

    Args:
        known: the existing parameters, by '/'-joined name.

    Returns:
        The tree of all parameters, and the names of the newly initialized ones.
    """
    names = abstract_leaves(architecture, heads, num_labels)
    missing = tuple(name for name in names if name not in known)
    arrays = dict(known)
    if missing:

        @jax.jit
        def initialize() -> dict[str, jax.Array]:
            params = nn.unbox(init(architecture, heads, jax.random.key(0), num_labels))
            initial = tree_paths.flatten(params)
            return {name: initial[name] for name in missing}  # XLA computes only these

        arrays |= jax.device_get(initialize())
    return traverse_util.unflatten_dict({name: arrays[name] for name in names}, sep='/'), missing


def check_missing(missing: Mapping[str, str], allowed: Iterable[str], source: Any) -> None:
    """Raise UserError unless every missing parameter may be newly initialized.

    Args:
        missing: parameter name → its description for the error message.
        allowed: regular expressions (re.search) for the names of parameters that may be missing.
        source: path that lacks the parameters.
    """
    patterns = tuple(allowed)
    refused = [missing[n] for n in missing if not any(re.search(p, n) for p in patterns)]
    if refused:
        raise UserError(f'{source} lacks the weights {enumerate_names(refused)}')


def enumerate_names(names: Iterable[str], limit: int = 3) -> str:
    """Join the first names, and say how many more there are."""
    names = list(names)
    more = f' and {len(names) - limit} more' if len(names) > limit else ''
    return ', '.join(names[:limit]) + more


@functools.partial(jax.jit, static_argnames=('architecture', 'compute', 'is_causal'))
def outputs(
    architecture: Architecture,
    compute: Compute,
    params: Params,
    rows: Rows,
    is_causal: bool = False,
) -> dict[str, jax.Array]:
    """Hidden states of every layer, and the logits of every head.

    Returns:
        `all_hidden` [L + 1, B, T, D] and, for each head NAME, `NAME_logits`, float32:
        mlm and clm [B, T, vocab_size]; nsp and sop [B, 2]; rtd [B, T];
        sequence_classification [B, C]; token_classification [B, T, C]; question_answering
        [B, T, 2]; multiple_choice [B].
    """
    encoder = build_encoder(architecture, compute)
    variables = {'params': params['encoder']}
    encoded: Any = encoder.apply(variables, rows, all_hidden=True, causal=is_causal)
    table_VD: Any = encoder.apply(variables, method='embedding_table')
    computed: dict[str, Any] = {'all_hidden': encoded.all_hidden_LBTD}
    for name in (name for name in params if name in HEADS):
        head = _make_head(name, architecture, compute, num_labels(params))
        states = HEADS[name].inputs(encoded, rows, table_VD)
        computed[f'{name}_logits'] = head.apply({'params': params[name]['head']}, *states)
    for name in {'mlm_logits', 'clm_logits'} & computed.keys():
        computed[name] = computed[name][..., : architecture.vocab_size]
    return computed


def token_logits(
    architecture: Architecture,
    compute: Compute,
    params: Params,
    hidden_BPD: jax.Array,
    head: str = 'mlm',
) -> Any:
    """Logits of the 'mlm' or 'clm' head for selected final states, float32 [B, P, padded V]."""
    table_VD = build_encoder(architecture, compute).apply(
        {'params': params['encoder']}, method='embedding_table'
    )
    module = MaskedLanguageModelHead(architecture, compute)
    return module.apply({'params': params[head]['head']}, hidden_BPD, table_VD)


def _make_head(
    name: str, architecture: Architecture, compute: Compute, num_labels: int
) -> nn.Module:
    options = {'num_labels': num_labels} if name in LABEL_HEADS else {}
    return HEADS[name].module(architecture, compute, **options)
