"""Reads and writes the modules of sentence-transformers folders.

modules.json lists them; each has a folder with a config.json and, for Dense, weights.
"""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import files
from bert_jax.errors import UserError, unknown
from bert_jax.interop import late_folder, sparse_modules, weights
from bert_jax.loaded.sentence_modules import (
    ACTIVATIONS,
    SIMILARITIES,
    Dense,
    Normalize,
    SentenceModules,
)
from bert_jax.models.late_interaction import LateInteraction
from bert_jax.models.pooling import POOLINGS
from bert_jax.storage import names
from bert_jax.types import JsonObject, JsonView

# Key of 1_Pooling/config.json before version 6 → mode, in the order of concatenation.
_MODES = {
    'pooling_mode_cls_token': 'cls',
    'pooling_mode_max_tokens': 'max',
    'pooling_mode_mean_tokens': 'mean',
    'pooling_mode_mean_sqrt_len_tokens': 'mean_sqrt_len_tokens',
    'pooling_mode_weightedmean_tokens': 'weightedmean',
    'pooling_mode_lasttoken': 'lasttoken',
}
_TYPES = 'sentence_transformers.models.'
_TRANSFORMER = 'sentence_transformers.base.modules.transformer.Transformer'
_ENCODERS = ('Transformer', 'MLMTransformer')  # MLMTransformer: SparseEncoder of version 5
_DENSE_INPUT = 'sentence_embedding'


class FolderModules(NamedTuple):
    """What the files of sentence-transformers in a folder say.

    Attributes:
        modules: The modules; None if the folder has none.
        is_lowercased: Whether texts are lowercased.
        markers: Beginnings of prompts that are one token each, if the vocabulary has them.
        has_inline_projection: Whether the projection of `modules` is among the encoder's weights.
    """

    modules: SentenceModules | None = None
    is_lowercased: bool = False
    markers: tuple[str, ...] = ()
    has_inline_projection: bool = False


def transformer_folder(folder: pathlib.Path) -> pathlib.Path:
    """The folder of the encoder; early versions of sentence-transformers wrote a subfolder."""
    modules = _modules(folder)
    config = files.read_json(folder / 'config.json', default={})
    is_static = bool(modules) and _kind(modules[0]) == 'StaticEmbedding'
    if is_static or config.get('model_type') == 'model2vec':
        raise UserError(
            f'{folder} is a static model (model2vec): a vector for each token, without an encoder; '
            'open it with model2vec or sentence-transformers'
        )
    if modules and _kind(modules[0]) not in _ENCODERS:
        raise UserError(
            f'{folder / "modules.json"}: the first module is {modules[0]["type"]}; only '
            'Transformer of sentence_transformers is supported'
        )
    return folder / modules[0]['path'] if modules else folder


def read(folder: pathlib.Path) -> FolderModules:
    """Read the modules of a folder.

    Raises:
        UserError: A file is malformed.
    """
    modules = _modules(folder)
    config = files.read_json(folder / 'config_sentence_transformers.json', default={})
    if config.get('model_type', 'SentenceTransformer') == 'CrossEncoder':
        _check_cross_encoder(folder, modules)
        return FolderModules()
    if not modules:
        if not late_folder.is_stanford(folder):
            return FolderModules()
        stanford = late_folder.read_stanford(folder)
        return FolderModules(stanford, False, tuple(stanford.prompts.values()), True)
    settings: JsonObject = {}
    for path in sorted((folder / modules[0]['path']).glob('sentence_*_config.json')):
        settings |= files.read_json(path)
    fields = _read_prompts(folder, config)
    fields['max_length'] = _max_length(folder, modules, settings)
    try:
        if late_folder.kind_of_folder(config):
            fields |= _read_late(folder, modules, config, settings)
        else:
            fields['similarity'] = _similarity(folder, config)
            has_prompts = any(fields['prompts'].values())
            fields |= _read_layers(folder, modules, has_prompts=has_prompts)
    except _Unsupported as error:
        fields['unsupported'] = str(error)
    for module in modules[1:]:
        if _kind(module) == 'SpladePooling':
            active = config.get('max_active_dims')
            fields['sparse'] = sparse_modules.read(folder / module['path'], active)
    markers = tuple(late_folder.markers(config).values())
    lowercased = settings.get('do_lower_case') is True
    return FolderModules(SentenceModules(**fields), lowercased, markers)


