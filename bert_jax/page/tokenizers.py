"""Describes a tokenizer for assets/tokenizer.js."""

import json
from collections.abc import Iterator

from bert_jax.errors import UserError
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import JsonObject, JsonRecord

_NORMALIZERS = ('BertNormalizer', 'Lowercase', 'NFC')
_PRE_TOKENIZERS = {'wordpiece': 'BertPreTokenizer', 'bytebpe': 'ByteLevel'}
# Option of byte-level BPE that the page does not support → values that leave it off.
_BPE_DEFAULTS: dict[str, tuple[object, ...]] = {
    'dropout': (None, 0),
    'byte_fallback': (None, False),
    'continuing_subword_prefix': (None, ''),
    'end_of_word_suffix': (None, ''),
}


def describe(tokenizer: Tokenizer) -> JsonRecord:
    """Describe a WordPiece or byte-level BPE tokenizer as JSON.

    Raises:
        UserError: the page does not support this kind of tokenizer, or one of its options.
    """
    settings = json.loads(tokenizer.to_json())
    for reason in _unsupported(tokenizer.kind, settings):
        raise UserError(f'a page cannot run this tokenizer: {reason}')
    model, splitter = settings['model'], settings['pre_tokenizer']
    described = {
        'kind': tokenizer.kind,
        'vocab': tokenizer.vocab,
        'normalizers': _steps(settings['normalizer']),
        'added_tokens': settings['added_tokens'],
        'unk_id': tokenizer.unk_id,
        'cls_id': tokenizer.cls_id,
        'sep_id': tokenizer.sep_id,
        'mask_id': tokenizer.mask_id,
        'special_ids': tokenizer.special_ids,
    }
    if tokenizer.kind == 'wordpiece':
        return described | {
            'continuation': model['continuing_subword_prefix'],
            'max_characters': model['max_input_chars_per_word'],
        }
    return described | {
        'merges': [pair.split(' ') if isinstance(pair, str) else pair for pair in model['merges']],
        'ignore_merges': bool(model.get('ignore_merges')),
        'add_prefix_space': splitter['add_prefix_space'],
    }


def _unsupported(kind: str, settings: JsonObject) -> Iterator[str]:
    """Reasons why the page cannot run a tokenizer."""
    if kind not in _PRE_TOKENIZERS:
        yield f'it is of kind {kind}; known: {", ".join(_PRE_TOKENIZERS)}'
        return
    for step in _steps(settings['normalizer']):
        if step['type'] not in _NORMALIZERS:
            yield f'unknown normalizer {step["type"]}; known: {", ".join(_NORMALIZERS)}'
    splitter = settings['pre_tokenizer'] or {'type': 'none'}
    if splitter['type'] != _PRE_TOKENIZERS[kind] or not splitter.get('use_regex', True):
        yield f'its pre-tokenizer is {splitter["type"]}, not {_PRE_TOKENIZERS[kind]}'
    if kind == 'bytebpe':
        for option, values in _BPE_DEFAULTS.items():
            if settings['model'].get(option) not in values:
                yield f'its BPE has {option} {settings["model"][option]!r}'


def _steps(normalizer: JsonObject | None) -> list[JsonObject]:
    if normalizer is None:
        return []
    if normalizer['type'] != 'Sequence':
        return [normalizer]
    return [step for inner in normalizer['normalizers'] for step in _steps(inner)]
