"""Sentence pairs and single segments, on texts whose token ids identify the tokens.

Token i of a text has the id i + FIRST.
"""

import hashlib
import inspect
import itertools
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from bert_jax.errors import UserError
from bert_jax.examples import published_pairs, sentence_pairs, single_segments
from tests.examples.texts import (
    FIRST,
    Where,
    assert_same,
    epoch_of,
    make_split,
    row_settings,
    some_documents,
    taken_apart,
)


def singles(documents, **options):
    return single_segments.SingleSegments(row_settings(documents, **options))


def pairs(documents, **options):
    shared = inspect.signature(row_settings).parameters
    settings = {key: options.pop(key) for key in list(options) if key in shared}
    return sentence_pairs.SentencePairs(row_settings(documents, **settings), **options)


def published(documents, **options):
    return published_pairs.PublishedPairs(row_settings(documents, **options))


class TestStateless:
    @pytest.mark.parametrize('make', [pairs, published, singles])
    def test_shapes_and_types(self, make):
        batch = make(some_documents()).batch(3)
        names = {'input_ids', 'token_type_ids', 'attention_mask', 'example_index'}
        if make is not singles:
            names.add('next_sentence_label')
        assert set(batch) == names
        for name, array in batch.items():
            assert array.dtype == np.int32
            assert array.shape == ((64,) if name.endswith(('index', 'label')) else (64, 32))
        assert batch['example_index'].tolist() == list(range(192, 256))

    @pytest.mark.parametrize('make', [pairs, published, singles])
    @pytest.mark.parametrize('hosts', [2, 4])
    def test_the_rows_of_all_hosts_are_the_global_batch(self, make, hosts):
        source = make(some_documents())
        share = 64 // hosts
        for step in (0, 5, 10**7):
            parts = [source.batch(step, slice(h * share, (h + 1) * share)) for h in range(hosts)]
            together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            assert_same(together, source.batch(step))

    def test_rows_can_be_requested_in_any_order(self):
        source = pairs(some_documents())
        rows = np.array([63, 0, 7, 7])
        whole = source.batch(2)
        assert_same(source.batch(2, rows), {name: whole[name][rows] for name in whole})

    @pytest.mark.parametrize('make', [pairs, published, singles])
    def test_several_steps_can_be_requested_at_once(self, make):
        source = make(some_documents())
        many = source.batch(np.arange(4, 7), slice(10, 20))
        assert many['input_ids'].shape == (3, 10, 32)
        for index, step in enumerate(range(4, 7)):
            one = {name: array[index] for name, array in many.items()}
            assert_same(one, source.batch(step, slice(10, 20)))

    def test_examples_do_not_depend_on_the_batch_size(self):
        small, large = pairs(some_documents(), batch_size=7), pairs(some_documents())
        numbers = np.arange(64)
        whole = small.examples(numbers)
        assert_same(whole, large.batch(0))
        assert_same(small.batch(3), {name: whole[name][21:28] for name in whole})

    @pytest.mark.parametrize('make', [pairs, published, singles])
    def test_examples_do_not_depend_on_the_shards(self, make):
        documents = some_documents()
        one, many = make(documents), make(documents, num_shards=7)
        assert one.statistics() == many.statistics()
        assert_same(one.batch(np.arange(20)), many.batch(np.arange(20)))

    def test_seeds_and_epochs_differ(self):
        source, other = pairs(some_documents()), pairs(some_documents(), seed=1)
        assert (source.batch(0)['input_ids'] != other.batch(0)['input_ids']).any(1).mean() > 0.9
        ids = epoch_of(source)['input_ids']
        assert (ids != epoch_of(source, 1)['input_ids']).any(1).mean() > 0.9

    def test_every_epoch_has_a_different_order(self):
        source = singles([[3]] * 50)  # all there is to an epoch is its order
        orders = [epoch_of(source, epoch)['input_ids'][:, 1].tolist() for epoch in range(3)]
        assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
        for one, other in itertools.combinations(orders, 2):
            assert np.mean(np.array(one) == np.array(other)) < 0.2

    def test_example_index_wraps_around_at_large_steps(self):
        batch = pairs(some_documents()).batch(2**40)
        assert batch['example_index'].tolist() == list(range(64))

    def test_another_process_makes_the_same_batch(self, tmp_path):
        shards = make_split(some_documents(), 3).shards
        for number, shard in enumerate(shards):
            for name in ('tokens', 'sentences', 'documents'):
                np.save(tmp_path / f'{number}.{name}.npy', getattr(shard, name))
        script = (
            'import hashlib, sys, types, numpy as np\n'
            'from bert_jax.examples.published_pairs import PublishedPairs\n'
            'from bert_jax.examples.sentence_pairs import SentencePairs\n'
            'from bert_jax.examples.single_segments import SingleSegments\n'
            'from bert_jax.examples.text_example_source import RowSettings\n'
            'names = ("tokens", "sentences", "documents")\n'
            'load = lambda n, a: np.load(f"{sys.argv[1]}/{n}.{a}.npy", mmap_mode="r")\n'
            'shard = lambda n: types.SimpleNamespace(**{a: load(n, a) for a in names}, files=())\n'
            'split = types.SimpleNamespace(shards=[shard(n) for n in range(3)])\n'
            'tokenizer = types.SimpleNamespace(pad_id=0, first_id=1, sep_id=2, vocab_size=10**9)\n'
            'tokenizer.is_cls_last = False\n'
            'for kind in (SentencePairs, PublishedPairs, SingleSegments):\n'
            '    batch = kind(RowSettings(split, tokenizer, 32, 64, seed=5)).batch(12345)\n'
            '    data = b"".join(batch[name].tobytes() for name in sorted(batch))\n'
            '    print(hashlib.sha256(data).hexdigest())\n'
            'assert "tensorflow" not in sys.modules and "jax" not in sys.modules\n'
        )
        there = subprocess.run(
            [sys.executable, '-c', script, str(tmp_path)],
            cwd=pathlib.Path(__file__).parents[2],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        ).stdout.split()
        here = []
        for make in (pairs, published, singles):
            batch = make(some_documents(), seed=5).batch(12345)
            data = b''.join(batch[name].tobytes() for name in sorted(batch))
            here.append(hashlib.sha256(data).hexdigest())
        assert there == here