def _check_cross_encoder(folder: pathlib.Path, modules: Sequence[JsonView]) -> None:
    others = [module['type'] for module in modules[1:] if _kind(module) != 'Dropout']
    if others:
        raise UserError(
            f'{folder / "modules.json"}: a CrossEncoder with the module {others[0]}, which is not '
            'supported'
        )


def _max_length(
    folder: pathlib.Path, modules: Sequence[JsonView], settings: JsonView
) -> int | None:
    """Return to how many tokens texts are truncated; None: to the length of the model."""
    path = folder / modules[0]['path'] / 'tokenizer_config.json'
    tokenizer = files.read_json(path, default={})
    length = settings.get('max_seq_length') or tokenizer.get('model_max_length')
    if length is None:
        return None
    if not (isinstance(length, int | float) and length >= 3):
        raise UserError(f'{folder}: max_seq_length is {length!r}, must be a number of at least 3')
    return int(min(length, 2**31))


def _read_prompts(folder: pathlib.Path, config: JsonView) -> JsonObject:
    """Return the fields `prompts` and `default_prompt` of the modules."""
    prompts, name = config.get('prompts') or {}, config.get('default_prompt_name')
    if late_folder.kind_of_folder(config):
        prompts = late_folder.pylate_prompts(config)
    if not isinstance(prompts, dict):
        raise UserError(f'{folder}: prompts is {prompts!r:.40}, not an object')
    for given, prompt in prompts.items():
        if not isinstance(prompt, str):
            raise UserError(f'{folder}: the prompt {given} is {prompt!r:.40}, not a string')
    if name is not None and not (isinstance(name, str) and name in prompts):
        raise UserError(f'{folder}: default_prompt_name is {name!r:.40}, which is not in prompts')
    return {'prompts': prompts, 'default_prompt': name}


def _similarity(folder: pathlib.Path, config: JsonView) -> str:
    """The name of the similarity; null is the cosine, and for sparse vectors the dot product."""
    usual = 'dot' if config.get('model_type') == 'SparseEncoder' else 'cosine'
    given = config.get('similarity_fn_name') or usual
    if not isinstance(given, str) or given not in SIMILARITIES:
        path = folder / 'config_sentence_transformers.json'
        raise unknown(f'similarity_fn_name in {path}', str(given), SIMILARITIES)
    return given


def activation_fn(folder: pathlib.Path, config: JsonView) -> str | None:
    """The class of torch that a CrossEncoder applies to its logits; None if none is named.

    Args:
        folder: folder of the model.
        config: its config.json, where earlier versions name the class.

    Raises:
        UserError: a value of another type, or a prompt, which is not supported.
    """
    path = folder / 'config_sentence_transformers.json'
    settings = files.read_json(path, default={})
    if settings.get('model_type') != 'CrossEncoder':
        settings = {}
    if settings.get('default_prompt_name'):
        raise UserError(f'{path}: a CrossEncoder with a prompt is not supported')
    earlier = config.get('sentence_transformers') or {}
    if not isinstance(earlier, dict):
        raise UserError(f'sentence_transformers is {earlier!r:.40}, expected an object')
    name = (
        settings.get('activation_fn')
        or earlier.get('activation_fn')
        or config.get('sbert_ce_default_activation_function')
    )
    if name is not None and not isinstance(name, str):
        raise UserError(f'{folder}: activation_fn is {name!r:.40}, expected the name of a class')
    return name


