"""Edits and their marks, on rows whose tokens all differ, so that each can be traced."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.objectives.edits import EDITS, UNLABELED, EditedText
from bert_jax.objectives.masking import Masking

CLS, SEP, PAD, MASK = 0, 1, 2, 3
VOCAB, LENGTH, ROWS = 5000, 48, 1500
NEW = 2500  # random tokens come from here on, the text's from below
COUNTS = (np.arange(VOCAB) >= NEW).astype(int)
MASKING = Masking(0.15, 0.8, 0.1, 'unigram', MASK, (CLS, SEP, PAD, MASK), COUNTS)


def make_batch():
    """[CLS] a [SEP] b [SEP] [PAD] …, the text's ids rising by one from token to token, a sentence
    every six tokens, the first half one."""
    lengths = np.where(np.arange(ROWS) % 3, LENGTH, np.arange(ROWS) % 40 + 8)
    position = np.arange(LENGTH)
    ids = 10 + np.arange(ROWS)[:, None] + np.tile(position, (ROWS, 1))
    ids[:, 0] = CLS
    middle = lengths // 2
    ids[np.arange(ROWS), middle] = SEP
    ids[np.arange(ROWS), lengths - 1] = SEP
    mask = (position < lengths[:, None]).astype(np.int32)
    text = ~np.isin(ids, (CLS, SEP, PAD, MASK)) & (mask > 0)
    return {
        'input_ids': np.where(mask, ids, PAD).astype(np.int32),
        'attention_mask': mask,
        'token_type_ids': ((position > middle[:, None]) * mask).astype(np.int32),
        'sentence_start': ((position % 6 == 4) & text).astype(np.int32),
    }


@functools.cache
def edit(*names, rate=0.2):
    editing = EditedText(MASKING, {}, PAD, {name: rate for name in names})
    keys = jax.random.split(jax.random.key(0), ROWS)
    return make_batch(), jax.device_get(jax.jit(editing)(keys, make_batch()))


def rows(batch, edited, number=300):
    """(the clean row, its edited ids without padding, marks without padding by name)."""
    for row in range(number):
        real = edited.attention_mask[row].astype(bool)
        assert real[: real.sum()].all()
        assert (edited.input_ids[row][~real] == PAD).all()
        for marks in edited.labels.values():
            assert (marks[row][~real] == UNLABELED).all()
        clean = batch['input_ids'][row][batch['attention_mask'][row] > 0]
        marks = {name: m[row][real] for name, m in edited.labels.items()}
        yield clean, edited.input_ids[row][real], marks


def test_substitution():
    batch, edited = edit('substitution')
    for clean, ids, marks in rows(batch, edited):
        np.testing.assert_array_equal(marks['substitution'], ids != clean)
        assert np.isin(ids[np.isin(clean, (CLS, SEP))], (CLS, SEP)).all()
    text = (batch['input_ids'] > MASK).sum()
    assert (edited.labels['substitution'] == 1).sum() / text == pytest.approx(0.2, abs=0.01)


def test_deletion():
    batch, edited = edit('deletion')
    asked = deleted = 0
    for clean, ids, marks in rows(batch, edited):
        place = 0
        for token, mark in zip(ids, marks['deletion'], strict=True):
            assert clean[place] == token
            gone = 0
            while place + 1 + gone < len(clean) and clean[place + 1 + gone] not in ids:
                gone += 1
            expected = 1 + clean[place + 1] if gone else 0
            assert mark == expected
            asked, deleted = asked + (gone > 0), deleted + gone
            place += 1 + gone
        assert place == len(clean)  # special tokens, the last [SEP] among them, are never deleted
    assert asked < deleted  # some were deleted side by side
    text = (batch['input_ids'] > MASK).sum()
    gone = batch['attention_mask'].sum() - edited.attention_mask.sum()
    assert gone / text == pytest.approx(0.2, abs=0.01)
    same_types = edited.token_type_ids.max(1) == batch['token_type_ids'].max(1)
    assert same_types.all()


def test_insertion():
    batch, edited = edit('insertion')
    cut = 0
    for clean, ids, marks in rows(batch, edited):
        is_new = marks['insertion'] == 1
        assert (ids[is_new] >= NEW).all()
        kept = ids[~is_new]
        np.testing.assert_array_equal(kept[:-1], clean[: len(kept) - 1])
        assert kept[-1] == SEP
        cut += len(clean) - len(kept)
        assert len(kept) == len(clean) or len(ids) == LENGTH
        assert not is_new[0]
    assert cut > 100
    share = (edited.labels['insertion'] == 1).sum() / edited.attention_mask.sum()
    assert share == pytest.approx(0.2 / 1.2, abs=0.01)


def test_permutation():
    batch, edited = edit('permutation', rate=0.5)
    moved = 0
    for row, (clean, ids, marks) in enumerate(rows(batch, edited, 600)):
        assert sorted(ids) == sorted(clean)
        np.testing.assert_array_equal(np.isin(ids, (CLS, SEP)), np.isin(clean, (CLS, SEP)))
        starts = batch['sentence_start'][row].astype(bool)
        starts |= np.pad(batch['input_ids'][row][:-1] <= SEP, (1, 0))
        first_of = {batch['input_ids'][row][t] for t in np.flatnonzero(starts)} - {CLS, SEP, PAD}
        for t, (token, mark) in enumerate(zip(ids, marks['permutation'], strict=True)):
            if token not in first_of:
                assert mark == UNLABELED
                if token > MASK:
                    assert ids[t - 1] == token - 1  # sentences stay whole
            elif ids[t - 1] in (CLS, SEP):
                assert mark == (token != clean[t])
            else:
                assert mark == (ids[t - 1] != token - 1)
        moved += (ids != clean).any()
    # Of the half that is shuffled some have a single sentence in a segment or come out the same.
    assert 0.3 * 600 < moved < 0.55 * 600


def test_all_edits_together_keep_each_others_marks():
    batch, edited = edit(*EDITS, rate=0.2)
    _, alone = edit('permutation', 'deletion', rate=0.2)
    for row in range(300):
        is_new = edited.labels['insertion'][row] == 1
        for name in ('permutation', 'deletion'):
            assert (edited.labels[name][row][is_new] == UNLABELED).all()
            kept = edited.labels[name][row][~is_new & (edited.attention_mask[row] > 0)]
            np.testing.assert_array_equal(kept[:-1], alone.labels[name][row][: len(kept) - 1])
        assert (edited.labels['substitution'][row][is_new] == 0).all()
        substituted = edited.labels['substitution'][row] == 1
        assert (edited.input_ids[row][substituted] >= NEW).all()
    assert edited.labels.keys() == EDITS.keys()


def test_an_example_is_edited_the_same_whatever_stands_beside_it():
    batch, edited = edit(*EDITS)
    editing = EditedText(MASKING, {}, PAD, {name: 0.2 for name in EDITS})
    keys = jax.random.split(jax.random.key(0), ROWS)
    part = jax.jit(editing)(keys[5:9], {name: leaf[5:9] for name, leaf in batch.items()})
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[5:9], b), edited, part)


@pytest.mark.parametrize('rate', [0.0, 1.0, -0.1])
def test_rates_out_of_range_are_refused(rate):
    with pytest.raises(UserError, match='editing.insertion'):
        EditedText(MASKING, {}, PAD, {'insertion': rate})
