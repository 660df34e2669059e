"""Masking by its statistics with fixed keys, and against the rules of the original code written
slowly.
"""

import dataclasses
import hashlib
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.objectives import masking

VOCAB_SIZE = 1000
SPECIAL_IDS = (0, 1, 2, 3, 4)
PAD, CLS, SEP, MASK = 0, 2, 3, 4
COUNTS = np.concatenate([np.zeros(5), 1e6 / np.arange(1, VOCAB_SIZE - 4)]).astype(np.int64)


def make_masking(**changes):
    settings = {
        'rate': 0.15,
        'mask': 0.8,
        'random': 0.1,
        'replacement': 'uniform',
        'mask_id': MASK,
        'special_ids': SPECIAL_IDS,
        'unigram_counts': COUNTS,
    }
    return masking.Masking(**(settings | changes))


def make_batch(rows=2000, length=128, seed=0):
    """[CLS] … [SEP] … [SEP] and padding of many lengths; ids 5 … 49, so that a random id is seldom
    the old one.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 50, (rows, length)).astype(np.int32)
    lengths = rng.integers(5, length + 1, rows)
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths // 2] = SEP
    ids[np.arange(rows), lengths - 1] = SEP
    attention_mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    return np.where(attention_mask, ids, PAD), attention_mask, lengths


def run(settings, num_predictions=20, **batch_settings):
    ids, attention_mask, lengths = make_batch(**batch_settings)
    keys = jax.random.split(jax.random.key(0), len(ids))
    function = jax.jit(masking.mask_tokens, static_argnums=(0, 4))
    masked = jax.device_get(function(settings, keys, ids, attention_mask, num_predictions))
    return ids, attention_mask, lengths, masked


def test_the_number_chosen_is_that_of_the_original_code():
    _, _, lengths, masked = run(make_masking())
    expected = [min(20, max(1, round(0.15 * int(length)))) for length in lengths]
    candidates = lengths - 3
    np.testing.assert_array_equal(masked.weights.sum(1), np.minimum(expected, candidates))


def test_fifteen_percent_of_the_real_tokens_are_chosen():
    _, attention_mask, _, masked = run(make_masking())
    assert masked.weights.sum() / attention_mask.sum() == pytest.approx(0.15, abs=0.005)


def test_every_real_token_is_equally_likely_and_no_special_token_is_ever_chosen():
    ids = np.full((20_000, 12), 7, np.int32)
    ids[:, 0], ids[:, 5], ids[:, 9], ids[:, 10:] = CLS, SEP, SEP, PAD
    attention_mask = (ids != PAD).astype(np.int32)
    keys = jax.random.split(jax.random.key(1), len(ids))
    masked = jax.device_get(masking.mask_tokens(make_masking(), keys, ids, attention_mask, 4))
    chosen = np.bincount(masked.positions[masked.weights > 0], minlength=12)
    real = [1, 2, 3, 4, 6, 7, 8]
    assert chosen.sum() == 2 * len(ids)
    assert chosen[[0, 5, 9, 10, 11]].sum() == 0
    np.testing.assert_allclose(chosen[real] / len(ids), 2 / 7, atol=0.015)


def test_eighty_ten_ten():
    ids, _, _, masked = run(make_masking(), rows=4000)
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
    ids, _, _, masked = run(make_masking(mask=0.0, random=1.0, replacement='unigram'), rows=4000)
    chosen = masked.weights > 0
    new = np.take_along_axis(masked.input_ids, masked.positions, 1)[chosen]
    expected = COUNTS / COUNTS.sum() * len(new)
    frequent = expected > 50
    observed = np.bincount(new, minlength=VOCAB_SIZE)
    chi_square = ((observed - expected)[frequent] ** 2 / expected[frequent]).sum()
    assert chi_square < 1.5 * frequent.sum()
    assert observed[list(SPECIAL_IDS)].sum() == 0


def test_only_chosen_tokens_change_and_labels_are_what_stood_there():
    ids, attention_mask, _, masked = run(make_masking())
    np.testing.assert_array_equal(np.take_along_axis(ids, masked.positions, 1), masked.labels)
    touched = np.zeros(ids.shape, bool)
    np.put_along_axis(touched, masked.positions, masked.weights > 0, 1)
    np.testing.assert_array_equal(masked.input_ids[~touched], ids[~touched])
    for row in masked.positions[:100]:
        assert len(set(row)) == len(row)
    np.testing.assert_array_equal(masked.input_ids[attention_mask == 0], PAD)


def test_an_example_keeps_its_masks_whatever_stands_beside_it():
    ids, attention_mask, _ = make_batch(rows=16)
    keys = jax.random.split(jax.random.key(3), 16)
    settings = make_masking()
    whole = masking.mask_tokens(settings, keys, ids, attention_mask, 20)
    part = masking.mask_tokens(settings, keys[5:9], ids[5:9], attention_mask[5:9], 20)
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[5:9], b)


def digest() -> str:
    """Of the masks of 50 examples."""
    masked = run(make_masking(), rows=50)[-1]
    return hashlib.sha256(b''.join(np.ascontiguousarray(a).tobytes() for a in masked)).hexdigest()


def test_another_process_draws_the_same_masks():
    code = 'from tests.objectives.test_masking import digest; print(digest())'
    other = subprocess.run(
        [sys.executable, '-c', code],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()


def test_another_key_hides_other_tokens():
    ids, attention_mask, _ = make_batch(rows=64)
    settings = make_masking()
    first, second = (
        masking.mask_tokens(
            settings, jax.random.split(jax.random.key(n), 64), ids, attention_mask, 20
        )
        for n in (0, 1)
    )
    assert np.mean(np.asarray(first.positions) == np.asarray(second.positions)) < 0.1


@pytest.mark.parametrize(
    ('change', 'word'),
    [
        ({'rate': 0.0}, 'masking.rate'),
        ({'rate': 1.0}, 'masking.rate'),
        ({'mask': 0.95}, 'masking.mask'),
        ({'random': -0.1}, 'masking.random'),
        ({'replacement': 'bigram'}, 'uniform, unigram|unigram, uniform'),
    ],
)
def test_settings_out_of_range_are_refused(change, word):
    with pytest.raises(UserError, match=word):
        dataclasses.replace(make_masking(), **change)
