"""Scores of predictions: metrics by name, the main one first, and tables for a report."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.evaluation import entities, metrics

MEAN = 'score'  # the mean of the main metrics, if there are several


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
        main: names of the main metrics; see `main_first`.
        positive: adds 'f1', the F1 of this class.
        negative: adds 'f1_micro', the F1 over all other classes.
        groups: the group of each example; adds 'exact_match', the share of groups without an error.
            In MultiRC the answers to a question are a group (Khashabi et al. 2018, section 4).

    Returns:
        'accuracy', 'f1_macro', 'matthews' and the metrics above.

    Raises:
        UserError: a class that is not in `labels`, or an unknown main metric.
    """
    counts_CC = metrics.confusion(gold, guesses, labels)
    classes = metrics.per_class(counts_CC)
    values = {
        'accuracy': metrics.accuracy(counts_CC),
        'f1_macro': metrics.f1_macro(counts_CC),
        'matthews': metrics.matthews(counts_CC),
    }
    if positive is not None:
        values['f1'] = float(classes.f1[_index('positive', positive, labels)])
    if negative is not None:
        values['f1_micro'] = metrics.f1_micro(counts_CC, [_index('negative', negative, labels)])
    if groups is not None:
        examples = zip(groups, gold, guesses, strict=True)
        wrong_groups = {group for group, label, guess in examples if label != guess}
        values['exact_match'] = 1 - len(wrong_groups) / max(len(set(groups)), 1)
    rows = list(zip(labels, *(array.tolist() for array in classes), strict=True))
    tables: Tables = {
        'Classes': Table(('class', 'precision', 'recall', 'f1', 'examples'), rows),
        'Confusion': Confusion(tuple(labels), counts_CC.tolist()),
    }
    return Scores(main_first(values, main), tables)


def regression(
    gold: Sequence[float], guesses: Sequence[float], main: Sequence[str] = ('pearson', 'spearman')
) -> Scores:
    """Score one number for each example: 'pearson', 'spearman' and 'rmse'."""
    errors_N = np.asarray(guesses, np.float64) - np.asarray(gold, np.float64)
    values = {
        'pearson': metrics.pearson(gold, guesses),
        'spearman': metrics.spearman(gold, guesses),
        'rmse': float(np.sqrt(np.mean(errors_N**2))) if len(errors_N) else 0.0,
    }
    return Scores(main_first(values, main), {'Predictions': Scatter(list(gold), list(guesses))})


def spans(gold: Sequence[Collection[tuple]], guesses: Sequence[Collection[tuple]]) -> Scores:
    """Score labeled spans (start, end, label): 'f1', 'precision', 'recall', 'f1_macro'.

    See `entities.score_spans`.
    """
    overall, by_label = entities.score_spans(gold, guesses)
    rows = [(label, *score) for label, score in by_label.items()]
    outcomes = ('correct', *entities.ERRORS)
    error_rows = [
        (label, *(counts[outcome] for outcome in outcomes))
        for label, counts in entities.count_errors(gold, guesses).items()
    ]
    tables: Tables = {
        'Labels': Table(('label', *entities.SpanScore._fields), rows),
        'Errors': Table(('label', *outcomes), error_rows),
    }
    return Scores(overall, tables)


def main_first(values: dict[str, float], main: Sequence[str]) -> dict[str, float]:
    """Move the main metrics to the front, preceded by their mean 'score' if there are several.

    Raises:
        UserError: a main metric is not in `values`.
    """
    for name in main:
        if name not in values:
            raise unknown('metric', name, values)
    mean = {MEAN: sum(values[name] for name in main) / len(main)} if len(main) > 1 else {}
    return mean | {name: values[name] for name in main} | values


def _index(key: str, label: str, labels: Sequence[str]) -> int:
    if label not in labels:
        raise UserError(
            f'problem.{key} is {label!r}; set it to one of the classes {", ".join(labels)}'
        )
    return labels.index(label)
