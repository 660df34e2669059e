"""Paths that do not exist or hold something else: what was meant is named."""

import json
import os

import pytest

from bert_jax import tokenizers
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.storage import outputs, wrong_paths
from bert_jax.text import text_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a run, a corpus, a tokenizer and texts."""
    monkeypatch.chdir(tmp_path)
    for name in (
        'runs/mine/checkpoints/5/x',
        'runs/notes.txt',
        'corpora/books/manifest.json',
        'corpora/books/DATASHEET.md',
        'corpora/wiki.partial/progress.txt',
        'tok/tokenizer.json',
        'dev/metrics.json',
        'dev/predictions.jsonl',
        'books/a.txt',
        'books/b.txt',
        'books/c.csv',
        'books/deep/d.md',
        '.hidden/secret',
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / 'started').mkdir()
    config = {'task': 'pretraining', 'workdir': 'started'}
    (tmp_path / 'started/config.json').write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ('name', 'is_folder', 'meant'),
    [
        ('run/mine', True, 'runs/mine'),
        ('runs/mnie', True, 'runs/mine'),
        ('run/mnie/', True, 'runs/mine'),
        ('mine', True, 'runs/mine'),
        ('Runs/Mine', True, 'runs/mine'),
        ('notes', True, ''),  # a file
        ('notes', False, 'runs/notes.txt'),
        ('bert-base-uncased', True, ''),
        ('no/such/place', False, ''),
        ('secrets', False, ''),
    ],
)
def test_the_nearest_path_is_suggested(name, is_folder, meant, folder):
    assert wrong_paths.suggest(name, is_folder) == (f'; did you mean {meant!r}?' if meant else '')


def test_a_path_from_the_root_is_suggested(folder):
    assert wrong_paths.suggest(folder / 'run/mine') == f"; did you mean '{folder}/runs/mine'?"


@pytest.mark.skipif(os.geteuid() == 0, reason='root reads every folder')
def test_a_folder_that_may_not_be_read_gives_no_suggestion(folder):
    (folder / 'runs').chmod(0)
    assert wrong_paths.suggest('runs/mnie') == ''
    (folder / 'runs').chmod(0o700)


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('run/mine', ["'runs/mine'"]),
        ('bert-base-uncased', ['hf download']),
        ('corpora/books', ['a corpus of bert_jax.prepare', 'name a run or a model']),
        ('corpora/wiki.partial', ['an unfinished corpus']),
        ('tok', ['a tokenizer']),
        ('dev', ['bert_jax.evaluate']),
        ('started', ['a run without a checkpoint']),
        ('runs/notes.txt', ['is a file']),
    ],
)
def test_what_is_not_a_model_is_named(name, words, folder):
    with pytest.raises(UserError) as caught:
        loading.load_any(name)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ('read', 'words'),
    [
        (lambda: loading.load_checkpoint('run/mine', generator=True), ["'runs/mine'"]),
        (lambda: Corpus.open('corpora/boks'), ["'corpora/books'"]),
        (lambda: Corpus.open('corpora/runs'), ['bert_jax.prepare']),
        (lambda: Corpus.open('runs/mine'), ['which is a run']),
        (lambda: tokenizers.load('tok/tokeniser.json'), ["'tok/tokenizer.json'"]),
        (lambda: list(text_files.read_lines('boks/a.txt', 'utf-8')), ["'books/a.txt'"]),
        (lambda: outputs.check_file('boks/page.html', False), ["'books'"]),
    ],
)
def test_all_that_reads_a_path_suggests_one(read, words, folder):
    with pytest.raises(UserError) as caught:
        read()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ('pattern', 'words'),
    [
        ('books/*.text', ['2 *.txt, 1 *.csv', 'write books/*.txt']),
        ('books/*.cvs', ['write books/*.csv']),
        ('books/*.md', ['write books/**/*.md']),
        ('boks/*.txt', ["no folder 'boks'", "did you mean 'books'?"]),
        ('books/a.txr', ["did you mean 'books/a.txt'?"]),
        ('started/deeper/*', ["no folder 'started/deeper'"]),
        ('*.txt', ['write **/*.txt']),
        ('tok/*.[ab]', ['[[] for a bracket', 'write tok/*.json']),
        ('runs/*/x/*.txt', ["no file matches 'runs/*/x/*.txt'"]),
        ('books/deep', ['write books/deep/*']),
    ],
)
def test_a_glob_without_files_has_a_remedy(pattern, words, folder):
    found = wrong_paths.explain_glob(pattern, text_files.matching_files)
    for word in words:
        assert word in found
    if ': write ' in found and ' bracket' not in found:  # what it says must work
        assert text_files.matching_files(found.rpartition(': write ')[2].split()[0])
