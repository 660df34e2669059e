"""Entities and span scores, compared with seqscore on valid and invalid tags of all schemes."""

import collections
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.metrics import entities
from tests import conlleval

TAGS = ['O', *(f'{kind}-{label}' for kind in 'BIES' for label in ('PER', 'LOC', 'A-B'))]
SENTENCES = st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=12)


@settings(deadline=None)  # a busy machine is not a failure
@given(SENTENCES)
def test_entities_of_any_tags_are_those_of_seqscore(pairs):
    for tags in zip(*pairs, strict=True):
        assert entities.entities_from_tags(tags) == conlleval.entities(tags)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(SENTENCES.filter(len), min_size=1, max_size=4))
def test_scores_are_those_of_seqscore(sentences):
    gold, guesses = ([[pair[side] for pair in own] for own in sentences] for side in (0, 1))
    found, by_label = entities.score_spans(
        [entities.entities_from_tags(tags) for tags in gold],
        [entities.entities_from_tags(tags) for tags in guesses],
    )
    wanted = conlleval.score(gold, guesses)
    assert found['precision'] == pytest.approx(wanted.precision)
    assert found['recall'] == pytest.approx(wanted.recall)
    assert found['f1'] == pytest.approx(wanted.f1)
    of_labels = dict(wanted.type_scores)
    macro_f1 = np.mean([one.f1 for one in of_labels.values()]) if of_labels else 0
    assert found['f1_macro'] == pytest.approx(macro_f1)
    assert by_label == {
        label: pytest.approx((one.precision, one.recall, one.f1, one.total_ref, one.total_pos))
        for label, one in of_labels.items()
    }


@pytest.mark.parametrize(
    ('tags', 'wanted'),
    [
        # IOB1 has B only between adjacent entities of a label
        ('I-A I-A B-A O I-B', [(0, 2, 'A'), (2, 3, 'A'), (4, 5, 'B')]),
        ('B-A B-A I-A', [(0, 1, 'A'), (1, 3, 'A')]),
        ('B-A I-B', [(0, 1, 'A'), (1, 2, 'B')]),
        ('S-A B-A E-A S-A', [(0, 1, 'A'), (1, 3, 'A'), (3, 4, 'A')]),
        ('B-A E-A I-A', [(0, 2, 'A'), (2, 3, 'A')]),
        ('O I-A', [(1, 2, 'A')]),
        ('', []),
    ],
)
def test_where_entities_start_and_end(tags, wanted):
    assert entities.entities_from_tags(tags.split()) == wanted


def test_nested_spans_are_compared_as_sets():
    gold = [{(0, 5, 'X'), (1, 3, 'Y'), (1, 3, 'X')}, set()]
    found, by_label = entities.score_spans(
        gold, [[(0, 5, 'X'), (1, 3, 'Y'), (1, 3, 'Y'), (2, 3, 'X')], []]
    )
    assert list(found.values())[:3] == pytest.approx([2 / 3] * 3)
    assert by_label == {'X': (0.5, 0.5, 0.5, 2, 2), 'Y': (1.0, 1.0, 1.0, 1, 1)}
    empty = dict.fromkeys(('f1', 'precision', 'recall', 'f1_macro'), 0.0)
    assert entities.score_spans([[]], [[]]) == (empty, {})


def test_errors_are_counted_by_kind():
    gold = [[(0, 2, 'A'), (4, 6, 'A'), (8, 9, 'B'), (12, 14, 'B'), (20, 21, 'A')]]
    guesses = [[(0, 2, 'A'), (4, 6, 'B'), (8, 10, 'B'), (11, 13, 'A'), (30, 31, 'B')]]
    assert entities.count_errors(gold, guesses) == {
        'A': {'correct': 1, 'wrong type': 1, 'missed': 1},
        'B': {'wrong boundary': 1, 'wrong both': 1, 'spurious': 1},
    }
    assert entities.count_errors([[]], [[]]) == {}


