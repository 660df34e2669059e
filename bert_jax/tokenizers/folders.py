"""Reads the tokenizer configuration in the JSON files of a Hugging Face folder.

Added and special tokens are in tokenizer_config.json or, in folders of early versions, in
added_tokens.json and special_tokens_map.json. Source: PreTrainedTokenizerBase.from_pretrained and
AutoTokenizer.from_pretrained of transformers.
"""

import json
import pathlib
import types
from collections.abc import Mapping
from typing import NamedTuple

import tokenizers

from bert_jax import errors
from bert_jax.files import parse_json, read_text
from bert_jax.tokenizers import special_tokens
from bert_jax.types import JsonObject

# model_type → tokenizer class.
_CLASSES = {
    'albert': 'AlbertTokenizer',
    'bart': 'BartTokenizer',
    'bert': 'BertTokenizer',
    'camembert': 'CamembertTokenizer',
    'data2vec-text': 'RobertaTokenizer',
    'deberta': 'DebertaTokenizer',
    'deberta-v2': 'DebertaV2Tokenizer',
    'distilbert': 'BertTokenizer',
    'dpr': 'BertTokenizer',
    'electra': 'BertTokenizer',
    'ernie': 'BertTokenizer',
    'esm': 'EsmTokenizer',
    'gpt2': 'GPT2Tokenizer',
    'jina_embeddings_v3': 'XLMRobertaTokenizer',
    'luke': 'RobertaTokenizer',
    'mbart': 'MBartTokenizer',
    'megatron-bert': 'BertTokenizer',
    'mpnet': 'MPNetTokenizer',
    'mt5': 'T5Tokenizer',
    'nomic_bert': 'BertTokenizer',
    'rembert': 'RemBertTokenizer',
    'roberta': 'RobertaTokenizer',
    'roberta-prelayernorm': 'RobertaTokenizer',
    'roformer': 'RoFormerTokenizer',
    't5': 'T5Tokenizer',
    'xlm-roberta': 'XLMRobertaTokenizer',
    'xlm-roberta-xl': 'XLMRobertaTokenizer',
    'xlnet': 'XLNetTokenizer',
}
# model_types without a class: their tokenizer.json is complete.
_COMPLETE = ('modernbert', 'modernbert-decoder')
# Supported options of tokenizer_config.json → their types; null counts as absent.
_TYPES: dict[str, type | types.UnionType] = {
    'add_prefix_space': bool,
    'added_tokens_decoder': dict,
    'additional_special_tokens': list,
    'do_lower_case': bool,
    'do_word_tokenize': bool,
    'extra_ids': int,
    'extra_special_tokens': list | dict,
    'keep_accents': bool,
    'model_type': str,
    'split_by_punct': bool,
    'src_lang': str,
    'strip_accents': bool,
    'subword_tokenizer_type': str,
    'tokenize_chinese_chars': bool,
    'tokenizer_class': str,
    'word_tokenizer_type': str,
}
_FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')
_ROLES = (*special_tokens.NAMES, 'bos', 'eos')


class Configuration(NamedTuple):
    """The tokenizer configuration of a folder; everything is optional.

    Attributes:
        tokenizer_class: Name of the class in transformers, without 'Fast'.
        options: Name of an option → value.
        names: Role of a special token → its name.
        added: Content of an added token → its flags, in the order of the ids.
        added_ids: Content of an added token → its id.
    """

    tokenizer_class: str | None = None
    options: JsonObject = {}
    names: Mapping[str, str] = {}
    added: Mapping[str, Mapping[str, bool]] = {}
    added_ids: Mapping[str, int] = {}

    def with_accents(self, strip_accents: bool | None) -> 'Configuration':
        """Return this configuration with `strip_accents` for a folder that does not set it."""
        if strip_accents is None:
            return self
        return self._replace(options={'strip_accents': strip_accents, **self.options})


