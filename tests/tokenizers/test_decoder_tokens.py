"""Tokenizers of encoder–decoders: sentinels, languages, and texts that start without a token."""

import json

import numpy as np
import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.tokenizers import decoder_tokens
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout

TEXTS = ['the quick brown fox jumps over the lazy dog and cats like milk'] * 20


@pytest.fixture(scope='module')
def trained():
    return tokenizers.train('unigram:60:sentinels=5:languages=cy,en:cls=no', TEXTS)


def test_further_tokens_follow_the_vocabulary(trained):
    plain = tokenizers.train('unigram:60', TEXTS)
    assert trained.vocab[: plain.vocab_size] == plain.vocab
    assert trained.vocab_size == plain.vocab_size + 7
    assert trained.sentinel_ids == tuple(range(trained.vocab_size - 1, trained.vocab_size - 6, -1))
    assert [trained.vocab[index] for index in trained.language_ids.values()] == ['[cy]', '[en]']
    assert {*trained.sentinel_ids, *trained.language_ids.values()} < {*trained.special_ids}
    assert (plain.sentinel_ids, plain.language_ids) == ((), {})


@pytest.mark.parametrize('kind', ['wordpiece:60', 'bytebpe:300', 'sentencepiece-bpe:60'])
def test_every_kind_can_have_them(kind):
    made = tokenizers.train(f'{kind}:sentinels=3:cls=no', TEXTS)
    assert [made.vocab[index] for index in made.sentinel_ids] == [
        '<extra_id_0>',
        '<extra_id_1>',
        '<extra_id_2>',
    ]
    assert not made.starts_texts
    assert made.first_id == made.sep_id


def test_names_in_a_text_are_text(trained):
    text = 'the <extra_id_0> dog [cy]'
    special = {trained.sentinel_ids[0], trained.language_ids['cy']}
    assert not special & {*trained.encode_batch([text]).ids[0].tolist()}
    assert not special & {*trained.encode_ids([text])[0].tolist()}
    assert special < {*trained.encode_batch([text], special=True).ids[0].tolist()}


def test_texts_without_a_start(trained):
    layout = SpecialTokenLayout(trained, 10, 1)
    a, b = np.array([40, 41]), np.array([42])
    sep = trained.sep_id
    assert layout.lay_out(a).ids.tolist() == [40, 41, sep]
    pair = layout.lay_out(a, b)
    assert pair.ids.tolist() == [40, 41, sep, 42, sep]
    assert pair.starts == (0, 3)
    assert [layout.max_text_tokens(number) for number in (1, 2)] == [9, 8]
    with pytest.raises(UserError, match=r'the vocabulary lacks \[CLS\] or <s>'):
        _ = trained.cls_id
    again = tokenizers.Tokenizer(trained.to_json())
    assert (again.starts_texts, again.suffix_ids) == (False, ())


def test_a_language_ends_the_texts_of_mbart(trained):
    settings = json.loads(trained.to_json())
    ids = {token: index for index, token in enumerate(trained.vocab)}
    processor = decoder_tokens.end_template('</s>', ('[cy]',), ids)
    settings['post_processor'] = json.loads(processor.__getstate__())
    mbart = tokenizers.Tokenizer(json.dumps(settings))
    assert mbart.suffix_ids == (trained.language_ids['cy'],)
    layout, end = SpecialTokenLayout(mbart, 10, 1), [mbart.sep_id, *mbart.suffix_ids]
    assert layout.lay_out(np.array([40]), np.array([41])).ids.tolist() == [40, 41, *end]
    assert [layout.max_text_tokens(number) for number in (1, 2)] == [8, 8]


def test_names_of_languages():
    found = decoder_tokens.find_languages(['en_XX', '[cy]', '[CLS]', '[en]', 'cls', '<s>'])
    assert found == {'en_XX': 'en_XX', 'en': '[en]', 'cy': '[cy]'}
    assert decoder_tokens.find_languages(['zh_CN'])['zh'] == 'zh_CN'
    assert decoder_tokens.find_languages(['[zh-cn]']) == {'zh-cn': '[zh-cn]'}


@pytest.mark.parametrize(
    ('option', 'message'),
    [
        ('sentinels=0', "'sentinels=0' is not valid; write sentinels=N with N from 1 to 1,000"),
        ('sentinels=x', "'sentinels=x' is not valid"),
        ('languages=EN', "'languages=EN' is not valid"),
        ('cls=maybe', "'cls=maybe' is not valid"),
        ('sentinel=3', "unknown option of the tokenizer 'unigram:60:sentinel=3' 'sentinel'"),
    ],
)
def test_malformed_options(option, message):
    with pytest.raises(UserError, match=message):
        tokenizers.train(f'unigram:60:{option}', TEXTS)
