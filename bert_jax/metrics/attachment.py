"""Attachment scores of dependency trees.

As the official scorer of the CoNLL 2018 shared task counts for gold words (universaldependencies.
org/conll18/evaluation.html): every word counts, punctuation too, and a relation is compared without
its language-specific subtype ('nmod:poss' as 'nmod').
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores, Table


class DependencyTree(NamedTuple):
    """The head of each word, from 1, 0 for the root, and its relation; None: not predicted."""

    heads: Sequence[int | None]
    relations: Sequence[str | None]


def universal(relation: str | None) -> str | None:
    """Return a relation without its subtype."""
    return None if relation is None else relation.partition(':')[0]


def score(gold: Sequence[DependencyTree], predicted: Sequence[DependencyTree]) -> Scores:
    """Score trees of the same words.

    Returns:
        'las', share of words with the right head and universal relation; 'uas', with the right
        head; 'las_subtypes', with the right head and the whole relation; and a table of relations.
    """
    values = dict(score_rows(gold, predicted)(np.arange(len(gold))))
    pairs = [pair for trees in zip(gold, predicted, strict=True) for pair in _words(*trees)]
    counts = {name: Counter[str]() for name in ('words', 'predicted', 'heads', 'both')}
    for (head, relation), (own_head, own_relation) in pairs:
        counts['words'][str(relation)] += 1
        counts['predicted'][str(own_relation)] += 1
        counts['heads'][str(relation)] += head == own_head
        counts['both'][str(relation)] += head == own_head and relation == own_relation
    rows = [
        (
            relation,
            counts['both'][relation] / max(counts['predicted'][relation], 1),
            counts['both'][relation] / number,
            counts['heads'][relation] / number,
            number,
        )
        for relation, number in sorted(counts['words'].items())
    ]
    columns = ('relation', 'las precision', 'las recall', 'uas', 'words')
    return Scores(values, {'Relations': Table(columns, rows)})


def score_rows(gold: Sequence[DependencyTree], predicted: Sequence[DependencyTree]) -> RowScore:
    """Return a function that computes the metrics of some of the sentences."""
    hits_N4 = np.zeros((len(gold), 4), np.int64)
    for number, trees in enumerate(zip(gold, predicted, strict=True)):
        for (head, relation), (own_head, own_relation) in _words(*trees):
            is_attached, is_same = head == own_head, relation == own_relation
            is_alike = universal(relation) == universal(own_relation)
            hits = (is_attached and is_alike, is_attached, is_attached and is_same, True)
            hits_N4[number] += hits

    def score_some(rows_M: np.ndarray) -> dict[str, float]:
        las, uas, las_subtypes, words = hits_N4[rows_M].sum(0).tolist()
        words = max(words, 1)
        return {'las': las / words, 'uas': uas / words, 'las_subtypes': las_subtypes / words}

    return score_some


def _words(
    gold: DependencyTree, predicted: DependencyTree
) -> list[tuple[tuple[int | None, str | None], ...]]:
    """The (head, relation) of each word in both trees."""
    own = zip(predicted.heads, predicted.relations, strict=True)
    return list(zip(zip(gold.heads, gold.relations, strict=True), own, strict=True))
