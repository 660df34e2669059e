"""Packed rows contain every example once and whole, in few rows, as a function of the step."""

import collections
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from bert_jax.examples import packing
from bert_jax.examples.full_sentences import FullSentences
from bert_jax.examples.language_mixture import Mixture
from bert_jax.examples.packing import PackedRows, best_fit, pack
from bert_jax.examples.sentence_pairs import SentencePairs
from bert_jax.examples.single_segments import SingleSegments
from bert_jax.examples.text_example_source import RowSettings
from bert_jax.training import batches
from tests.examples.texts import FIRST, Shard, Split, Tokenizer, make_split, some_documents

LENGTH, BATCH = 48, 16


def short_documents(count=120, seed=3):
    rng = np.random.default_rng(seed)
    return [list(rng.integers(1, 9, size=rng.integers(2, 12))) for _ in range(count)]


def source(kind: str, documents=None, seed=0):
    return source_of(kind, make_split(documents or short_documents(), 2), seed)


def source_of(kind: str, split, seed=0):
    settings = RowSettings(split, Tokenizer, LENGTH, BATCH, seed)
    if kind == 'pairs':
        return SentencePairs(settings, fixed_lengths=True)
    if kind == 'single':
        return SingleSegments(settings)
    return FullSentences(settings, within_documents=True)


KINDS = ['pairs', 'single', 'sentences']


def epoch_of(rows, number=0):
    return rows.examples(np.arange(rows.num_examples) + number * rows.num_examples)


def taken_out(batch) -> list[tuple]:
    """Yield (ids, types, label) of the examples in packed rows; check the layout of the rows."""
    found = []
    for row, segments in enumerate(batch['segment_ids']):
        firsts = batch['first_positions'][row]
        count = segments.max()
        assert (firsts[:count] >= 0).all()
        assert (firsts[count:] == -1).all()
        assert np.array_equal(batch['attention_mask'][row], segments > 0)
        for name, pad in (('input_ids', Tokenizer.pad_id), ('token_type_ids', 0)):
            assert (batch[name][row][segments == 0] == pad).all()
        for number in range(1, count + 1):
            (places,) = np.nonzero(segments == number)
            assert places[0] == firsts[number - 1]
            assert np.array_equal(places, np.arange(places[0], places[-1] + 1))
            ids, types = (batch[name][row, places] for name in ('input_ids', 'token_type_ids'))
            assert ids[0] == Tokenizer.cls_id
            assert ids[-1] == Tokenizer.sep_id
            label = (
                batch['next_sentence_label'][row, number - 1]
                if 'next_sentence_label' in batch
                else 0
            )
            found.append((tuple(ids.tolist()), tuple(types.tolist()), int(label)))
    return found


def alone(batch) -> list[tuple]:
    """Yield the same for examples that have a row each."""
    labels = batch.get('next_sentence_label', np.zeros(len(batch['input_ids']), int))
    found = []
    for ids, types, mask, label in zip(
        batch['input_ids'], batch['token_type_ids'], batch['attention_mask'], labels, strict=True
    ):
        length = mask.sum()
        found.append((tuple(ids[:length].tolist()), tuple(types[:length].tolist()), int(label)))
    return found


@pytest.mark.parametrize('kind', ['single', 'sentences'])
def test_an_epoch_has_all_examples_of_the_source(kind):
    examples = source(kind)
    expected = alone(examples.examples(np.arange(examples.num_examples)))
    rows = PackedRows(examples, 7)
    assert rows.num_examples < 0.85 * examples.num_examples
    batches = [epoch_of(rows, number) for number in range(3)]
    for batch in batches:
        assert sorted(taken_out(batch)) == sorted(expected)
    assert not np.array_equal(batches[0]['input_ids'], batches[1]['input_ids'])


