"""Similarity of sentences: how cosines of vectors agree with scores that people gave."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs
from bert_jax.errors import UserError
from bert_jax.evaluate import Texts, changes, data_keys
from bert_jax.flag_parser import flag
from bert_jax.inference.changed_settings import data_config
from bert_jax.inference.lexical import terms
from bert_jax.inference.vector_search import TextEncoder
from bert_jax.labels import labeled_files
from bert_jax.labels.examples import TextExample
from bert_jax.labels.records import ReadingReport
from bert_jax.metrics import intervals, scores
from bert_jax.metrics.scores import Table
from bert_jax.problems import PROBLEMS
from bert_jax.types import JsonObject, JsonRecord

_KIND = 'regression'  # the problem whose files have pairs with scores
_MAIN = ('spearman',)
_NOTES = (
    'Spearman and Pearson correlation of the cosine of the two vectors with the scores; tied '
    'values get their mean rank.',
    'Shared words: 2 · number of shared words / number of words of both sentences (Dice), as a '
    'baseline.',
    'Intervals: 95 %, bootstrap over pairs.',
)


class ScoredPair(NamedTuple):
    """Two texts and the score that people gave their similarity."""

    texts: tuple[str, str]
    score: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceSimilarity(Analysis):
    """Correlation of cosines with scores, for the model and for shared words."""

    description = 'How the cosine of two sentences agrees with the scores that people gave'
    limits = (
        'Correlation over pairs says little about search, where the nearest of many texts counts.',
        'Scores of several files are pooled; subsets with other scales belong in other runs.',
    )

    input: tuple[str, ...] = inputs('pairs with scores: a table as for fine-tuning a regression')
    data: Texts = flag(
        'how the files are read (docs/configs.md), such as --data.columns.label=0 for the first '
        "column, or --data.skip_labels=('',) for rows without a score",
        (),
        form='section',
    )
    pooling: str | None = flag(
        'mean, max or cls; default: mean, or that of a sentence-transformers folder', None
    )

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        report = ReadingReport()
        pairs = _read(self, report)
        gold = [pair.score for pair in pairs]
        model.stage('pairs')
        cosines = cosines_of(TextEncoder(model.predictor, 'cosine', self.pooling), pairs)
        systems = {
            'model': _describe(gold, cosines),
            'shared_words': _describe(gold, np.array([_dice(*pair.texts) for pair in pairs])),
        }
        rows = [
            (
                name.replace('_', ' '),
                *(part for metric in ('spearman', 'pearson') for part in _cells(system, metric)),
            )
            for name, system in systems.items()
        ]
        columns = ('', 'spearman', 'interval', 'pearson', 'interval')
        return Results(
            values={'pairs': len(pairs), **systems},
            tables={'Similarity of sentences': Table(columns, rows)},
            notes=[*_NOTES, *report.lines()],
        )


def cosines_of(encoder: TextEncoder, pairs: Sequence[ScoredPair]) -> np.ndarray:
    """The cosine of the two texts of each pair, float32 [N]."""
    vectors_N2D = encoder.encode([text for pair in pairs for text in pair.texts])
    first_ND, second_ND = np.moveaxis(vectors_N2D.reshape(len(pairs), 2, -1), 1, 0)
    return np.asarray(np.einsum('nd,nd->n', first_ND, second_ND))


def _read(analysis: SentenceSimilarity, report: ReadingReport) -> list[ScoredPair]:
    """Read the pairs. Raises UserError if a row has a single text or all scores are equal."""
    data = data_config({}, changes('data', analysis.data, data_keys()))
    readers = PROBLEMS[_KIND].readers
    records = labeled_files.read_files(analysis.input, data, _KIND, readers, report)
    pairs = [_pair(record.example) for record in records]
    if len({pair.score for pair in pairs}) < 2:
        raise UserError('all pairs have the same score, so there is no correlation')
    return pairs


def _pair(example: object) -> ScoredPair:
    assert isinstance(example, TextExample)
    if len(example.texts) != 2:
        raise UserError('a row has one text; set --data.columns.text and --data.columns.text2')
    first, second = example.texts
    return ScoredPair((first, second), float(example.label or 0))


def _describe(gold: list[float], guesses: np.ndarray) -> JsonRecord:
    def score(gold: Sequence[float], guesses: Sequence[float]) -> dict[str, float]:
        metrics = scores.regression(gold, guesses, _MAIN).metrics
        return {name: metrics[name] for name in ('spearman', 'pearson')}

    values = guesses.tolist()
    rows = intervals.rows_of(score, gold, values)
    return {'metrics': score(gold, values), 'intervals': intervals.of_rows(rows, len(gold))}


def _cells(system: JsonObject, metric: str) -> tuple[float, str]:
    return system['metrics'][metric], intervals.cell(system['intervals'][metric])


def _dice(first: str, second: str) -> float:
    words, others = set(terms(first)), set(terms(second))
    return 2 * len(words & others) / max(len(words) + len(others), 1)
