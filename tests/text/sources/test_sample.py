"""The books of the package: clean prose in chapters, small enough for a wheel."""

import pathlib
import re
import zlib

import numpy as np
import pytest

from bert_jax.corpus import source_files
from bert_jax.corpus.corpus import Corpus
from bert_jax.corpus.preparation import prepare
from bert_jax.text.held_out import choose_rule
from bert_jax.text.sources import open_source
from bert_jax.text.sources.sample import FOLDER
from tests.text.sources.reading import read

HELD_OUT = {'alice_in_wonderland', 'war_of_the_worlds'}
BOOKS = sorted(FOLDER.glob('*.txt'))


def test_a_document_is_a_chapter_without_its_title():
    source, documents = read('sample')
    names = [document.name for document in documents]
    alice = [document for document in documents if 'alice_in_wonderland' in document.name]
    assert source.language == 'en'
    assert source.license == 'public domain'
    assert source.report['files'] == len(BOOKS) == 18
    assert len(names) == len(set(names)) == sum(text.count('\n# ') + 1 for text in texts())
    assert len(alice) == 12
    assert alice[1].text.strip().startswith("'Curiouser and curiouser!' cried Alice")
    assert sum(len(document.text.split()) for document in documents) > 950_000


def texts():
    return [path.read_text(encoding='utf-8') for path in BOOKS]


@pytest.mark.parametrize('path', BOOKS, ids=lambda path: path.stem)
def test_a_book_is_clean_prose(path):
    text = path.read_text(encoding='utf-8')
    lines = text.split('\n')
    assert text.startswith('# ')
    assert not any(lines[1::2])  # every other line is blank
    assert all(lines[::2])
    assert 'utenberg' not in text
    assert not re.search(r'[\[\]{}<>_*|\\\r\t]|--|  |https?:|(?i:chapter) \d+\n\n#', text)
    assert set(re.findall(r'[^\x00-\x7f]', text)) <= set('—…Éé')


def test_the_books_fit_in_a_wheel():
    assert sum(len(zlib.compress(text.encode())) for text in texts()) < 3e6


@pytest.mark.parametrize('fraction', [0.001, 0.05, 0.2])
def test_the_held_out_books_are_those_of_their_readme(fraction):
    _, documents = read('sample')
    rule = choose_rule({'en': [document.hash() for document in documents]}, fraction)
    is_held_out = rule.is_held_out(np.array([document.hash() for document in documents], np.uint64))
    names = {
        pathlib.Path(document.name.partition('#')[0]).stem
        for document, chosen in zip(documents, is_held_out, strict=True)
        if chosen
    }
    assert names == HELD_OUT


def test_a_corpus_of_the_books_holds_two_of_them_out(tmp_path):
    prepare(
        ['sample'], 'train:wordpiece:300', tmp_path / 'corpus', workers=0,
        held_out_fraction=0.05, tokenizer_characters=10_000,
    )  # fmt: skip
    corpus = Corpus.open(tmp_path / 'corpus')
    assert corpus.split('held_out').num_documents == 12 + 27
    assert corpus.split('train').num_documents == 387 - 39


def test_installing_the_package_again_does_not_change_the_source():
    assert source_files.stamps(open_source('sample')) == {}