class OnlyTrue(sentence_pairs.SentencePairs):
    """Pairs whose B always follows A, so that pairs are whole chunks."""

    def _labels(self, number_B):
        return np.zeros_like(number_B)


class TestPairs:
    @pytest.mark.parametrize('length', [1, 4])
    def test_the_chunks_of_an_epoch_cover_every_sentence(self, length):
        rng = np.random.default_rng(1)
        documents = [[length] * rng.integers(2, 60) for _ in range(50)]
        # With sentences of equal length, truncation never removes a whole sentence.
        source = OnlyTrue(row_settings(documents, 19, seed=3), short_sequence_probability=0)
        sentence = Where(documents).sentence
        for epoch in range(3):
            ids = epoch_of(source, epoch)['input_ids']
            seen = np.unique(sentence[ids[ids >= FIRST] - FIRST])
            assert len(seen) == sentence[-1] + 1

    def test_an_epoch_omits_few_sentences_and_several_epochs_none(self):
        documents = [document for document in some_documents(200) if len(document) > 1]
        source, sentence = pairs(documents), Where(documents).sentence
        shares = []
        seen = set()
        for epoch in range(25):
            ids = epoch_of(source, epoch)['input_ids']
            here = np.unique(sentence[ids[ids >= FIRST] - FIRST])
            seen.update(here)
            shares.append(len(here) / (sentence[-1] + 1))
        assert min(shares) > 0.75
        assert len(seen) == sentence[-1] + 1

    def test_every_chunk_occurs_once_per_epoch(self):
        documents = some_documents(300)
        source = pairs(documents, sequence_length=35)
        tokens = [sum(document) for document in documents if len(document) > 1]
        assert source.num_examples == sum(-(-count // 32) for count in tokens)
        where = Where(documents)
        expected = [-(-sum(document) // 32) if len(document) > 1 else 0 for document in documents]
        for epoch in range(2):
            drawn = [
                where.document[a[0] - FIRST] for a, _, _ in taken_apart(epoch_of(source, epoch))
            ]
            assert np.bincount(drawn, minlength=300).tolist() == expected

    def test_chunk_boundaries_differ_between_epochs(self):
        settings = row_settings([[1] * 95, [1] * 95], 13)
        source = OnlyTrue(settings, short_sequence_probability=0)
        cuts = {
            tuple(sorted(a[0] for a, _, _ in taken_apart(epoch_of(source, epoch))))
            for epoch in range(30)
        }
        assert len(cuts) > 10
        assert all(FIRST in cut and FIRST + 95 in cut for cut in cuts)

    def test_true_pairs_are_contiguous_and_random_pairs_are_from_two_documents(self):
        documents = some_documents(100)
        where, source = Where(documents), pairs(documents)
        labels = []
        for a, b, label in taken_apart(source.examples(np.arange(4000))):
            assert len(a) >= 1
            assert len(b) >= 1
            assert len(a) + len(b) <= 29
            assert a == list(range(a[0], a[-1] + 1))
            assert b == list(range(b[0], b[-1] + 1))
            documents_a, documents_b = (set(where.document[np.array(s) - FIRST]) for s in (a, b))
            assert len(documents_a) == len(documents_b) == 1
            assert (documents_a == documents_b) == (label == 0)
            if label == 0:
                assert b[0] > a[-1]
                assert b[0] - a[-1] - 1 < 15  # what truncation took, less than a sentence
            if len(a) + len(b) < 29:  # nothing was cut
                assert {a[0], b[0]} <= where.starts
                assert label == 1 or b[0] == a[-1] + 1
            labels.append(label)
        assert set(labels) == {0, 1}

    @pytest.mark.parametrize('documents', [some_documents(), [[3, 4], [5, 6, 7], [400, 300]]])
    def test_labels_are_exactly_balanced(self, documents):
        source = pairs(documents, batch_size=16)
        labels = source.examples(np.arange(20_000))['next_sentence_label'].reshape(-1, 2)
        assert (labels.sum(1) == 1).all()
        assert abs(labels[:, 0].mean() - 0.5) < 0.02  # the order within two is random
        assert (source.batch(np.arange(50))['next_sentence_label'].sum(1) == 8).all()

    def test_two_batches_of_odd_size_are_balanced_together(self):
        labels = pairs(some_documents(), batch_size=5).batch(np.arange(20))['next_sentence_label']
        assert set(labels.sum(1)) == {2, 3}
        assert labels.sum() == 50

    def test_short_sequences_have_the_right_share_and_lengths(self):
        # With sentences of one token, a chunk has exactly its target length.
        source = OnlyTrue(row_settings([[1] * 2000] * 5, 23))
        mask = source.examples(np.arange(40_000))['attention_mask']
        counts = np.bincount(mask.sum(1) - 3, minlength=21)
        assert counts[:2].sum() == 0
        assert abs(counts[2:20].sum() / 40_000 - 0.1 * 18 / 19) < 0.006
        assert stats.chisquare(counts[2:20]).pvalue > 1e-4

    def test_without_short_sequences_rows_are_full(self):
        source = pairs([[1] * 2000] * 5, sequence_length=23, short_sequence_probability=0)
        batch = source.examples(np.arange(5000))
        full = batch['attention_mask'].all(1)
        assert full[batch['next_sentence_label'] == 0].all()
        assert full.mean() > 0.98  # a random B may begin near the end of its document

    def test_the_split_between_a_and_b_is_uniform(self):
        source = pairs([[1] * 2000] * 5, sequence_length=23, short_sequence_probability=0)
        parts = taken_apart(source.examples(np.arange(20_000)))
        lengths = np.bincount([len(a) for a, _, label in parts if label == 0], minlength=20)
        assert lengths[0] == 0
        assert stats.chisquare(lengths[1:20]).pvalue > 1e-4

    def test_random_segments_are_uniform_over_other_documents_and_sentences(self):
        documents = [[2] * 3, [2], [2] * 10, [2] * 50, [2] * 7]
        where = Where(documents)
        source = pairs(documents, sequence_length=200, short_sequence_probability=0)
        counts, sentence = np.zeros((5, 5)), np.zeros(50)
        for a, b, label in taken_apart(source.examples(np.arange(20_000))):
            if label:
                counts[where.document[a[0] - FIRST], where.document[b[0] - FIRST]] += 1
                if where.document[b[0] - FIRST] == 3:
                    sentence[where.sentence[b[0] - FIRST] - 14] += 1
        assert (np.diag(counts) == 0).all()
        assert (counts[1] == 0).all()  # a document of one sentence is only a partner
        for row in (0, 2, 3, 4):
            assert stats.chisquare(np.delete(counts[row], row)).pvalue > 1e-4
        assert stats.chisquare(sentence).pvalue > 1e-4

    def test_a_chunk_of_one_sentence_takes_a_neighbor(self):
        # Every sentence fills a row, so every chunk is one sentence.
        documents = [[30] * 4, [30] * 3]
        source = OnlyTrue(row_settings(documents, 23))
        where = Where(documents)
        for a, b, _ in taken_apart(source.examples(np.arange(500))):
            assert where.sentence[b[0] - FIRST] == where.sentence[a[0] - FIRST] + 1
            assert len(a) == len(b) == 10

    def test_sentences_much_longer_than_a_row(self):
        source = pairs([[1000, 3000, 1], [5000, 2000]], sequence_length=16)
        lengths = {(len(a), len(b)) for a, b, _ in taken_apart(source.examples(np.arange(2000)))}
        assert lengths == {(7, 6), (12, 1)}

    def test_statistics(self):
        source = pairs([[3], [4, 4], [20, 30], [1] * 7], sequence_length=13)
        statistics = source.statistics()
        assert 0 < statistics.pop('tokens_per_epoch') <= 8 + 50 + 7
        assert statistics == {
            'documents': 4,
            'single_sentence_documents': 1,
            'documents_within_one_sequence': 3,
            'examples_per_epoch': 1 + 5 + 1,
            'documents_left_out': 1,
            'tokens_left_out': 3,
            'tokens': 3 + 8 + 50 + 7,
        }

    @pytest.mark.parametrize('swapped', [False, True])
    def test_the_tokens_of_an_epoch_are_those_that_it_takes_as_running_text(self, swapped):
        documents = [document for document in some_documents(3000) if len(document) > 1]
        source = pairs(documents, swapped=swapped)
        batch = epoch_of(source)
        ids, types = batch['input_ids'], batch['token_type_ids']
        if not swapped:
            ids = np.where((types == 1) & (batch['next_sentence_label'][:, None] == 1), 0, ids)
        seen = len(np.unique(ids[ids >= FIRST]))
        stated = source.statistics()['tokens_per_epoch']
        assert stated == pytest.approx(seen, rel=0.02)
        total = sum(map(sum, documents))
        assert seen / total < (0.97 if swapped else 0.8)

    @pytest.mark.parametrize(
        ('documents', 'message'),
        [
            ([[5, 6, 7]], 'has 1 document'),
            ([[5], [6], [7]], 'none of the 3 documents has two sentences'),
        ],
    )
    def test_corpora_without_pairs_are_an_error(self, documents, message):
        with pytest.raises(UserError, match=message):
            pairs(documents)

    def test_a_sequence_length_that_is_too_small_is_an_error(self):
        with pytest.raises(UserError, match='sequence length is 4'):
            pairs(some_documents(), sequence_length=4)
        assert pairs(some_documents(), sequence_length=5).batch(0)['attention_mask'].all()


def slow_truncation(a, b, budget, rng):
    """truncate_seq_pair of the original BERT, one token at a time."""
    a, b = list(a), list(b)
    while len(a) + len(b) > budget:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return a, b


class TestTruncation:
    def test_lengths(self):
        rng = np.random.default_rng(0)
        lengths = [(a, b, m) for a in range(1, 14) for b in range(1, 14) for m in (2, 3, 7, 8, 12)]
        for length_a, length_b, budget in lengths:
            slow = slow_truncation(range(length_a), range(length_b), budget, rng)
            fast = sentence_pairs.truncated_lengths(
                np.array([length_a]), np.array([length_b]), budget
            )
            assert (len(slow[0]), len(slow[1])) == (fast[0][0], fast[1][0])

    @pytest.mark.parametrize('lengths', [(9, 8, 8), (3, 12, 10), (2, 90, 8)])
    def test_truncated_ends_have_the_distribution_of_the_original(self, lengths):
        length_a, length_b, budget = lengths
        count, rng = 6000, np.random.default_rng(0)
        documents = [[length_a, length_b]] * 2
        source = OnlyTrue(row_settings(documents, budget + 3), short_sequence_probability=0)
        size = length_a + length_b
        fast = np.zeros((length_a, length_b))
        for a, b, _ in taken_apart(source.examples(np.arange(count))):
            fast[(a[0] - FIRST) % size, (b[0] - FIRST) % size - length_a] += 1
        slow = np.zeros_like(fast)
        for _ in range(count):
            a, b = slow_truncation(range(length_a), range(length_b), budget, rng)
            slow[a[0], b[0]] += 1
        usual = slow + fast >= 20
        table = np.stack([fast[usual], slow[usual]])
        rest = np.array([[fast[~usual].sum()], [slow[~usual].sum()]])
        table = np.concatenate([table, rest], axis=1) if rest.sum() >= 20 else table
        assert stats.chi2_contingency(table).pvalue > 1e-4


class TestOrderedPairs:
    def test_both_orders_have_neighboring_text_and_half_are_swapped(self):
        documents = some_documents(100)
        where = Where(documents)
        batch = pairs(documents, swapped=True).examples(np.arange(4000))
        assert 'next_sentence_label' not in batch
        batch['next_sentence_label'] = batch['sentence_order_label']
        for a, b, label in taken_apart(batch):
            first, second = (b, a) if label else (a, b)
            assert second[0] > first[-1]
            assert second[0] - first[-1] - 1 < 15  # what truncation took, less than a sentence
            assert where.document[first[0] - FIRST] == where.document[second[-1] - FIRST]
        assert (batch['sentence_order_label'].reshape(-1, 2).sum(1) == 1).all()

    def test_ordered_pairs_are_the_true_pairs_of_next_sentence_prediction(self):
        documents = some_documents()
        ours = pairs(documents, swapped=True).examples(np.arange(500))
        theirs = pairs(documents).examples(np.arange(500))
        same = ours['sentence_order_label'] == 0
        np.testing.assert_array_equal(same, theirs['next_sentence_label'] == 0)
        np.testing.assert_array_equal(ours['input_ids'][same], theirs['input_ids'][same])

    def test_one_document_suffices_but_one_sentence_does_not(self):
        assert pairs([[5, 6, 7]], swapped=True).num_examples == 1
        with pytest.raises(UserError, match='none of the 2 documents has two sentences'):
            pairs([[5], [6]], swapped=True)


@pytest.mark.parametrize('make', [pairs, published, singles])
@pytest.mark.parametrize('num_shards', [1, 3])
def test_sentence_start_marks_the_first_tokens_of_sentences(make, num_shards):
    documents = some_documents()
    starts = Where(documents).starts
    marked = make(documents, num_shards=num_shards, mark_sentences=True)
    batch = marked.examples(np.arange(600))
    expected = np.isin(batch['input_ids'], sorted(starts)) & (batch['input_ids'] >= FIRST)
    np.testing.assert_array_equal(batch.pop('sentence_start'), expected)
    assert_same(batch, make(documents, num_shards=num_shards).examples(np.arange(600)))
