"""Rows of a tokenizer that puts [CLS] after the texts, as XLNet's."""

import numpy as np
import pytest

from bert_jax.examples.full_sentences import FullSentences
from bert_jax.examples.sentence_pairs import SentencePairs
from bert_jax.examples.single_segments import SingleSegments
from tests.examples.texts import ClsLast, Tokenizer, row_settings, some_documents


@pytest.mark.parametrize('kind', [SentencePairs, SingleSegments, FullSentences])
def test_rows_are_those_of_other_tokenizers_with_cls_moved_to_the_end(kind):
    settings = row_settings(some_documents(), mark_sentences=True)
    first, last = (
        kind(settings._replace(tokenizer=tokenizer)).batch(2) for tokenizer in (Tokenizer, ClsLast)
    )
    assert first.keys() == last.keys()
    np.testing.assert_array_equal(first['attention_mask'], last['attention_mask'])
    for row, size in enumerate(first['attention_mask'].sum(1)):
        ids, types, starts = (
            [batch[name][row].tolist() for batch in (first, last)]
            for name in ('input_ids', 'token_type_ids', 'sentence_start')
        )
        padding = [Tokenizer.pad_id] * (32 - size)
        assert ids[1] == [*ids[0][1:size], Tokenizer.cls_id, *padding]
        assert types[1] == [*types[0][1:size], 2, *[0] * len(padding)]
        assert starts[1] == [*starts[0][1:size], 0, *[0] * len(padding)]
