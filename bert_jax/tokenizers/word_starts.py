"""Which tokens of a vocabulary start a word, for masking schemes that choose whole words.

Vocabularies mark the words that follow a space. Published code also counts other tokens as word
starts, and scripts without spaces between words need a separate rule.
"""

import re
import string
import unicodedata
from collections.abc import Callable

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.text import scripts
from bert_jax.tokenizers.tokenizer import Tokenizer

_UNSPACED = re.compile(f'[{scripts.UNSPACED}]')
_MAX_UNSPACED = 0.01  # share of the tokens of a text
_PARTIAL = '\ufffd'  # stands for bytes that continue a character


def _is_punctuation(text: str) -> bool:
    """Source: microsoft/DeBERTa, spm_tokenizer.py, part_of_whole_word."""
    is_mark = text in string.punctuation or unicodedata.category(text[:1] or 'a')[0] in 'PC'
    return len(text) == 1 and is_mark


def _is_albert_start(text: str) -> bool:
    """Source: google-research/albert, create_pretraining_data.py, _is_start_piece_sp."""
    english = {*string.ascii_letters, *string.punctuation}
    is_mark = len(text) == 1 and text in string.punctuation
    return is_mark or text.startswith('<') or not {*text} <= english


# Value of masking.word_starts → whether the text of a token without a mark starts a word.
RULES: dict[str, Callable[[str], bool]] = {
    'marks': lambda text: False,
    'punctuation': _is_punctuation,
    'albert': _is_albert_start,
}
# Value of masking.unspaced → the same function for tokens in scripts without spaces.
UNSPACED_RULES: dict[str, Callable[[str], bool]] = {
    'refuse': lambda text: False,
    'subwords': lambda text: True,
    'characters': lambda text: text[0] != _PARTIAL and unicodedata.category(text[0])[0] != 'M',
}


def find(tokenizer: Tokenizer, rule: str, unspaced: str) -> np.ndarray | None:
    """Return which tokens start a word, bool [V]; None if the vocabulary has no marks.

    Args:
        rule: 'marks': only tokens that the vocabulary marks. 'punctuation': also single punctuation
            marks, as in microsoft/DeBERTa. 'albert': also tokens with other characters than English
            letters and punctuation, as in google-research/albert; the same as 'marks' in WordPiece.
        unspaced: Word starts in scripts without spaces: 'subwords', every token; 'characters',
            every character with its accents and vowel signs, which may span several tokens;
            'refuse', as in `rule`.

    Raises:
        UserError: A rule is unknown.
    """
    for key, name, rules in (('word_starts', rule, RULES), ('unspaced', unspaced, UNSPACED_RULES)):
        if name not in rules:
            raise unknown(f'masking.{key}', name, rules)
    if tokenizer.is_word_start is None:
        return None
    starts = tokenizer.is_word_start.copy()
    if rule == 'albert' and tokenizer.kind == 'wordpiece':
        rule = 'marks'
    for index, text in _unmarked(tokenizer):
        starts[index] = RULES[rule](text) or (
            bool(_UNSPACED.match(text) or text[0] == _PARTIAL) and UNSPACED_RULES[unspaced](text)
        )
    return starts


def check_unspaced(tokenizer: Tokenizer, starts: np.ndarray, counts: np.ndarray) -> None:
    """Raise UserError if much of a text is in scripts without spaces and has no word starts.

    Args:
        starts: bool [V], returned by `find`.
        counts: int64 [V], frequency of each token in the text.
    """
    inside = [i for i, text in _unmarked(tokenizer) if _UNSPACED.match(text) and not starts[i]]
    share = counts[inside].sum() / max(1, counts.sum())
    if share > _MAX_UNSPACED:
        example = tokenizer.vocab[max(inside, key=lambda index: counts[index])]
        raise UserError(
            f'{share:.0%} of the tokens of the text, such as {example!r}, are in scripts without '
            "spaces, where the vocabulary marks no words; set masking.unspaced to 'characters' or "
            "'subwords', or use masking.scheme='tokens'"
        )


def _unmarked(tokenizer: Tokenizer) -> list[tuple[int, str]]:
    """The id and text of each token that the vocabulary does not mark as a word start."""
    assert tokenizer.is_word_start is not None
    special = {*tokenizer.special_ids}
    return [
        (index, _text(tokenizer, index))
        for index in np.flatnonzero(~tokenizer.is_word_start).tolist()
        if index not in special and tokenizer.vocab[index]
    ]


def _text(tokenizer: Tokenizer, index: int) -> str:
    token = tokenizer.vocab[index]
    raw = None
    if tokenizer.kind == 'bytebpe':
        from bert_jax.tokenizers import byte_bpe

        raw = byte_bpe.to_bytes(token)
    if raw is None:
        return token.removeprefix('##') or token
    # Complete the first character if its last bytes are in the next token.
    missing = {0b110: 2, 0b1110: 3, 0b11110: 4}
    size = next((n for bits, n in missing.items() if raw[0] >> (7 - n) == bits), 1)
    if len(raw) < size:
        raw = raw.ljust(size, b'\x80')
    return raw.decode('utf-8', errors='replace')
