"""Scores of predictions: metrics by name, the main one first, and tables for a report."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.evaluation import entities, metrics

MEAN = 'score'  # name of the mean of several main metrics


class Table(NamedTuple):
    """Rows of strings and numbers."""

    columns: tuple[str, ...]
    rows: list[tuple]


class Confusion(NamedTuple):
    """The number of examples of each gold class (row) predicted as each class (column)."""

    labels: tuple[str, ...]
    counts: list[list[int]]


class Scatter(NamedTuple):
    """The gold and the predicted number of each example."""

    gold: list[float]
    predicted: list[float]


Tables: TypeAlias = Mapping[str, Table | Confusion | Scatter]  # by title


class Scores(NamedTuple):
    """Metrics by name, the main one first, and tables by title."""

    metrics: dict[str, float]
    tables: Tables


def classification(
    gold: Sequence[str],
    guesses: Sequence[str],
    labels: Sequence[str],
    main: Sequence[str] = ('accuracy',),
    positive: str | None = None,
    negative: str | None = None,
    groups: Sequence[str] | None = None,
) -> Scores:
    """Score one predicted class for each example.

    Args:
        gold: the gold classes.
        guesses: the predicted classes.
        labels: all classes.
        main: names of the main metrics. Several are preceded by their mean, 'score'.
        positive: adds 'f1', the F1 of this class.
        negative: adds 'f1_micro', the F1 over all classes but this one.
        groups: adds 'exact_match', the share of groups without an error; a group for each example.
            In MultiRC the answers to a question are a group (Khashabi et al. 2018, section 4).

    Returns:
        'accuracy', 'f1_macro', 'matthews' and the metrics above.

    Raises:
        UserError: a class that is not in `labels`, or an unknown main metric.
    """
    counts_CC = metrics.confusion(gold, guesses, labels)
    classes = metrics.per_class(counts_CC)
    found = {
        'accuracy': metrics.accuracy(counts_CC),
        'f1_macro': metrics.f1_macro(counts_CC),
        'matthews': metrics.matthews(counts_CC),
    }
    if positive is not None:
        found['f1'] = float(classes.f1[_index('positive', positive, labels)])
    if negative is not None:
        found['f1_micro'] = metrics.f1_micro(counts_CC, [_index('negative', negative, labels)])
    if groups is not None:
        judged = zip(groups, gold, guesses, strict=True)
        wrong = {group for group, right, guess in judged if right != guess}
        found['exact_match'] = 1 - len(wrong) / max(len(set(groups)), 1)
    rows = list(zip(labels, *(array.tolist() for array in classes), strict=True))
    tables: Tables = {
        'Classes': Table(('class', 'precision', 'recall', 'f1', 'examples'), rows),
        'Confusion': Confusion(tuple(labels), counts_CC.tolist()),
    }
    return Scores(main_first(found, main), tables)


def regression(
    gold: Sequence[float], guesses: Sequence[float], main: Sequence[str] = ('pearson', 'spearman')
) -> Scores:
    """Score one number for each example: 'pearson', 'spearman' and 'rmse'."""
    errors_N = np.asarray(guesses, np.float64) - np.asarray(gold, np.float64)
    found = {
        'pearson': metrics.pearson(gold, guesses),
        'spearman': metrics.spearman(gold, guesses),
        'rmse': float(np.sqrt(np.mean(errors_N**2))) if len(errors_N) else 0.0,
    }
    return Scores(main_first(found, main), {'Predictions': Scatter(list(gold), list(guesses))})


def spans(gold: Sequence[Collection[tuple]], guesses: Sequence[Collection[tuple]]) -> Scores:
    """Score labeled spans (start, end, label): 'f1', 'precision', 'recall', 'f1_macro'.

    See `entities.score_spans`.
    """
    found, by_label = entities.score_spans(gold, guesses)
    rows = [(label, *score) for label, score in by_label.items()]
    kinds = ('correct', *entities.ERRORS)
    errors = entities.count_errors(gold, guesses)
    error_rows = [(label, *(own[kind] for kind in kinds)) for label, own in errors.items()]
    tables: Tables = {
        'Labels': Table(('label', *entities.SpanScore._fields), rows),
        'Errors': Table(('label', *kinds), error_rows),
    }
    return Scores(found, tables)


def main_first(found: dict[str, float], main: Sequence[str]) -> dict[str, float]:
    """Move the main metrics to the front, preceded by their mean if there are several.

    Raises:
        UserError: a main metric that is not in `found`.
    """
    for name in main:
        if name not in found:
            raise unknown('metric', name, found)
    mean = {MEAN: sum(found[name] for name in main) / len(main)} if len(main) > 1 else {}
    return mean | {name: found[name] for name in main} | found


def _index(key: str, label: str, labels: Sequence[str]) -> int:
    if label not in labels:
        raise UserError(
            f'problem.{key} is {label!r}; set it to one of the classes {", ".join(labels)}'
        )
    return labels.index(label)
