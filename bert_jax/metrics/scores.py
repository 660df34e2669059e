"""Scores of predictions: metrics by name, the main one first, and tables for a report."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bert_jax.errors import UserError, join_first, unknown
from bert_jax.metrics import entities, gender_parity, metrics
from bert_jax.metrics.entities import Span
from bert_jax.metrics.intervals import RowScore

MEAN = 'score'  # the mean of the main metrics, if there are several


MAX_CONFUSED_CLASSES = 100  # in a confusion matrix
_MAX_CONFUSIONS = 20  # in the list of the most frequent errors


class Table(NamedTuple):
    """Rows of strings and numbers."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]


class Confusion(NamedTuple):
    """Which classes are mistaken for which.

    Attributes:
        labels: all classes, or of more than MAX_CONFUSED_CLASSES those with the most errors.
        counts: number of examples of each of these classes (row) predicted as each (column).
        examples: number of examples of each of these classes.
        num_classes: number of all classes.
        most_confused: (gold class, predicted class, examples) of the most frequent errors.
    """

    labels: tuple[str, ...]
    counts: list[list[int]]
    examples: list[int]
    num_classes: int
    most_confused: list[tuple[str, str, int]]


class Scatter(NamedTuple):
    """The gold and the predicted number of each example."""

    gold: list[float]
    predicted: list[float]


Tables: TypeAlias = Mapping[str, Table | Confusion | Scatter]  # by title


class Scores(NamedTuple):
    """Metrics by name, the main one first, and tables by title.

    Attributes:
        metrics: name → value.
        tables: title → table.
        signatures: name of a metric → how it was computed, such as the tokenizer of BLEU.
    """

    metrics: dict[str, float]
    tables: Tables
    signatures: Mapping[str, str] = {}


def classification(
    gold: Sequence[str],
    guesses: Sequence[str],
    labels: Sequence[str],
    main: Sequence[str] = ('accuracy',),
    positive: str | None = None,
    negative: str | None = None,
    groups: Sequence[str] | None = None,
    ordinal: bool = False,
    pairs_P2: np.ndarray | None = None,
) -> Scores:
    """Score one predicted class for each example.

    Args: see `classification_rows`.

    Returns:
        The metrics of `classification_rows`, and tables of the classes and of their confusion.
    """
    options = (main, positive, negative, groups, ordinal, pairs_P2)
    score = classification_rows(gold, guesses, labels, *options)
    gold_N, guesses_N = (metrics.class_numbers(classes, labels) for classes in (gold, guesses))
    counts = metrics.count_classes(gold_N, guesses_N, len(labels))
    per_class = (array.tolist() for array in metrics.per_class(counts))
    rows = list(zip(labels, *per_class, strict=True))
    tables: Tables = {
        'Classes': Table(('class', 'precision', 'recall', 'f1', 'examples'), rows),
        'Confusion': _confusion(gold_N, guesses_N, labels, counts),
    }
    return Scores(dict(score(np.arange(len(gold_N)))), tables)


