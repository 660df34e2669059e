"""Vectors of evaluated examples, their cosines, and how well these agree with the labels."""

from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.labels.examples import TextGroup
from bert_jax.metrics import vectors as vector_metrics
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores, Table
from bert_jax.problems import base
from bert_jax.types import JsonRecord


class EmbeddingDecoder(base.Decoder[TextGroup, np.ndarray]):
    """Scores vectors by what the examples have: scores, other documents, classes."""

    def decode(
        self, example: TextGroup, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> np.ndarray:
        """Return the vectors of the texts of an example, float32 [N, D]."""
        return np.stack([parts[place][0]['vector'] for place in range(len(example.texts))])

    def check(self, examples: Sequence[TextGroup]) -> None:
        """Raise UserError if some examples, but not all, are pairs with a score."""
        unscored = [one for one in examples if len(one.texts) != 2 or len(one.scores) != 1]
        if unscored and len(unscored) < len(examples):
            raise UserError(
                f'example {unscored[0].id}: not a pair with a score, but '
                f'{len(examples) - len(unscored):,} of {len(examples):,} evaluated examples are; '
                'give each of them a score, or leave out data.columns.scores'
            )

    def score(self, examples: Sequence[TextGroup], predictions: Sequence[np.ndarray]) -> Scores:
        """Score the vectors, the main metric first.

        Vectors are compared as the loss does, by cosine or dot product. Pairs with a score:
        'spearman' and 'pearson' of this similarity. Other queries with documents:
        'accuracy', the share of queries whose document is the nearest of all documents of the
        split, and 'mrr'. Triplets also: 'triplet_accuracy'. Texts with classes:
        'neighbor_accuracy', the share of texts whose nearest other text has the same class.
        """
        score = self.score_rows(examples, predictions)
        rows = [
            (size, *metrics.values())
            for size in self.settings.dimensions
            if (metrics := self._of_size(examples, predictions, size))
        ]
        metrics = dict(score(np.arange(len(examples))))
        tables = {'Dimensions': Table(('size', *metrics), rows)} if rows else {}
        return Scores(metrics, tables)

    def score_rows(
        self, examples: Sequence[TextGroup], predictions: Sequence[np.ndarray]
    ) -> RowScore:
        if not examples:
            return lambda rows_M: {}
        return vector_metrics.score_rows(
            [self._to_compare(vectors_ND) for vectors_ND in predictions],
            [list(map(normalize_spaces, example.texts)) for example in examples],
            [example.scores for example in examples],
            [example.label or '' for example in examples],
        )

    def _of_size(
        self, examples: Sequence[TextGroup], predictions: Sequence[np.ndarray], size: int
    ) -> dict[str, float]:
        """Return the metrics of the first numbers of each vector."""
        shortened = [vectors_ND[:, :size] for vectors_ND in predictions]
        return dict(self.score_rows(examples, shortened)(np.arange(len(examples))))

    def to_record(self, example: TextGroup, prediction: np.ndarray) -> JsonRecord:
        compared_ND = self._to_compare(prediction)
        name = 'cosines' if self._similarity == 'cosine' else 'products'
        gold: object = list(example.scores) or example.label or None
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': gold,
            name: [round(float(product), 6) for product in compared_ND[1:] @ compared_ND[0]],
        }

    @property
    def _similarity(self) -> str:
        return str(self.setup.kept['similarity'])

    def _to_compare(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Return vectors whose products are their cosines, or the vectors as they are."""
        return vector_metrics.unit(vectors_ND) if self._similarity == 'cosine' else vectors_ND


def normalize_spaces(text: str) -> str:
    """Return the text without differences in spaces."""
    return ' '.join(text.split())
