"""Nearest neighbors, compared with loops over all pairs; back-off on a WordNet of ten senses."""

import numpy as np
import pytest

from bert_jax.analyze.measures import isotropy, word_senses
from bert_jax.analyze.measures.word_senses import BackOff, Labeled, SenseWords, WordVectors
from bert_jax.analyze.readers import wordnet
from tests.analyze.readers import test_wordnet

RNG = np.random.default_rng(0)
LEMMAS = [(name, 'NOUN') for name in RNG.choice(['bank', 'crane', 'star'], 60)]
SENSES = [(f'{lemma}/{RNG.integers(3)}',) for lemma, _ in LEMMAS]
VECTORS = RNG.normal(size=(60, 5))
TRAIN, TEST = slice(0, 40), slice(40, 60)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def part(rows, vectors):
    return SenseWords(LEMMAS[rows], SENSES[rows], vectors[rows])


def test_the_nearest_centroid_is_that_of_a_loop():
    train, test = part(TRAIN, VECTORS), part(TEST, word_senses.unit(VECTORS))
    counts = word_senses.count_senses(train)
    centroids = word_senses.centroids(train)
    guesses = word_senses.nearest_centroid(test, lambda lemma: list(counts[lemma]), centroids.get)
    for lemma, vector, guess in zip(test.lemmas, test.vectors, guesses, strict=True):
        cosines = {}
        for sense in {
            s for own, (s,) in zip(LEMMAS[TRAIN], SENSES[TRAIN], strict=True) if own == lemma
        }:
            rows = [i for i in range(40) if SENSES[i] == (sense,)]
            cosines[sense] = cosine(vector, VECTORS[rows].mean(0))
        assert guess == max(cosines, key=cosines.get)


def test_the_nearest_instance_is_that_of_a_loop():
    unit = word_senses.unit(VECTORS)
    guesses = word_senses.nearest_instance(part(TEST, unit), part(TRAIN, unit))
    for row, guess in zip(range(40, 60), guesses, strict=True):
        others = [i for i in range(40) if LEMMAS[i] == LEMMAS[row]]
        best = max(others, key=lambda i: cosine(VECTORS[i], VECTORS[row]))
        assert (guess,) == SENSES[best]


def test_vectors_are_scaled_as_they_are_read():
    states_ND = VECTORS.astype(np.float16)
    moments = isotropy.moments(5)
    moments.add(states_ND.astype(np.float32))
    scale = moments.scale()
    rows, words = np.arange(20, 40), [3, 0, 19]
    found_WD = WordVectors(states_ND, scale, rows)[words]
    assert found_WD.dtype == np.float32
    expected = scale.standardize(states_ND.astype(np.float32))
    np.testing.assert_array_equal(found_WD, expected[[23, 20, 39]])
    np.testing.assert_array_equal(WordVectors(states_ND)[words], states_ND[words])


def test_unknown_lemmas_have_no_guess_and_count_as_wrong():
    train, unseen = part(TRAIN, VECTORS), [('heron', 'NOUN')]
    counts = word_senses.count_senses(train)
    words = SenseWords(unseen, [('x',)], VECTORS[:1])
    assert word_senses.most_frequent(unseen, counts) == [None]
    assert word_senses.nearest_instance(words, train) == [None]
    assert word_senses.nearest_centroid(words, lambda lemma: [], {}.get) == [None]
    test = Labeled([*unseen, LEMMAS[0]], [('x',), SENSES[0]], np.array([0, 1]))
    scored = word_senses.score({'m': [None, SENSES[0][0]]}, test, np.array([0, 3]))['m']
    assert [scored[name]['accuracy'] for name in ('all', 'seen', 'ambiguous')] == [0.5, 1, 1]
    assert scored['all']['interval'] == (0, 1)


def test_several_gold_senses_are_all_right():
    test = Labeled(LEMMAS[:2], [('a', 'b'), ('c',)], np.array([0, 0]))
    scored = word_senses.score({'m': ['b', 'b']}, test, np.array([2, 2]))['m']
    assert scored['all']['accuracy'] == 0.5
    assert scored['all']['interval'] is None


@pytest.mark.parametrize(
    ('sense', 'level', 'expected'),
    [
        ('stork%1:05:00::', 'own', [1, 0]),
        ('crane%1:05:00::', 'synset', [1, 0]),  # a stork
        ('bird_island%1:15:00::', 'hypernyms', [0, 4]),  # an instance of a bird
        ('crane%1:06:00::', 'none', None),
        # The file of adjectives has one synset with a vector.
        ('tall%5:00:00:high:00', 'file', [5, 5]),
    ],
)
def test_back_off_goes_from_the_synset_to_those_above_to_the_file(sense, level, expected, tmp_path):
    net = wordnet.read(test_wordnet.write(tmp_path))
    known = {'stork%1:05:00::': [1, 0], 'bird%1:05:00::': [0, 4], 'high%3:00:00::': [5, 5]}
    back_off = BackOff(net, {key: np.array(own, float) for key, own in known.items()})
    assert back_off.level(sense) == level
    vector = back_off.vector(sense)
    assert vector is None if expected is None else vector.tolist() == expected


def test_the_mean_of_a_file_is_that_of_its_synsets_with_imputed_ones(tmp_path):
    """Storks have the mean of birds, which is above them; so the file has two such synsets."""
    net = wordnet.read(test_wordnet.write(tmp_path))
    net.file_of[net.synset_of['crane%1:06:00::']] = '05'
    back_off = BackOff(net, {'bird%1:05:00::': np.array([0.0, 4.0])})
    assert back_off.level('crane%1:05:00::') == 'hypernyms'
    assert back_off.vector('crane%1:06:00::').tolist() == [0, 4]