def classification_rows(
    gold: Sequence[str],
    guesses: Sequence[str],
    labels: Sequence[str],
    main: Sequence[str] = ('accuracy',),
    positive: str | None = None,
    negative: str | None = None,
    groups: Sequence[str] | None = None,
    ordinal: bool = False,
    pairs_P2: np.ndarray | None = None,
) -> RowScore:
    """Return a function that scores some of the examples.

    Args:
        gold: the gold classes.
        guesses: the predicted classes.
        labels: all classes.
        main: names of the main metrics; see `main_first`.
        positive: adds 'f1', the F1 of this class.
        negative: adds 'f1_micro', the F1 over all other classes.
        groups: the group of each example; adds 'exact_match', the share of groups without an error.
            In MultiRC the answers to a question are a group (Khashabi et al. 2018, section 4).
        ordinal: adds 'mae', the mean distance in classes, and 'kappa', quadratic weighted.
        pairs_P2: pairs of examples of `gender_parity.find_pairs`; adds 'gender_parity'.

    Returns:
        Numbers of examples → 'accuracy', 'f1_macro', 'matthews' and the metrics above.

    Raises:
        UserError: a class that is not in `labels`, or an unknown main metric.
    """
    gold_N, guesses_N = (metrics.class_numbers(classes, labels) for classes in (gold, guesses))
    positives = [] if positive is None else [_index('positive', positive, labels)]
    negatives = [] if negative is None else [_index('negative', negative, labels)]
    group_N = None if groups is None else np.unique(list(groups), return_inverse=True)[1]

    def score(rows_M: np.ndarray) -> dict[str, float]:
        counts = metrics.count_classes(gold_N[rows_M], guesses_N[rows_M], len(labels))
        values = {
            'accuracy': metrics.accuracy(counts),
            'f1_macro': metrics.f1_macro(counts),
            'matthews': metrics.matthews(counts),
        }
        for number in positives:
            values['f1'] = float(metrics.per_class(counts).f1[number])
        if negatives:
            values['f1_micro'] = metrics.f1_micro(counts, negatives)
        if group_N is not None:
            wrong_M = rows_M[gold_N[rows_M] != guesses_N[rows_M]]
            num_groups = max(len(np.unique(group_N[rows_M])), 1)
            values['exact_match'] = 1 - len(np.unique(group_N[wrong_M])) / num_groups
        if ordinal:
            values |= metrics.ordinal(gold_N[rows_M], guesses_N[rows_M])
        if pairs_P2 is not None:
            values |= gender_parity.score(guesses_N, pairs_P2, rows_M)
        return main_first(values, main)

    return score


def _confusion(
    gold_N: np.ndarray, guesses_N: np.ndarray, labels: Sequence[str], counts: metrics.ClassCounts
) -> Confusion:
    """Make the confusion table; its size is bounded, however many classes there are."""
    errors_C = counts.gold_C + counts.guessed_C - 2 * counts.right_C
    shown_K = np.sort(np.argsort(-errors_C, kind='stable')[:MAX_CONFUSED_CLASSES])
    number = len(shown_K)
    place_C = np.full(len(labels), -1)
    place_C[shown_K] = np.arange(number)
    places_N2 = place_C[np.stack([gold_N, guesses_N], axis=1)]
    row_M, column_M = places_N2[(places_N2 >= 0).all(1)].T
    counts_K2 = np.bincount(row_M * number + column_M, minlength=number**2)
    wrong_N = gold_N != guesses_N
    pairs, times = np.unique(gold_N[wrong_N] * len(labels) + guesses_N[wrong_N], return_counts=True)
    order = np.argsort(-times, kind='stable')[:_MAX_CONFUSIONS]
    return Confusion(
        labels=tuple(labels[place] for place in shown_K),
        counts=counts_K2.reshape(number, number).tolist(),
        examples=counts.gold_C[shown_K].tolist(),
        num_classes=len(labels),
        most_confused=[
            (
                labels[pairs[place] // len(labels)],
                labels[pairs[place] % len(labels)],
                int(times[place]),
            )
            for place in order
        ],
    )


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


def span_rows(gold: Sequence[Collection[Span]], guesses: Sequence[Collection[Span]]) -> RowScore:
    """Return a function that computes the metrics of `spans` of some of the texts."""
    counts = entities.count_spans(gold, guesses)

    def score(rows_M: np.ndarray) -> dict[str, float]:
        times_N = np.bincount(rows_M, minlength=len(gold))
        return entities.score_counts(counts, times_N)[0]

    return score


def spans(gold: Sequence[Collection[Span]], guesses: Sequence[Collection[Span]]) -> Scores:
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
            f'problem.{key} is {label!r}; set it to one of the classes {join_first(labels)}'
        )
    return labels.index(label)
