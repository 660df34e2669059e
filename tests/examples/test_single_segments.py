"""Rows of contiguous text: full, and together the whole text."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.examples.single_segments import SingleSegments, SplitSegments
from tests.examples.texts import FIRST, Tokenizer, Where, epoch_of, row_settings, some_documents


def singles(documents, **options):
    return SingleSegments(row_settings(documents, **options))


def test_an_epoch_has_every_token_in_full_rows():
    documents = some_documents(100)
    where, source = Where(documents), singles(documents, num_shards=3)
    size = np.bincount(where.document)
    for epoch in range(3):
        batch = epoch_of(source, epoch)
        seen = set()
        for row, mask in zip(batch['input_ids'].tolist(), batch['attention_mask'], strict=True):
            length = int(mask.sum()) - 2
            text = row[1 : length + 1]
            assert row[0] == Tokenizer.cls_id
            assert row[length + 1] == Tokenizer.sep_id
            assert row[length + 2 :] == [Tokenizer.pad_id] * (30 - length)
            assert mask[: length + 2].all()
            assert text == list(range(text[0], text[0] + length))
            document = where.document[text[0] - FIRST]
            assert where.document[text[-1] - FIRST] == document
            assert length == min(30, size[document])
            seen.update(text)
        assert len(seen) == size.sum()
        assert not batch['token_type_ids'].any()


def test_row_boundaries_differ_between_epochs():
    source = singles([[95]], sequence_length=12)
    cuts = {tuple(sorted(epoch_of(source, epoch)['input_ids'][:, 1])) for epoch in range(30)}
    assert len(cuts) > 3
    assert all(cut[0] == FIRST and cut[-1] == FIRST + 85 for cut in cuts)


def test_one_document_of_one_sentence_suffices():
    source = singles([[3]])
    assert source.num_examples == 1
    assert source.batch(0)['input_ids'][:, :6].tolist() == [[1, 10, 11, 12, 2, 0]] * 64


def test_an_empty_corpus_is_an_error():
    with pytest.raises(UserError, match='empty'):
        singles([])


def test_a_sequence_length_that_is_too_small_is_an_error():
    with pytest.raises(UserError, match='sequence length is 2'):
        singles(some_documents(), sequence_length=2)


def split_rows(documents, epochs=1, **options):
    """Yield (tokens of the first segment, of the second, end of the document) of each row."""
    source, where = SplitSegments(row_settings(documents, **options)), Where(documents)
    for epoch in range(epochs):
        batch = epoch_of(source, epoch)
        for row, types, mask in zip(
            *(batch[key].tolist() for key in ('input_ids', 'token_type_ids', 'attention_mask')),
            strict=True,
        ):
            size = sum(mask)
            assert mask == [1] * size + [0] * (len(row) - size)
            ends = [i for i in range(size) if row[i] == Tokenizer.sep_id]
            assert ends[-1] == size - 1
            assert types == [int(ends[0] < i < size) for i in range(len(row))]
            text = row[1 : ends[0]] + row[ends[0] + 1 : size - 1]
            assert text == list(range(text[0], text[0] + len(text)))
            assert len({where.document[token - FIRST] for token in text}) == 1
            yield row[1 : ends[0]], row[ends[0] + 1 : size - 1], where


def test_two_segments_meet_at_a_sentence_near_the_middle_of_the_row():
    middle, singles, late = (32 - 3) // 2, 0, []
    rows = list(split_rows(some_documents(150), epochs=4))
    for first, second, where in rows:
        singles += not second
        if second:
            assert second[0] in where.starts
            inner = [t for t in (*first[1:], second[0]) if t in where.starts]
            before = [t for t in inner if t - first[0] < middle]
            after = min((t for t in inner if t - first[0] >= middle), default=None)
            assert second[0] in (before[-1] if before else None, after)
            if before:
                late.append(second[0] == after)
    assert len(rows) > 1000
    assert np.mean(late) == pytest.approx(0.5, abs=0.08)  # only rows with two possible ends count
    assert 0.1 < singles / len(rows) < 0.4  # those whose last sentence is drawn into the first too


def test_a_tenth_of_the_long_rows_has_one_segment():
    rows = list(split_rows([[2] * 3000], sequence_length=32))
    share = np.mean([not second for _, second, _ in rows])
    assert share == pytest.approx(0.1, abs=0.05)
    tokens = [token for first, second, _ in rows for token in (*first, *second)]
    assert len(set(tokens)) == 6000
