"""Scores of brackets, against another reading of the rules of EVALB (COLLINS.prm)."""

import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.labels import trees
from bert_jax.metrics import brackets

LABELS = ('S', 'NP', 'VP', 'PP', 'ADVP', 'PRT', 'SBAR')
TAGS = ('DT', 'NN', 'VB', 'IN', ',', '.', '``', ':')


def drawn_tree(rng, tags, number=0):
    """A random tree in brackets over words with these tags."""
    if len(tags) == 1 and rng.random() < 0.7:
        return f'({tags[0]} w{number})'
    if len(tags) > 1:
        cut = rng.randrange(1, len(tags))
        inside = ' '.join(
            [drawn_tree(rng, tags[:cut], number), drawn_tree(rng, tags[cut:], number + cut)]
        )
    else:
        inside = f'({tags[0]} w{number})'
    if rng.random() < 0.6:
        return f'({rng.choice(LABELS)} {inside})'
    return inside


def changed(text, rng):
    """A tree with some other labels and tags, and without some of its brackets."""
    parts, kept, written = text.replace('(', ' ( ').replace(')', ' ) ').split(), [], []
    for place, part in enumerate(parts):
        before = parts[place - 1] if place else ''
        if part == '(':
            is_word = parts[place + 2] not in '()'
            kept.append(place == 0 or is_word or rng.random() < 0.8)
        if part == ')':
            written += [')'] * kept.pop()
        elif part == '(' or before == '(':
            names = LABELS if part in LABELS else TAGS[:4] if part in TAGS[:4] else (part,)
            other = part if rng.random() < 0.7 else rng.choice(names)
            written += [part if part in ('(', 'TOP') else other] * kept[-1]
        else:
            written.append(part)
    return ' '.join(written).replace('( ', '(').replace(' )', ')')


def drawn_pairs(rng, number):
    """Gold and guessed trees of the same words."""
    for _ in range(number):
        tags = [rng.choice(TAGS) for _ in range(rng.randrange(1, 12))] + ['NN']
        gold = f'(TOP {drawn_tree(rng, tags)})'
        yield gold, changed(gold, rng)


def read_by_the_rules(text):
    """Brackets and tags of a tree by recursion, without punctuation."""
    parts, brackets_found, tags = text.replace('(', ' ( ').replace(')', ' ) ').split(), [], []

    def read(place):
        label = parts[place + 1]
        if parts[place + 2] not in '()':
            if label not in (',', ':', '``', "''", '.'):
                tags.append(label)
            return place + 4
        start, place = len(tags), place + 2
        while parts[place] != ')':
            place = read(place)
        if label != 'TOP' and start < len(tags):
            brackets_found.append(('ADVP' if label == 'PRT' else label, start, len(tags)))
        return place + 1

    read(0)
    return Counter(brackets_found), tags


def test_500_drawn_trees_have_the_scores_of_the_rules():
    rng = random.Random(0)
    pairs = list(drawn_pairs(rng, 500))
    totals, exact, right, words = np.zeros(3), 0, 0, 0
    for gold, guess in pairs:
        (a, own_tags), (b, other_tags) = read_by_the_rules(gold), read_by_the_rules(guess)
        totals += [(a & b).total(), a.total(), b.total()]
        exact += a == b
        right += sum(x == y for x, y in zip(own_tags, other_tags, strict=True))
        words += len(own_tags)
    parsed = [[trees.parse(text).constituents for text in pair] for pair in pairs]
    gold, guesses = zip(*parsed, strict=True)
    found = brackets.score(gold, guesses)
    precision, recall = totals[0] / totals[2], totals[0] / totals[1]
    expected = {
        'f1': 2 * precision * recall / (precision + recall),
        'precision': precision,
        'recall': recall,
        'exact_match': exact / 500,
        'tag_accuracy': right / words,
    }
    assert found.metrics == pytest.approx(expected)
    labels = {label: gold for label, *_, gold, _ in found.tables['Labels'].rows}
    assert sum(labels.values()) == totals[1]
    assert 'PRT' not in labels


def test_scores_of_rows_are_those_of_their_sentences():
    texts = ['(TOP (S (NP (NN a)) (VB b)))', '(TOP (S (NN a) (VB b)))']
    gold, guess = ([trees.parse(text).constituents] for text in texts)
    score = brackets.score_rows(gold * 2, [gold[0], guess[0]])
    assert score(np.array([0]))['f1'] == 1.0
    assert score(np.array([1]))['recall'] == 0.5
    assert score(np.array([1, 1]))['exact_match'] == 0.0
    assert score(np.array([0, 1]))['tag_accuracy'] == 1.0