SPANS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 4), st.sampled_from('AB')).map(
        lambda span: (span[0], span[0] + span[1], span[2])
    ),
    max_size=6,
)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.tuples(SPANS, SPANS), max_size=3))
def test_every_span_is_counted_once_as_correct_or_as_an_error(texts):
    gold, guesses = [own for own, _ in texts], [own for _, own in texts]
    counts = entities.count_errors(gold, guesses)
    _, by_label = entities.score_spans(gold, guesses)
    total = sum(counts.values(), collections.Counter())
    spurious = total.pop('spurious', 0)
    assert total.total() == sum(score.gold for score in by_label.values())
    assert total.total() - total['missed'] + spurious == sum(
        score.predicted for score in by_label.values()
    )
    for label, score in by_label.items():
        own = counts.get(label, collections.Counter())
        assert own.total() - own['spurious'] == score.gold
        assert own['correct'] == round(score.recall * score.gold)


def add_prefix(tag):
    return tag if tag == 'O' else f'I-{tag}'


def label_first(tag):
    return '-'.join(reversed(tag.split('-')))


def add_label(tag):
    return tag if tag == 'O' else f'{tag}-_'


@pytest.mark.parametrize(
    ('labels', 'as_prefixed'),
    [
        (('O', 'I-LOC', 'I-PER', 'I-A-B'), str),
        (('I-LOC', 'I-PER'), str),
        (('O', 'B', 'I'), add_label),
        (('O', 'I'), add_label),
        (('O', 'LOC', 'PER', 'ORG', 'BANK', 'A-B'), add_prefix),
        (('O', 'LOC-B', 'LOC-I', 'PER-B', 'PER-I'), label_first),
        (('O', 'B_LOC', 'I_LOC', 'B_P_X', 'I_P_X'), lambda tag: tag.replace('_', '-', 1)),
        (('O', 'B-PER', 'I-PER', 'MISC'), lambda tag: tag.replace('MISC', 'I-MISC')),
        (('O', 'B-X', 'I-X', 'L-X', 'U-X'), lambda tag: tag.translate({76: 'E', 85: 'S'})),
    ],
)  # fmt: skip
def test_entities_of_other_sets_of_tags_are_those_of_seqscore(labels, as_prefixed):
    parsed, draw = entities.parse_tags(labels), random.Random(0)
    for _ in range(300):
        tags = draw.choices(labels, k=draw.randrange(9))
        wanted = conlleval.entities([as_prefixed(tag) for tag in tags])
        assert entities.entities_from_tags(tags, parsed) == wanted, tags


@pytest.mark.parametrize(('scheme', 'end', 'single'), [('BIOES', 'E', 'S'), ('BILOU', 'L', 'U')])
def test_entities_of_valid_tags_are_those_that_seqscore_decodes(scheme, end, single):
    prefixes = ('B', 'I', end, single)
    labels = ['O', *(f'{prefix}-{label}' for prefix in prefixes for label in ('PER', 'LOC'))]
    parsed, draw = entities.parse_tags(labels), random.Random(0)
    for _ in range(100):
        tags: list[str] = []
        while len(tags) < 8:
            label = draw.choice(('PER', 'LOC'))
            inside = [f'I-{label}'] * draw.randrange(3)
            tags += draw.choice(
                (['O'], [f'{single}-{label}'], [f'B-{label}', *inside, f'{end}-{label}'])
            )
        assert entities.entities_from_tags(tags, parsed) == conlleval.decode(tags, scheme)


@pytest.mark.parametrize(
    'labels',
    [
        ('NOUN', 'VERB', 'ADP'),
        ('DT', 'NN', '-LRB-', "''", 'PRP$', 'I-x'),
        ('O', 'N', 'V', 'B', 'I', '^', '@'),  # of tweets: O is a pronoun
        ('O',),
        ('0', '1', '2'),
    ],
)
def test_parts_of_speech_mark_no_entities(labels):
    assert entities.parse_tags(labels) is None