def write(modules: SentenceModules, folder: pathlib.Path, size: int) -> None:
    """Write supported modules into the folder of a model with token states of width `size`."""
    if modules.late:
        _write_late(modules, folder)
        return
    pooling: JsonObject = {key: mode in modules.pooling for key, mode in _MODES.items()}
    if _read_pooling(pooling, False) != modules.pooling:  # another order needs the key of version 6
        pooling = {'pooling_mode': modules.pooling}
    entries = [_entry(0, 'Transformer', ''), _entry(1, 'Pooling')]
    _write_module(folder / entries[1]['path'], {'word_embedding_dimension': size} | pooling)
    for number, layer in enumerate(modules.layers, 2):
        entries.append(_entry(number, type(layer).__name__))
        if isinstance(layer, Dense):
            outputs, inputs = layer.weight.shape
            config = {'in_features': inputs, 'out_features': outputs}
            config |= {'bias': layer.bias is not None, 'activation_function': layer.activation}
            _write_dense(folder / entries[-1]['path'], config, layer)
    files.write_json(folder / 'modules.json', entries)
    settings = {'max_seq_length': modules.max_length, 'do_lower_case': False}
    files.write_json(folder / 'sentence_bert_config.json', settings)
    general = {
        'prompts': dict(modules.prompts),
        'default_prompt_name': modules.default_prompt,
        'similarity_fn_name': modules.similarity,
    }
    files.write_json(folder / 'config_sentence_transformers.json', general)


def _write_late(modules: SentenceModules, folder: pathlib.Path) -> None:
    """Write the modules of late interaction."""
    entries = [_entry(0, 'Transformer', '') | {'type': late_folder.type_of('Transformer')}]
    for number, (name, config, dense) in enumerate(late_folder.entries(modules), 1):
        entries.append(_entry(number, name) | {'type': late_folder.type_of(name)})
        if dense is None:
            _write_module(folder / entries[-1]['path'], config)
        else:
            _write_dense(folder / entries[-1]['path'], config, dense)
    files.write_json(folder / 'modules.json', entries)
    late_folder.write(modules, folder)


def _write_dense(path: pathlib.Path, config: JsonView, layer: Dense) -> None:
    _write_module(path, config)
    arrays = {'linear.weight': np.ascontiguousarray(layer.weight)}
    if layer.bias is not None:
        arrays['linear.bias'] = layer.bias
    weights.write(path / weights.SAFETENSORS, arrays)


def write_cross_encoder(activation: str, folder: pathlib.Path) -> None:
    """Write the files of version 6 of a CrossEncoder; earlier versions read config.json.

    Args:
        activation: class of torch that is applied to the logits.
        folder: the folder of the model.
    """
    module = {'idx': 0, 'name': '0', 'path': '', 'type': _TRANSFORMER}
    files.write_json(folder / 'modules.json', [module])
    output = {'method': 'forward', 'method_output_name': 'logits'}
    settings = {
        'transformer_task': 'sequence-classification',
        'modality_config': {'text': output},
        'module_output_name': 'scores',
    }
    files.write_json(folder / 'sentence_bert_config.json', settings)
    general = {'model_type': 'CrossEncoder', 'activation_fn': activation}
    files.write_json(folder / 'config_sentence_transformers.json', general)


class _Unsupported(Exception):
    """A module that is not supported."""


def _read_late(
    folder: pathlib.Path, modules: Sequence[JsonView], config: JsonView, settings: JsonView
) -> JsonObject:
    """The fields of the modules of late interaction, all of which read the tokens."""
    fields: JsonObject = {
        'pooling': (),
        'similarity': late_folder.read_similarity(folder, config),
        'late': late_folder.read_settings(config, settings, folder),
    }
    try:
        return fields | _read_late_layers(folder, modules, config, fields['late'])
    except (_Unsupported, late_folder.Unsupported) as error:
        return fields | {'unsupported': str(error)}


def _read_late_layers(
    folder: pathlib.Path, modules: Sequence[JsonView], config: JsonView, late: LateInteraction
) -> JsonObject:
    """The layers, and what the modules add to which tokens have a vector."""
    layers: list[Dense | Normalize] = []
    for module in modules[1:]:
        path, name = folder / module['path'], _kind(module)
        own = files.read_json(path / 'config.json', default={})
        if name == 'Dense' or late_folder.is_dense(module):
            layers.append(_read_dense(path, own, 'token_embeddings'))
        elif name == 'Normalize':
            layers.append(Normalize())
        elif name == late_folder.MASK:
            late = late_folder.read_mask(late, own, path)
        elif name == late_folder.POOLING:
            late = late_folder.read_pooling(late, own, path)
        elif name != 'Dropout':
            raise _Unsupported(f'the module {name}')
    if late_folder.kind_of_folder(config) == 'pylate':  # which leaves both out of modules.json
        layers.append(Normalize())
        late = late._replace(skip_words=late_folder.pylate_words(config))
    return {'layers': tuple(layers), 'late': late}


