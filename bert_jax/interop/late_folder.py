"""Reads and writes folders of late interaction: sentence-transformers 6, PyLate and Stanford.

A folder of sentence-transformers 6 has a module MultiVectorMask and its settings beside the
encoder's; one of PyLate (up to 3) has them in config_sentence_transformers.json; one of Stanford's
ColBERT has a projection among the weights of the encoder, and artifact.metadata.
"""

import pathlib
import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax import files, schema
from bert_jax.errors import UserError, unknown
from bert_jax.loaded.sentence_modules import IDENTITY, Dense, Normalize, SentenceModules
from bert_jax.models.late_interaction import SIMILARITIES, LateInteraction
from bert_jax.tokenizers.late_layout import check_lengths
from bert_jax.types import JsonObject, JsonView

MASK, POOLING = 'MultiVectorMask', 'HierarchicalTokenPooling'
CONFIG = 'config_sentence_transformers.json'
SETTINGS = 'sentence_bert_config.json'
PROJECTION = 'linear.weight'  # of a folder of Stanford
_METADATA = 'artifact.metadata'
_EXPANSION = 32  # tokens of a query, as in ColBERT
_SIDES = ('query', 'document')
_MODULES = 'sentence_transformers'
_TYPES = {
    'Transformer': f'{_MODULES}.base.modules.transformer.Transformer',
    'Dense': f'{_MODULES}.base.modules.dense.Dense',
    'Normalize': f'{_MODULES}.base.modules.normalize.Normalize',
    MASK: f'{_MODULES}.multi_vector_encoder.modules.multi_vector_mask.{MASK}',
    POOLING: f'{_MODULES}.multi_vector_encoder.modules.token_pooling.{POOLING}',
}
_PYLATE_DENSE = 'pylate.models.Dense.Dense'
_TOKENS = 'token_embeddings'  # what the modules read and write


class Unsupported(Exception):
    """A setting of a module that is not supported."""


def kind_of_folder(config: JsonView) -> str:
    """Return what config_sentence_transformers.json says: 'sentence-transformers', 'pylate', ''."""
    kinds = {'MultiVectorEncoder': 'sentence-transformers', 'ColBERT': 'pylate'}
    return kinds.get(str(config.get('model_type')), '')


def is_stanford(folder: pathlib.Path) -> bool:
    """Whether config.json is that of Stanford's ColBERT."""
    config = files.read_json(folder / 'config.json', default={})
    return 'HF_ColBERT' in (config.get('architectures') or ())


def is_dense(module: JsonView) -> bool:
    """Whether a module is PyLate's Dense, which is that of sentence-transformers."""
    return str(module['type']) == _PYLATE_DENSE


def read_similarity(folder: pathlib.Path, config: JsonView) -> str:
    """Return the name of the similarity; null, and those of single vectors, are 'maxsim'."""
    given = config.get('similarity_fn_name') or 'maxsim'
    if kind_of_folder(config) == 'pylate' and given not in SIMILARITIES:
        return 'maxsim'
    if given not in SIMILARITIES:
        raise unknown(f'similarity_fn_name in {folder / CONFIG}', str(given), SIMILARITIES)
    return str(given)


def read_settings(config: JsonView, encoder: JsonView, source: pathlib.Path) -> LateInteraction:
    """Read lengths and expansion.

    Args:
        config: config_sentence_transformers.json.
        encoder: the settings of the module Transformer.
        source: the folder, for errors.

    Raises:
        UserError: a value of another type, or lengths that contradict each other.
    """
    values = {**_of_pylate(config), **encoder} if kind_of_folder(config) == 'pylate' else encoder
    lengths = {
        name: schema.convert(int | None, values.get(name), f'{source}: {name}')
        for name in ('query_length', 'document_length')
    }
    expansion = values.get('query_expansion')
    late = LateInteraction(**lengths)
    if expansion is not None:
        late = late._replace(**_read_expansion(expansion, source))
    check_lengths(late)
    return late


