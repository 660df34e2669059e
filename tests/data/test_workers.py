"""Worker processes: blocks of documents in, tokenized blocks out, in order."""

import itertools

import pytest

from bert_jax.data import tokenizers
from bert_jax.data.workers import Workers, text_hash


def text(number):
    return f'Number {number} is a green hill. The dog went home.'


@pytest.mark.parametrize('workers', [0, 2])
def test_blocks_are_read_only_when_they_are_needed(workers):
    tokenizer = tokenizers.train('wordpiece:60', [text(0)])
    taken = itertools.count()
    number = 0

    def blocks():
        nonlocal number
        for number in taken:
            yield [text(number)]

    with Workers(tokenizer, workers) as pool:
        tokenized = pool.tokenize(blocks())
        for done in range(10):
            block = next(tokenized)
            assert number <= done + 2 * workers
            assert block.hashes[0] == text_hash(text(done))
