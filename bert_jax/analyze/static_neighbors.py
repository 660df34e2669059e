"""Neighbors of a word by static vectors, which are the same in every context.

The vectors are the model's own embeddings (layer 0) or files in the text format of word2vec.
"""

import heapq
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.analyze.base import read_lines
from bert_jax.analyze.measures.word_senses import unit
from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.streams import stream_words
from bert_jax.labels import word_spans
from bert_jax.metrics.scores import Table
from bert_jax.storage.names import is_number
from bert_jax.types import JsonRecord


class Neighbors(NamedTuple):
    """The words of the texts with the largest cosines to a word.

    Attributes:
        best: (cosine, word), the largest first.
        num_words: number of different words that have a vector.
        missing: the words that have no vector.
    """

    best: list[tuple[float, str]]
    num_words: int
    missing: list[str]

    def to_json(self) -> JsonRecord:
        """The neighbors, and how many words have a vector."""
        return {
            'neighbors': [{'word': word, 'cosine': cosine} for cosine, word in self.best],
            'words': self.num_words,
            'missing': len(self.missing),
            'first_missing': self.missing[:10],
        }

    def title(self, query: str, source: str) -> str:
        """A title that says how many words have no vector."""
        total = self.num_words + len(self.missing)
        missing = f'; {len(self.missing):,} of {total:,} words have no vector'
        return f'Static neighbors of {query!r} in {source}{missing if self.missing else ""}'

    def table(self) -> Table:
        """The neighbors as a table."""
        return Table(('word', 'cosine'), [(word, cosine) for cosine, word in self.best])


def different_words(texts: Iterable[str], query: str) -> list[str]:
    """The words of texts except the query, each once; of words that differ in case, the first."""
    words: dict[str, str] = {}
    for text in texts:
        for start, end in word_spans.split_words(text):
            words.setdefault(text[start:end].lower(), text[start:end])
    words.pop(query.lower(), None)
    return list(words.values())


def of_model(predictor: Predictor, query: str, words: Sequence[str], top: int) -> Neighbors:
    """Find neighbors by the model's embeddings: layer 0 of each word alone.

    Raises:
        UserError: the tokenizer drops the query.
    """
    # The space makes the subwords those of a word within a text in byte-level vocabularies.
    located = ((f' {word}', ((1, len(word) + 1),)) for word in (query, *words))
    with np.errstate(invalid='ignore', divide='ignore'):  # words that the tokenizer drops
        vectors = [states_1D[0] for states_1D in stream_words(predictor, located, layer=0)]
    if not np.isfinite(vectors[0]).all():
        raise UserError(f'--query: the tokenizer of {predictor.name} drops {query!r}')
    return _nearest(vectors[0], zip(words, vectors[1:], strict=True), top)


def of_file(path: str, query: str, words: Sequence[str], top: int) -> Neighbors:
    """Find neighbors by the vectors of a file, as spelled or in lower case.

    Raises:
        UserError: the file cannot be read, or lacks the query.
    """
    forms = {form for word in (query, *words) for form in (word, word.lower())}
    vectors = read_word2vec(path, forms)
    query_D, *of_words = (vectors.get(word, vectors.get(word.lower())) for word in (query, *words))
    if query_D is None:
        raise UserError(f'{path} has no vector of {query!r}, the word of --query')
    return _nearest(query_D, zip(words, of_words, strict=True), top)


def read_word2vec(path: str, words: Collection[str]) -> dict[str, np.ndarray]:
    """Read vectors in the text format of word2vec, or of GloVe, which has no first line.

    Args:
        path: lines 'WORD NUMBER …'; the first may have the numbers of words and of dimensions.
        words: the words to read.

    Returns:
        Word → float32 [D]; words that the file lacks are left out.

    Raises:
        UserError: the file cannot be read or is truncated, or a vector is malformed.
    """
    lines = read_lines([path])
    place, first = next(lines)
    sizes = first.split()
    has_header = len(sizes) == 2 and all(map(is_number, sizes))
    size = int(sizes[1]) if has_header else len(sizes) - 1
    if size < 1:
        raise UserError(f'{place} is not a word and its vector, nor the sizes of word2vec')
    number, vectors = 0, dict[str, np.ndarray]()
    rest = lines if has_header else itertools.chain([(place, first)], lines)
    for number, (place, line) in enumerate(rest, start=1):  # noqa: B007  (read below)
        if (word := line.partition(' ')[0]) in words and word not in vectors:
            start, *values = line.rstrip().rsplit(' ', size)
            if start == word:  # another entry can begin with this word and a space
                vectors[word] = _parse(values, size, place)
    if has_header and number != int(sizes[0]):
        raise UserError(
            f'{path} is truncated or has blank lines: its first line says {sizes[0]} vectors, but '
            f'the number of lines that follow is {number}'
        )
    return vectors


def _parse(values: Sequence[str], size: int, place: str) -> np.ndarray:
    try:
        vector_D = np.array(values, np.float32)
    except ValueError:
        vector_D = np.array([np.nan])
    if len(vector_D) != size or not np.isfinite(vector_D).all():
        raise UserError(f'{place}: not a word and {size} finite numbers')
    return vector_D


def _nearest(
    query_D: np.ndarray, vectors: Iterable[tuple[str, np.ndarray | None]], top: int
) -> Neighbors:
    cosines, missing = list[tuple[float, str]](), list[str]()
    for word, vector_D in vectors:
        if vector_D is None or not np.isfinite(vector_D).all():
            missing.append(word)
        else:
            cosines.append((float(unit(vector_D) @ unit(query_D)), word))
    best = heapq.nlargest(top, cosines, key=lambda found: found[0])
    return Neighbors(best, len(cosines), missing)
