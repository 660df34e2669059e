"""Sparse vectors of evaluated examples, and how well their products find documents."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from bert_jax.labels.examples import TextGroup
from bert_jax.metrics import vectors as vector_metrics
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.problems import base
from bert_jax.problems.embedding.decoder import normalize_spaces
from bert_jax.types import JsonRecord


class SparseDecoder(base.Decoder[TextGroup, sparse.csr_array]):
    """Scores vectors by their dot products."""

    def decode(
        self, example: TextGroup, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> sparse.csr_array:
        """Return the vectors of the texts of an example, float32 [N, V].

        If `max_active` is set, only so many weights of a text are kept, the largest.
        """
        rows = [parts[place][0] for place in range(len(example.texts))]
        most = self.setup.kept.get('sparse', {}).get('max_active')
        kept = [np.argsort(-row['weight'], kind='stable')[:most] for row in rows]
        term_E = np.concatenate([row['term'][own] for row, own in zip(rows, kept, strict=True)])
        weight_E = np.concatenate([row['weight'][own] for row, own in zip(rows, kept, strict=True)])
        bounds = np.cumsum([0, *map(len, kept)])
        shape = len(rows), int(rows[0]['size'])
        return sparse.csr_array((weight_E, term_E, bounds), shape)

    def score(
        self, examples: Sequence[TextGroup], predictions: Sequence[sparse.csr_array]
    ) -> Scores:
        """Score the vectors, the main metric first.

        Pairs with a score: 'spearman' and 'pearson' of the product. Other queries: 'accuracy',
        'mrr' and, for triplets, 'triplet_accuracy', as for dense vectors. All: 'query_active' and
        'document_active', the mean number of terms with a weight.
        """
        return Scores(dict(self.score_rows(examples, predictions)(np.arange(len(examples)))), {})

    def score_rows(
        self, examples: Sequence[TextGroup], predictions: Sequence[sparse.csr_array]
    ) -> RowScore:
        if not examples:
            return lambda rows_M: {}
        products = [_products(vectors_NV) for vectors_NV in predictions]
        active = [np.diff(vectors_NV.indptr) for vectors_NV in predictions]
        columns = {
            'query_active': np.array([own[0] for own in active], float),
            'document_active': np.array([own[1:].mean() for own in active], float),
        }
        of_active = vector_metrics.of_columns(columns)
        if all(len(example.texts) == 2 and len(example.scores) == 1 for example in examples):
            gold_N = np.array([example.scores[0] for example in examples])
            product_N = np.array([own[0] for own in products], float)
            return lambda rows_M: {
                **vector_metrics.correlations(gold_N[rows_M], product_N[rows_M]),
                **of_active(rows_M),
            }
        texts = [list(map(normalize_spaces, example.texts)) for example in examples]
        ranks_N = _ranks(texts, predictions)
        return vector_metrics.of_columns(vector_metrics.of_ranks(ranks_N, products) | columns)

    def to_record(self, example: TextGroup, prediction: sparse.csr_array) -> JsonRecord:
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': list(example.scores) or None,
            'products': [round(float(product), 6) for product in _products(prediction)],
            'active': np.diff(prediction.indptr).tolist(),
        }


def _products(vectors_NV: sparse.csr_array) -> np.ndarray:
    """Return the products of a query with its documents, float [N − 1]."""
    products: np.ndarray = (vectors_NV[1:] @ vectors_NV[:1].T).toarray()[:, 0]
    return products


def _ranks(texts: Sequence[Sequence[str]], predictions: Sequence[sparse.csr_array]) -> np.ndarray:
    documents = vector_metrics.DocumentsOfQueries.of(texts)
    documents_MV = sparse.vstack(
        [predictions[example][[place]] for example, place in documents.places]
    )
    return documents.ranks(
        (sparse.vstack([predictions[i][[0]] for i in part]) @ documents_MV.T).toarray()
        for part in documents.chunks()
    )
