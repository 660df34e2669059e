"""Cuts long runs of text without a space, which the trainers of vocabularies cannot handle.

SentencePiece fails on words of some 100,000 characters (DNA, Chinese on a single line), and the
time of byte-level BPE is quadratic in the length of a word.
"""

import itertools
import re
from typing import NamedTuple

_SPACE, _OTHER = re.compile(r'\s'), re.compile(r'\S')


class Words(NamedTuple):
    """What a trainer regards as a word.

    Attributes:
        runs: Matches each word, in linear time.
        limit: Longer words are cut into pieces of this many characters.
    """

    runs: re.Pattern[str]
    limit: int


# SentencePiece splits text at spaces, byte-level BPE also between letters, digits and other marks.
# Ordinary text, such as a paragraph of Chinese, has no words that are longer than the limits.
SPACED = Words(re.compile(r'\S++'), 2**13)
OF_ONE_KIND = Words(re.compile(r'[^\W\d_]++|\d++|\s++|(?:[^\w\s]|_)++'), 2**10)
# Kind of vocabulary → the words that its trainer can handle; WordPiece ignores long words itself.
LONGEST_WORDS = {
    'bytebpe': OF_ONE_KIND,
    'unigram': SPACED,
    'xlnet': SPACED,
    'sentencepiece-bpe': SPACED,
}


class Cuts:
    """Cuts texts and counts the words that were cut.

    Attributes:
        number: Words that were cut.
        longest: Characters of the longest word that was cut.
    """

    def __init__(self, words: Words):
        self._words = words
        self.number = self.longest = 0

    def cut(self, text: str) -> list[str]:
        """Return the pieces of a text, in order; [text] if no word is too long."""
        runs, limit = self._words
        if not _may_have_run(text, limit):
            return [text]
        places = [0]
        for match in runs.finditer(text):
            length = match.end() - match.start()
            if length > limit:
                places += range(match.start() + limit, match.end(), limit)
                self.number += 1
                self.longest = max(self.longest, length)
        return [text[start:end] for start, end in itertools.pairwise([*places, len(text)])]

    def describe(self) -> str:
        """Return a line for the log; '' if nothing was cut."""
        if not self.number:
            return ''
        return (
            f'{self.number:,} runs of text without a space, the longest of {self.longest:,} '
            f'characters, were cut into pieces of {self._words.limit:,} to train the vocabulary'
        )


def _may_have_run(text: str, limit: int) -> bool:
    """Whether a run of more than `limit` characters, all or none of them spaces, is possible.

    Such a run covers one of the windows that are looked at, of half its length.
    """
    size = limit // 2
    windows = ((start, start + size) for start in range(0, len(text) - size + 1, size))
    return any(
        not (_SPACE.search(text, *window) and _OTHER.search(text, *window)) for window in windows
    )
