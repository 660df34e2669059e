"""Exact match and F1 of answers, as in the evaluation scripts of SQuAD.

`unanswerable` selects the rules of evaluate-v2.0.py instead of evaluate-v1.1.py.
"""

import collections
import itertools
import math
import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_ARTICLES = re.compile(r'\b(a|an|the)\b')
_PUNCTUATION = str.maketrans('', '', string.punctuation)


class Threshold(NamedTuple):
    """A threshold on no-answer scores, above which questions are left unanswered.

    Attributes:
        best: the highest mean of the metric over thresholds, in [0, 1].
        threshold: the threshold with this mean.
    """

    best: float
    threshold: float


def normalize(answer: str) -> str:
    """Lowercase and remove ASCII punctuation, the words a, an, the and extra whitespace."""
    return ' '.join(_ARTICLES.sub(' ', answer.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, guess: str) -> float:
    """1.0 if the normalized answers are equal, else 0.0."""
    return float(normalize(gold) == normalize(guess))


def f1(gold: str, guess: str, unanswerable: bool = False) -> float:
    """F1 of the normalized words as multisets.

    0 if either answer has no words, but 1 with `unanswerable` if neither has words.
    """
    gold_words, words = normalize(gold).split(), normalize(guess).split()
    if unanswerable and not (gold_words and words):
        return float(gold_words == words)
    same = (collections.Counter(gold_words) & collections.Counter(words)).total()
    return 2 * same / (len(gold_words) + len(words)) if same else 0.0


def best_over_golds(
    golds: Sequence[str], guess: str, unanswerable: bool = False
) -> tuple[float, float]:
    """The highest exact match and the highest F1 over the gold answers.

    Args:
        golds: the gold answers; empty for a question without an answer. With `unanswerable`,
            answers that are empty after normalization are ignored.
        guess: the predicted answer; '' for no answer.
        unanswerable: whether questions may have no answer.
    """
    if unanswerable:
        golds = [gold for gold in golds if normalize(gold)] or ['']
    return (
        max((exact_match(gold, guess) for gold in golds), default=0.0),
        max((f1(gold, guess, unanswerable) for gold in golds), default=0.0),
    )


def score(
    golds: Sequence[Sequence[str]], guesses: Sequence[str], unanswerable: bool = False
) -> dict[str, float]:
    """Mean 'f1' and 'exact_match' over questions, in [0, 1].

    `unanswerable` adds the means over questions with an answer ('has_answer_f1', …) and without
    an answer ('no_answer_f1', …).
    """
    pairs = [best_over_golds(*pair, unanswerable) for pair in zip(golds, guesses, strict=True)]
    values_N2 = np.array(pairs).reshape(-1, 2)  # exact match, F1
    metrics = _means('', values_N2)
    if unanswerable:
        has_answer_N = np.array([bool(answers) for answers in golds], bool)
        metrics |= _means('has_answer_', values_N2[has_answer_N])
        metrics |= _means('no_answer_', values_N2[~has_answer_N])
    return metrics


def best_threshold(
    golds: Sequence[Sequence[str]],
    guesses: Sequence[str],
    no_answer_scores: Sequence[float],
    metric: str = 'f1',
) -> Threshold:
    """Find the threshold on no-answer scores with the highest mean of a metric.

    Starts with no question answered (threshold −∞), then answers the questions in ascending order
    of their no-answer scores, equal scores together, and keeps the first best point.

    Args:
        golds: the gold answers of each question; empty for a question without an answer.
        guesses: the best answer to each question, as if every question had an answer.
        no_answer_scores: a score for each question.
        metric: 'f1' or 'exact_match'.

    Source: find_best_thresh of evaluate-v2.0.py, which starts at 0 instead of −∞: a threshold of 0
    may answer questions that the best mean counts as unanswered.
    """
    column = ('exact_match', 'f1').index(metric)
    current: float = sum(not answers for answers in golds)
    best, threshold = current, -math.inf
    order = np.argsort(np.asarray(no_answer_scores), kind='stable').tolist()
    for number, following in itertools.zip_longest(order, order[1:]):
        if golds[number]:
            current += best_over_golds(golds[number], guesses[number], True)[column]
        elif guesses[number]:
            current -= 1
        is_last = following is None or no_answer_scores[following] > no_answer_scores[number]
        if is_last and current > best:
            best, threshold = current, float(no_answer_scores[number])
    return Threshold(best / max(len(golds), 1), threshold)


def _means(prefix: str, values_N2: np.ndarray) -> dict[str, float]:
    """Mean F1 and exact match; empty without questions."""
    if not len(values_N2):
        return {}
    exact, f1_mean = values_N2.mean(0).tolist()
    return {f'{prefix}f1': f1_mean, f'{prefix}exact_match': exact}
