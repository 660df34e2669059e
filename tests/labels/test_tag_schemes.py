"""Tag schemes, compared with each other and with seqscore."""

import itertools

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import tag_schemes
from tests import conlleval
from tests.labels.reading import config


def all_spans(num_words):
    """Every set of disjoint spans with labels X and Y; '+' extends the span before it."""
    for signs in itertools.product(('O', 'X', 'Y', '+'), repeat=num_words):
        found = []
        for number, sign in enumerate(signs):
            if sign in 'XY':
                found.append((number, number + 1, sign))
            elif sign == '+':
                if not found or found[-1][1] != number:
                    break
                found[-1] = (found[-1][0], number + 1, found[-1][2])
        else:
            yield found


@pytest.mark.parametrize('scheme', ['bio', 'bioes'])
def test_spans_survive_the_round_trip_through_tags(scheme):
    for num_words in range(1, 6):
        for found in all_spans(num_words):
            written = tag_schemes.spans_to_tags(found, num_words, scheme)
            assert len(written) == num_words
            assert tag_schemes.tags_to_spans(written, scheme) == (found, 0)


@pytest.mark.parametrize(
    ('written', 'scheme', 'bio'),
    [
        ('I-X I-X B-X O I-Y', 'iob1', 'B-X I-X B-X O B-Y'),
        ('I-X I-Y', 'iob1', 'B-X B-Y'),
        ('B-X L-X U-Y O', 'bioes', 'B-X I-X B-Y O'),
        ('S-X B-X I-X E-X', 'bioes', 'B-X B-X I-X I-X'),
        ('B-X-1 I-X-1', 'bio', 'B-X-1 I-X-1'),
        ('X I-Y B-', 'none', 'X I-Y B-'),
    ],
)
def test_valid_tags_are_converted_without_repair(written, scheme, bio):
    assert tag_schemes.convert_tags(written.split(), scheme, 'bio') == (tuple(bio.split()), 0)


@pytest.mark.parametrize(
    ('written', 'scheme', 'bio', 'repaired'),
    [
        ('O I-X I-X', 'bio', 'O B-X I-X', 1),
        ('B-X I-Y', 'bio', 'B-X B-Y', 1),
        ('B-X O', 'bioes', 'B-X O', 1),
        ('E-X S-X I-X', 'bioes', 'B-X B-X B-X', 3),
        ('S-X I-X', 'bioes', 'B-X B-X', 2),
    ],
)
def test_tags_that_violate_the_scheme_are_repaired_and_counted(written, scheme, bio, repaired):
    found, count = tag_schemes.convert_tags(written.split(), scheme, 'bio')
    assert found == tuple(bio.split())
    assert count >= repaired


def test_spans_are_those_of_seqscore():
    for written in itertools.product(('O', 'B-X', 'I-X', 'B-Y', 'I-Y'), repeat=4):
        found, _ = tag_schemes.tags_to_spans(written, 'bio')
        assert found == conlleval.entities(written)


def test_only_tag_sets_of_bio_and_bioes_are_completed():
    assert tag_schemes.complete({'B-X'}) == {'O', 'B-X', 'I-X'}
    assert tag_schemes.complete({'S-X', 'O'}) == {'O', 'B-X', 'I-X', 'E-X', 'S-X'}
    for tags in ({'I-X', 'I-Y', 'O'}, {'O'}, {'NOUN', 'B-X'}, {'L-X', 'B-X'}):
        assert tag_schemes.complete(tags) == tags


def test_an_unknown_scheme_is_an_error():
    with pytest.raises(
        UserError, match="unknown data.scheme 'iob2'; did you mean iob1. known: bio, bioes, iob1"
    ):
        config(scheme='iob2')
    with pytest.raises(UserError, match="unknown data.tags_as 'iob1'; known: bio, bioes"):
        config(tags_as='iob1')
