"""What predictions are worth: figures, the main one first, and the tables beside them."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.evaluation import entities, metrics

MEAN = 'score'  # the name of the mean of several main figures


class Scores(NamedTuple):
    """metrics: figures by name, the main one first; tables: by title, Table or Confusion."""

    metrics: dict[str, float]
    tables: dict[str, Any]


class Table(NamedTuple):
    """Rows of cells, which are strings and numbers."""

    columns: tuple[str, ...]
    rows: list[tuple]


class Confusion(NamedTuple):
    """counts: [C][C] ints, how many examples of a class (row) were given which (column)."""

    labels: tuple[str, ...]
    counts: list[list[int]]


def classification(
    gold: Sequence[str],
    guesses: Sequence[str],
    labels: Sequence[str],
    main: Sequence[str] = ('accuracy',),
    positive: str | None = None,
    negative: str | None = None,
    groups: Sequence[str] | None = None,
) -> Scores:
    """One class an example: 'accuracy', 'f1_macro', 'matthews'; where asked for 'f1', 'f1_micro',
    'exact_match'.

    main: names of the figures that count; of several the mean comes first, as 'score'.
    positive: the class whose F1 is 'f1'. negative: the class that stands for 'none of the others';
        'f1_micro' is that of the others.
    groups: that of each example; 'exact_match' is the share of those without an error (MultiRC:
        the answers to a question; Khashabi et al. 2018, section 4).
    Raises UserError for a class that `labels` lack.
    """
    counts_CC = metrics.confusion(gold, guesses, labels)
    classes = metrics.per_class(counts_CC)
    found = {
        'accuracy': metrics.accuracy(counts_CC),
        'f1_macro': metrics.f1_macro(counts_CC),
        'matthews': metrics.matthews(counts_CC),
    }
    if positive is not None:
        found['f1'] = float(classes.f1[_number(positive, labels)])
    if negative is not None:
        found['f1_micro'] = metrics.f1_micro(counts_CC, [_number(negative, labels)])
    if groups is not None:
        judged = zip(groups, gold, guesses, strict=True)
        wrong = {group for group, right, guess in judged if right != guess}
        found['exact_match'] = 1 - len(wrong) / max(len(set(groups)), 1)
    columns = [array.tolist() for array in classes]
    tables = {
        'Classes': Table(
            ('class', 'precision', 'recall', 'f1', 'examples'),
            list(zip(labels, *columns, strict=True)),
        ),
        'Confusion': Confusion(tuple(labels), counts_CC.tolist()),
    }
    return Scores(main_first(found, main), tables)


def regression(
    gold: Sequence[float],
    guesses: Sequence[float],
    main: Sequence[str] = ('pearson', 'spearman'),
) -> Scores:
    """A number an example: 'pearson', 'spearman', and 'rmse', the root mean squared error."""
    errors_N = np.asarray(guesses, np.float64) - np.asarray(gold, np.float64)
    found = {
        'pearson': metrics.pearson(gold, guesses),
        'spearman': metrics.spearman(gold, guesses),
        'rmse': float(np.sqrt(np.mean(errors_N**2))) if len(errors_N) else 0.0,
    }
    return Scores(main_first(found, main), {})


def spans(gold: Sequence[Collection], guesses: Sequence[Collection]) -> Scores:
    """Labeled spans (start, end, label) of each text, entities or nested ones: strict 'f1',
    'precision', 'recall', 'f1_macro' over the labels."""
    found = entities.score(gold, guesses)
    table = Table(
        ('label', 'precision', 'recall', 'f1', 'gold', 'predicted'),
        [(label, *row) for label, row in found.rows.items()],
    )
    figures = {
        'f1': found.f1,
        'precision': found.precision,
        'recall': found.recall,
        'f1_macro': found.macro_f1,
    }
    return Scores(figures, {'Labels': table})


def main_first(found: dict[str, float], main: Sequence[str]) -> dict[str, float]:
    """The figures with the main ones first; before several of them their mean. Raises UserError for
    a name that is none of them."""
    for name in main:
        if name not in found:
            raise unknown('metric', name, found)
    mean = {MEAN: sum(found[name] for name in main) / len(main)} if len(main) > 1 else {}
    return mean | {name: found[name] for name in main} | found


def _number(label: str, labels: Sequence[str]) -> int:
    if label not in labels:
        raise UserError(f'the metric is about {label!r}, which is no class: {", ".join(labels)}')
    return labels.index(label)
