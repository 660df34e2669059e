"""Collects the contents of a page: a description of the model as JSON, and its packed weights."""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.inference import finetuned, problem_kinds
from bert_jax.loaded import loaded_model, tuned
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.head_states import describe_states
from bert_jax.models.heads import has_token_rows
from bert_jax.models.heads.linear_chain import LinearChain
from bert_jax.page import tokenizers, weights
from bert_jax.text import scripts
from bert_jax.types import JsonRecord, Tree

# Pretraining heads that the page reads.
_PRETRAINING_HEADS = ('mlm', 'rtd')
# Fine-tuning problem that assets/predictions.js supports → its head.
_HEADS = {
    'classification': 'sequence_classification',
    'regression': 'sequence_classification',
    'multi_label': 'sequence_classification',
    'multi_regression': 'sequence_classification',
    'multiple_choice': 'multiple_choice',
    'tagging': 'token_classification',
    'spans': 'spans',
    'question_answering': 'question_answering',
}
_EXAMPLES = pathlib.Path(__file__).parent / 'assets/texts.tsv'
_CRF = ('transition', 'start', 'end')
_POOLINGS = ('pooler', 'first', 'last', 'mean')  # of assets/heads.js
_ATTENTIONS = ('standard', 'rotary', 'alibi')


class Contents(NamedTuple):
    """The contents of a page.

    Attributes:
        description: JSON: architecture, tokenizer, tensors, heads, problem, texts.
        data: bytes of the weights.
        notes: features of the model that the page lacks, one line each.
    """

    description: JsonRecord
    data: bytes
    notes: tuple[str, ...]


def describe(
    model: LoadedModel,
    name: str,
    *,
    dtype: str = 'float16',
    texts: Sequence[str] | None = None,
    text: str | None = None,
    word: str | None = None,
) -> Contents:
    """Collect the contents of a page.

    Args:
        model: as loaded by interop/loading.py.
        name: title of the page.
        dtype: one of weights.DTYPES.
        texts: lines for the views of neighbors and senses; 'LABEL<tab>TEXT' colors a text. None:
            the lines of assets/texts.tsv.
        text: the text shown first.
        word: the word whose senses are shown first.

    Raises:
        UserError: the page cannot compute this model.
    """
    for reason in _unsupported(model):
        raise UserError(f'a page cannot compute {name}: {reason}')
    model = tuned.merge(model)
    assert model.tokenizer is not None
    kind = problem_kinds.problem_kind(model)
    notes = []
    if kind is not None and kind not in _HEADS:
        notes.append(f'the page has no predictions of a {kind} model, only of its encoder')
        kind = None
    elif unsupported := problem_kinds.unsupported(model):
        notes.append(f'the page has no predictions: {unsupported}')
    elif kind is not None and (states := _other_states(model.architecture)):
        notes.append(f'the page has no predictions of a head that reads {states}')
        kind = None
    packed = weights.pack(_arrays(model, kind), dtype)
    description = {
        'name': name,
        'dtype': dtype,
        'architecture': _architecture(model.architecture),
        'is_causal': model.is_causal,
        'num_parameters': loaded_model.num_parameters(model),
        'tokenizer': tokenizers.describe(model.tokenizer),
        'tensors': packed.tensors,
        'heads': [head for head in _PRETRAINING_HEADS if head in model.params],
        'problem': kind and _problem(model, kind),
        'texts': read_texts(_EXAMPLES) if texts is None else list(texts),
        'text': text,
        'word': word,
    }
    return Contents(description, packed.data, tuple(notes))