def test_examples_share_rows_with_others_in_every_epoch():
    rows = PackedRows(source('sentences'), 7)
    pairs = []
    for number in range(2):
        batch = epoch_of(rows, number)
        firsts = batch['first_positions'][:, :2]
        together = firsts[:, 1] > 0
        tokens = np.take_along_axis(batch['input_ids'], np.maximum(firsts, 0) + 1, 1)
        pairs.append({tuple(pair) for pair in tokens[together].tolist()})
    assert len(pairs[0]) > 20
    assert len(pairs[0] & pairs[1]) < 0.3 * len(pairs[0])


def test_packed_pairs_are_whole_and_balanced_and_cover_every_chunk():
    examples = source('pairs')
    rows = PackedRows(examples, 7)
    assert rows.num_examples < 0.85 * examples.num_examples
    limits = collections.Counter(examples.lengths(np.arange(examples.num_examples)).tolist())
    owner = np.repeat(np.arange(120), [sum(document) for document in short_documents()])
    for number in range(2):
        found = taken_out(epoch_of(rows, number))
        assert len(found) == examples.num_examples
        assert abs(sum(label for *_, label in found) * 2 - len(found)) <= 1
        anchors = set()
        for ids, types, label in found:
            edge = len(types) - sum(types)
            a, b = ids[1 : edge - 1], ids[edge:-1]
            assert len(a) > 0
            assert len(b) > 0
            documents = [set(owner[np.array(part) - FIRST]) for part in (a, b)]
            assert len(documents[0] | documents[1]) == 1 + label
            anchors |= documents[0]
        assert len(anchors) == 120
        longest = sorted((len(ids) for ids, *_ in found), reverse=True)
        allowed = sorted(limits.elements(), reverse=True)
        assert all(size <= limit for size, limit in zip(longest, allowed, strict=True))


@pytest.mark.parametrize('kind', KINDS)
def test_lengths_are_never_exceeded(kind):
    examples = source(kind, some_documents(50))
    chunks = np.arange(examples.num_examples)
    for epoch in range(4):
        batch = examples.chunk_examples(chunks + epoch * examples.num_examples, chunks)
        assert (batch['attention_mask'].sum(axis=1) <= examples.lengths(chunks)).all()


@pytest.mark.parametrize('kind', KINDS)
def test_packing_takes_little_memory(kind):
    number = 400_000  # documents of two sentences with 20 tokens each
    tokens = np.broadcast_to(np.uint16(FIRST), 40 * number)
    shard = Shard(tokens, np.arange(0, 40 * number + 1, 20), np.arange(0, 2 * number + 1, 2))
    examples = source_of(kind, Split([shard]))
    tracemalloc.start()
    rows = PackedRows(examples, 7)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.num_examples <= number
    assert kept < 9 * number
    assert peak < 20 * number


def test_chunks_are_sorted_by_length(monkeypatch):
    examples = source('pairs')
    length_N = examples.lengths(np.arange(examples.num_examples))
    for part in (10, 1000):
        monkeypatch.setattr(packing, '_SORTED_CHUNKS', part)
        chunk_N, count_L = packing.sort_by_length(examples)
        assert np.array_equal(chunk_N, np.argsort(length_N, kind='stable'))
        assert np.array_equal(count_L, np.bincount(length_N, minlength=LENGTH + 1))


@pytest.mark.parametrize('kind', KINDS)
def test_a_batch_is_a_function_of_the_step(kind):
    rows, again = (PackedRows(source(kind), 7) for _ in range(2))
    steps = np.array([3, 4, 900])
    together = rows.batch(steps)
    for place, step in enumerate(steps):
        parts = [again.batch(step, slice(first, first + 4)) for first in range(0, BATCH, 4)]
        for name, array in together.items():
            assert array.dtype == np.int32
            assert np.array_equal(np.concatenate([part[name] for part in parts]), array[place])
    assert together['example_index'][2].tolist() == list(range(900 * BATCH, 901 * BATCH))
    other = PackedRows(source(kind), 8).batch(3)
    assert not np.array_equal(other['input_ids'], together['input_ids'][0])


