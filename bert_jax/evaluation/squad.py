"""Exact match and F1 of answers in words, by the rules of SQuAD's evaluation scripts
(evaluate-v1.1.py; evaluate-v2.0.py with `unanswerable`)."""

import collections
import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_PUNCTUATION = str.maketrans('', '', string.punctuation)


class Threshold(NamedTuple):
    """best: the highest mean score, in [0, 1], reached by leaving questions unanswered whose
    no-answer score is above `threshold`."""

    best: float
    threshold: float


def normalized(answer: str) -> str:
    """Lower case, without ASCII punctuation, the words a, an, the, and superfluous spaces."""
    return ' '.join(_ARTICLES.sub(' ', answer.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, guess: str) -> float:
    """1 if both are the same once normalized."""
    return float(normalized(gold) == normalized(guess))


def f1(gold: str, guess: str, unanswerable: bool = False) -> float:
    """F1 of the words of both, a word as often as it is there.

    Where either has no word left: 0 in version 1.1; in 2.0 (`unanswerable`) 1 if both have none.
    """
    gold_words, words = normalized(gold).split(), normalized(guess).split()
    if unanswerable and not (gold_words and words):
        return float(gold_words == words)
    same = (collections.Counter(gold_words) & collections.Counter(words)).total()
    return 2 * same / (len(gold_words) + len(words)) if same else 0.0


def best_over_golds(
    golds: Sequence[str], guess: str, unanswerable: bool = False
) -> tuple[float, float]:
    """Exact match and F1 with the gold answer each is highest for.

    golds: none for a question without an answer; in version 2.0 the ones of which normalizing
        leaves nothing do not count. guess: '' for no answer.
    """
    if unanswerable:
        golds = [gold for gold in golds if normalized(gold)] or ['']
    return (
        max((exact_match(gold, guess) for gold in golds), default=0.0),
        max((f1(gold, guess, unanswerable) for gold in golds), default=0.0),
    )


def score(
    golds: Sequence[Sequence[str]], guesses: Sequence[str], unanswerable: bool = False
) -> dict[str, float]:
    """Means over questions, in [0, 1]: 'f1' and 'exact_match'; with `unanswerable` also those of
    questions that have an answer ('has_answer_f1' …) and that have none ('no_answer_f1' …)."""
    figures_N2 = np.array(
        [best_over_golds(*pair, unanswerable) for pair in zip(golds, guesses, strict=True)]
    ).reshape(-1, 2)
    metrics = _means('', figures_N2)
    if unanswerable:
        answerable_N = np.array([bool(own) for own in golds], bool)
        metrics |= _means('has_answer_', figures_N2[answerable_N])
        metrics |= _means('no_answer_', figures_N2[~answerable_N])
    return metrics


def best_threshold(
    golds: Sequence[Sequence[str]],
    guesses: Sequence[str],
    no_answer_scores: Sequence[float],
    metric: str = 'f1',
) -> Threshold:
    """The threshold of no-answer scores that is best for a metric, 'f1' or 'exact_match'.

    guesses: the best answer of every question, as if all had one (find_best_thresh of
    evaluate-v2.0.py: starts from leaving all unanswered with threshold 0, then answers question
    by question, the surest first, and keeps the first best point).
    """
    column = ('exact_match', 'f1').index(metric)
    current = best = sum(not own for own in golds)
    threshold = 0.0
    for number in np.argsort(np.asarray(no_answer_scores), kind='stable').tolist():
        if golds[number]:
            current += best_over_golds(golds[number], guesses[number], True)[column]
        elif guesses[number]:
            current -= 1
        if current > best:
            best, threshold = current, float(no_answer_scores[number])
    return Threshold(best / max(len(golds), 1), threshold)


def _means(prefix: str, figures_N2: np.ndarray) -> dict[str, float]:
    """F1 and exact match; none for no questions."""
    if not len(figures_N2):
        return {}
    exact, f1_mean = figures_N2.mean(0).tolist()
    return {f'{prefix}f1': f1_mean, f'{prefix}exact_match': exact}
