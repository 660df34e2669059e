"""Masking of single tokens: statistics with fixed keys, and the rules of the original code."""

import dataclasses
import functools
import hashlib
from typing import NamedTuple

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import SCHEMES, Tokens

VOCAB_SIZE = 1000
SPECIAL_IDS = (0, 1, 2, 3, 4)
PAD, CLS, SEP, MASK = 0, 2, 3, 4
COUNTS = np.concatenate([np.zeros(5), 1e6 / np.arange(1, VOCAB_SIZE - 4)]).astype(np.int64)
VOCABULARY = Vocabulary(
    MASK, PAD, SPECIAL_IDS, COUNTS, is_word_start_V=np.arange(VOCAB_SIZE) % 3 == 0
)
MASKING = MaskedText(VOCABULARY, Tokens(0.15, per_sequence=True), {128: 20, 12: 4})
OPTIONS = {
    'rate': 0.15,
    'per_sequence': True,
    'span_p': 0.2,
    'longest_span': 10,
    'longest_ngram': 3,
    'adapt_every': 200,
}

# The first half of the SHA-256 digest of the masks of 50 examples, as first released.
DIGESTS = {
    'tokens': 'f8c1b2cd14d3e5682273708a1e371d53',
    'whole_words': 'ec13f2c34429c6c7e2d83e418d1a5b19',
    'spans': '339184eb236cefa49fe956ae4924b733',
    'ngrams': '2442b63e1d0a17239a4432f11bda2317',
}


class Masked(NamedTuple):
    """The arrays of masked rows."""

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def mask_tokens(settings, keys, ids, attention_mask):
    rows = jax.device_get(jax.jit(settings)(keys, Rows(ids, attention_mask)))
    return Masked(rows.input_ids_BT, *rows.targets)


def make_scheme(name):
    kind = SCHEMES[name]
    return kind(**{option: OPTIONS[option] for option in kind.options()})