def read(folder: pathlib.Path) -> Configuration:
    """Read the files of a folder, which are all optional; UserError if one is malformed."""
    config = _read_object(folder / 'config.json')
    options = _read_object(folder / 'tokenizer_config.json')
    model_type = config.get('model_type')
    name = options.get(
        'tokenizer_class', config.get('tokenizer_class', _CLASSES.get(str(model_type)))
    )
    name = None if model_type in _COMPLETE or name is None else name.removesuffix('Fast')
    ids: dict[str, int] = {}
    added: dict[str, dict[str, bool]] = {}
    if 'added_tokens_decoder' in options:
        for index, token in sorted(_by_id(options['added_tokens_decoder']).items()):
            ids[_content(token)], added[_content(token)] = index, _flags(token)
    else:
        options |= _read_object(folder / 'special_tokens_map.json')
        ids = _read_object(folder / 'added_tokens.json')
        if any(type(index) is not int for index in ids.values()):
            raise errors.UserError('added_tokens.json must be an object from tokens to ids')
    tokens = {role: options[f'{role}_token'] for role in _ROLES if options.get(f'{role}_token')}
    special = {
        _content(token): _flags(token) | {'special': True}
        for token in (*_without_role(options), *tokens.values())
    }
    for content in sorted(ids, key=ids.__getitem__):
        added.setdefault(content, special.get(content, {'special': False, 'normalized': True}))
    names = {role: _content(token) for role, token in tokens.items()}
    return Configuration(name, options, names, added | special | added, ids)


def add_tokens(settings: JsonObject, configuration: Configuration) -> JsonObject:
    """Return the contents of a tokenizer.json with the added and special tokens of its folder.

    New tokens get ids after the last id, as in transformers. A token with another id in the folder
    causes a warning.
    """
    for token in settings['added_tokens']:
        token |= configuration.added.get(token['content'], {})
    present = {token['content'] for token in settings['added_tokens']}
    missing = [content for content in configuration.added if content not in present]
    if missing:
        backend = tokenizers.Tokenizer.from_str(json.dumps(settings))
        backend.add_tokens(
            [tokenizers.AddedToken(name, **configuration.added[name]) for name in missing]
        )
        settings = json.loads(backend.to_str())
    actual_ids = {token['content']: token['id'] for token in settings['added_tokens']}
    for content, index in configuration.added_ids.items():
        if actual_ids[content] != index:
            errors.warn(
                f'the added token {content!r} has id {actual_ids[content]}, but its folder has id '
                f'{index} for it'
            )
    return settings


def _read_object(path: pathlib.Path) -> JsonObject:
    """The values of a JSON file that are not null; {} if the file does not exist."""
    try:
        values = parse_json(read_text(path, 'utf-8-sig'))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise errors.UserError(f'{path.name} in its folder is not valid JSON: {error}') from None
    if not isinstance(values, dict):
        raise errors.UserError(f'{path.name} in its folder is not a JSON object')
    values = {name: value for name, value in values.items() if value is not None}
    for name, type_ in _TYPES.items():
        if name in values and not isinstance(values[name], type_):
            expected = getattr(type_, '__name__', type_)
            raise errors.UserError(f'{path.name}: {name} is {values[name]!r}, expected {expected}')
    return values


def _by_id(tokens: JsonObject) -> dict[int, object]:
    try:
        return {int(index): token for index, token in tokens.items()}
    except ValueError:
        raise errors.UserError(
            'tokenizer_config.json: the keys of added_tokens_decoder must be ids'
        ) from None


def _without_role(options: JsonObject) -> list[object]:
    """The special tokens without a role such as 'mask'."""
    extra = options.get('extra_special_tokens', [])
    extra = list(extra.values()) if isinstance(extra, dict) else extra
    return [*options.get('additional_special_tokens', []), *extra]


def _content(token: object) -> str:
    """The text of a special token, which is a string or an object."""
    content = token.get('content') if isinstance(token, dict) else token
    if not isinstance(content, str) or not content:
        raise errors.UserError(
            f"the special token {token!r:.60} must be a string or an object with 'content'"
        )
    return content


def _flags(token: object) -> dict[str, bool]:
    fields = token if isinstance(token, dict) else {}
    return {flag: fields[flag] is True for flag in _FLAGS if flag in fields}