def _of_pylate(config: JsonView) -> JsonObject:
    """Return the settings of PyLate as those of sentence-transformers; expansion is the default."""
    values = {'document_length': config.get('document_length')}
    if config.get('do_query_expansion') is False:
        return values | {'query_length': config.get('query_length')}
    length = config.get('query_length') or _EXPANSION
    attend = bool(config.get('attend_to_expansion_tokens'))
    return values | {'query_expansion': {'strategy': 'fixed', 'attend': attend, 'length': length}}


def _read_expansion(given: Any, source: pathlib.Path) -> JsonObject:
    place = f'{source}: query_expansion'
    values = schema.convert(Mapping[str, Any], given, place)
    strategy = values.get('strategy')
    if strategy not in ('fixed', 'min'):
        raise unknown(f'{place}.strategy', str(strategy), ('fixed', 'min'))
    return {
        'expansion': schema.convert(int, values.get('length'), f'{place}.length'),
        'truncates': strategy == 'fixed',
        'attends': schema.convert(bool, values.get('attend', False), f'{place}.attend'),
        'expansion_token': schema.convert(str, values.get('token') or '', f'{place}.token'),
    }


def read_mask(late: LateInteraction, config: JsonView, path: pathlib.Path) -> LateInteraction:
    """Add the words of a module MultiVectorMask that have no vector."""
    if config.get('keep_only_token_ids'):
        raise Unsupported('keep_only_token_ids')
    words = schema.convert(tuple[str, ...], config.get('skiplist_words') or [], f'{path}: words')
    tasks = config.get('skiplist_tasks', ['document'])
    tasks = schema.convert(tuple[str, ...], [tasks] if isinstance(tasks, str) else tasks, str(path))
    skips_documents, skips_queries = (side in tasks for side in ('document', 'query'))
    if words and not skips_documents:
        raise Unsupported('a skip list that is not for documents')
    return late._replace(skip_words=words, skips_in_queries=bool(words) and skips_queries)


def read_pooling(late: LateInteraction, config: JsonView, path: pathlib.Path) -> LateInteraction:
    """Add the pooling of tokens of a module HierarchicalTokenPooling."""
    if config.get('tasks', ['document']) not in ('document', ['document']):
        raise Unsupported('a pooling of the tokens of queries')
    return late._replace(
        pool_factor=schema.convert(float, config.get('pool_factor', 1.0), f'{path}: pool_factor'),
        protected_tokens=schema.convert(int, config.get('num_protected_tokens', 1), str(path)),
        normalizes_pooled=schema.convert(
            bool, config.get('normalize_embeddings', False), f'{path}: normalize_embeddings'
        ),
    )


def pylate_words(config: JsonView) -> tuple[str, ...]:
    """Return the words that PyLate skips: punctuation unless it names others."""
    words = config.get('skiplist_words')
    return tuple(string.punctuation) if words is None else tuple(words)


def pylate_prompts(config: JsonView) -> dict[str, str]:
    """Return the prompts of a folder of PyLate, which start with its markers."""
    prompts = dict(config.get('prompts') or {})
    for side, marker in markers(config).items():
        prompts[side] = marker + (prompts.get(side) or '').removeprefix(marker)
    return prompts


def markers(config: JsonView) -> dict[str, str]:
    """Return the markers of queries and documents of a folder of PyLate, such as '[Q] '."""
    given = {side: config.get(f'{side}_prefix') for side in _SIDES if f'{side}_prefix' in config}
    return {side: marker or '' for side, marker in given.items()}