def make_batch(rows=2000, length=128, seed=0):
    """Rows [CLS] … [SEP] … [SEP] of many lengths.

    The ids are 5 … 49, so that a random id is rarely the original one.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 50, (rows, length)).astype(np.int32)
    lengths = rng.integers(5, length + 1, rows)
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths // 2] = SEP
    ids[np.arange(rows), lengths - 1] = SEP
    attention_mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    return np.where(attention_mask, ids, PAD), attention_mask, lengths


@functools.cache
def run(settings=MASKING, **batch_settings):
    ids, attention_mask, lengths = make_batch(**batch_settings)
    keys = jax.random.split(jax.random.key(0), len(ids))
    return ids, attention_mask, lengths, mask_tokens(settings, keys, ids, attention_mask)


def test_the_number_of_chosen_tokens_is_as_in_the_original_code():
    _, _, lengths, masked = run()
    expected = [min(20, max(1, round(0.15 * int(length)))) for length in lengths]
    candidates = lengths - 3
    np.testing.assert_array_equal(masked.weights.sum(1), np.minimum(expected, candidates))


def test_fifteen_percent_of_the_real_tokens_are_chosen():
    _, attention_mask, _, masked = run()
    assert masked.weights.sum() / attention_mask.sum() == pytest.approx(0.15, abs=0.005)


def test_tokens_are_equally_likely_and_special_tokens_never_chosen():
    ids = np.full((20_000, 12), 7, np.int32)
    ids[:, 0], ids[:, 5], ids[:, 9], ids[:, 10:] = CLS, SEP, SEP, PAD
    attention_mask = (ids != PAD).astype(np.int32)
    keys = jax.random.split(jax.random.key(1), len(ids))
    masked = mask_tokens(MASKING, keys, ids, attention_mask)
    chosen = np.bincount(masked.positions[masked.weights > 0], minlength=12)
    real = [1, 2, 3, 4, 6, 7, 8]
    assert chosen.sum() == 2 * len(ids)
    assert chosen[[0, 5, 9, 10, 11]].sum() == 0
    np.testing.assert_allclose(chosen[real] / len(ids), 2 / 7, atol=0.015)


def test_chosen_tokens_are_masked_replaced_or_kept_at_80_10_10():
    ids, _, _, masked = run(rows=4000)
    chosen = masked.weights > 0
    new = np.take_along_axis(masked.input_ids, masked.positions, 1)[chosen]
    old = masked.labels[chosen]
    assert np.mean(new == MASK) == pytest.approx(0.8, abs=0.01)
    assert np.mean(new == old) == pytest.approx(0.1, abs=0.01)
    changed = new[(new != MASK) & (new != old)]
    assert len(changed) / len(new) == pytest.approx(0.1, abs=0.01)
    assert np.bincount(changed, minlength=VOCAB_SIZE).max() < 30  # uniform: about 4 each
    assert len(np.unique(changed)) > 0.9 * VOCAB_SIZE


def test_unigram_replacement_follows_the_frequencies():
    settings = dataclasses.replace(MASKING, mask=0.0, random=1.0, replacement='unigram')
    ids, _, _, masked = run(settings, rows=4000)
    chosen = masked.weights > 0
    new = np.take_along_axis(masked.input_ids, masked.positions, 1)[chosen]
    expected = COUNTS / COUNTS.sum() * len(new)
    frequent = expected > 50
    observed = np.bincount(new, minlength=VOCAB_SIZE)
    chi_square = ((observed - expected)[frequent] ** 2 / expected[frequent]).sum()
    assert chi_square < 1.5 * frequent.sum()
    assert observed[list(SPECIAL_IDS)].sum() == 0


def test_only_chosen_tokens_change_and_labels_are_the_original_ids():
    ids, attention_mask, _, masked = run()
    np.testing.assert_array_equal(np.take_along_axis(ids, masked.positions, 1), masked.labels)
    touched = np.zeros(ids.shape, bool)
    np.put_along_axis(touched, masked.positions, masked.weights > 0, 1)
    np.testing.assert_array_equal(masked.input_ids[~touched], ids[~touched])
    for row in masked.positions[:100]:
        assert len(set(row)) == len(row)
    np.testing.assert_array_equal(masked.input_ids[attention_mask == 0], PAD)


def test_masks_of_an_example_do_not_depend_on_the_batch():
    ids, attention_mask, _ = make_batch(rows=16)
    keys = jax.random.split(jax.random.key(3), 16)
    whole = mask_tokens(MASKING, keys, ids, attention_mask)
    part = mask_tokens(MASKING, keys[5:9], ids[5:9], attention_mask[5:9])
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[5:9], b)


@pytest.mark.parametrize('scheme', DIGESTS)
def test_every_process_and_release_draws_the_same_masks(scheme):
    masked = run(dataclasses.replace(MASKING, scheme=make_scheme(scheme)), rows=50)[-1]
    content = b''.join(np.ascontiguousarray(array).tobytes() for array in masked)
    assert hashlib.sha256(content).hexdigest()[:32] == DIGESTS[scheme]


def test_another_key_gives_other_masks():
    ids, attention_mask, _ = make_batch(rows=64)
    first, second = (
        mask_tokens(MASKING, jax.random.split(jax.random.key(n), 64), ids, attention_mask)
        for n in (0, 1)
    )
    assert np.mean(np.asarray(first.positions) == np.asarray(second.positions)) < 0.1


@pytest.mark.parametrize(
    ('change', 'word'),
    [
        ({'mask': 0.95}, 'masking.mask'),
        ({'replacement': 'bigram'}, 'uniform, unigram|unigram, uniform'),
    ],
)
def test_invalid_settings_are_rejected(change, word):
    with pytest.raises(UserError, match=word):
        dataclasses.replace(MASKING, **change)


@pytest.mark.parametrize('scheme', ['tokens', 'whole_words'])
def test_unknown_tokens_are_chosen_like_others_if_the_recipe_says_so(scheme):
    unknown = 1
    ids, attention_mask, _ = make_batch()
    ids = np.where((ids >= 5) & (ids < 10), unknown, ids)
    keys = jax.random.split(jax.random.key(0), len(ids))
    is_word_start = np.arange(VOCAB_SIZE) % 3 != 0
    for special_ids in (SPECIAL_IDS, tuple(set(SPECIAL_IDS) - {unknown})):
        vocabulary = dataclasses.replace(
            VOCABULARY, special_ids=special_ids, is_word_start_V=is_word_start
        )
        settings = MaskedText(vocabulary, make_scheme(scheme), {128: 20})
        masked = mask_tokens(settings, keys, ids, attention_mask)
        share = np.mean(masked.labels[masked.weights > 0] == unknown)
        can_choose = ~np.isin(ids, special_ids)
        assert share == pytest.approx(np.mean(ids[can_choose] == unknown), rel=0.1)