def _read_layers(
    folder: pathlib.Path, modules: Sequence[JsonView], has_prompts: bool
) -> JsonObject:
    """The fields `pooling` and `layers` of the modules after the encoder."""
    pooling: tuple[str, ...] = ()
    layers: list[Dense | Normalize] = []
    for module in modules[1:]:
        path, name = folder / module['path'], _kind(module)
        config = files.read_json(path / 'config.json', default={})
        if name == 'Pooling' and not pooling:
            pooling = _read_pooling(config, has_prompts)
        elif name == 'Dense' and pooling:
            layers.append(_read_dense(path, config))
        elif name == 'Normalize' and pooling:
            layers.append(Normalize())
        elif name != 'Dropout':
            raise _Unsupported(f'the module {name}')
    if not pooling:
        raise _Unsupported('no module Pooling')
    return {'pooling': pooling, 'layers': tuple(layers)}


def _read_pooling(config: JsonView, has_prompts: bool) -> tuple[str, ...]:
    modes = config.get('pooling_mode') or [m for key, m in _MODES.items() if config.get(key)]
    if not isinstance(modes, str | list | tuple):
        raise UserError(f'1_Pooling/config.json: pooling_mode is {modes!r}, expected names')
    modes = (modes,) if isinstance(modes, str) else tuple(modes) or ('mean',)
    others = [mode for mode in modes if mode not in POOLINGS]
    if others:
        raise _Unsupported(f'the pooling mode {others[0]}')
    if has_prompts and not config.get('include_prompt', True):
        raise _Unsupported('a prompt that pooling leaves out')
    return modes


def _read_dense(path: pathlib.Path, config: JsonView, reads: str = _DENSE_INPUT) -> Dense:
    activation = config.get('activation_function', 'torch.nn.modules.activation.Tanh')
    if activation not in list(ACTIVATIONS) or config.get('use_residual'):
        raise _Unsupported(f'a Dense with activation_function {activation} or use_residual')
    if config.get('module_input_name', reads) != reads:
        raise _Unsupported(f'a Dense whose input is {config["module_input_name"]}')
    arrays = weights.read(path)
    weights.check_values(arrays, path)
    floats = {name: array.astype(np.float32) for name, array in arrays.items()}
    weight, bias = floats.pop('linear.weight', np.zeros(0)), floats.pop('linear.bias', None)
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise UserError(f'{path}: linear.weight and linear.bias must be a matrix and a vector')
    if floats:
        raise UserError(f'{path}: a Dense has no place for {", ".join(sorted(floats))}')
    found = {'in_features': weight.shape[1], 'out_features': len(weight), 'bias': bias is not None}
    for key, value in found.items():
        if config.get(key, value) != value:
            raise UserError(f'{path}: {key} is {config[key]!r}, but the weights have {value}')
    return Dense(weight, bias, activation)


def _entry(number: int, name: str, path: str | None = None) -> JsonObject:
    path = f'{number}_{name}' if path is None else path
    return {'idx': number, 'name': str(number), 'path': path, 'type': _TYPES + name}


def _write_module(path: pathlib.Path, config: JsonView) -> None:
    path.mkdir()
    files.write_json(path / 'config.json', config)


def _kind(module: JsonView) -> str:
    """Name of the class of a module; its full name if it is not of sentence-transformers."""
    name = str(module['type'])
    is_known = name.startswith('sentence_transformers.')
    return name.rpartition('.')[2] if is_known else name


def _modules(folder: pathlib.Path) -> list[JsonObject]:
    """The entries of modules.json; [] if there is none."""
    path = folder / 'modules.json'
    modules: list[JsonObject] = files.read_json(path, list, default=[])
    for module in modules:
        if not isinstance(module, dict) or not all(
            isinstance(module.get(key), str) for key in ('path', 'type')
        ):
            raise UserError(f'{path}: each module must be an object with path and type')
        if module['path'] not in ('', '.'):  # the folder itself
            names.check(pathlib.PurePosixPath(module['path']).as_posix(), path)  # './1_Pooling/'
    return modules
