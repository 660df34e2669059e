"""Words as ranges of characters: joins, locates and splits words."""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from bert_jax.labels.examples import ParsedExample, SpansExample, TaggedExample
from bert_jax.labels.records import InvalidRecord, check_text, text_of
from bert_jax.text.scripts import CHARACTER, HANGUL, UNSPACED

_IDEOGRAPHS = '\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af'
_WORD = re.compile(rf'[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+|[^\w\s]')
_CHARACTERS = re.compile(rf'{CHARACTER}|[^{UNSPACED}{HANGUL}\u200b]+')
_ZERO_WIDTH = ('Mn', 'Mc', 'Me', 'Cf', 'Cc')  # accents, joiners, variation selectors, controls
_JOINER = '\u200d'  # also joins emoji

WordOffsets = tuple[tuple[int, int], ...]  # start and end of each word


def join_words(words: list[str], space_after: list[bool] | None = None) -> tuple[str, WordOffsets]:
    """Join words by spaces, or only after words whose `space_after` is True."""
    text, offsets = '', []
    for number, word in enumerate(words):
        offsets.append((len(text), len(text) + len(word)))
        text += word
        if number + 1 < len(words) and (space_after is None or space_after[number]):
            text += ' '
    return text, tuple(offsets)


def locate_words(words: list[str], text: str) -> WordOffsets | None:
    """Return the offsets of words in a text of just these words and whitespace, else None."""
    offsets, end = [], 0
    for word in words:
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
        if not text.startswith(word, start):
            return None
        end = start + len(word)
        offsets.append((start, end))
    return tuple(offsets) if not text[end:].strip() else None


def split_words(text: str) -> WordOffsets:
    """Split plain text into runs of letters and digits, single ideographs and single symbols.

    Accents and other zero-width characters belong to the word before or around them.
    """
    offsets: list[tuple[int, int]] = []
    for start, end in (match.span() for match in _WORD.finditer(text)):
        if offsets and offsets[-1][1] == start and _continues(text, offsets[-1][0], start):
            start, _ = offsets.pop()
        offsets.append((start, end))
    return tuple(offsets)


def split_characters(text: str) -> WordOffsets:
    """Split like `split_words`, but Hangul and scripts without spaces into single characters."""
    return tuple(
        match.span()
        for start, end in split_words(text)
        for match in _CHARACTERS.finditer(text, start, end)
    )


def split_at_whitespace(text: str) -> WordOffsets:
    """Split text at whitespace."""
    return tuple(match.span() for match in re.finditer(r'\S+', text))


# Ways to split plain text into words; `words` in the metadata of a checkpoint is one of the names.
SPLITTERS: dict[str, Callable[[str], WordOffsets]] = {
    'punctuation': split_words,
    'whitespace': split_at_whitespace,
    'characters': split_characters,
}


def closest_splitter(
    examples: Sequence[TaggedExample | SpansExample | ParsedExample],
) -> str:
    """Return the splitter that finds the most words of these examples; 'punctuation' in a tie.

    For text that joins words such as 'U.S.' and '8-4' by spaces, 'whitespace' finds the most.
    """

    def num_found(name: str) -> int:
        return sum(len({*SPLITTERS[name](example.text)} & {*example.words}) for example in examples)

    return max(SPLITTERS, key=num_found)


def _continues(text: str, start: int, offset: int) -> bool:
    """Whether the word that starts at `start` continues at `offset`."""
    if unicodedata.category(text[offset]) in _ZERO_WIDTH:
        return True
    after_zero_width = unicodedata.category(text[offset - 1]) in _ZERO_WIDTH
    both_alphanumeric = text[start].isalnum() and text[offset].isalnum()
    return text[offset - 1] == _JOINER or (after_zero_width and both_alphanumeric)


def parse_text(value: object) -> tuple[str, WordOffsets | None]:
    """Return the text of a column, and the offsets of its words if the value is a list of words."""
    value = text_of(value)
    if isinstance(value, str):
        check_text(value)
        return value, None
    if isinstance(value, list):
        checked_words(value)
        if blank := [number for number, word in enumerate(value) if not word.strip()]:
            raise InvalidRecord(f'word {blank[0]} is blank')
        return join_words(value)
    raise InvalidRecord('the value is neither a string nor a list of words')


def checked_words(words: list[Any]) -> list[str]:
    """Return the words; raise InvalidRecord if one is not a string, such as null."""
    for number, word in enumerate(words):
        if not isinstance(word, str):
            raise InvalidRecord(f'word {number} is {json.dumps(word)[:40]}, not a string')
    check_text(' '.join(words))
    return words


def words_to_characters(words: WordOffsets, first: int, last: int) -> tuple[int, int]:
    """Return the range of characters from word `first` to word `last` (exclusive)."""
    if not 0 <= first < last <= len(words):
        raise InvalidRecord(
            f'words {first} to {last} are not in a sentence of {len(words)} words', misplaced=True
        )
    return words[first][0], words[last - 1][1]


def from_utf16(text: str, offset: int) -> int:
    """Return the character at an offset that counts UTF-16 code units, as Java's strings do."""
    units = text.encode('utf-16-le', 'surrogatepass')[: 2 * max(0, offset)]
    return len(units.decode('utf-16-le', 'replace'))


def check_span(text: str, start: int, end: int) -> None:
    """Raise InvalidRecord if the span is empty or not inside the text."""
    if not 0 <= start < end <= len(text):
        raise InvalidRecord(
            f'span {start}:{end} is not inside the text of {len(text)} characters', misplaced=True
        )


def narrow_to(text: str, start: int, end: int, part: str | None) -> tuple[int, int]:
    """Return the span of `part` inside start:end, without punctuation around it.

    Returns start:end if `part` does not occur there.
    """
    offset = text.find(part, start, end) if part else -1
    return (start, end) if not part or offset < 0 else (offset, offset + len(part))
