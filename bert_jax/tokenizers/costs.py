"""What a text can grow to, and how long a word can take, by what a tokenizer.json says.

A file that asks for more than the limits (`limits`) is refused before the library reads it.
"""

import base64
from collections.abc import Iterator
from typing import Any

from bert_jax import limits
from bert_jax.errors import UserError
from bert_jax.types import JsonObject, JsonView

PARTS = ('normalizer', 'pre_tokenizer', 'decoder')
_INNER = ('normalizers', 'pretokenizers', 'decoders')  # the steps of a Sequence
# Step → characters that one can become. Unicode has one that NFKC and NFKD divide into 18.
_GROWTH = {
    'BertNormalizer': 3,  # spaces around Chinese characters
    'ByteLevel': 4,  # a character for each byte
    'Lowercase': 2,
    'NFC': 3,
    'NFD': 4,
    'NFKC': 18,
    'NFKD': 18,
}
_UNICODE = {'Lowercase', 'NFC', 'NFD', 'NFKC', 'NFKD', 'StripAccents'}


def check(settings: JsonView) -> None:
    """Raise UserError if the contents of a tokenizer.json ask for too much."""
    for name in PARTS:
        steps = list(_steps(settings.get(name), name))
        for step in steps:
            _check_pattern(step, name)
        _check_growth(steps, name)
    model = settings['model']
    longest = model.get('max_input_chars_per_word')
    if isinstance(longest, int) and longest > limits.WORD_CHARACTERS:
        raise UserError(
            f'model: max_input_chars_per_word is {longest:.0f}, above the limit of '
            f'{limits.WORD_CHARACTERS:,}'
        )
    _check_pieces(settings)


def _steps(part: object, name: str) -> Iterator[JsonObject]:
    """Yield the steps of a normalizer, a pre-tokenizer or a decoder, in order."""
    waiting, number = [part], 0
    while waiting:
        step = waiting.pop()
        if not isinstance(step, dict):  # nothing, or refused by the library
            continue
        number += 1
        if number > limits.STEPS:
            raise UserError(f'{name} has more than {limits.STEPS:,} steps')
        if not isinstance(step.get('type'), str):
            raise UserError(f"{name}: a step has no 'type'")
        yield step
        for key in _INNER:
            inner = step.get(key)
            waiting += reversed(inner) if isinstance(inner, list) else []


def _check_pattern(step: JsonView, name: str) -> None:
    pattern = _regex(step)
    if not pattern:
        return
    from bert_jax.tokenizers import patterns  # few tokenizers have any

    if len(pattern) > limits.PATTERN_CHARACTERS:
        raise UserError(
            f'{name}: a pattern has {len(pattern):,} characters; the limit is '
            f'{limits.PATTERN_CHARACTERS:,}'
        )
    if patterns.takes_long(pattern):
        raise UserError(
            f'{name}: the pattern {pattern:.60} cannot be searched, or takes more than '
            f'{limits.PATTERN_SECONDS} s, in texts of {patterns.LONGEST:,} characters'
        )


def _regex(step: JsonView) -> str:
    """The regular expression of a step; '' without one."""
    pattern = step.get('pattern')
    found = pattern.get('Regex') if isinstance(pattern, dict) else None
    return found if isinstance(found, str) else ''


def _check_growth(steps: list[JsonObject], name: str) -> None:
    """Raise UserError if the steps can multiply the length of a text.

    Of Unicode's own steps in a row only the first finds something to divide.
    """
    growth, of_unicode = 1.0, 1
    for step in steps:
        kind = step['type']
        if kind in _UNICODE:
            of_unicode = max(of_unicode, _GROWTH.get(kind, 1))
            continue
        growth *= of_unicode * _growth(step)
        of_unicode = 1
    growth *= of_unicode
    if growth > limits.GROWTH:
        raise UserError(
            f'{name}: a text can become {growth:.0f} times as long; the limit is {limits.GROWTH:,}'
        )


def _growth(step: JsonView) -> float:
    """Characters that one character of a text can become."""
    if 'prepend' in step:
        return 1 + len(str(step['prepend']))
    if 'precompiled_charsmap' in step:
        return _longest_rule(step['precompiled_charsmap'])
    if 'pattern' in step and 'content' in step:
        new, pattern = len(str(step['content'])), step['pattern']
        text = pattern.get('String') if isinstance(pattern, dict) else None
        least = len(text) if isinstance(text, str) else _least_match(_regex(step))
        return max(1.0, new / least) if least else 1.0 + new
    return _GROWTH.get(step['type'], 1)


def _least_match(pattern: str) -> int:
    """Characters of the shortest text that a pattern matches."""
    from bert_jax.tokenizers import patterns  # few tokenizers have any

    return patterns.shape(pattern).least


def _longest_rule(rules: Any) -> int:
    """Characters of the longest text by which the rules of SentencePiece replace one."""
    from bert_jax.tokenizers import charsmap  # of SentencePiece models alone

    try:
        return max(1, charsmap.longest_text(base64.b64decode(rules, validate=True)))
    except (ValueError, TypeError):
        raise UserError('precompiled_charsmap is not base64') from None


def _check_pieces(settings: JsonView) -> None:
    """Raise UserError for long pieces: a word takes as long as it has places times their length."""
    vocab, added = settings['model'].get('vocab'), settings.get('added_tokens')
    pieces = [one[0] if isinstance(one, list) and one else one for one in vocab or ()]
    pieces += [one.get('content') for one in added or () if isinstance(one, dict)]
    lengths = [len(piece) for piece in pieces if isinstance(piece, str)]
    longest, total = max(lengths, default=0), sum(lengths)
    if longest > limits.PIECE_CHARACTERS:
        raise UserError(
            f'a token has {longest:,} characters; the limit is {limits.PIECE_CHARACTERS:,}'
        )
    if settings['model'].get('type') == 'Unigram' and total > limits.PIECES_CHARACTERS:
        raise UserError(
            f'the tokens have {total:,} characters; the limit is {limits.PIECES_CHARACTERS:,}'
        )
