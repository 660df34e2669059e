"""Texts that a model searches: read, encoded once, and kept with their vectors."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError, report, warn
from bert_jax.inference import reranking, vector_store
from bert_jax.inference.encoders import Index, Searcher, VectorEncoder
from bert_jax.inference.lexical import BM25
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.reranking import TwoStages
from bert_jax.labels import documents
from bert_jax.labels.documents import SearchedDocument
from bert_jax.labels.records import ReadingReport
from bert_jax.storage import paths
from bert_jax.types import JsonObject

_FOLDER = 'vectors'  # in the folder of a model


class Hit(NamedTuple):
    """A document that was found.

    Attributes:
        id: its id.
        score: cosine or product with the query; the logit of a reranker.
        text: its text.
    """

    id: str
    score: float
    text: str


@dataclasses.dataclass(frozen=True)
class CollectionOptions:
    """Which texts are searched, and where their vectors are kept.

    Attributes:
        documents, column: see `documents.read`.
        encoding: of the text.
        vectors: the folder of the vectors; '': a folder in that of the model.
    """

    documents: str
    column: str = 'text'
    encoding: str = 'utf-8'
    vectors: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class TextCollection:
    """Texts and a way to search them.

    Attributes:
        texts: the texts and their ids.
        index: searches their vectors.
        digest: SHA-256 of the model, the texts, and how their vectors were made.
    """

    texts: Sequence[SearchedDocument]
    index: Index | TwoStages | BM25
    digest: str

    def search(self, queries: Sequence[str], number: int) -> list[list[Hit]]:
        """Find the nearest texts of each query, best first."""
        found = self.index.search(queries, number)
        return [
            [Hit(*self._document(n, float(s))) for n, s in zip(documents_K, scores_K, strict=True)]
            for scores_K, documents_K in zip(*found, strict=True)
        ]

    def reranked(self, model: Predictor, candidates: int) -> 'TextCollection':
        """Return these texts with a search whose first results a model of any kind scores anew."""
        second = reranking.scorer_of(model, [document.text for document in self.texts])
        index = TwoStages(self.index, second, candidates)
        return dataclasses.replace(self, index=index)

    def with_words(self) -> 'TextCollection':
        """Return these texts with a search by their words (BM25)."""
        return dataclasses.replace(self, index=BM25.of(text.text for text in self.texts))

    def after(self, first: Searcher, candidates: int) -> 'TextCollection':
        """Return these texts with a search that scores the first results of another search."""
        assert not isinstance(self.index, TwoStages | BM25)
        index = TwoStages(first, self.index, candidates)
        return dataclasses.replace(self, index=index)

    def _document(self, number: int, score: float) -> tuple[str, float, str]:
        return self.texts[number].id, score, self.texts[number].text


def open_collection(encoder: VectorEncoder, options: CollectionOptions) -> TextCollection:
    """Read texts, and read or compute their vectors.

    What is left out of the texts, and whether vectors were computed, is reported on stderr.

    Raises:
        UserError: there are no texts or an unreadable one, or the vectors cannot be kept.
    """
    counts = ReadingReport()
    data = encoder.predictor.data_config({'encoding': options.encoding})
    texts = documents.read(options.documents, options.column, data, counts)
    for line in counts.lines():
        warn(f'{options.documents}: {line}')
    origin: JsonObject = {
        'model': encoder.digest,
        'texts': documents.digest(texts),
        'options': encoder.options,
    }
    folder = _folder(encoder.predictor, options.vectors, origin)
    stored, news = encoder.keep(
        folder, origin, [text.text for text in texts], encoder.predictor.counts
    )
    if news:
        report(news)
    return TextCollection(texts, encoder.index(stored), vector_store.digest(origin))


def _folder(predictor: Predictor, given: str, origin: JsonObject) -> pathlib.Path:
    """The folder of the vectors: the given one, or one of their own in the folder of the model."""
    if given:
        return paths.on_disk(given)
    model = paths.bring(predictor.name)
    if paths.local(model) != model or not model.is_dir():
        raise UserError(f'vectors cannot be kept in {predictor.name}; set --vectors to a folder')
    return paths.local(model) / _FOLDER / vector_store.digest(origin)[:16]
