"""Edits and their labels, on rows whose tokens all differ, so that each can be traced."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.edits import EDITS, UNLABELED, EditedText

CLS, SEP, PAD, MASK = 0, 1, 2, 3
VOCAB, LENGTH, ROWS = 5000, 48, 1500
NEW = 2500  # random tokens have ids from here on, text tokens have lower ids
COUNTS = (np.arange(VOCAB) >= NEW).astype(int)
VOCABULARY = Vocabulary(MASK, PAD, (CLS, SEP, PAD, MASK), COUNTS)


def make_batch():
    """Rows [CLS] A [SEP] B [SEP] … whose ids rise by one, with a sentence every six tokens."""
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


def editing(*names, rate=0.2):
    return EditedText(VOCABULARY, dict.fromkeys(names, rate), 'unigram')


@functools.cache
def edit(*names, rate=0.2):
    keys, clean = jax.random.split(jax.random.key(0), ROWS), Rows.of(make_batch())
    return make_batch(), jax.device_get(jax.jit(editing(*names, rate=rate))(keys, clean))


def rows(batch, edited, number=300):
    """Yield the clean ids, the edited ids and the labels by name of each row, without padding."""
    for row in range(number):
        real = edited.attention_mask_BT[row].astype(bool)
        assert real[: real.sum()].all()
        assert (edited.input_ids_BT[row][~real] == PAD).all()
        by_edit = {name: labels for name, labels in edited.labels.items() if name in EDITS}
        for labels in by_edit.values():
            assert (labels[row][~real] == UNLABELED).all()
        clean = batch['input_ids'][row][batch['attention_mask'][row] > 0]
        labels = {name: m[row][real] for name, m in by_edit.items()}
        yield clean, edited.input_ids_BT[row][real], labels


def test_substituted_tokens_are_labeled():
    batch, edited = edit('substitution')
    for clean, ids, labels in rows(batch, edited):
        np.testing.assert_array_equal(labels['substitution'], ids != clean)
        assert np.isin(ids[np.isin(clean, (CLS, SEP))], (CLS, SEP)).all()
    text = (batch['input_ids'] > MASK).sum()
    assert (edited.labels['substitution'] == 1).sum() / text == pytest.approx(0.2, abs=0.01)


def test_deletions_are_labeled_with_the_deleted_token():
    batch, edited = edit('deletion')
    asked = deleted = 0
    for clean, ids, labels in rows(batch, edited):
        place = 0
        for token, label in zip(ids, labels['deletion'], strict=True):
            assert clean[place] == token
            gone = 0
            while place + 1 + gone < len(clean) and clean[place + 1 + gone] not in ids:
                gone += 1
            expected = 1 + clean[place + 1] if gone else 0
            assert label == expected
            asked, deleted = asked + (gone > 0), deleted + gone
            place += 1 + gone
        assert place == len(clean)  # special tokens are never deleted
    assert asked < deleted  # some deletions are adjacent
    text = (batch['input_ids'] > MASK).sum()
    gone = batch['attention_mask'].sum() - edited.attention_mask_BT.sum()
    assert gone / text == pytest.approx(0.2, abs=0.01)
    same_types = edited.token_type_ids_BT.max(1) == batch['token_type_ids'].max(1)
    assert same_types.all()


def test_inserted_tokens_are_labeled():
    batch, edited = edit('insertion')
    cut = 0
    for clean, ids, labels in rows(batch, edited):
        is_new = labels['insertion'] == 1
        assert (ids[is_new] >= NEW).all()
        kept = ids[~is_new]
        np.testing.assert_array_equal(kept[:-1], clean[: len(kept) - 1])
        assert kept[-1] == SEP
        cut += len(clean) - len(kept)
        assert len(kept) == len(clean) or len(ids) == LENGTH
        assert not is_new[0]
    assert cut > 100
    share = (edited.labels['insertion'] == 1).sum() / edited.attention_mask_BT.sum()
    assert share == pytest.approx(0.2 / 1.2, abs=0.01)


def test_sentences_out_of_order_are_labeled():
    batch, edited = edit('permutation', rate=0.5)
    moved = 0
    for row, (clean, ids, labels) in enumerate(rows(batch, edited, 600)):
        assert sorted(ids) == sorted(clean)
        np.testing.assert_array_equal(np.isin(ids, (CLS, SEP)), np.isin(clean, (CLS, SEP)))
        starts = batch['sentence_start'][row].astype(bool)
        starts |= np.pad(batch['input_ids'][row][:-1] <= SEP, (1, 0))
        first_of = {batch['input_ids'][row][t] for t in np.flatnonzero(starts)} - {CLS, SEP, PAD}
        for t, (token, label) in enumerate(zip(ids, labels['permutation'], strict=True)):
            if token not in first_of:
                assert label == UNLABELED
                if token > MASK:
                    assert ids[t - 1] == token - 1  # sentences stay intact
            elif ids[t - 1] in (CLS, SEP):
                assert label == (token != clean[t])
            else:
                assert label == (ids[t - 1] != token - 1)
        moved += (ids != clean).any()
    # Half of the rows are shuffled; some of those have one sentence per segment or do not change.
    assert 0.3 * 600 < moved < 0.55 * 600


def test_edits_keep_the_labels_of_earlier_edits():
    batch, edited = edit(*EDITS, rate=0.2)
    _, alone = edit('permutation', 'deletion', rate=0.2)
    for row in range(300):
        is_new = edited.labels['insertion'][row] == 1
        for name in ('permutation', 'deletion'):
            assert (edited.labels[name][row][is_new] == UNLABELED).all()
            kept = edited.labels[name][row][~is_new & (edited.attention_mask_BT[row] > 0)]
            np.testing.assert_array_equal(kept[:-1], alone.labels[name][row][: len(kept) - 1])
        assert (edited.labels['substitution'][row][is_new] == 0).all()
        substituted = edited.labels['substitution'][row] == 1
        assert (edited.input_ids_BT[row][substituted] >= NEW).all()
    assert edited.labels.keys() == {*EDITS, 'sentence_start'}


def test_edits_of_an_example_do_not_depend_on_the_batch():
    batch, edited = edit(*EDITS)
    keys = jax.random.split(jax.random.key(0), ROWS)
    part = {name: leaf[5:9] for name, leaf in batch.items()}
    part = jax.jit(editing(*EDITS))(keys[5:9], Rows.of(part))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[5:9], b), edited, part)
