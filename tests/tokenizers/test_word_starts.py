"""Which tokens start a word, as published code and as scripts without spaces have it."""

import random

import numpy as np
import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.tokenizers import word_starts

ENGLISH = ["it's a well-known café , 42 times (or not) ."] * 20
RANDOM = random.Random(0)


def invent(syllables: str, number: int = 200) -> list[str]:
    """Sentences of 5 to 30 syllables without spaces."""
    parts = syllables.split()
    return [''.join(RANDOM.choices(parts, k=RANDOM.randint(5, 30))) for _ in range(number)]


CHINESE = invent('我 们 在 这 里 学 习 语 言 他 不 喜 欢 吃 鱼 读 书 很 有 意 思 。')
THAI = invent('ผม ชอบ กิน ข้าว ที่ บ้าน กับ เพื่อน นี่ อยู่ ใน เมือง')


def starts(spec, texts, rule='marks', unspaced='refuse'):
    """Token → whether it starts a word."""
    tokenizer = tokenizers.train(spec, texts, lowercase=False)
    found = word_starts.find(tokenizer, rule, unspaced)
    return tokenizer, dict(zip(tokenizer.vocab, found.tolist(), strict=True))


def test_published_code_counts_more_tokens_as_words_than_the_vocabulary_marks():
    spec = 'unigram:45'
    _, marks = starts(spec, ENGLISH)
    _, punctuation = starts(spec, ENGLISH, 'punctuation')
    _, albert = starts(spec, ENGLISH, 'albert')
    single = [token for token in marks if len(token) == 1]
    assert {"'", '-', ')', 'é', '4', 't'} <= {*single}
    assert not any(marks[token] for token in single if token != '▁')
    assert [punctuation[token] for token in "'-)é4t"] == [True, True, True, False, False, False]
    assert [albert[token] for token in "'-)é4t"] == [True, True, True, True, True, False]
    assert not any(albert[token] for token in ('[CLS]', '[SEP]', '<s>') if token in albert)
    wordpiece = starts('wordpiece:60', ENGLISH, 'albert')[1]
    assert wordpiece == starts('wordpiece:60', ENGLISH)[1]


@pytest.mark.parametrize('spec', ['unigram:60', 'bytebpe:300', 'wordpiece:120'])
@pytest.mark.parametrize('texts', [CHINESE, THAI], ids=['zh', 'th'])
def test_scripts_without_spaces_are_refused_or_have_words_of_subwords_or_characters(spec, texts):
    tokenizer, _ = starts(spec, [*texts, *ENGLISH] if spec.startswith('wordpiece') else texts)
    counts = np.bincount(tokenizer.encode_ids(texts)[0], minlength=tokenizer.vocab_size)
    marked = word_starts.find(tokenizer, 'marks', 'refuse')
    used = counts > 0
    # The tokenizer of BERT puts spaces around Chinese characters.
    if not (spec.startswith('wordpiece') and texts is CHINESE):
        assert counts[marked].sum() < 0.5 * counts.sum()
        with pytest.raises(UserError, match=r'% of the tokens .* in scripts without spaces'):
            word_starts.check_unspaced(tokenizer, marked, counts)
    by_subword = word_starts.find(tokenizer, 'marks', 'subwords')
    assert by_subword[used].all()
    by_character = word_starts.find(tokenizer, 'marks', 'characters')
    word_starts.check_unspaced(tokenizer, by_subword, counts)
    if spec == 'bytebpe:300':  # tokens of one or two bytes
        num_characters = sum(1 + len(text) for text in texts)  # and a space
        assert counts[by_character].sum() <= num_characters
        assert counts[by_character].sum() > 0.3 * num_characters
    assert marked.sum() <= by_character.sum() <= by_subword.sum()


def test_vowel_signs_do_not_start_a_word():
    _, found = starts('unigram:60', THAI, unspaced='characters')
    assert found['บ']
    assert not found['ี']  # a vowel sign above its consonant
    assert starts('unigram:60', THAI, unspaced='subwords')[1]['ี']


def test_a_few_foreign_words_are_not_refused():
    texts = ENGLISH * 20 + ['the name 语言学习 is Chinese']
    tokenizer, _ = starts('unigram:70', texts)
    counts = np.bincount(tokenizer.encode_ids(texts)[0], minlength=tokenizer.vocab_size)
    word_starts.check_unspaced(tokenizer, word_starts.find(tokenizer, 'marks', 'refuse'), counts)


@pytest.mark.parametrize(('rule', 'unspaced'), [('words', 'refuse'), ('marks', 'pieces')])
def test_an_unknown_rule_is_named(rule, unspaced):
    tokenizer, _ = starts('unigram:45', ENGLISH)
    key = 'word_starts' if rule == 'words' else 'unspaced'
    with pytest.raises(UserError, match=f'unknown masking.{key} .*known: '):
        word_starts.find(tokenizer, rule, unspaced)
