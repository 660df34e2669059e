"""Texts that are searched by their vectors."""

import dataclasses
import functools
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference import compact_vectors, nearest, vector_store
from bert_jax.inference.compact_vectors import CompactVectors
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.types import JsonRecord

# Names of the prompts, as sentence-transformers looks for them.
QUERY, DOCUMENT = ('query',), ('document', 'passage', 'corpus')
_CHUNK = 4096  # texts that are batched together, sorted by length

# Name → function of vectors [X, D], whose products are then compared.
SIMILARITIES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    'cosine': nearest.normalize,
    'dot': lambda vectors_XD: vectors_XD,
}


@dataclasses.dataclass(frozen=True, eq=False)
class TextEncoder:
    """A model that turns texts into vectors to compare.

    Attributes:
        predictor: the model.
        similarity: key of SIMILARITIES; None: that of the model, or 'cosine' with a pooling that
            is not the model's.
        pooling, long_texts, dimensions: as for `Predictor.embed`.
        precision: of the vectors that are compared, one of compact_vectors.PRECISIONS.
        rescored: how many times the wanted documents are scored again, if it is not float32.
    """

    predictor: Predictor
    similarity: str | None = None
    pooling: str | None = None
    long_texts: str | None = None
    dimensions: int | None = None
    precision: str = 'float32'
    rescored: int = 4

    def __post_init__(self) -> None:
        """Raise UserError if the model compares vectors in a way that is not supported."""
        if self.compared_by not in SIMILARITIES:
            raise UserError(
                f'{self.predictor.name} compares vectors by {self.compared_by!r}, which is not '
                f'supported; set --similarity to one of {", ".join(SIMILARITIES)}'
            )

    @property
    def compared_by(self) -> str:
        """The name of the similarity."""
        of_model = self.predictor.compared_by if self.pooling is None else 'cosine'
        return self.similarity or of_model

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the model: its parameters, architecture, tokenizer and modules."""
        return self.predictor.digest()

    @property
    def options(self) -> JsonRecord:
        """What else the vectors of documents depend on."""
        return {
            'similarity': self.compared_by,
            'pooling': self.pooling,
            'long_texts': self.long_texts,
            'dimensions': self.dimensions,
        }

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of queries, with the prompt for queries if the model has one."""
        return self.encode(texts, self._prompt(QUERY))

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of documents, with the prompt for documents if the model has one."""
        return self.encode(texts, self._prompt(DOCUMENT))

    def _prompt(self, names: Sequence[str]) -> str | None:
        """The name of a prompt of the model; another pooling than the model's has no prompts."""
        return known_prompt(self.predictor, names) if self.pooling is None else None

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        """The vectors of texts, float32 [N, D]; the prompt is that of `Predictor.embed`.

        Raises:
            UserError: a vector has numbers that are not finite, which have no order.
        """
        if self.pooling == 'tokens':
            raise UserError('pooling is tokens, but a search compares one vector for each text')
        vectors = [self._embed(chunk, prompt) for chunk in _chunks(texts)]
        empty = np.zeros((0, self.predictor.architecture.hidden_size), np.float32)
        vectors_ND = np.concatenate(vectors) if vectors else empty
        if not np.isfinite(vectors_ND).all():
            raise UserError(
                f'{self.predictor.name} computes vectors that are not finite; has its training '
                'diverged?'
            )
        return SIMILARITIES[self.compared_by](vectors_ND)

    def products(self, query_D: np.ndarray, documents_ND: np.ndarray) -> list[float]:
        """The products of the vector of a query with those of documents."""
        products: list[float] = (documents_ND @ query_D).tolist()
        return products

    def index(self, vectors_ND: np.ndarray) -> 'VectorSearch':
        """Return a search among the vectors of documents."""
        return VectorSearch(self, vectors_ND)

    def keep(
        self, folder: pathlib.Path, origin: JsonRecord, texts: Sequence[str], counts: Counter[str]
    ) -> vector_store.Stored:
        """Read or compute the vectors in a folder; see `vector_store.load_or_make`."""
        return vector_store.load_or_make(folder, origin, texts, self.encode_documents, counts)

    def _embed(self, texts: Sequence[str], prompt: str | None) -> np.ndarray:
        return self.predictor.embed(
            texts,
            self.pooling,
            long_texts=self.long_texts,
            prompt=prompt,
            dimensions=self.dimensions,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class VectorSearch:
    """Documents that are searched by their vectors.

    Attributes:
        encoder: makes the vectors of queries.
        vectors_ND: float32; may be memory-mapped.
    """

    encoder: TextEncoder
    vectors_ND: np.ndarray

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the nearest documents of each query; see `nearest.search`."""
        queries_QD = self.encoder.encode_queries(queries)
        if self._compact is None:
            return nearest.search(queries_QD, self.vectors_ND, number)
        candidates = self.encoder.rescored * number
        return compact_vectors.search(
            queries_QD, self._compact, self.vectors_ND, number, candidates
        )

    @functools.cached_property
    def _compact(self) -> CompactVectors | None:
        """The vectors that are compared; None: `vectors_ND` themselves."""
        if self.encoder.precision == 'float32':
            return None
        return CompactVectors.of(self.vectors_ND, self.encoder.precision)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return the products of queries with all documents, float32 [Q, N]."""
        return np.asarray(self.encoder.encode_queries(queries) @ self.vectors_ND.T)

    def score_candidates(self, queries: Sequence[str], documents_QC: np.ndarray) -> np.ndarray:
        """Return the products of each query with some documents of its own, float32 [Q, C]."""
        queries_QD = self.encoder.encode_queries(queries)
        found = [
            self.vectors_ND[documents_C] @ query_D
            for query_D, documents_C in zip(queries_QD, documents_QC, strict=True)
        ]
        return np.array(found, np.float32).reshape(documents_QC.shape)

    def subset(self, numbers: Sequence[int]) -> 'VectorSearch':
        """Return a search among some of the documents."""
        return VectorSearch(self.encoder, self.vectors_ND[[*numbers]])


def known_prompt(predictor: Predictor, names: Sequence[str]) -> str | None:
    """Return the first name of a prompt that the model has; None if it has none."""
    return next((name for name in names if name in predictor.prompts), None)


def of_texts(
    predictor: Predictor, texts: Sequence[str], similarity: str | None, pooling: str | None
) -> VectorSearch:
    """Encode documents; see `TextEncoder`."""
    encoder = TextEncoder(predictor, similarity, pooling)
    return VectorSearch(encoder, encoder.encode_documents(texts))


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[first : first + _CHUNK] for first in range(0, len(texts), _CHUNK))
