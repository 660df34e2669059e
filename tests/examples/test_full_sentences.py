"""FULL-SENTENCES and DOC-SENTENCES, compared with a simple loop that follows the paper."""

import time

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.examples.full_sentences import FullSentences, row_edges
from bert_jax.examples.text_example_source import RowSettings
from tests.examples.texts import FIRST, Tokenizer, make_split, some_documents

KINDS = [False, True]


def sentences(documents, length=32, seed=0, within=False, num_shards=1, mark_sentences=False):
    split = make_split(documents, num_shards)
    return FullSentences(RowSettings(split, Tokenizer, length, 8, seed, mark_sentences), within)


def slow_rows(documents, length, within):
    """All rows as lists of ids, by a simple loop.

    A sentence is added while it fits into the row, with a separator after a document's end.
    """
    rows, row, token = [], [Tokenizer.cls_id], FIRST
    for document in documents:
        if len(row) > 1:
            if within or len(row) + 1 >= length:
                rows.append([*row, Tokenizer.sep_id])
                row = [Tokenizer.cls_id]
            else:
                row.append(Tokenizer.sep_id)
        for number in document:
            pieces = [min(length - 2, number - n) for n in range(0, number, length - 2)]
            for size in pieces:
                if len(row) + size + 1 > length:
                    ended = row[-1] == Tokenizer.sep_id
                    rows.append(row if ended else [*row, Tokenizer.sep_id])
                    row = [Tokenizer.cls_id]
                row += range(token, token + size)
                token += size
    return [*rows, [*row, Tokenizer.sep_id]]


def epoch_of(source, number=0):
    first = number * source.num_examples
    return source.examples(np.arange(first, first + source.num_examples))


def rows_of(batch) -> list[list[int]]:
    lengths = batch['attention_mask'].sum(axis=1)
    return [ids[:length].tolist() for ids, length in zip(batch['input_ids'], lengths, strict=True)]


@pytest.mark.parametrize('within', KINDS)
@pytest.mark.parametrize('length', [3, 9, 32, 200])
def test_rows_equal_those_of_the_simple_loop(within, length):
    documents = some_documents(60)
    expected = slow_rows(documents, length, within)
    batch = epoch_of(sentences(documents, length, within=within))
    assert sorted(rows_of(batch)) == sorted(expected)
    real = np.arange(length) < np.array([len(row) for row in rows_of(batch)])[:, None]
    assert np.array_equal(batch['attention_mask'], real)
    assert (batch['input_ids'][~real] == Tokenizer.pad_id).all()
    assert not batch['token_type_ids'].any()


def test_rows_cross_documents_with_one_separator_between_them():
    documents = [[3, 2], [1], [4, 9]]  # tokens 10 … 14; 15; 16 … 19, 20 … 28
    (first, second) = sorted(rows_of(epoch_of(sentences(documents, 16))))
    assert first == [1, 10, 11, 12, 13, 14, 2, 15, 2, 16, 17, 18, 19, 2]
    assert second == [1, *range(20, 29), 2]
    apart = sorted(rows_of(epoch_of(sentences(documents, 16, within=True))))
    assert apart == [[1, 10, 11, 12, 13, 14, 2], [1, 15, 2], [1, *range(16, 29), 2]]


@pytest.mark.parametrize('within', KINDS)
def test_every_epoch_has_all_tokens_once_in_a_different_order(within):
    documents = some_documents(50)
    source = sentences(documents, within=within, num_shards=3)
    epochs = [rows_of(epoch_of(source, number)) for number in range(3)]
    for rows in epochs:
        tokens = sorted(token for row in rows for token in row if token >= FIRST)
        assert tokens == list(range(FIRST, FIRST + sum(map(sum, documents))))
    assert epochs[0] != epochs[1] != epochs[2]
    assert sorted(epochs[0]) == sorted(epochs[1])
    other_seed = sentences(documents, within=within, num_shards=3, seed=1)
    assert rows_of(epoch_of(other_seed)) != epochs[0]


@pytest.mark.parametrize('within', KINDS)
def test_a_batch_is_a_function_of_the_step(within):
    source = sentences(some_documents(), within=within)
    together = source.batch(np.array([5, 700]))
    for place, step in enumerate([5, 700]):
        parts = [source.batch(step, rows) for rows in (slice(0, 3), slice(3, 8))]
        for name, array in together.items():
            joined = np.concatenate([part[name] for part in parts])
            assert np.array_equal(joined, array[place])
            assert array.dtype == np.int32
    assert together['example_index'][1].tolist() == list(range(5600, 5608))


@pytest.mark.parametrize('within', KINDS)
def test_lengths_are_exact(within):
    source = sentences(some_documents(), within=within)
    numbers = np.arange(source.num_examples)
    mask = source.chunk_examples(numbers, numbers)['attention_mask']
    assert np.array_equal(source.lengths(numbers), mask.sum(axis=1))


def test_a_sentence_longer_than_a_row_is_cut_and_counted():
    source = sentences([[4, 25, 3], [11]], 12)
    rows = sorted(rows_of(epoch_of(source)))
    assert [len(row) - 2 for row in rows] == [4, 10, 10, 5 + 3, 10, 1]
    assert source.statistics()['sentences_cut'] == 2
    assert source.statistics()['tokens_per_epoch'] == 43


def test_sentence_start_marks_the_first_tokens_of_sentences():
    documents = some_documents()
    lengths = np.concatenate(documents)
    starts = np.cumsum([0, *lengths[:-1]]) + FIRST
    batch = epoch_of(sentences(documents, mark_sentences=True))
    assert np.array_equal(batch['sentence_start'] > 0, np.isin(batch['input_ids'], starts))


def test_an_empty_corpus_is_an_error():
    with pytest.raises(UserError, match='the corpus is empty'):
        sentences([[]])


def test_ten_million_tokens_take_less_than_two_seconds():
    rng = np.random.default_rng(0)
    sentence = np.cumsum([0, *rng.integers(1, 40, 500_000)])
    document = np.append(np.arange(0, 500_000, 37), 500_000)
    started = time.process_time()
    for within in KINDS:
        edges, _ = row_edges(sentence, document, 510, within)
        assert edges[-1] == sentence[-1]
        assert (np.diff(edges) <= 510).all()
    assert time.process_time() - started < 2
