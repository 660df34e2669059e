"""Words have the subwords that word_ids() of the tokenizers library gives them.

run_ner.py of transformers labels and reads the first of them, even if it is a bare '▁' or 'Ġ'.
"""

import random

import pytest
import tokenizers as library
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from bert_jax.labels import word_spans
from bert_jax.tokenizers import Tokenizer, alignment

SPECIAL = ['<s>', '<pad>', '</s>', '<unk>', '<mask>']
LINES = [
    'Anna works in Oslo and Bob sleeps in U.S. cities, e.g. Rome.',
    "café fine film 3.5 mg 10 000 don't",
    '中文字 한국어 text … “q”',
    'a I u o 1 2 , . ; : !',
]
WORDS = [
    'Anna', 'works', 'U.S.', "don't", 'e.g.', 'café', 'cafe\u0301', '中文字', '한국어', '…', '“q”',
    'a', 'I', '1', ',', '.', '3.5', '①', 'ﬁ', 'Ａ', '½', '☃\ufe0f', '👩\u200d👧', 'x' * 20,
    '...', '(', 'zq9', '10\u00a0000', 'a\u3000b', 'a\u2028b',
]  # fmt: skip


def unigram(splits) -> library.Tokenizer:
    made = library.Tokenizer(models.Unigram())
    spaces = normalizers.Replace(library.Regex(' {2,}'), ' ')
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces])
    made.pre_tokenizer = splits
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=SPECIAL, unk_token='<unk>', show_progress=False
    )
    made.train_from_iterator(LINES * 30, trainer)
    return made


def byte_bpe(splits, trim_offsets=True) -> library.Tokenizer:
    made = library.Tokenizer(models.BPE())
    made.pre_tokenizer = splits
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(LINES * 30, trainer)
    made.post_processor = processors.RobertaProcessing(
        ('</s>', made.token_to_id('</s>')),
        ('<s>', made.token_to_id('<s>')),
        trim_offsets=trim_offsets,
    )
    return made


TOKENIZERS = {
    'XLM-R': lambda: unigram(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    ),
    'DeBERTa-v3': lambda: unigram(pre_tokenizers.Metaspace()),
    'RoBERTa': lambda: byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    'RoBERTa with untrimmed offsets': lambda: byte_bpe(
        pre_tokenizers.ByteLevel(add_prefix_space=True), trim_offsets=False
    ),
    'RobBERT-2023': lambda: byte_bpe(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Whitespace(),
                pre_tokenizers.ByteLevel(add_prefix_space=True),
                pre_tokenizers.Punctuation(),
            ]
        )
    ),
}


@pytest.mark.parametrize('name', TOKENIZERS)
def test_words_have_the_subwords_of_word_ids(name):
    theirs = TOKENIZERS[name]()
    ours = Tokenizer(theirs.to_str())
    chosen = random.Random(0)
    num_blank = 0
    for _ in range(300):
        words = chosen.choices(WORDS, k=chosen.randint(1, 6))
        text, spans = word_spans.join_words(words)
        encoded = theirs.encode(words, is_pretokenized=True, add_special_tokens=False)
        aligned = alignment.align(ours, text, spans)
        assert aligned.ids.tolist() == encoded.ids
        assert aligned.words.tolist() == encoded.word_ids
        assert aligned.first.tolist() == [*map(encoded.word_ids.index, range(len(words)))]
        assert aligned.num_dropped == 0
        first = [ours.vocab[index] for index in aligned.ids[aligned.first]]
        num_blank += sum(token in '▁Ġ' for token in first)
    assert num_blank > 100


def test_offsets_do_not_count_spaces_that_the_text_lacks():
    ours = Tokenizer(TOKENIZERS['RobBERT-2023']().to_str())
    text = 'I am  a cat, said Anna.'
    (ids,), (offsets,) = ours.encode_batch([text])
    found = [
        (ours.vocab[index], int(start), text[start:end])
        for index, (start, end) in zip(ids, offsets, strict=True)
    ]
    assert found[:2] == [('ĠI', 0, 'I'), ('Ġa', 2, 'a')]
    assert ('Ġa', 6, 'a') in found
    assert found[found.index((',', 11, ',')) - 1] == ('Ġ', 11, '')
    assert found[-2:] == [('Ġ', 22, ''), ('.', 22, '.')]


def test_words_that_touch_keep_their_own_subwords():
    """The space of 'Ġ' belongs to the word after it, not to the one before."""
    ours = Tokenizer(TOKENIZERS['RoBERTa']().to_str())
    text = 'a½ ½, x'
    aligned = alignment.align(ours, text, [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7)])
    tokens = [ours.vocab[index] for index in aligned.ids]
    assert [tokens[index] for index in aligned.first] == ['Ġa', 'Â', 'Ġ', ',', 'Ġ']
    assert aligned.words.tolist() == [0, 1, 1, 2, 2, 2, 3, 4, 4]
