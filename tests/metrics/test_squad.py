"""SQuAD's scores, compared with values by hand and with a second, slow implementation."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.metrics import squad

# gold, guess, exact match, F1 in version 1.1, F1 in 2.0
RULES = [
    ('The Norman dynasty', 'norman Dynasty', 1, 1, 1),
    ('a  cat,\tan owl', 'cat owl', 1, 1, 1),
    ('theatre', 'the atre', 0, 0, 0),  # articles are whole words
    ("the Queen's", 'Queens', 1, 1, 1),  # removed punctuation leaves no space
    ('twenty-one', 'twenty one', 0, 0, 0),
    ('U.S.', 'us', 1, 1, 1),
    ('“so”', 'so', 0, 0, 0),  # only ASCII punctuation
    ('£5', '5', 0, 0, 0),
    ('$5', '5', 1, 1, 1),
    ('a.', 'b', 0, 0, 0),
    ('a-the', 'athe', 1, 1, 1),  # punctuation is removed before articles
    ('The', 'a', 1, 0, 1),  # both empty
    ('the', 'cat', 0, 0, 0),
    ('cat', '', 0, 0, 0),
    ('to be or not to be', 'to be', 0, 0.5, 0.5),
    ('be be be', 'be', 0, 0.5, 0.5),
    ('x y', 'y z z', 0, 0.4, 0.4),
    ('ÉCOLE', 'école', 1, 1, 1),
    ('non\u00a0breaking', 'non breaking', 1, 1, 1),
    (
        'a\u0301 b',
        'b',
        0,
        2 / 3,
        2 / 3,
    ),  # \w lacks accents, so "a" is an article
]
TEXTS = st.text(alphabet='aAbt he.,-é \u00a0\u0301', max_size=12)


@pytest.mark.parametrize(('gold', 'guess', 'exact', 'f1', 'f1_v2'), RULES)
def test_scores_by_hand(gold, guess, exact, f1, f1_v2):
    assert squad.exact_match(gold, guess) == exact
    assert squad.f1(gold, guess) == pytest.approx(f1)
    assert squad.f1(gold, guess, unanswerable=True) == pytest.approx(f1_v2)


def slow_words(text):
    """Normalize character by character what the scripts do by regular expressions."""
    text = ''.join(c for c in text.lower() if c not in '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~')
    words = []
    for part in text.split():
        pieces = re.findall(r'\w+|\W+', part)
        kept = ''.join(' ' if piece in ('a', 'an', 'the') else piece for piece in pieces)
        words += kept.split()
    return words


def slow_f1(gold, guess, empty):
    wanted, given_ = slow_words(gold), slow_words(guess)
    if empty and (not wanted or not given_):
        return float(wanted == given_)
    left, same = list(wanted), 0
    for word in given_:
        if word in left:
            left.remove(word)
            same += 1
    if not same:
        return 0
    precision, recall = same / len(given_), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(TEXTS, max_size=3), TEXTS, st.booleans())
def test_scores_equal_those_of_the_slow_implementation(golds, guess, unanswerable):
    with_words = [gold for gold in golds if slow_words(gold)]
    wanted = (with_words or ['']) if unanswerable else golds
    exact, f1 = squad.best_over_golds(golds, guess, unanswerable)
    assert exact == max((slow_words(g) == slow_words(guess) for g in wanted), default=0)
    assert f1 == pytest.approx(max((slow_f1(g, guess, unanswerable) for g in wanted), default=0))


def test_means_are_reported_with_and_without_answer():
    golds = [('a cat', 'dog'), (), (), ('the',)]
    guesses = ['cat fish', '', 'cat', '']
    found = squad.score(golds, guesses, unanswerable=True)
    assert list(found)[:2] == ['f1', 'exact_match']
    assert found == pytest.approx(
        {
            'f1': (2 / 3 + 1 + 0 + 1) / 4,
            'exact_match': 0.5,
            'has_answer_f1': (2 / 3 + 1) / 2,
            'has_answer_exact_match': 0.5,
            'no_answer_f1': 0.5,
            'no_answer_exact_match': 0.5,
        }
    )
    assert squad.score(golds, guesses) == pytest.approx({'f1': 1 / 6, 'exact_match': 0.25})
    assert squad.score([('x',)], [''], True).keys() >= {'has_answer_f1'}
    assert 'no_answer_f1' not in squad.score([('x',)], [''], True)


@settings(deadline=None)  # a busy machine is not a failure
@given(
    st.lists(
        st.tuples(
            st.sampled_from([(), ('cat',), ('cat dog',)]),
            st.sampled_from(['', 'cat', 'dog', 'cat dog']),
            st.integers(-3, 3),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_no_threshold_is_better_than_the_best(rows):
    golds, guesses, scores = map(list, zip(*rows, strict=True))

    def mean_f1(threshold):
        kept = [g if s <= threshold else '' for g, s in zip(guesses, scores, strict=True)]
        return squad.score(golds, kept, unanswerable=True)['f1']

    found = squad.best_threshold(golds, guesses, scores)
    none_answered = mean_f1(min(scores) - 1)
    assert found.best == pytest.approx(max(none_answered, *map(mean_f1, scores)))
    assert mean_f1(found.threshold) == pytest.approx(found.best)


def test_the_surest_questions_are_answered_first():
    golds, guesses = [('cat',), (), ('dog',)], ['cat', 'fish', 'dog']
    assert squad.best_threshold(golds, guesses, [-3.0, 2.0, 1.0]) == (1.0, 1.0)
    assert squad.best_threshold(golds, guesses, [3.0, -2.0, 2.0]) == (2 / 3, 3.0)
    assert squad.best_threshold(golds, ['x', '', 'y'], [1.0, 2.0, 3.0], 'exact_match') == (
        *(1 / 3, -math.inf),
    )