def read_texts(path: str | os.PathLike[str]) -> list[str]:
    """Read the texts of a file, one per line, without empty lines. Raises UserError."""
    try:
        lines = pathlib.Path(path).read_text(encoding='utf-8').split('\n')
    except OSError as error:
        raise UserError(f'--input={path}: {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise UserError(f'--input={path} is not valid UTF-8: {error.reason}') from error
    return [line for line in lines if line.strip()]


def _unsupported(model: LoadedModel) -> Iterator[str]:
    """Reasons why the page cannot compute a model."""
    architecture = model.architecture
    if architecture.encoder != 'transformer':
        yield f'its encoder is {architecture.encoder}; known: transformer'
    if architecture.attention.kind not in _ATTENTIONS:
        yield f'its attention is {architecture.attention.kind}; known: {", ".join(_ATTENTIONS)}'
    if getattr(architecture.attention, 'qk_norm', False) or architecture.norms.placement == 'both':
        yield 'it normalizes queries and keys, or the outputs of its layers'
    others = {
        'kv_heads': architecture.kv_heads,
        'prediction.width': architecture.prediction.width,
        'token_dropout': architecture.token_dropout,
        'scaled_embeddings': architecture.scaled_embeddings,
        'attention.factor': getattr(architecture.attention, 'factor', 1) != 1,
        'attention.precision': getattr(architecture.attention, 'precision', '') == 'float16',
        'norms.function centered_rms_norm': architecture.norms.function == 'centered_rms_norm',
    }
    for name in (name for name, is_set in others.items() if is_set):
        yield f'its architecture has {name}'
    if architecture.prediction.soft_cap:
        yield 'it caps the logits of tokens'
    if architecture.convolution is not None or architecture.positions.kind == 'mask_decoder':
        yield 'it has a convolution or a mask decoder'
    if architecture.decoder is not None:
        yield 'it has a decoder'
    if architecture.tuning is not None and not architecture.tuning.can_merge:
        yield f'transfer.method={architecture.tuning.method} cannot be merged with its encoder'
    if model.tokenizer is None:
        yield 'it has no tokenizer; add its tokenizer.json or vocab.txt'
    elif not model.tokenizer.starts_texts:
        yield "its tokenizer puts no tokens around a text, as GPT-2's"


def _other_states(architecture: Architecture) -> str:
    """Which states a head reads that the page does not compute; '' if it computes them."""
    if not architecture.reads_last_layer:
        return describe_states(architecture)
    return '' if architecture.pooling in _POOLINGS else f'the pooling {architecture.pooling}'


def _architecture(architecture: Architecture) -> JsonRecord:
    derived = {
        'layer_numbers': architecture.layer_numbers,
        'max_length': architecture.max_length,
        'windows': architecture.layer_windows,
        'prediction_act': architecture.prediction_act,
        'pooling': architecture.pooling,
    }
    return dataclasses.asdict(architecture) | derived


def _arrays(model: LoadedModel, kind: str | None) -> dict[str, np.ndarray]:
    """The parameters that the page reads, by path; kernels as [outputs, inputs]."""
    used = {'encoder', *_PRETRAINING_HEADS, _HEADS.get(kind or '', '')}
    parts = model.params | model.other_parts
    params = {name: part for name, part in parts.items() if name in used}
    arrays = {
        name: _as_page_array(name, np.asarray(leaf, np.float32), model.architecture)
        for name, leaf in tree_paths.flatten(params).items()
    }
    if kind == 'tagging' and 'crf' in model.other_parts:
        arrays |= _chain_scores(model)
    return arrays


def _as_page_array(name: str, array: np.ndarray, architecture: Architecture) -> np.ndarray:
    if has_token_rows(name):
        array = array[: architecture.vocab_size]  # drops the padding rows of the vocabulary
    elif name.endswith('/attention/output/kernel'):
        array = array.reshape(-1, array.shape[-1]).T
    elif name.endswith('/kernel'):
        array = array.reshape(len(array), -1).T
    elif name.endswith('/bias'):
        array = array.reshape(-1)
    return np.ascontiguousarray(array)


def _chain_scores(model: LoadedModel) -> dict[str, np.ndarray]:
    """The scores of a CRF; transitions that the tagging scheme forbids have −10⁹."""
    rate = model.usage.setting('problem', 'crf_rate', float)
    chain = LinearChain(model.architecture, Compute(), model.labels, rate)
    params = model.other_parts['crf']['head']
    scores: Tree = chain.apply({'params': params}, method='scores')
    return {
        f'crf/{name}': np.asarray(array, np.float32)
        for name, array in zip(_CRF, scores, strict=True)
    }


def _problem(model: LoadedModel, kind: str) -> JsonRecord:
    """Settings by which a fine-tuned model reads its input and decodes its logits."""
    assert model.tokenizer is not None
    problem = finetuned.build(model, kind, model.tokenizer, Compute(), 1, 0.0).problem()
    setup = problem.setup
    return {
        'kind': kind,
        'labels': setup.labels,
        'num_texts': model.usage.texts,
        'unspaced': scripts.UNSPACED + scripts.HANGUL,
        'splitter': setup.splitter,
        'max_length': setup.layout.max_length,
        'thresholds': model.usage.calibrated,
        'entity_tags': getattr(problem.decoder, 'entity_tags', None),
        'activation': setup.activation,
        'settings': setup.settings.to_dict(),
    }
