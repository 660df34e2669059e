"""Scores of arguments, against another reading of the rules of srl-eval.pl (CoNLL-2005)."""

import random

import numpy as np
import pytest

from bert_jax.metrics import semantic_roles
from bert_jax.metrics.semantic_roles import Argument, arguments_of_tags

ROLES = ('A0', 'A1', 'V', 'AM-TMP', 'C-A0', 'C-A1', 'C-V', 'R-A0')


def drawn_tags(rng):
    tags = []
    while len(tags) < rng.randrange(1, 14):
        role, length = rng.choice((*ROLES, 'O', 'O')), rng.randrange(1, 4)
        span = ['O'] * length if role == 'O' else [f'B-{role}'] + [f'I-{role}'] * (length - 1)
        tags += span
    return tags


def changed(tags, rng):
    """Tags of the same words, partly those of another draw."""
    other = (drawn_tags(rng) + ['O'] * len(tags))[: len(tags)]
    cut = rng.randrange(len(tags) + 1)
    return tags[:cut] + other[cut:]


def read_by_the_rules(tags):
    """The arguments of a predicate: {(role, frozenset of words, …)}, read word by word."""
    spans = []
    for place, tag in enumerate(tags):
        if tag[0] == 'B' or (tag[0] == 'I' and (not place or tags[place - 1][1:] != tag[1:])):
            spans.append([tag[2:], [place]])
        elif tag[0] == 'I':
            spans[-1][1].append(place)
    arguments = []
    for role, places in spans:
        base = role[2:] if role.startswith('C-') else role
        before = [one for one in arguments if one[0] == base]
        if base != role and before:
            before[-1][1].append(tuple(places))
        else:
            arguments.append([base, [tuple(places)]])
    return {(role, tuple(pieces)) for role, pieces in arguments if role != 'V'}


def test_500_drawn_sentences_have_the_scores_of_the_rules():
    rng = random.Random(0)
    gold = [drawn_tags(rng) for _ in range(500)]
    guesses = [changed(tags, rng) for tags in gold]
    right = wrong = missed = exact = 0
    for own, guessed in zip(gold, guesses, strict=True):
        a, b = read_by_the_rules(own), read_by_the_rules(guessed)
        right, wrong, missed = right + len(a & b), wrong + len(b - a), missed + len(a - b)
        exact += a == b
    found = semantic_roles.score(
        *([arguments_of_tags(t) for t in some] for some in (gold, guesses))
    )
    precision, recall = right / (right + wrong), right / (right + missed)
    assert found.metrics == pytest.approx(
        {
            'f1': 2 * precision * recall / (precision + recall),
            'precision': precision,
            'recall': recall,
            'exact_match': exact / 500,
        }
    )
    rows = {role: (gold, predicted) for role, *_, gold, predicted in found.tables['Roles'].rows}
    assert 'V' not in rows
    assert sum(gold for gold, _ in rows.values()) == right + missed


def test_continuations_belong_to_the_argument_before_them():
    tags = ['B-A1', 'B-V', 'B-C-A1', 'I-C-A1', 'O', 'B-C-A0', 'B-A1', 'B-C-A1']
    assert arguments_of_tags(tags) == [
        Argument('A1', ((0, 1), (2, 4))),
        Argument('V', ((1, 2),)),
        Argument('A0', ((5, 6),)),
        Argument('A1', ((6, 7), (7, 8))),
    ]
    assert arguments_of_tags(['O', 'O']) == []


def test_scores_of_rows_are_those_of_their_sentences():
    gold = [[Argument('A0', ((0, 1),))], [Argument('A1', ((2, 3),)), Argument('V', ((1, 2),))], []]
    guesses = [[Argument('A0', ((0, 1),))], [Argument('A1', ((2, 4),))], []]
    score = semantic_roles.score_rows(gold, guesses)
    assert score(np.array([0]))['f1'] == 1.0
    assert score(np.array([1, 1])) == dict(f1=0.0, precision=0.0, recall=0.0, exact_match=0.0)
    assert score(np.array([2])) == dict(f1=0.0, precision=0.0, recall=0.0, exact_match=1.0)
    assert score(np.array([0, 1]))['precision'] == 0.5
