"""Special tokens around one text or two, compared with transformers."""

import numpy as np
import pytest
import tokenizers
import transformers

from bert_jax import tokenizers as our_tokenizers
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout, truncate_longest_first

SPECIAL = {'wordpiece': ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'], 'bytebpe': None}
TEXT = ['the small ship and the old harbour near the sea'] * 3


@pytest.mark.parametrize(
    ('kind', 'types', 'reference'),
    [
        ('wordpiece', 2, transformers.BertTokenizerFast),
        ('wordpiece', 0, None),
        ('bytebpe', 1, transformers.RobertaTokenizerFast),
        ('bytebpe', 2, None),
        ('xlnet', 3, transformers.XLNetTokenizer),
    ],
)
def test_layout_equals_that_of_transformers(kind, types, reference):
    spec = f'train:{kind}:{120 if kind == "wordpiece" else 300}'
    tokenizer = our_tokenizers.train(spec.removeprefix('train:'), iter(TEXT), True)
    layout = SpecialTokenLayout(tokenizer, 16, types)
    a, b = tokenizer.encode_batch(['the small ship', 'old harbour']).ids
    laid_out, single = layout.lay_out(a, b), layout.lay_out(a)
    assert layout.max_text_tokens(1) == 14
    assert layout.max_text_tokens(2) == 16 - (len(laid_out.ids) - len(a) - len(b))
    for start, ids in zip(laid_out.starts, (a, b), strict=True):
        np.testing.assert_array_equal(laid_out.ids[start : start + len(ids)], ids)
    if reference is None:
        ends = [tokenizer.sep_id]
        expected = [tokenizer.cls_id, *a, *ends, *b, *ends]
        types_expected = [0] * (len(a) + 2) + [int(types > 1)] * (len(b) + 1)
        assert laid_out.ids.tolist() == expected
        assert laid_out.token_type_ids.tolist() == types_expected
        return
    names = [tokenizer.vocab[index] for index in tokenizer.special_ids]
    keys = ('pad_token', 'unk_token', 'cls_token', 'sep_token', 'mask_token')
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.to_json()),
        **dict(zip(keys, names, strict=True)),
    )
    encoded = theirs('the small ship', 'old harbour', return_token_type_ids=True)
    assert laid_out.ids.tolist() == encoded['input_ids']
    assert laid_out.token_type_ids.tolist() == encoded['token_type_ids']
    assert single.ids.tolist() == theirs('the small ship')['input_ids']


@pytest.mark.parametrize('lengths', [(9, 2), (2, 9), (6, 6), (3, 2), (1, 20)])
def test_the_longest_text_is_truncated_first(lengths):
    parts = [np.arange(length) for length in lengths]
    truncated = truncate_longest_first(parts, 7)
    assert sum(map(len, truncated)) == min(7, sum(lengths))
    for part, own in zip(parts, truncated, strict=True):
        np.testing.assert_array_equal(own, part[: len(own)])
    if sum(lengths) > 7:  # no text is truncated below the length of the other
        longer, shorter = sorted(map(len, truncated), reverse=True)
        assert shorter == min(min(lengths), 3)
