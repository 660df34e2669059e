"""Rows of contiguous text: full, and together the whole text."""

import numpy as np
import pytest

from bert_jax.data.single_segments import SingleSegments
from bert_jax.errors import UserError
from tests.data.texts import FIRST, Tokenizer, Where, epoch_of, row_settings, some_documents


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
