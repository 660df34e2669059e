"""Which documents are held out: a rule that only depends on the hash of each text."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.text.held_out import HeldOutRule, choose_rule, hash_of_parts, text_hash


def test_text_hash_never_changes():
    """Golden values: with another hash, prepared corpora would have another held-out split."""
    assert text_hash('The old dog went up the green hill.') == 0xFCD625BC99322B9E
    assert text_hash('Dvě \ud800.') == 0x3416664DD645C4A8


@pytest.mark.parametrize('copy', ['The old\r\n   dog\u00a0ran.\n\n', '\tTheolddog ran .'])
def test_copies_that_differ_in_whitespace_have_the_same_hash(copy):
    assert text_hash(copy) == text_hash('The old dog ran.')
    assert hash_of_parts(copy.splitlines()) == text_hash('The old dog ran.')
    assert text_hash(copy) != text_hash('the old dog ran.')


def test_the_documents_that_are_held_out_never_change():
    """Golden membership of 40 documents with a held-out fraction of 0.2."""
    hashes = [text_hash(f'Document number {i}.') for i in range(40)]
    rule = choose_rule({'en': hashes}, 0.2)
    assert np.flatnonzero(rule.is_held_out(np.array(hashes, np.uint64))).tolist() == [
        *(0, 3, 7, 22, 24, 25, 29, 34)
    ]


def held_out(by_language, fraction):
    """For each language the held-out hashes and the remaining ones."""
    rule = choose_rule(by_language, fraction)
    sides = {}
    for language, hashes in by_language.items():
        is_held_out = rule.is_held_out(np.array(hashes, np.uint64))
        sides[language] = [
            set(itertools.compress(hashes, side)) for side in (is_held_out, ~is_held_out)
        ]
    return sides


@settings(max_examples=300, deadline=None)
@given(
    hashes=st.lists(st.integers(0, 15).map(lambda i: i * 2**60 + 12345), min_size=1, max_size=12),
    fraction=st.sampled_from([0.001, 0.3, 0.7, 0.999]),
)
def test_a_language_has_two_documents_in_each_split_if_it_has_four(hashes, fraction):
    different = sorted(set(hashes))
    if len(different) < 2:
        with pytest.raises(
            UserError, match='1 distinct document.*at least two.* of 0.* ;documents=blank_line'
        ):
            choose_rule({'en': hashes}, fraction)
        return
    below, above = held_out({'en': hashes}, fraction)['en']
    least = min(2, len(different) // 2)
    number = sum(value < int(fraction * 2**64) for value in different)
    expected = min(max(number, least), len(different) - least)
    assert sorted(below) == different[:expected]
    assert sorted(above) == different[expected:]


def test_no_run_of_60_documents_has_a_held_out_split_of_one():
    """At base.py's fraction of 0.005, most splits of a small corpus would have no document."""
    for number in range(50):
        hashes = [text_hash(f'{number} {document}') for document in range(60)]
        ((below, above),) = held_out({'en': hashes}, 0.005).values()
        assert len(below) >= 2
        assert len(below) + len(above) == 60


def test_every_language_gets_its_share_and_copies_stay_together():
    large = [text_hash(f'large {number}') for number in range(2000)]
    small = [text_hash(f'small {number}') for number in range(38)] + large[:2]
    sides = held_out({'en': large, 'cy': small, 'gd': large[5:6]}, 0.01)
    for below, above in (sides['en'], sides['cy']):
        assert len(below) >= 2
        assert len(above) >= 2
    assert set.union(*(below for below, _ in sides.values())).isdisjoint(
        set.union(*(above for _, above in sides.values()))
    )
    assert sides['gd'] == [set(), {large[5]}]


def test_languages_of_one_document_each_fill_both_splits():
    sides = held_out({'en': [2**63, 2**63], 'cy': [5], 'gd': [2**64 - 1]}, 0.1)
    assert [bool(below) for below, _ in sides.values()] == [False, True, False]
    with pytest.raises(UserError, match='1 distinct document'):
        choose_rule({'en': [5], 'cy': [5, 5]}, 0.1)


def test_a_large_source_is_read_only_until_both_splits_have_two_documents():
    hashes = iter([2**63, 2**63, 1, 2, 3, 2**63 + 1, 99])
    rule = choose_rule({'en': hashes}, 0.5)
    assert list(hashes) == [99]
    assert rule.is_held_out(np.array([0, 2**63 - 1, 2**63], np.uint64)).tolist() == [
        True,
        True,
        False,
    ]


def test_the_limit_is_the_fraction_of_all_hashes():
    hashes = np.array([0, 2**62 - 1, 2**62, 2**64 - 1], np.uint64)
    assert HeldOutRule(0.25).is_held_out(hashes).tolist() == [True, True, False, False]
