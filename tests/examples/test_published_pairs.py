"""Sentence pairs of the original code: every sentence once, replaced ones come back."""

import collections

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.examples.packing import PackedRows
from bert_jax.examples.published_pairs import PASSES, PublishedPairs
from tests.examples.texts import FIRST, Where, epoch_of, row_settings, some_documents, taken_apart


def published(documents, probability=0.1, **options):
    swapped = options.pop('swapped', False)
    return PublishedPairs(row_settings(documents, **options), probability, swapped)


def own_segments(source, documents, numbers):
    """The sentences of A, those of B, and the label of each example."""
    sentence = Where(documents).sentence
    for a, b, label in taken_apart(source.examples(numbers)):
        yield *(sorted(set(sentence[np.array(part) - FIRST])) for part in (a, b)), label


def pass_ends(source):
    source.examples(np.array([20 * source.num_examples]))  # beyond all passes
    return [0, *source._ends]


def reference(documents, budget, probability, rng):
    """One pass of create_instances_from_document: (first sentence, sentences of A, label)."""
    found, base = [], 0
    for document in documents:
        target = rng.integers(2, budget + 1) if rng.random() < probability else budget
        start = 0
        while start < len(document):
            stop, length = start, 0
            while stop < len(document) and (stop == start or length < target):
                length += document[stop]
                stop += 1
            count = stop - start
            of_a = 1 if count == 1 else rng.integers(1, count)
            is_random = count == 1 or rng.random() < 0.5
            found.append((base + start, of_a, int(is_random)))
            start += of_a if is_random else count
        base += len(document)
    return found


