"""A pretrained model in memory: architecture, parameters, heads, tokenizer, labels."""

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded.record import Base, Usage
from bert_jax.models import initial_values, layer_stack, parameters
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.heads import HEADS, published_heads
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import JsonObject, Key, Params, Tree

if TYPE_CHECKING:
    from bert_jax.loaded.sentence_modules import SentenceModules

# Value of `activation_fn` → activation.
ACTIVATIONS: dict[str | None, str] = {
    'torch.nn.modules.linear.Identity': 'identity',
    'torch.nn.modules.activation.Sigmoid': 'sigmoid',
}


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model that was loaded or is about to be saved.

    Attributes:
        family: key of `interop.families.FAMILIES`; None for an architecture without a published
            family.
        params: float32 NumPy arrays with unstacked layers: 'encoder', and one part for each head,
            named as in HEADS (`Head.published`).
        tokenizer: None if the folder has none.
        labels: class names in the order of their ids, if the model has classes.
        newly_initialized: names of the parameters that no file contains.
        other_parts: parameters of a checkpoint that belong neither to the encoder nor to
            published heads, by part.
        usage: what the run or the exported folder records about the training.
        base: the model that a run tunes; None for other models.
        step: number of training steps of a checkpoint; None for other folders.
        problem_type: what config.json says about a sequence classifier: 'regression',
            'single_label_classification', 'multi_label_classification' or None.
        activation_fn: class of torch that a CrossEncoder applies to its logits; None if the folder
            does not name one.
        is_causal: whether tokens attend only to themselves and earlier tokens.
        is_generative: whether the model is known to have learned to write text.
        writes: whether a causal model is there to write text, and was not fine-tuned for another
            task.
        learned_end: whether a causal model has learned to predict the token after a text; a model
            that was pretrained with clm has not.
        has_prefix: whether the positions of a causal model see the whole prompt before the text
            that it writes.
        card: model card of the run in Markdown; '' if there is none.
        sentence_modules: modules after the encoder in a sentence-transformers folder.
    """

    family: str | None
    architecture: Architecture
    params: dict[str, Tree]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    newly_initialized: tuple[str, ...] = ()
    other_parts: dict[str, Tree] = dataclasses.field(default_factory=dict)
    usage: Usage = Usage()
    base: Base | None = None
    step: int | None = None
    problem_type: str | None = None
    activation_fn: str | None = None
    is_causal: bool = False
    is_generative: bool = False
    writes: bool = True
    learned_end: bool = True
    has_prefix: bool = False
    card: str = ''
    sentence_modules: 'SentenceModules | None' = None

    @property
    def details(self) -> JsonObject:
        """What is recorded about the training, as JSON; {} if nothing is."""
        step = {} if self.step is None else {'step': self.step}
        return step | self.usage.to_json()

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the model's heads, in the order of HEADS.

        A causal model that was fine-tuned, but not to write, has no head clm.
        """
        writes = self.is_causal and self.writes and not has_fine_tuned_head(self.params)
        return heads_of(self.params, self.architecture, writes)

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


def is_part(name: str) -> bool:
    """Whether a part of parameters belongs to a published model: a stack or a published head."""
    return name in ('encoder', 'decoder') or bool(published_heads([name]))


def has_fine_tuned_head(params: Params) -> bool:
    """Whether a published model has a head that learned from labeled examples."""
    return any(HEADS[name].is_fine_tuned for name in published_heads(params))


def label_heads(names: Collection[str]) -> list[str]:
    """Names of those published heads with any number of classes."""
    return [name for name in published_heads(names) if HEADS[name].has_labels]


def heads_of(params: Params, architecture: Architecture, is_causal: bool) -> tuple[str, ...]:
    """The heads of a model, in the order of HEADS.

    A causal model that predicts with the token embeddings alone has the head clm without
    parameters, and an encoder–decoder the head seq2seq.
    """
    present = {*params}
    if not architecture.prediction.has_parameters:
        present |= {'clm'} if is_causal else set()
        present |= {'seq2seq'} if architecture.decoder is not None else set()
    return published_heads(present)


def torch_activation(activation: str | None) -> str | None:
    """Return the class of torch that a CrossEncoder applies for an activation of ACTIVATIONS."""
    return next((name for name, own in ACTIVATIONS.items() if own == activation), None)


def reads_pooler(head: str, architecture: Architecture) -> bool:
    """Whether a head reads the output of the encoder's pooler."""
    return HEADS[head](architecture, Compute()).reads_pooler()


def num_labels(params: Params) -> int:
    """Return the number of classes of the classification heads; 2 without such a head."""
    for name in label_heads(params):
        return int(params[name]['head']['output']['kernel'].shape[-1])
    return 2


def build_model(
    architecture: Architecture,
    heads: Iterable[str],
    num_labels: int = 2,
    compute: Compute | None = None,
    is_causal: bool = False,
) -> Model:
    """Build an encoder with some of the published heads."""
    options = {name: {'num_labels': num_labels} if HEADS[name].has_labels else {} for name in heads}
    return Model(architecture, compute or Compute(), options, is_causal)


