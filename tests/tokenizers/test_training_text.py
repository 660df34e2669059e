"""The text a vocabulary is trained on: random lines, the same however the text is divided."""

import random

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.tokenizers import training_text

RNG = random.Random(0)
TEXTS = [
    '\n'.join(f'{RNG.randrange(10**9)} ' * RNG.randrange(6) for _ in range(RNG.randrange(1, 200)))
    for _ in range(50)
]


def sample(texts, limit):
    return list(training_text.sample(texts, limit))


TOTAL = sum(len(line) for text in TEXTS for line in text.split('\n'))


def lines(texts):
    return [line for text in texts for line in text.split('\n')]


def test_short_texts_are_taken_as_they_are():
    assert sample(TEXTS, TOTAL) == TEXTS
    assert sample([], 10) == []


@pytest.mark.parametrize('divisor', [1.5, 3, 20, 300])
def test_lines_are_drawn_in_order_up_to_the_limit(divisor):
    limit = int(TOTAL / divisor)
    found = lines(sample(TEXTS, limit))
    size = sum(map(len, found))
    assert size <= limit
    assert size > limit / 3 or divisor > 100
    every = iter(lines(TEXTS))
    assert all(line in every for line in found)  # in order


def test_a_text_of_a_single_line_above_the_limit_is_taken():
    assert sample(['x' * 100], 10) == ['x' * 100]


@pytest.mark.parametrize('limit', [10, TOTAL // 30, TOTAL // 2, TOTAL])
def test_the_sample_is_drawn_from_the_counts_of_parts(limit):
    parts = TEXTS[:7], TEXTS[7:30], TEXTS[30:]
    characters = sum(map(training_text.count_characters, parts))
    assert characters.sum() == TOTAL
    share = training_text.choose_shares({'en': characters}, 0.3, limit)['en']
    drawn = [text for part in parts for text in training_text.draw_lines(part, share.below)]
    assert drawn == sample(TEXTS, limit)


def test_lines_of_copied_documents_are_drawn_alike_and_repeated_lines_are_not():
    repeated = '\n'.join(['again'] * 1000)
    (found,) = sample([repeated], 2500)
    assert 200 < len(found.split('\n')) <= 500
    assert sample([repeated, repeated], 5000) == [found, found]


@pytest.mark.parametrize('alpha', [0, 0.3, 0.7])
def test_languages_have_the_shares_of_alpha(alpha):
    streams = {'de': TEXTS[:2], 'en': TEXTS[2:40], 'fr': TEXTS[40:]}
    sizes = {name: sum(map(len, lines(texts))) for name, texts in streams.items()}
    texts = {name: lambda texts=texts: iter(texts) for name, texts in streams.items()}
    counts = {name: training_text.count_characters(own) for name, own in streams.items()}
    chosen = training_text.choose_shares(counts, alpha, 10**9)
    found = lines(training_text.mixture(texts, chosen))
    members = {name: set(lines(texts)) - {''} for name, texts in streams.items()}
    taken = np.array([sum(len(line) for line in found if line in own) for own in members.values()])
    wanted = np.array(list(sizes.values())) ** alpha
    np.testing.assert_allclose(taken / taken.sum(), wanted / wanted.sum(), atol=0.04)
    assert abs(taken.sum() - TOTAL) < 0.1 * TOTAL


def test_a_language_without_text_is_an_error():
    counts = {
        name: training_text.count_characters(own) for name, own in (('de', ['x']), ('en', []))
    }
    with pytest.raises(UserError, match='no text'):
        training_text.choose_shares(counts, 0.3, 100)
