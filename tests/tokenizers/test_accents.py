"""Accents and vowel signs: kept or stripped, measured, and passed on to transformers."""

import json
import types
import unicodedata

import pytest
import transformers

from bert_jax import tokenizers
from bert_jax.corpus import corpus
from bert_jax.errors import UserError
from bert_jax.interop import huggingface_config
from bert_jax.tokenizers import accents

GERMAN = ['Er musste gehen, er müsste gehen. Schön, schon; Apfel und Äpfel!'] * 9
HINDI = ['क कु के की कि को का पर पदों में'] * 9
VIETNAMESE = ['ma má mà mả mã mạ'] * 9
ENGLISH = ['The cats sat on the mats; naïve dogs in a café.'] * 9


def different(tokenizer, text):
    return len({tuple(ids.tolist()) for ids in tokenizer.encode_batch(text.split()).ids})


@pytest.mark.parametrize('texts', [GERMAN, HINDI, VIETNAMESE])
def test_words_stay_different_without_stripping(texts):
    number = len(set(texts[0].lower().split()))
    kept = tokenizers.train('wordpiece:300', texts, True, strip_accents=False)
    assert (kept.lowercase, kept.strip_accents) == (True, False)
    assert different(kept, texts[0]) == number
    assert kept.decode(kept.encode_batch(['MÜSSTE schön']).ids[0]) in (
        'müsste schön',
        '[UNK] [UNK]',
    )
    stripped = tokenizers.train('wordpiece:300', texts, True)
    assert stripped.strip_accents
    assert different(stripped, texts[0]) < number


def test_cased_text_can_be_stripped():
    stripped = tokenizers.train('wordpiece:300', GERMAN, False, strip_accents=True)
    assert stripped.case == 'cased, accents and vowel signs stripped'
    assert stripped.decode(stripped.encode_batch(['Äpfel']).ids[0]) == 'Apfel'


@pytest.mark.parametrize('texts', [GERMAN, HINDI, VIETNAMESE, ENGLISH])
def test_the_measured_share_is_that_of_unicode(texts):
    words = {word.strip('.,;!').lower() for word in texts[0].split()}

    def strip(word):
        marks = (c for c in unicodedata.normalize('NFD', word) if unicodedata.category(c) != 'Mn')
        return ''.join(marks)

    expected = 1 - len(set(map(strip, words))) / len(words)
    merged = accents.measure(texts)
    assert merged.share == pytest.approx(expected)
    assert all(strip(first) == strip(second) for first, second in merged.examples)
    assert bool(merged.examples) == (texts is not ENGLISH)


def test_a_warning_names_words_that_become_equal(capsys):
    for texts, options in ((ENGLISH, {}), (GERMAN, {'strip_accents': False})):
        tokenizers.train('wordpiece:300', texts, True, **options)
        tokenizers.train('unigram:60', texts, True)
    assert 'warning' not in capsys.readouterr().err
    tokenizers.train('wordpiece:300', GERMAN, True)
    shown = capsys.readouterr().err
    assert 'musste = müsste' in shown
    assert '33.3%' in shown  # 3 of 9 words


def test_kinds_that_keep_accents_refuse_to_strip_them():
    with pytest.raises(UserError, match='a trained bytebpe vocabulary keeps accents'):
        tokenizers.train('bytebpe:300', GERMAN, True, strip_accents=True)
    with pytest.raises(UserError, match='a trained unigram vocabulary keeps accents'):
        corpus.settings(['text:a'], 'train:unigram:60', True, 0.1, strip_accents=True)


def test_loaded_vocabularies(tmp_path):
    """A vocab.txt follows the key; a tokenizer.json or a folder that says otherwise is refused."""
    trained = tokenizers.train('wordpiece:300', GERMAN, True, strip_accents=False)
    (tmp_path / 'vocab.txt').write_text('\n'.join(trained.vocab) + '\n')
    for strip, expected in ((None, True), (True, True), (False, False)):
        loaded = tokenizers.load(str(tmp_path / 'vocab.txt'), True, strip)
        assert loaded.strip_accents == expected
    folder = tmp_path / 'folder'
    folder.mkdir()
    trained.save(folder)
    assert not tokenizers.load(str(folder), True, False).strip_accents
    with pytest.raises(UserError, match='strip_accents is True, but this tokenizer keeps accents'):
        tokenizers.load(str(folder), True, True)
    config = {'tokenizer_class': 'BertTokenizer', 'strip_accents': True}
    (folder / 'tokenizer_config.json').write_text(json.dumps(config))
    with pytest.raises(UserError, match='strip_accents is False, but this tokenizer strips'):
        tokenizers.load(str(folder), True, False)


@pytest.mark.parametrize('strip', [None, False])
def test_transformers_reads_exported_tokenizers_alike(strip, tmp_path):
    """As the class of the folder, and as BertTokenizer."""
    tokenizer = tokenizers.train('wordpiece:300', GERMAN, True, strip_accents=strip)
    sizes = types.SimpleNamespace(max_length=77, type_vocab_size=2)
    huggingface_config.write_tokenizer(tokenizer, sizes, tmp_path)
    (ids,) = tokenizer.encode_batch(GERMAN[:1]).ids
    for kind in (transformers.AutoTokenizer, transformers.BertTokenizer):
        theirs = kind.from_pretrained(tmp_path)
        assert theirs(GERMAN[0], add_special_tokens=False)['input_ids'] == ids.tolist()
    assert tokenizers.load(str(tmp_path)).fingerprint == tokenizer.fingerprint
