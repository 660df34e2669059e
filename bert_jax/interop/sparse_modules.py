"""SpladePooling of sentence-transformers folders: weights of terms from logits of tokens."""

import pathlib
from collections.abc import Mapping
from typing import Any

from bert_jax import files
from bert_jax.errors import UserError, unknown
from bert_jax.models.sparse_pooling import ACTIVATIONS, STRATEGIES, SparsePooling
from bert_jax.types import JsonRecord

_TYPES = 'sentence_transformers'
_FOLDER = '1_SpladePooling'


def read(folder: pathlib.Path, max_active: Any) -> SparsePooling:
    """Read the config.json of a module SpladePooling.

    Args:
        folder: folder of the module.
        max_active: `max_active_dims` of config_sentence_transformers.json.

    Raises:
        UserError: a setting has another value than those above.
    """
    config = files.read_json(folder / 'config.json', default={})
    strategy = config.get('pooling_strategy', 'max')
    activation = config.get('activation_function', 'relu')
    for key, value, known in (
        ('pooling_strategy', strategy, STRATEGIES),
        ('activation_function', activation, ACTIVATIONS),
    ):
        if value not in list(known):
            raise unknown(f'{key} in {folder / "config.json"}', value, known)
    if max_active is not None and (not isinstance(max_active, int) or max_active < 1):
        raise UserError(f'{folder.parent}: max_active_dims is {max_active!r:.40}, not a number')
    return SparsePooling(strategy, activation, max_active)


def write(
    pooling: SparsePooling,
    prompts: Mapping[str, str],
    default: str | None,
    similarity: str,
    folder: pathlib.Path,
) -> None:
    """Write the files of a SparseEncoder into the folder of a masked language model."""
    kinds = {
        '': f'{_TYPES}.base.modules.transformer.Transformer',
        _FOLDER: f'{_TYPES}.sparse_encoder.modules.splade_pooling.SpladePooling',
    }
    modules = [
        {'idx': number, 'name': str(number), 'path': path, 'type': kind}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    files.write_json(folder / 'modules.json', modules)
    settings = {
        'transformer_task': 'fill-mask',
        'modality_config': {'text': {'method': 'forward', 'method_output_name': 'logits'}},
        'module_output_name': 'token_embeddings',
    }
    files.write_json(folder / 'sentence_bert_config.json', settings)
    general: JsonRecord = {'model_type': 'SparseEncoder', 'similarity_fn_name': similarity}
    general |= {'prompts': dict(prompts), 'default_prompt_name': default}
    if pooling.max_active is not None:
        general['max_active_dims'] = pooling.max_active
    files.write_json(folder / 'config_sentence_transformers.json', general)
    (folder / _FOLDER).mkdir()
    config = {'pooling_strategy': pooling.strategy, 'activation_function': pooling.activation}
    files.write_json(folder / _FOLDER / 'config.json', config | {'embedding_dimension': None})