def test_every_sentence_is_in_one_own_segment_of_an_epoch():
    documents = [[1] * size for size in np.random.default_rng(1).integers(1, 90, 60)]
    source = published(documents, sequence_length=23)
    ends = pass_ends(source)
    assert len(set(np.diff(ends))) > 3
    for epoch in (0, 1, PASSES - 1, PASSES + 1):
        start, stop = (ends[epoch % PASSES + i] + epoch // PASSES * ends[-1] for i in (0, 1))
        seen = collections.Counter()
        for a, b, label in own_segments(source, documents, np.arange(start, stop)):
            seen.update(a if label else a + b)
        assert len(seen) == sum(map(len, documents))
        assert set(seen.values()) == {1}


@pytest.mark.parametrize('probability', [0.0, 0.3])
def test_chunks_are_those_of_the_original_algorithm(probability):
    """Numbers of examples, labels and sentences of A have the same means."""
    documents, rng = some_documents(150), np.random.default_rng(0)
    expected = [reference(documents, 29, probability, rng) for _ in range(60)]
    found = []
    for seed in range(2):
        source = published(documents, probability, seed=seed)
        for number in range(PASSES):
            first = source._pass(number)
            chunks = source._chunks(np.full_like(first, number), source._documents(first), first)
            found.append(np.stack([first, chunks.middle - first, chunks.label], axis=1))
    samples = [[np.array(list(map(len, many))) for many in (found, expected)]]
    for column in (1, 2):
        samples.append([np.concatenate(many)[:, column] for many in (found, expected)])
    for ours, theirs in samples:
        error = np.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        assert abs(ours.mean() - theirs.mean()) < 4 * error


def test_a_chunk_after_a_random_segment_starts_where_a_ended():
    documents = [[1] * 200] * 3
    source = published(documents, 0.0, sequence_length=23)
    segments = sorted(own_segments(source, documents, np.arange(source.num_examples)))
    for (a, b, label), (following, _, _) in zip(segments, segments[1:], strict=False):
        assert following[0] == (a if label else b)[-1] + 1
    assert all(
        len(a) + len(b) == 20 for a, b, label in segments if not label and b[-1] % 200 != 199
    )


def test_the_target_length_is_drawn_for_each_document():
    documents = [[1] * 100] * 400
    source = published(documents, 0.5, sequence_length=53)
    lengths = collections.defaultdict(set)
    for a, b, label in own_segments(source, documents, np.arange(source.num_examples)):
        if not label and b[-1] % 100 != 99:
            lengths[a[0] // 100].add(len(a) + len(b))
    assert len(lengths) > 150
    assert all(len(found) == 1 for found in lengths.values())
    short = np.mean([found != {50} for found in lengths.values()])
    assert 0.4 < short < 0.65


def test_an_epoch_is_a_pass_in_random_order_and_ten_passes_differ():
    documents = [[1] * size for size in np.random.default_rng(1).integers(1, 90, 60)]
    source = published(documents)
    ends = pass_ends(source)
    starts = [
        [a[0] for a, _, _ in own_segments(source, documents, np.arange(low, high))]
        for low, high in ((0, ends[1]), (ends[1], ends[2]), (ends[-1], ends[-1] + ends[1]))
    ]
    assert sorted(starts[0]) == sorted(starts[2]) != sorted(starts[1])
    assert starts[0] != starts[2]
    assert abs(np.corrcoef(starts[0], np.arange(len(starts[0])))[0, 1]) < 0.2


def test_chunks_of_one_sentence_make_more_than_half_of_the_labels_random():
    documents = [[30] * 4, [2] * 40, [40], [2, 3]] * 5
    source, where = published(documents), Where(documents)
    labels = [[], []]
    for a, _, label in taken_apart(epoch_of(source)):
        document = documents[where.document[a[0] - FIRST]]
        labels[max(document) >= 30].append(label)
    assert all(labels[1])
    assert 0.3 < np.mean(labels[0]) < 0.8
    assert np.mean(sum(labels, [])) > 0.55


def test_after_ten_draws_the_random_document_may_be_that_of_a():
    documents = [[2] * 10] * 2
    source, where = published(documents), Where(documents)
    batch = source.examples(np.arange(200_000))
    random = batch['next_sentence_label'] == 1
    ids, types = batch['input_ids'][random], batch['token_type_ids'][random]
    first_b = types.argmax(1)
    document_a = where.document[ids[:, 1] - FIRST]
    document_b = where.document[ids[np.arange(len(ids)), first_b] - FIRST]
    expected = random.sum() / 2**10
    assert abs((document_a == document_b).sum() - expected) < 5 * np.sqrt(expected)


def test_documents_of_one_sentence_suffice_but_one_document_does_not():
    labels = epoch_of(published([[5], [6], [7]]))['next_sentence_label']
    assert labels.tolist() == [1, 1, 1]
    with pytest.raises(UserError, match='has 1 document'):
        published([[5, 6, 7]])


def test_ordered_pairs_are_swapped_but_single_sentences_get_a_random_segment():
    """As in create_pretraining_data.py of ALBERT."""
    documents = [[4], [3, 5, 2], [6], [2] * 7, [7]] * 40
    source, where = published(documents, 0.0, swapped=True), Where(documents)
    batch = epoch_of(source)
    assert 'next_sentence_label' not in batch
    batch['next_sentence_label'] = batch['sentence_order_label']
    seen, swapped = collections.Counter(), []
    for a, b, label in taken_apart(batch):
        of_a, of_b = (where.document[part[0] - FIRST] for part in (a, b))
        if of_a == of_b:
            first, second = (b, a) if label else (a, b)
            assert second[0] == first[-1] + 1
            swapped.append(label)
            seen.update(a + b)
        else:
            assert label == 1
            assert where.sentence[a[0] - FIRST] == where.sentence[a[-1] - FIRST]
            seen.update(a)
    assert len(seen) == sum(map(sum, documents))
    assert set(seen.values()) == {1}
    assert 0.3 < np.mean(swapped) < 0.7


def test_the_tokens_of_an_epoch_are_those_of_the_text():
    documents = some_documents(50)
    statistics = published(documents).statistics()
    assert statistics['tokens_per_epoch'] == sum(map(sum, documents))
    assert statistics['examples_per_epoch'] == published(documents).num_examples


def test_packed_rows_hold_the_first_pass_in_every_epoch():
    documents = [[1] * size for size in np.random.default_rng(1).integers(1, 60, 60)]
    source = PublishedPairs(row_settings(documents, sequence_length=32), fixed_lengths=True)
    rows = PackedRows(source, seed=3)
    where = Where(documents)
    for epoch in range(2):
        batch = rows.examples(np.arange(rows.num_examples) + epoch * rows.num_examples)
        own = np.take_along_axis(
            np.pad(batch['next_sentence_label'], ((0, 0), (1, 0))), batch['segment_ids'], axis=1
        )
        ids = np.where((batch['token_type_ids'] == 1) & (own == 1), 0, batch['input_ids'])
        seen = np.bincount(where.sentence[ids[ids >= FIRST] - FIRST], minlength=60)
        assert (seen == 1).mean() > 0.97  # the rest was truncated
        assert seen.max() == 1
