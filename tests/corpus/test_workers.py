"""Worker processes: blocks of documents in, tokenized blocks out, in order."""

import itertools
import os
import tracemalloc

import pytest

from bert_jax import tokenizers
from bert_jax.corpus import workers as workers_lib
from bert_jax.corpus.workers import TextBlock, Workers, read_blocks, tokenize_block
from bert_jax.text.held_out import text_hash
from bert_jax.text.sources import Document, open_source


def text(number):
    return f'Number {number} is a green hill. The dog went home.'


@pytest.mark.parametrize(
    ('quota', 'cores'), [('200000 100000', 2), ('50000 100000', 1), ('max 100000', 3), (None, 3)]
)
def test_the_usable_cores_are_those_of_the_process(quota, cores, tmp_path, monkeypatch):
    if quota:
        (tmp_path / 'cpu.max').write_text(quota)
    monkeypatch.setattr(workers_lib, '_CPU_QUOTA', tmp_path / 'cpu.max')
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0, 3, 5}, raising=False)
    assert workers_lib.usable_cores() == cores


@pytest.mark.parametrize('workers', [0, 2])
def test_blocks_are_read_only_when_they_are_needed(workers):
    tokenizer = tokenizers.train('wordpiece:60', [text(0)])
    taken = itertools.count()
    number = 0

    def blocks():
        nonlocal number
        for number in taken:
            yield TextBlock([Document(text(number), 'test')])

    with Workers(tokenizer, workers) as pool:
        tokenized = pool.tokenize(blocks())
        for done in range(10):
            block = next(tokenized)
            assert number <= done + 2 * workers
            assert block.hashes[0] == text_hash(text(done))


@pytest.mark.parametrize(
    ('options', 'lengths'),
    [
        ('', [3]),  # Ave. is an English abbreviation
        (';language=es', [4]),
        (';sentences=line', [2]),
        (';documents=line', [2, 1]),
        (';documents=line;sentences=line', [1, 1]),
    ],
)
def test_a_source_says_what_documents_and_sentences_are(tmp_path, options, lengths):
    path = tmp_path / 'a.txt'
    path.write_text('The dog went home. The dog is on Ave. Number 5\nThe hill is green\n')
    tokenizer = tokenizers.train('wordpiece:60', [text(0)])
    for characters in (1, 10**6):  # a block for each document, or one for all
        source = open_source(f'text:{path}{options}')
        blocks = read_blocks(source, source.documents(), characters)
        found = [tokenize_block(block, tokenizer).documents.document_lengths for block in blocks]
        assert [length for own in found for length in own] == lengths


def test_the_bytes_of_a_document_are_those_of_its_sentences():
    document = Document('Zwölf Boxkämpfer.  Ein Zeichen \ud800 fehlt.\n\n\u200b\n', 'a')
    tokenizer = tokenizers.train('wordpiece:60', [text(0)])
    made = tokenize_block(TextBlock([document, Document('\u200b', 'b')], 'de'), tokenizer)
    kept = ['Zwölf Boxkämpfer.', 'Ein Zeichen \ufffd fehlt.']
    assert made.documents.byte_lengths.tolist() == [len(''.join(kept).encode())]


def test_a_long_document_takes_little_memory_beside_its_text():
    tokenizer = tokenizers.train('wordpiece:60', [text(0)])
    long = '\n'.join(text(number % 10) for number in range(60_000))
    block = TextBlock([Document(long, 'long')], 'en', False)
    tokenize_block(block, tokenizer)  # fills the cache of words
    tracemalloc.start()
    made = tokenize_block(block, tokenizer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made.documents.sentence_lengths) == 120_000
    assert peak < 20 * len(long)  # 32 with all words at once


def test_modules_of_the_current_folder_are_not_imported(tmp_path, monkeypatch):
    """A file queue.py beside somebody's texts would hide the module of that name."""
    (tmp_path / 'queue.py').write_text('open("imported", "w").close()\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PYTHONPATH', os.pathsep)  # an empty entry is the current folder
    tokenizer = tokenizers.train('wordpiece:60', [text(0)])
    with Workers(tokenizer, 1) as pool:
        (block,) = pool.tokenize([TextBlock([Document(text(1), 'test')])])
    assert len(block.hashes) == 1
    assert not (tmp_path / 'imported').exists()
