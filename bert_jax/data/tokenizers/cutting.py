"""Cutting texts at spaces without changing their tokens, so that parts can be looked up."""

import re
from collections.abc import Callable

_ODD_SPACES = re.compile(r'^\s|\s$|\s\s|[^\S ]')
_BEFORE_SPACE = re.compile('(?= )')
_SENTENCEPIECE = {'Replace', 'NFKD', 'StripAccents', 'Lowercase', 'Precompiled'}


def cutter(settings: dict) -> Callable[[str], list[str]]:
    """A function that cuts a text into parts whose tokens, one after another, are its tokens.

    BERT's clean-up works on single characters and its splitting cuts at every space. SentencePiece
    and byte-level BPE cut before every space too, but may treat several in a row, or others than
    ' ', as something else: such texts stay whole, and so do all of other tokenizers.
    """
    steps = {step['type'] for step in _parts(settings['normalizer'], 'normalizers')}
    splits = _parts(settings['pre_tokenizer'], 'pretokenizers')
    kinds = [split['type'] for split in splits]
    if not all(token['special'] for token in settings['added_tokens']):
        return _whole
    if kinds == ['BertPreTokenizer'] and steps == {'BertNormalizer'}:
        return _at_any_space
    if kinds == ['ByteLevel'] and steps <= {'Lowercase', 'NFC'}:
        return _before_spaces if splits[0].get('use_regex', True) else _whole
    if kinds == ['WhitespaceSplit', 'Metaspace'] and steps <= _SENTENCEPIECE:
        return _at_spaces if splits[1].get('prepend_scheme') == 'always' else _whole
    return _whole


def _parts(part: dict | None, sequence: str) -> list[dict]:
    return [] if part is None else part.get(sequence, [part])


def _whole(text: str) -> list[str]:
    return [text]


def _at_any_space(text: str) -> list[str]:
    return text.split(' ')


def _before_spaces(text: str) -> list[str]:
    return [text] if _ODD_SPACES.search(text) else _BEFORE_SPACE.split(text)


def _at_spaces(text: str) -> list[str]:
    return [text] if _ODD_SPACES.search(text) else text.split(' ')
