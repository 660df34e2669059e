"""Which documents are held out: a rule that only depends on the hash of each text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.corpus_writer import TokenizedDocuments
from bert_jax.data.held_out import HeldOutRule, assign_single_documents, hash_limit
from bert_jax.data.workers import text_hash
from bert_jax.errors import UserError


def test_text_hash_never_changes():
    """Golden values: with another hash, prepared corpora would have another held-out split."""
    assert text_hash('The old dog went up the green hill.') == 0x6124B2347D5191C4
    assert text_hash('Dvě \ud800.') == 0xB4D07BBCBFCF3242


def test_the_documents_that_are_held_out_never_change():
    """Golden membership of 40 documents with a held-out fraction of 0.2."""
    hashes = np.array([text_hash(f'Document number {i}.') for i in range(40)], np.uint64)
    ones = np.ones(40, np.int64)
    rule = HeldOutRule(0.2)
    decided = [*rule.add(TokenizedDocuments(np.arange(40), ones, ones), hashes), *rule.finish()]
    held_out = sorted(i for split, found in decided if split == 'held_out' for i in found.tokens)
    assert held_out == [0, 3, 9, 10, 12, 13, 14, 21, 24, 25, 30, 31]


def oracle(hashes, fraction):
    """The rule as the datasheet states it: which of the hashes are held out."""
    held_out = {h for h in hashes if h < int(fraction * 2**64)}
    if len(set(hashes)) > 1:
        held_out = (held_out | {min(hashes)}) - {max(hashes)}
    return [h in held_out for h in hashes]


@settings(max_examples=300, deadline=None)
@given(
    hashes=st.lists(st.integers(0, 15).map(lambda i: i * 2**60 + 12345), min_size=1, max_size=12),
    block=st.integers(1, 5),
    fraction=st.sampled_from([0.001, 0.3, 0.7, 0.999]),
)
def test_held_out_rule(hashes, block, fraction):
    rule = HeldOutRule(fraction)
    found = {'train': [], 'held_out': []}

    def take(decided):
        for split, documents in decided:
            found[split] += documents.tokens.tolist()

    for start in range(0, len(hashes), block):
        part = np.array(hashes[start : start + block], np.uint64)
        ones = np.ones(len(part), np.int64)
        # A document is one token: the number of its hash.
        documents = TokenizedDocuments((part >> np.uint64(60)).astype(int), ones, ones)
        take(rule.add(documents, part))
    take(rule.finish())
    if len(set(hashes)) == 1:
        assert rule.undecided.copies == len(hashes)
        assert found == {'train': [], 'held_out': []}
        return
    assert rule.undecided is None
    expected = {'train': [], 'held_out': []}
    for value, held_out in zip(hashes, oracle(hashes, fraction), strict=True):
        expected['held_out' if held_out else 'train'].append(value >> 60)
    assert {split: sorted(values) for split, values in found.items()} == {
        split: sorted(values) for split, values in expected.items()
    }


def test_sources_with_a_single_document_are_assigned_by_hash():
    low, high = 0, 2**63
    assert assign_single_documents([high, low], 0.1, has_held_out=True) == ['train', 'held_out']
    assert assign_single_documents([high, high], 0.1, has_held_out=True) == ['train', 'train']
    # Without other sources the smallest hash is held out, wherever the limit is.
    assert assign_single_documents([high, high + 1], 0.1, False) == ['held_out', 'train']
    assert assign_single_documents([high, high, high + 1], 0.1, False).count('train') == 1
    with pytest.raises(UserError, match='1 distinct document.*at least two'):
        assign_single_documents([high, high], 0.1, has_held_out=False)
    assert hash_limit(0.5) == 2**63
