"""Words of a text by their places: building a text from words, finding words in a text."""

import re

from bert_jax.data.labelled.rows import BadRow

_WORD = re.compile(r'\w+|[^\w\s]')

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
    """The places of the words of plain text: runs of letters and digits, single other marks."""
    return tuple(found.span() for found in _WORD.finditer(text))


def text_of(value) -> tuple[str, Places | None]:
    """The text in a column and, where it came as a list of words, their places; else None."""
    if isinstance(value, str):
        return value, None
    if isinstance(value, list) and all(isinstance(word, str) and word.strip() for word in value):
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
