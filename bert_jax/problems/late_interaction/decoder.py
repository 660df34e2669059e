"""Vectors of the tokens of evaluated examples, and how well their scores find documents."""

from collections.abc import Sequence

import numpy as np

from bert_jax.labels.examples import TextGroup
from bert_jax.metrics import late_scores
from bert_jax.metrics import vectors as vector_metrics
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.problems import base
from bert_jax.problems.embedding.decoder import normalize_spaces
from bert_jax.types import JsonObject

TextVectors = list[np.ndarray]  # of each text of an example, float32 [T, E]


class LateDecoder(base.Decoder[TextGroup, TextVectors]):
    """Scores the vectors of tokens by late interaction."""

    def decode(
        self, example: TextGroup, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> TextVectors:
        """Return the vectors of the tokens of each text of an example."""
        return [parts[place][0]['vectors'] for place in range(len(example.texts))]

    def score(self, examples: Sequence[TextGroup], predictions: Sequence[TextVectors]) -> Scores:
        """Score the vectors, the main metric first.

        'accuracy', the share of queries whose document has the best score of all documents of the
        split, 'mrr' and, with hard negatives, 'triplet_accuracy', as for dense vectors.
        """
        return Scores(dict(self.score_rows(examples, predictions)(np.arange(len(examples)))), {})

    def score_rows(
        self, examples: Sequence[TextGroup], predictions: Sequence[TextVectors]
    ) -> RowScore:
        if not examples:
            return lambda rows_M: {}
        texts = [list(map(normalize_spaces, example.texts)) for example in examples]
        documents = vector_metrics.DocumentsOfQueries.of(texts)
        found = [predictions[example][place] for example, place in documents.places]
        queries = [own[0] for own in predictions]
        chunks = (
            late_scores.of_texts([queries[i] for i in part], found) for part in documents.chunks()
        )
        own = [self._scores(one) for one in predictions]
        return vector_metrics.of_columns(vector_metrics.of_ranks(documents.ranks(chunks), own))

    def to_record(self, example: TextGroup, prediction: TextVectors) -> JsonObject:
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': list(example.scores) or None,
            'scores': [round(float(score), 6) for score in self._scores(prediction)],
            'vectors': [len(own_TE) for own_TE in prediction],
        }

    def _scores(self, prediction: TextVectors) -> np.ndarray:
        """Return the scores of the query with its documents, float32 [N − 1]."""
        scores_N: np.ndarray = late_scores.of_texts(prediction[:1], prediction[1:])[0]
        if self.setup.kept['similarity'] == 'meanmaxsim':
            return np.asarray(scores_N / max(len(prediction[0]), 1))
        return scores_N
