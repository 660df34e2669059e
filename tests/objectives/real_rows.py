"""Rows of real text in vocabularies with three ways of marking where words start."""

import functools
import pathlib
import random
from typing import NamedTuple

import numpy as np

from bert_jax import tokenizers
from bert_jax.tokenizers import word_starts

CONVENTIONS = ('##', 'Ġ', '▁')
CHARACTERS = 600_000
FILES = {'##': 'vocab_bert_base_uncased/vocab.txt', 'Ġ': 'vocab_gpt2_bpe'}


class Special(NamedTuple):
    """Ids of the special tokens."""

    cls: int
    sep: int
    pad: int
    mask: int
    unk: int


class RealRows(NamedTuple):
    """Full rows ([CLS] text [SEP]) and some short ones.

    Attributes:
        input_ids: int32 [N, T].
        attention_mask: int32 [N, T].
        is_word_start: bool [V], as the tokenizer reports it.
        counts: int64 [V], frequencies in the text.
        special: Ids of the special tokens.
        vocab: Tokens by id.
    """

    input_ids: np.ndarray
    attention_mask: np.ndarray
    is_word_start: np.ndarray
    counts: np.ndarray
    special: Special
    vocab: tuple[str, ...] = ()


@functools.cache
def real_rows(folder: pathlib.Path, convention: str, length: int) -> RealRows:
    """Return 140,000 tokens of a novel in a published vocabulary, or (▁) one trained on it."""
    novel = sorted((folder / 'english_novels').glob('*.txt'))[0]
    text = novel.read_text(encoding='utf-8')[50_000:][:CHARACTERS]
    if convention in FILES:
        tokenizer = tokenizers.load(str(folder / FILES[convention]))
    else:
        tokenizer = tokenizers.train('unigram:4000', [text], lowercase=False)
    return as_rows(tokenizer, text.split('\n\n'), length)


@functools.cache
def unspaced_rows(length: int, unspaced: str) -> RealRows:
    """Return rows of an invented text in Chinese characters without spaces."""
    rng = random.Random(0)
    words = [
        ''.join(chr(0x4E00 + rng.randrange(500)) for _ in range(rng.choice([1, 2, 2, 3])))
        for _ in range(2000)
    ]
    frequencies = [1 / (rank + 3) for rank in range(len(words))]
    sentences = [
        ''.join(rng.choices(words, frequencies, k=rng.randint(3, 30))) + '。' for _ in range(8000)
    ]
    tokenizer = tokenizers.train('unigram:2500', sentences, lowercase=False)
    starts = word_starts.find(tokenizer, 'marks', unspaced)
    paragraphs = [''.join(sentences[i : i + 20]) for i in range(0, len(sentences), 20)]
    return as_rows(tokenizer, paragraphs, length)._replace(is_word_start=starts)


def as_rows(tokenizer: tokenizers.Tokenizer, paragraphs: list[str], length: int) -> RealRows:
    """Return the tokens of a text in rows."""
    paragraphs = [tokenizer.sentence_prefix + part for part in paragraphs]
    ids, _ = tokenizer.encode_ids(paragraphs)
    ids = ids[~np.isin(ids, tokenizer.special_ids)]
    counts = np.bincount(ids, minlength=tokenizer.vocab_size)
    special = Special(*(getattr(tokenizer, f'{name}_id') for name in Special._fields))
    rows = _rows(ids, length, special)
    return RealRows(*rows, tokenizer.is_word_start, counts, special, tokenizer.vocab)


def _rows(ids, length, special):
    body = length - 2
    ids = ids[: len(ids) // body * body].reshape(-1, body)
    row = np.ones(len(ids), np.int32)[:, None]
    rows = np.concatenate([special.cls * row, ids, special.sep * row], axis=1)
    rows[1::5, length // 2] = special.unk
    rows[:, length // 3] = special.sep  # like the end of segment A
    real = np.full(len(rows), length)
    real[::7] = np.arange(len(real[::7])) % (length - 9) + 8  # every seventh is short
    rows[np.arange(len(rows)), real - 1] = special.sep
    mask = (np.arange(length) < real[:, None]).astype(np.int32)
    return np.where(mask, rows, special.pad).astype(np.int32), mask
