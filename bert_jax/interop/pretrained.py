"""A model with everything that is needed to use it: what is loaded, saved and traded."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MaskedLanguageModelHead, NextSentenceHead

HEADS = {'mlm': MaskedLanguageModelHead, 'nsp': NextSentenceHead}


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model as it lies on the disk or is about to.

    family: one of `interop.families.FAMILIES`.
    params: fp32 NumPy arrays, named as in `tasks.pretraining.PretrainingModel`, layers not
        stacked: 'encoder', and a part for every head, 'mlm' or 'nsp'.
    tokenizer: None where the folder had none.
    labels: names of the classes in the order of their ids, where the model has classes.
    fresh: names of the parameters that were in no file and come from the initialisation.
    about: what a checkpoint of ours says of its training (its metadata), else empty.
    """

    family: str
    architecture: Architecture
    params: dict
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    about: dict = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads it has, in the order of HEADS."""
        return tuple(name for name in HEADS if name in self.params)


def init(architecture: Architecture, heads: Iterable[str], key: jax.Array) -> dict:
    """Parameters of an encoder with heads, with their logical axis names."""
    keys = dict(zip(('encoder', *HEADS), jax.random.split(key, 1 + len(HEADS)), strict=True))
    encoder = Encoder(architecture, Compute())
    ids_BT = jnp.zeros((1, 1), jnp.int32)
    output, variables = encoder.init_with_output(keys['encoder'], ids_BT, ids_BT + 1)
    params = {'encoder': variables['params']}
    table_VD = encoder.apply(nn.unbox(variables), method=Encoder.embedding_table)
    inputs = {'mlm': (output.hidden_BTD, table_VD), 'nsp': (output.pooled_BD,)}
    for name in heads:
        head = HEADS[name](architecture, Compute())
        params[name] = {'head': head.init(keys[name], *inputs[name])['params']}
    return params


def abstract(architecture: Architecture, heads: Iterable[str]) -> dict:
    """Shapes of `init` without computing anything."""
    return jax.eval_shape(lambda: init(architecture, tuple(heads), jax.random.key(0)))


def fill(
    found: dict[str, np.ndarray], architecture: Architecture, heads: Iterable[str]
) -> tuple[dict, tuple[str, ...]]:
    """The tree of all parameters, those not in `found` (by '/'-joined name) from the
    initialisation, and the names of these."""
    boxed = abstract(architecture, heads)
    names = by_name(boxed)
    fresh = tuple(name for name in names if name not in found)
    if fresh:
        made = jax.jit(lambda: nn.unbox(init(architecture, tuple(heads), jax.random.key(0))))()
        initial = by_name(made)
        found = found | {name: np.asarray(initial[name]) for name in fresh}
    structure = jax.tree.structure(boxed, is_leaf=_is_box)
    return jax.tree.unflatten(structure, [found[name] for name in names]), fresh


def by_name(tree) -> dict:
    """Leaves (boxed or not) by '/'-joined path."""
    return {
        jax.tree_util.keystr(path, simple=True, separator='/'): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_box)
    }


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

    all_hidden [L + 1, B, T, D] and, with the heads for them, mlm_logits fp32 [B, T, vocab_size]
    and nsp_logits fp32 [B, 2].
    """
    encoder = Encoder(architecture, compute)
    variables = {'params': params['encoder']}
    output = encoder.apply(
        variables, input_ids_BT, attention_mask_BT, token_type_ids_BT, all_hidden=True
    )
    computed = {'all_hidden': output.all_hidden_LBTD}
    if 'mlm' in params:
        logits_BTV = mlm_logits(architecture, compute, params, output.hidden_BTD)
        computed['mlm_logits'] = logits_BTV[..., : architecture.vocab_size]
    if 'nsp' in params:
        head = NextSentenceHead(architecture, compute)
        computed['nsp_logits'] = head.apply({'params': params['nsp']['head']}, output.pooled_BD)
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


def _is_box(leaf) -> bool:
    return isinstance(leaf, nn.meta.AxisMetadata)
