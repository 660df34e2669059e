"""Search in two stages: a reranker reads the first results together with the query."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bert_jax.inference.nearest import Nearest
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading


class Searcher(Protocol):
    """Documents that can be searched by a text."""

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the best documents of each query."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reranked:
    """A search whose first results are ordered anew.

    Attributes:
        first: finds the candidates.
        reranker: a model for pairs of a query and a document.
        texts: the documents, by number.
        candidates: number of results of `first` that the reranker reads.
    """

    first: Searcher
    reranker: Predictor
    texts: Sequence[str]
    candidates: int

    def search(self, queries: Sequence[str], number: int) -> Nearest:
        """Find the candidates with the largest logits; the scores are the logits."""
        found = self.first.search(queries, self.candidates).documents_QK
        documents = [[self.texts[n] for n in row] for row in found]
        records = self.reranker.rerank(queries, documents) if len(queries) else []
        logits_QC = np.zeros(found.shape, np.float32)
        for row, record in enumerate(records):
            for result in record['results']:
                logits_QC[row, result['document']] = result['logit']
        order_QK = np.argsort(-logits_QC, axis=1, kind='stable')[:, :number]
        return Nearest(
            np.take_along_axis(logits_QC, order_QK, axis=1),
            np.take_along_axis(found, order_QK, axis=1),
        )


def counts_of(reranker: Predictor) -> Counter[str]:
    """Return what a reranker truncated, named apart from the counts of the search."""
    return Counter({f'{what} by the reranker': n for what, n in reranker.counts.items()})


def load(name: str, **options: Any) -> Predictor:
    """Load a reranker.

    Args:
        name: its folder.
        options: see `Predictor`.

    Raises:
        UserError: the folder has no model that answers `rerank`.
    """
    model = loading.load_any(name, allow_missing=('^encoder/pooler/',))
    predictor = Predictor(model, name=name, **options)
    predictor.require('rerank')
    return predictor