def read_stanford(folder: pathlib.Path) -> SentenceModules:
    """Read the settings of a folder of Stanford's ColBERT; see `take_projection`.

    Queries are filled up with [MASK], and punctuation in documents has no vector.
    """
    path = folder / _METADATA
    data = files.read_json(path, default={})
    names = (('query', 'query_token_id', '[unused0]'), ('document', 'doc_token_id', '[unused1]'))
    prompts = {side: f'{data.get(key) or usual} ' for side, key, usual in names}
    late = LateInteraction(
        document_length=schema.convert(int | None, data.get('doc_maxlen'), f'{path}: doc_maxlen'),
        expansion=schema.convert(
            int, data.get('query_maxlen') or _EXPANSION, f'{path}: query_maxlen'
        ),
        attends=bool(data.get('attend_to_mask_tokens')),
        skip_words=tuple(string.punctuation) if data.get('mask_punctuation', True) else (),
    )
    return SentenceModules(
        pooling=(), prompts=prompts, default_prompt='document', similarity='maxsim', late=late
    )


def take_projection(state: dict[str, np.ndarray]) -> tuple[Dense, Normalize]:
    """Take the projection of Stanford's ColBERT out of the weights; return the layers.

    Raises:
        UserError: the weights have no matrix `linear.weight`.
    """
    weight = state.pop(PROJECTION, None)
    if weight is None or weight.ndim != 2:
        raise UserError(f'the weights of HF_ColBERT lack the matrix {PROJECTION}')
    return Dense(np.asarray(weight, np.float32), None, IDENTITY), Normalize()


def write(modules: SentenceModules, folder: pathlib.Path) -> None:
    """Write the files of a MultiVectorEncoder into the folder of its encoder.

    The layers of the modules are written by `sentence_folder`, which calls this function.
    """
    late = modules.late
    assert late is not None
    settings: JsonObject = {
        'transformer_task': 'feature-extraction',
        'modality_config': {
            'text': {'method': 'forward', 'method_output_name': 'last_hidden_state'}
        },
        'module_output_name': _TOKENS,
        'query_length': late.query_length or (None if late.expansion else modules.max_length),
        'document_length': late.document_length or modules.max_length,
        'query_expansion': _expansion(late),
    }
    files.write_json(folder / SETTINGS, settings)
    general = {
        'model_type': 'MultiVectorEncoder',
        'prompts': dict(modules.prompts),
        'default_prompt_name': None,
        'similarity_fn_name': modules.similarity,
    }
    files.write_json(folder / CONFIG, general)


def _expansion(late: LateInteraction) -> JsonObject | None:
    if not late.expansion:
        return None
    return {
        'strategy': 'fixed' if late.truncates else 'min',
        'attend': late.attends,
        'token': late.expansion_token or None,
        'length': late.expansion,
    }


def entries(modules: SentenceModules) -> list[tuple[str, JsonObject, Dense | None]]:
    """Return the modules behind the encoder: name, config.json, and a Dense with weights."""
    late = modules.late
    assert late is not None
    names = {'module_input_name': _TOKENS, 'module_output_name': _TOKENS}
    found: list[tuple[str, JsonObject, Dense | None]] = []
    for layer in modules.layers:
        if isinstance(layer, Dense):
            outputs, inputs = layer.weight.shape
            config = {'in_features': inputs, 'out_features': outputs} | names
            config |= {'bias': layer.bias is not None, 'activation_function': layer.activation}
            found.append(('Dense', config, layer))
        else:
            found.append(('Normalize', names, None))
    tasks = ['query', 'document'] if late.skips_in_queries else ['document']
    mask = {'skiplist_words': [*late.skip_words], 'skiplist_tasks': tasks}
    found.append((MASK, mask, None))
    if late.pool_factor > 1:
        pooling = {
            'pool_factor': late.pool_factor,
            'num_protected_tokens': late.protected_tokens,
            'normalize_embeddings': late.normalizes_pooled,
            'tasks': ['document'],
        }
        found.append((POOLING, pooling, None))
    return found


def type_of(name: str) -> str:
    """Return the class of a module in sentence-transformers."""
    return _TYPES[name]
