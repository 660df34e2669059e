"""A model with everything that is needed to use it: what is loaded, saved and traded."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoder import Encoder, EncoderOutput
from bert_jax.models.heads import (
    MaskedLanguageModelHead,
    MultipleChoiceHead,
    NextSentenceHead,
    ReplacedTokenHead,
    SequenceClassificationHead,
    SpanHead,
    TokenClassificationHead,
)

HEADS = {
    'mlm': MaskedLanguageModelHead,
    'nsp': NextSentenceHead,
    'sop': NextSentenceHead,
    'rtd': ReplacedTokenHead,
    'sequence_classification': SequenceClassificationHead,
    'token_classification': TokenClassificationHead,
    'question_answering': SpanHead,
    'multiple_choice': MultipleChoiceHead,
}
WITH_LABELS = (
    'sequence_classification',
    'token_classification',
)  # heads whose number of classes is a choice
OF_POOLER = ('nsp', 'sop')  # heads that need one


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model as it lies on the disk or is about to.

    family: one of `interop.families.FAMILIES`; None for an architecture that nobody published.
    params: fp32 NumPy arrays, named as in `tasks.pretraining.PretrainingModel`, layers not
        stacked: 'encoder', and a part for every head, by its name in HEADS.
    tokenizer: None where the folder had none.
    labels: names of the classes in the order of their ids, where the model has classes.
    fresh: names of the parameters that were in no file and come from the initialization.
    others: parts of a checkpoint that are neither the encoder nor of HEADS, and so not here.
    about: what a checkpoint of ours says of its training (its metadata), else empty.
    """

    family: str | None
    architecture: Architecture
    params: dict
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    about: dict = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads it has, in the order of HEADS."""
        return tuple(name for name in HEADS if name in self.params)


def num_labels(params: dict) -> int:
    """How many classes the heads of WITH_LABELS have; 2 where there is none of them."""
    for name in WITH_LABELS:
        if name in params:
            return len(params[name]['head']['output']['bias'])
    return 2


def make_head(name: str, architecture: Architecture, compute: Compute, num_labels: int):
    """The module of a head of HEADS."""
    options = {'num_labels': num_labels} if name in WITH_LABELS else {}
    return HEADS[name](architecture, compute, **options)


def head_inputs(name: str, encoded: EncoderOutput, attention_mask_BT, table_VD) -> tuple:
    """What the head of this name is called with."""
    if name == 'mlm':
        return encoded.decoded_BTD, table_VD
    if name in OF_POOLER:
        return (encoded.pooled_BD,)
    if name == 'rtd':
        return (encoded.hidden_BTD,)
    return encoded, attention_mask_BT


def init(
    architecture: Architecture, heads: Iterable[str], key: jax.Array, num_labels: int = 2
) -> dict:
    """Parameters of an encoder with heads, with their logical axis names."""
    keys = dict(zip(('encoder', *HEADS), jax.random.split(key, 1 + len(HEADS)), strict=True))
    encoder = Encoder(architecture, Compute())
    ids_BT = jnp.zeros((1, 1), jnp.int32)
    encoded, variables = encoder.init_with_output(keys['encoder'], ids_BT, ids_BT + 1)
    params = {'encoder': variables['params']}
    table_VD = encoder.apply(nn.unbox(variables), method=Encoder.embedding_table)
    for name in heads:
        head = make_head(name, architecture, Compute(), num_labels)
        inputs = head_inputs(name, encoded, ids_BT + 1, table_VD)
        params[name] = {'head': head.init(keys[name], *inputs)['params']}
    return params


def abstract(architecture: Architecture, heads: Iterable[str], num_labels: int = 2) -> dict:
    """Shapes of `init` without computing anything."""
    return _abstract(architecture, tuple(heads), num_labels)


@functools.cache
def _abstract(architecture: Architecture, heads: tuple[str, ...], num_labels: int) -> dict:
    return jax.eval_shape(lambda: init(architecture, heads, jax.random.key(0), num_labels))


def fill(
    found: dict[str, np.ndarray],
    architecture: Architecture,
    heads: Iterable[str],
    num_labels: int = 2,
) -> tuple[dict, tuple[str, ...]]:
    """The tree of all parameters, those not in `found` (by '/'-joined name) from the
    initialization, and the names of these."""
    heads = tuple(heads)
    boxed = abstract(architecture, heads, num_labels)
    names = tree_paths.flatten(boxed, is_boxed)
    fresh = tuple(name for name in names if name not in found)
    if fresh:

        def make():
            return nn.unbox(init(architecture, heads, jax.random.key(0), num_labels))

        initial = tree_paths.flatten(jax.jit(make)())
        found = found | {name: np.asarray(initial[name]) for name in fresh}
    structure = jax.tree.structure(boxed, is_leaf=is_boxed)
    return jax.tree.unflatten(structure, [found[name] for name in names]), fresh


def check_missing(missing: Mapping[str, str], allowed: Iterable[str], where):
    """Raises UserError for a missing parameter (name → how to call it) that matches no pattern."""
    allowed = tuple(allowed)
    refused = [
        told for name, told in missing.items() if not any(re.search(p, name) for p in allowed)
    ]
    if refused:
        raise UserError(f'{where} lacks the weights {some(refused)}')


def some(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    names = list(names)
    more = f' and {len(names) - most} more' if len(names) > most else ''
    return ', '.join(names[:most]) + more


@functools.partial(jax.jit, static_argnums=(0, 1))
def outputs(
    architecture: Architecture,
    compute: Compute,
    params: dict,
    input_ids_BT: jax.Array,
    attention_mask_BT: jax.Array,
    token_type_ids_BT: jax.Array | None = None,
) -> dict[str, jax.Array]:
    """Everything a model computes.

    all_hidden [L + 1, B, T, D] and the logits of its heads, fp32: mlm_logits [B, T, vocab_size],
    nsp_logits and sop_logits [B, 2], rtd_logits [B, T], sequence_classification_logits [B, C],
    token_classification_logits [B, T, C], question_answering_logits [B, T, 2],
    multiple_choice_logits [B].
    """
    encoder = Encoder(architecture, compute)
    variables = {'params': params['encoder']}
    encoded = encoder.apply(
        variables, input_ids_BT, attention_mask_BT, token_type_ids_BT, all_hidden=True
    )
    table_VD = encoder.apply(variables, method=Encoder.embedding_table)
    computed = {'all_hidden': encoded.all_hidden_LBTD}
    for name in params:
        if name in HEADS:
            head = make_head(name, architecture, compute, num_labels(params))
            inputs = head_inputs(name, encoded, attention_mask_BT, table_VD)
            logits = head.apply({'params': params[name]['head']}, *inputs)
            computed[f'{name}_logits'] = logits
    if 'mlm' in params:
        computed['mlm_logits'] = computed['mlm_logits'][..., : architecture.vocab_size]
    return computed


def mlm_logits(
    architecture: Architecture, compute: Compute, params: dict, hidden_BPD: jax.Array
) -> jax.Array:
    """fp32 [B, P, padded_vocab_size] of chosen states of the last layer."""
    table_VD = Encoder(architecture, compute).apply(
        {'params': params['encoder']}, method=Encoder.embedding_table
    )
    head = MaskedLanguageModelHead(architecture, compute)
    return head.apply({'params': params['mlm']['head']}, hidden_BPD, table_VD)


def is_boxed(leaf) -> bool:
    """Whether a leaf of `abstract` carries its logical axis names."""
    return isinstance(leaf, nn.meta.AxisMetadata)
