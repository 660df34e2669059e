"""Scores of constituency trees by the rules of EVALB with the parameters of Collins (1997)."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np

from bert_jax.labels.tag_schemes import WordSpan
from bert_jax.metrics import entities
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores, Table

Constituents: TypeAlias = Collection[WordSpan]  # labels/trees.py, `Tree.constituents`
_PUNCTUATION = (',', ':', '``', "''", '.')  # tags of words that do not count
_EQUAL = {'PRT': 'ADVP'}


def tags_of(constituents: Constituents) -> dict[int, str]:
    """Return the tag of each word."""
    return {start: chain.split()[-1] for start, end, chain in constituents if end == start + 1}


def brackets_of(constituents: Constituents, left_out: Collection[int]) -> Counter[WordSpan]:
    """Return the brackets above the tags, whose places count the words that are not left out."""
    last = max((end for _, end, _ in constituents), default=0)
    place = np.cumsum([0, *(word not in left_out for word in range(last))]).tolist()
    found: Counter[WordSpan] = Counter()
    for start, end, chain in constituents:
        labels = chain.split()
        for label in labels[:-1] if end == start + 1 else labels:
            if place[start] < place[end]:
                found[place[start], place[end], _EQUAL.get(label, label)] += 1
    return found


def score(gold: Sequence[Constituents], guesses: Sequence[Constituents]) -> Scores:
    """Score predicted trees of the same words.

    Words whose gold tag is punctuation are left out, and brackets without other words; PRT counts
    as ADVP. Tags are no brackets (nlp.cs.nyu.edu/evalb, COLLINS.prm).

    Returns:
        'f1', 'precision' and 'recall' of the brackets, 'exact_match', the share of sentences whose
        brackets are all right, and 'tag_accuracy'; a table of the labels.
    """
    by_label: dict[str, np.ndarray] = {}
    for own, guessed in zip(gold, guesses, strict=True):
        for place, found in enumerate(_compared(own, guessed)):
            for (_, _, label), number in found.items():
                by_label.setdefault(label, np.zeros(3, np.int64))[place] += number
    rows = [
        (label, *entities.score_of_counts(*by_label[label].tolist())) for label in sorted(by_label)
    ]
    tables = {'Labels': Table(('label', *entities.SpanScore._fields), rows)}
    return Scores(dict(score_rows(gold, guesses)(np.arange(len(gold)))), tables)


def score_rows(gold: Sequence[Constituents], guesses: Sequence[Constituents]) -> RowScore:
    """Return a function that computes the metrics of `score` of some of the sentences."""
    pairs = list(zip(gold, guesses, strict=True))
    counts_N3 = np.array(
        [[found.total() for found in _compared(*pair)] for pair in pairs], np.int64
    ).reshape(-1, 3)
    tags_N2 = np.array([_count_tags(*pair) for pair in pairs], np.int64).reshape(-1, 2)

    def score_some(rows_M: np.ndarray) -> dict[str, float]:
        right, words = tags_N2[rows_M].sum(0).tolist()
        return entities.score_exact(counts_N3[rows_M]) | {'tag_accuracy': right / max(words, 1)}

    return score_some


def _left_out(gold: Constituents) -> set[int]:
    return {word for word, tag in tags_of(gold).items() if tag in _PUNCTUATION}


def _compared(gold: Constituents, guessed: Constituents) -> tuple[Counter[WordSpan], ...]:
    """Return the correct, the gold and the predicted brackets of a sentence."""
    left_out = _left_out(gold)
    own, others = brackets_of(gold, left_out), brackets_of(guessed, left_out)
    return own & others, own, others


def _count_tags(gold: Constituents, guessed: Constituents) -> tuple[int, int]:
    """Return the numbers of right tags and of words that count."""
    own, others, left_out = tags_of(gold), tags_of(guessed), _left_out(gold)
    counted = [word for word in own if word not in left_out]
    equal = [
        _EQUAL.get(own[word], own[word]) == _EQUAL.get(others.get(word, ''), others.get(word))
        for word in counted
    ]
    return sum(equal), len(counted)
