"""Permutation language modeling: its n-grams, its order, and what it refuses."""

import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking_schemes import TokenRow
from bert_jax.objectives.plm import PermutationLanguageModel, PermutedText
from bert_jax.objectives.spaced_ngrams import SpacedNgrams
from configs import base
from tests.random_parameters import random_parameters

SIZES = dict(vocab_size=90, hidden_size=8, num_layers=1, num_heads=2)
LENGTH, GOAL, ROWS, SEP, CLS = 512, 85, 40, 4, 3
VOCAB = SIZES['vocab_size']
VOCABULARY = Vocabulary(
    -1, 5, (1, 2, CLS, SEP, 5), np.ones(VOCAB, np.int64), np.arange(VOCAB) % 2 == 0
)
SCHEME = SpacedNgrams(1 / 6, 5)
CORRUPT = jax.jit(PermutedText(VOCABULARY, SCHEME, {LENGTH: GOAL}, block_size=128))


def make_rows(length=LENGTH, used=LENGTH, rows=ROWS):
    """Rows A [SEP] B [SEP] [CLS], padded."""
    ids = np.random.default_rng(0).integers(6, VOCAB, (rows, length)).astype(np.int32)
    ids[:, [used // 2, used - 2]], ids[:, used - 1] = SEP, CLS
    mask = np.broadcast_to((np.arange(length) < used).astype(np.int32), ids.shape)
    return Rows(np.where(mask > 0, ids, 5), mask)


@pytest.fixture(scope='module')
def clean():
    return make_rows()


@pytest.fixture(scope='module')
def permuted(clean):
    return jax.device_get(CORRUPT(jax.random.split(jax.random.key(0), ROWS), clean))


def runs(chosen_T):
    """Start and end of each run of chosen tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen_T.astype(int), [0]])))
    return list(zip(edges[::2], edges[1::2], strict=True))


def test_a_sixth_of_the_tokens_is_chosen_in_ngrams_with_context_around(clean):
    starts = VOCABULARY.is_word_start_V[clean.input_ids_BT]
    can_choose = ~np.isin(clean.input_ids_BT, VOCABULARY.special_ids)

    @jax.jit
    @jax.vmap
    def choose(key, ids, mask, can, is_start):
        row = TokenRow(ids, mask, can, None, is_start)
        ngram_key = jax.random.split(key)[0]  # repeats the draws of `choose`
        return SCHEME.choose(key, row, GOAL), SCHEME._ngrams(ngram_key, row, np.int32(GOAL), GOAL)

    keys = jax.random.split(jax.random.key(0), ROWS)
    chosen, in_ngram = choose(keys, clean.input_ids_BT, clean.attention_mask_BT, can_choose, starts)
    sizes, words, gaps = [], [], []
    for row in range(ROWS):
        positions = np.asarray(chosen.positions_P[row])
        assert chosen.number[row] == GOAL == len(set(positions))
        assert can_choose[row, positions].all()
        assert set(np.flatnonzero(in_ngram[row])) <= set(positions.tolist())
        found, after_special = runs(in_ngram[row]), ~np.pad(can_choose[row], (1, 0))[:-1]
        for first, stop in found:
            assert starts[row, first] or after_special[first]
            assert can_choose[row, first:stop].all()
            words.append(1 + int(starts[row, first + 1 : stop].sum()))
        for (_, before), (first, _) in zip(found, found[1:], strict=False):
            gaps.append(first - before)
        for _, stop in found[:-1]:  # whole words; the last may be cut
            assert stop == LENGTH or starts[row, stop] or not can_choose[row, stop]
        sizes.append(in_ngram[row].sum())
    assert min(gaps) >= 1  # n · 6 tokens lie on both sides together
    assert np.mean(gaps) > 6
    assert max(words) <= 5
    share = np.bincount(words, minlength=6)[1:] / len(words)
    expected = 1 / np.arange(1, 6) / (1 / np.arange(1, 6)).sum()
    np.testing.assert_allclose(share, expected, atol=0.06)
    assert np.mean(sizes) > 0.7 * GOAL  # the rest are single tokens


def test_the_order_has_blocks_and_ranks_only_targets_and_special_tokens(clean, permuted):
    np.testing.assert_array_equal(permuted.input_ids_BT, clean.input_ids_BT)  # nothing is hidden
    places, ids, weights = permuted.targets
    np.testing.assert_array_equal(ids, np.take_along_axis(clean.input_ids_BT, places, 1))
    assert (weights == 1).all()
    for row in range(ROWS):
        ranked = {*places[row], LENGTH // 2, LENGTH - 2, LENGTH - 1}
        ranks = permuted.ranks_BT[row]
        assert {*np.flatnonzero(ranks >= 0)} == ranked
        block = {}
        for position in ranked:
            assert ranks[position] // 128 == position // 128
            slot = block.setdefault(position % 128, ranks[position] % 128)
            assert slot == ranks[position] % 128  # the same order in every block
        assert len({*block.values()}) == len(block)
    assert not np.array_equal(permuted.ranks_BT[0], permuted.ranks_BT[1])


def test_a_row_depends_on_its_key_alone(clean, permuted):
    keys_B = jax.random.split(jax.random.key(0), ROWS)[::-1]
    turned = CORRUPT(keys_B, jax.tree.map(lambda x: x[::-1], clean))
    for ours, other in zip(jax.tree.leaves(turned), jax.tree.leaves(permuted), strict=True):
        np.testing.assert_array_equal(ours[::-1], other)


def test_a_target_without_anything_before_it_counts_for_nothing():
    rows = make_rows(length=8, used=4, rows=64)  # a token, [SEP], [SEP], [CLS]
    rows = rows.replace(input_ids_BT=np.where(np.arange(8) == 1, SEP, rows.input_ids_BT))
    corruption = PermutedText(VOCABULARY, SCHEME, {8: 2}, block_size=8)
    model = Model(architectures.build('xlnet', **SIZES), Compute(), {'plm': {}})
    keys_B = jax.random.split(jax.random.key(0), 64)
    shapes = jax.eval_shape(corruption, keys_B, rows)
    params = random_parameters(model, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))

    @jax.jit
    def compute(keys_B, rows):
        permuted = corruption(keys_B, rows)
        output = model.apply({'params': params}, permuted)
        return permuted, PermutationLanguageModel(8).terms(output, rows)

    found, terms = jax.device_get(compute(keys_B, rows))
    first = found.ranks_BT[:, 0] == np.where(found.ranks_BT < 0, 99, found.ranks_BT).min(1)
    np.testing.assert_array_equal(found.targets.weights_BP[:, 0], ~first)
    assert 5 < first.sum() < 30
    assert terms['plm_loss'].count == 64 - first.sum()
    assert mean(terms['plm_empty']) == pytest.approx(first.mean())


def test_what_two_streams_lack_is_one_line():
    xlnet, bert = (architectures.build(name, **SIZES) for name in ('xlnet', 'bert'))
    rows = make_rows(rows=1, length=16, used=16)
    permuted = rows.replace(ranks_BT=rows.attention_mask_BT)

    def init(architecture, rows=rows, **options):
        model = Model(architecture, Compute(), options.pop('heads', {}), **options)
        return jax.eval_shape(model.init, jax.random.key(0), rows)

    with pytest.raises(UserError, match='needs an encoder with a query stream; set model.arch'):
        init(bert, permuted, heads={'plm': {}})
    with pytest.raises(UserError, match=r'train it with objectives\.plm, not with a causal'):
        init(xlnet, is_causal=True)
    with pytest.raises(UserError, match='transfer.method=prompt inserts vectors into rows'):
        init(xlnet.changed({'tuning': tuning.build('prompt', {})}))
    with pytest.raises(UserError, match='two_stream and attention relative need each other'):
        architectures.build('bert', encoder='two_stream')
    with pytest.raises(UserError, match='has no windows and no convolution'):
        architectures.build('xlnet', windows=(4,))
    with pytest.raises(UserError, match='plm: permuted'):
        objectives.common_corruption(('mlm', 'plm'), 'tokens')
    config = base.get_config()
    config.masking.update(scheme='spaced_ngrams', rate=1 / 6)
    words = Vocabulary(-1, 5, (5,), np.ones(VOCAB, np.int64))
    with pytest.raises(UserError, match='does not mark where words start'):
        PermutedText.build(config, words, {16: 3})