def init(
    architecture: Architecture, heads: Iterable[str], key: Key, num_labels: int = 2
) -> dict[str, Tree]:
    """Parameters of an encoder with heads, boxed with their logical axis names."""
    rows = Rows(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.int32))
    params: dict[str, Tree]
    params = build_model(architecture, heads, num_labels).init(key, rows)['params']
    return params


@functools.cache
def abstract(
    architecture: Architecture, heads: tuple[str, ...], num_labels: int = 2
) -> dict[str, Tree]:
    """Shapes and axis names of `init`, without computing anything."""
    shapes: dict[str, Tree] = layer_stack.abstract(
        lambda key: init(architecture, heads, key, num_labels)
    )
    return shapes


def abstract_leaves(
    architecture: Architecture, heads: tuple[str, ...], num_labels: int = 2
) -> dict[str, nn.Partitioned[jax.Array]]:
    """The leaves of `abstract`, boxed with their axis names, by '/'-joined name."""
    boxed = abstract(architecture, heads, num_labels)
    return tree_paths.flatten(boxed, lambda leaf: isinstance(leaf, nn.meta.AxisMetadata))


def fill(
    known: Mapping[str, np.ndarray],
    architecture: Architecture,
    heads: tuple[str, ...],
    num_labels: int = 2,
    names: Collection[str] | None = None,
) -> tuple[dict[str, Tree], tuple[str, ...]]:
    """Complete parameters with newly initialized ones.

    Args:
        known: the existing parameters, by '/'-joined name.
        names: the names of all parameters; None: found by tracing the model.

    Returns:
        The tree of all parameters, and the names of the newly initialized ones.
    """
    if names is None:
        names = abstract_leaves(architecture, heads, num_labels)
    missing = tuple(name for name in names if name not in known)
    arrays = dict(known)
    if missing:
        start: Callable[[Key], Tree]
        start = functools.partial(init, architecture, heads, num_labels=num_labels)
        if not any('/layers_' in name for name in missing):  # a thousand may share parameters
            start = layer_stack.with_equal_layers(start)
        arrays |= initial_values.draw(start, 0, missing)
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


def num_parameters(model: LoadedModel) -> int:
    """Number of parameters, without the padding rows of the vocabulary."""
    boxed = abstract(model.architecture, model.heads, num_labels(model.params))
    return parameters.num_parameters(boxed, model.architecture)


@functools.partial(jax.jit, static_argnames=('architecture', 'compute', 'is_causal'))
def outputs(
    architecture: Architecture,
    compute: Compute,
    params: Params,
    rows: Rows,
    is_causal: bool = False,
) -> dict[str, jax.Array]:
    """Hidden states of every layer, and the logits of every head.

    An encoder–decoder whose rows have no target decodes the rows themselves. For the classes of
    texts BART's decoder reads them one token behind, which the model does on its own
    (`Model.reads_text_twice`).

    Returns:
        `all_hidden` [L + 1, B, T, D]; `decoder_hidden` [L' + 1, B, U, D] of an encoder–decoder;
        and, for each head NAME, `NAME_logits`, float32: mlm, clm and plm [B, T, vocab_size];
        seq2seq [B, U, vocab_size]; nsp and sop [B, 2]; rtd [B, T];
        sequence_classification [B, C]; token_classification [B, T, C]; question_answering
        [B, T, 2]; multiple_choice [B].
    """
    heads = heads_of(params, architecture, is_causal)
    model = build_model(architecture, heads, num_labels(params), compute, is_causal)
    has_target = rows.target is not None or model.reads_text_twice()
    if architecture.decoder is not None and not has_target:
        rows = rows.replace(target=rows)
    output: Any = model.apply({'params': params}, rows, all_hidden=True)
    logits = {f'{name}_logits': logits for name, logits in output.heads.items()}
    for head in heads:
        if HEADS[head].predicts_tokens:
            name = f'{head}_logits'
            logits[name] = logits[name][..., : architecture.vocab_size]
    hidden = {'all_hidden': output.states.all_hidden_LBTD}
    if output.decoder is not None:
        hidden['decoder_hidden'] = output.decoder.all_hidden_LBTD
    return hidden | logits


def check_padding(architecture: Architecture, tokenizer: Tokenizer, model: object) -> None:
    """Raise UserError if the position ids of a model are for another padding token.

    Args:
        model: what the error calls it.
    """
    # In RoBERTa's published code, position ids start after the id of the padding token; in BART's,
    # they start at 2 whatever the padding token is.
    if architecture.positions.kind != 'offset' or architecture.positions.counts_padding:
        return
    expected = architecture.first_position - 1
    if tokenizer.pad_id != expected:
        raise UserError(
            f'{model}: the padding token has the id {tokenizer.pad_id} in the tokenizer, but the '
            f'positions of the model are for the id {expected} (pad_token_id); use a tokenizer '
            'whose padding token has this id, such as that of the model'
        )
