"""Words of a text by their places: building a text from words, finding words in a text."""

import re
import unicodedata

from bert_jax.data.labeled.tabular import BadRow, check_text

_IDEOGRAPHS = '\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af'
_WORD = re.compile(rf'[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+|[^\w\s]')
_MARKS = ('Mn', 'Mc', 'Me', 'Cf', 'Cc')  # accents, joiners, variants, controls
_JOINER = '\u200d'  # of emoji, too

Places = tuple[tuple[int, int], ...]


def joined(words: list[str], spaces: list[bool] | None = None) -> tuple[str, Places]:
    """A text made of words, each but the last followed by a space (if its `spaces` says so), and
    the places of the words in it."""
    text, places = '', []
    for number, word in enumerate(words):
        places.append((len(text), len(text) + len(word)))
        text += word
        if number + 1 < len(words) and (spaces is None or spaces[number]):
            text += ' '
    return text, tuple(places)


def located(words: list[str], text: str) -> Places | None:
    """The places of words that follow each other in a text with nothing but white space between;
    None if they do not."""
    places, end = [], 0
    for word in words:
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
        if not text.startswith(word, start):
            return None
        end = start + len(word)
        places.append((start, end))
    return tuple(places) if not text[end:].strip() else None


def split(text: str) -> Places:
    """The places of the words of plain text: runs of letters and digits, single ideographs, single
    other characters. Accents and what else has no width belong to the word they stand in or after.
    """
    places: list[tuple[int, int]] = []
    for start, end in (found.span() for found in _WORD.finditer(text)):
        if places and places[-1][1] == start and _goes_on(text, places[-1][0], start):
            start, _ = places.pop()
        places.append((start, end))
    return tuple(places)


def _goes_on(text: str, start: int, place: int) -> bool:
    """Whether the word that begins at `start` goes on at `place`."""
    if unicodedata.category(text[place]) in _MARKS:
        return True
    joined_here = unicodedata.category(text[place - 1]) in _MARKS
    letters = text[start].isalnum() and text[place].isalnum()
    return text[place - 1] == _JOINER or (joined_here and letters)


def text_of(value) -> tuple[str, Places | None]:
    """The text in a column and, where it came as a list of words, their places; else None."""
    if isinstance(value, str):
        check_text(value)
        return value, None
    if isinstance(value, list) and all(isinstance(word, str) and word.strip() for word in value):
        check_text(' '.join(value))
        return joined(value)
    raise BadRow('neither a text nor a list of words')


def between(places: Places, first: int, last: int) -> tuple[int, int]:
    """The characters from word `first` to before word `last`. Raises BadRow if there are none."""
    if not 0 <= first < last <= len(places):
        raise BadRow(
            f'words {first} to {last} of a sentence of {len(places)} words', misplaced=True
        )
    return places[first][0], places[last - 1][1]


def check_span(text: str, start: int, end: int):
    """Raises BadRow if characters start … end − 1 are not all in the text."""
    if not 0 <= start < end <= len(text):
        raise BadRow(
            f'span {start}:{end} outside the sentence of {len(text)} characters', misplaced=True
        )


def narrowed(text: str, start: int, end: int, stated: str | None) -> tuple[int, int]:
    """The place of `stated` within words start … end, which may have punctuation around it; all of
    them if it is not found there."""
    inside = text[start:end].find(stated) if stated else -1
    if inside < 0:
        return start, end
    return start + inside, start + inside + len(stated)