def test_the_input_pipeline_reads_packed_rows():
    rows = PackedRows(source('pairs'), 7)
    for step, batch in zip(range(2, 5), batches.read_ahead(rows, 2, 5), strict=True):
        expected = rows.batch(step)
        assert batch.keys() == expected.keys()
        assert all(np.array_equal(batch[name], expected[name]) for name in batch)


def test_languages_are_packed_separately_and_mixed():
    sources = {
        name: PackedRows(source('sentences', short_documents(count, count)), 7)
        for name, count in (('a', 300), ('b', 40))
    }
    mixture = Mixture(sources, 0.5, BATCH, 0)
    batch = mixture.examples(np.arange(200))
    assert len(taken_out(batch)) > 200
    assert batch['first_positions'].shape == (200, LENGTH // 8)


def test_statistics_count_rows_and_padding():
    examples = source('sentences')
    rows = PackedRows(examples, 7)
    mask = epoch_of(rows)['attention_mask']
    statistics = rows.statistics()
    assert statistics['rows_per_epoch'] == len(mask)
    assert statistics['padding_per_epoch'] == (mask == 0).sum()
    assert statistics['examples_per_epoch'] == examples.num_examples


def test_pack_concatenates_examples():
    parts = {
        'input_ids': np.array([[1, 5, 2, 0, 0, 0], [1, 6, 7, 2, 0, 0], [1, 2, 0, 0, 0, 0]]),
        'attention_mask': np.array([[1] * 3 + [0] * 3, [1] * 4 + [0] * 2, [1] * 2 + [0] * 4]),
        'next_sentence_label': np.array([1, 0, 1]),
        'example_index': np.array([8, 9, 10]),
    }
    rows = pack(parts, np.array([[True, False], [True, True]]), pad_id=9)
    assert {name: array.tolist() for name, array in rows.items()} == {
        'input_ids': [[1, 5, 2, 9, 9, 9], [1, 6, 7, 2, 1, 2]],
        'attention_mask': [[1, 1, 1, 0, 0, 0], [1] * 6],
        'segment_ids': [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 2, 2]],
        'first_positions': [[0, -1], [0, 4]],
        'next_sentence_label': [[1, 0], [0, 1]],
    }


def slow_best_fit(lengths, room, most):
    """Best-fit decreasing, one sequence at a time."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if sum(row) + length <= room and len(row) < most]
        if fitting:
            max(fitting, key=sum).append(length)
        else:
            rows.append([length])
    return rows


class TestBestFit:
    @pytest.mark.parametrize('most', [1, 3, 30])
    @pytest.mark.parametrize('seed', range(5))
    def test_agrees_with_a_simple_loop(self, seed, most):
        rng = np.random.default_rng(seed)
        lengths = np.minimum(rng.geometric(0.1, 300) + 2, 30)
        patterns = best_fit(np.bincount(lengths), 30, most)
        slow = slow_best_fit(lengths.tolist(), 30, most)
        assert sum(patterns.values()) == len(slow)
        # Rows that are equally full may be chosen in any order where the limit applies.
        if most == 30:
            assert sorted(map(sum, slow)) == sorted(
                sum(row) for row, count in patterns.items() for _ in range(count)
            )
        pieces = collections.Counter()
        for row, count in patterns.items():
            assert sum(row) <= 30
            assert len(row) <= most
            pieces.update({length: count * row.count(length) for length in set(row)})
        assert pieces == collections.Counter(lengths.tolist())

    def test_a_million_sequences_leave_little_padding(self):
        weights = stats.gamma(2, scale=60)
        lengths = np.clip(weights.rvs(1_000_000, random_state=0), 5, 512).astype(int)
        rows = sum(best_fit(np.bincount(lengths), 512, 64).values())
        assert rows * 512 < 1.002 * lengths.sum()

    def test_no_sequences_need_no_rows(self):
        assert best_fit(np.zeros(5, int), 4, 2) == {}
