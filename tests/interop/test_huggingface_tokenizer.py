"""An exported tokenizer gives transformers the ids, special tokens and types of training."""

import types

import numpy as np
import pytest
import transformers

from bert_jax import tokenizers
from bert_jax.corpus.corpus import Shard
from bert_jax.examples import sentence_pairs
from bert_jax.examples.text_example_source import RowSettings
from bert_jax.interop import huggingface, huggingface_config
from bert_jax.models.architecture_parts import LearnedPositions

TEXT = 'The cat sat on the mats. The dogs sat with them, naïve! Cafés in Москва. ' * 20
SPECS = ('wordpiece:120', 'bytebpe:300', 'unigram:60', 'sentencepiece-bpe:60')
TEXTS = ['The dogs sat', 'naïve Cafés, 北京 😀', '']


@pytest.fixture(params=SPECS)
def tokenizer(request):
    return tokenizers.train(request.param, [TEXT], lowercase=False)


def exported(tokenizer, folder, type_vocab_size):
    sizes = types.SimpleNamespace(
        max_length=77, type_vocab_size=type_vocab_size, vocab_size=300,
        positions=LearnedPositions(), first_position=0,
    )  # fmt: skip
    huggingface_config.write_tokenizer(tokenizer, sizes, folder)
    read = huggingface.load_tokenizer(folder, sizes)
    return transformers.AutoTokenizer.from_pretrained(folder), read


def test_one_text_gets_the_same_ids(tokenizer, tmp_path):
    theirs, read = exported(tokenizer, tmp_path, 1)
    assert read.fingerprint == tokenizer.fingerprint
    for text, ids in zip(TEXTS, tokenizer.encode_batch(TEXTS).ids, strict=True):
        assert theirs(text)['input_ids'] == [tokenizer.cls_id, *ids, tokenizer.sep_id]
    for role in ('pad', 'unk', 'cls', 'sep', 'mask'):
        assert getattr(theirs, f'{role}_token_id') == getattr(tokenizer, f'{role}_id')
    assert theirs.model_max_length == 77
    if tokenizer.kind == 'bytebpe':
        assert theirs.init_kwargs['add_prefix_space'] is True  # as in tokenizer.json
    assert theirs.model_input_names == ['input_ids', 'attention_mask']
    assert (tmp_path / 'vocab.txt').exists() == (tokenizer.kind == 'wordpiece')


def test_two_texts_without_types_are_laid_out_as_in_published_models(tokenizer, tmp_path):
    theirs, _ = exported(tokenizer, tmp_path, 1)
    a, b = tokenizer.encode_batch(TEXTS[:2]).ids
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    between = sep if tokenizer.kind == 'wordpiece' else sep + sep
    expected = np.concatenate([cls, a, between, b, sep])
    assert theirs(*TEXTS[:2])['input_ids'] == expected.tolist()


def test_two_texts_with_types_are_laid_out_as_in_pretraining(tokenizer, tmp_path):
    theirs, read = exported(tokenizer, tmp_path, 2)
    a, b = tokenizer.encode_batch(TEXTS[:2]).ids
    flat = np.concatenate([a, a, b, b])  # two documents of two sentences each
    starts = np.cumsum([0, len(a), len(a), len(b), len(b)])
    shard = Shard(flat, starts, np.array([0, 2, 4]), source=0, language='und')
    split = types.SimpleNamespace(shards=[shard])
    settings = RowSettings(split, tokenizer, 64, 8, seed=0)
    batch = sentence_pairs.SentencePairs(settings).batch(0)
    row = next(r for r in range(8) if batch['next_sentence_label'][r] == 1)
    first_is_a = np.array_equal(batch['input_ids'][row, 1 : 1 + len(a)], a)
    texts = TEXTS[:2] if first_is_a else TEXTS[1::-1]
    found = theirs(*texts, padding='max_length', max_length=64)
    for name in ('input_ids', 'token_type_ids', 'attention_mask'):
        assert found[name] == batch[name][row].tolist()
    assert read.vocab == tokenizer.vocab
    assert read.with_token_types().fingerprint == read.fingerprint
