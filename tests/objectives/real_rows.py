"""Rows of real text in three vocabularies' ways of marking where words start."""

import functools
import pathlib
from typing import NamedTuple

import numpy as np

CLS, SEP, PAD, MASK, UNK = range(5)
SPECIAL_IDS = (CLS, SEP, PAD, MASK, UNK)
CONVENTIONS = ('##', 'Ġ', '▁')
CHARACTERS = 600_000


class RealRows(NamedTuple):
    """input_ids, attention_mask int32 [N, T] of full rows ([CLS] text [SEP]) and some short ones;
    is_word_start bool [V], counts int64 [V]."""

    input_ids: np.ndarray
    attention_mask: np.ndarray
    is_word_start: np.ndarray
    counts: np.ndarray


@functools.cache
def real_rows(folder: pathlib.Path, convention: str, length: int) -> RealRows:
    """About 130,000 tokens of a novel. The words of ▁ are those of ## under other names."""
    tokenizer = _byte_level(folder) if convention == 'Ġ' else _wordpiece(folder)
    novel = sorted((folder / 'english_novels').glob('*.txt'))[0]
    text = novel.read_text(encoding='utf-8')[50_000:][:CHARACTERS]
    vocab = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    if convention == '▁':
        vocab = [token[2:] if token.startswith('##') else '▁' + token for token in vocab]
    starts = [
        not token.startswith('##') if convention == '##' else token.startswith(convention)
        for token in vocab
    ]
    special = len(SPECIAL_IDS)
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32) + special
    counts = np.bincount(ids, minlength=special + len(vocab))
    return RealRows(*_rows(ids, length), np.array([False] * special + starts), counts)


def _wordpiece(folder):
    from tokenizers import BertWordPieceTokenizer

    return BertWordPieceTokenizer(str(folder / 'vocab_bert_base_uncased/vocab.txt'))


def _byte_level(folder):
    from tokenizers import ByteLevelBPETokenizer

    bpe = folder / 'vocab_gpt2_bpe'
    return ByteLevelBPETokenizer(str(bpe / 'gpt2-vocab.json'), str(bpe / 'gpt2-merges.txt'))


def _rows(ids, length):
    body = length - 2
    ids = ids[: len(ids) // body * body].reshape(-1, body)
    row = np.ones(len(ids), np.int32)[:, None]
    rows = np.concatenate([CLS * row, ids, SEP * row], axis=1)
    rows[1::5, length // 2] = UNK
    rows[:, length // 3] = SEP  # as between two segments
    real = np.full(len(rows), length)
    real[::7] = np.arange(len(real[::7])) % (length - 9) + 8  # every seventh is short
    rows[np.arange(len(rows)), real - 1] = SEP
    mask = (np.arange(length) < real[:, None]).astype(np.int32)
    return np.where(mask, rows, PAD).astype(np.int32), mask
