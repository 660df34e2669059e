"""Opening sources by their specs, and adding a kind of source."""

import pytest

from bert_jax.corpus.preparation import prepare
from bert_jax.errors import UserError
from bert_jax.text import sources
from bert_jax.text.sources import open_source
from tests import extending
from tests.text.sources.reading import write


@pytest.mark.parametrize(
    ('spec', 'message'),
    [
        (
            'wikipedia:en',
            "unknown source 'wikipedia'; known: canaries, hf, jsonl, .*parquet, sample, text",
        ),
        ('text:{}/a.txt;langauge=en', "'langauge'; did you mean language. known: "),
        ('txt:{}/a.txt', "unknown source 'txt'; did you mean text"),
        ('s3://bucket/a.jsonl', 'write .jsonl:s3://bucket/a.jsonl'),
        ('{}/a.txt', 'write .text:.*/a.txt'),
        ('{}', 'write .text:.*/[*]'),
        ('books.jsonl;field=text', 'write .jsonl:books.jsonl;field=text'),
        ('text:{}/a.txt;language', 'has no value'),
        ('text', 'has no GLOB; write text:GLOB'),
        ('text:{}/*.doc', 'no file matches'),
        ('text:{}/', r"/' is a folder: write /\S*[^/]/\* for its files"),
        ('text:{}', r"' is a folder: write \S*/\* for its files"),
        ('text:{}/[EN] *.doc', r'no file matches .*write \[\[\] for a bracket'),
        ('jsonl:{}/*.doc', 'no file matches'),
        ('text:{}/b.txt', "b.txt' does not exist"),
        ('text:/dev/null', "'/dev/null' is not a file"),
        ('text:{}/a.txt;documents=page', 'documents=.page. is not file, line, blank_line or title'),
        ('text:{}/a.txt;sentences=lines', 'sentences=.lines. is not rules or line'),
        ('text:{}/a.txt;documents=title', 'is not file'),
        ('text:{}/a.txt;documents=title:(', 'not a valid regular expression'),
        ('text:{}/a.txt;encoding=utf-9', 'unknown encoding of source'),
        ('text:{}/a.txt;encoding=rot13', "unknown encoding of source .* 'rot13'"),
        ('jsonl:{}/a.txt;encoding=base64', 'unknown encoding of source'),
        ('text:{}/a.txt;encoding=idna', 'unknown encoding of source'),
        ('sample:alice_in_wonderland', 'takes options only'),
        ('sample;held_out_by=document', "'held_out_by'; known: language, license"),
        ('tfds:x;download=yes', 'not true or false'),
    ],
)
def test_invalid_specs_are_errors_on_opening(tmp_path, spec, message):
    write(tmp_path / 'a.txt', 'Text.')
    with pytest.raises(UserError, match=message):
        open_source(spec.format(tmp_path))


BRACKETS = ('[EN] novel.txt', 'a[1].txt', '[x]/b.txt', '[x]/[y]/c?.txt')


@pytest.mark.parametrize(
    ('pattern', 'expected'),
    [
        *((name, [name]) for name in BRACKETS),
        ('[x]/*.txt', ['[x]/b.txt']),
        ('[x]/**/*.txt', ['[x]/[y]/c?.txt', '[x]/b.txt']),
        ('[[]x]/*.txt', ['[x]/b.txt']),
        ('*.txt', ['[EN] novel.txt', 'a[1].txt', 'e.txt']),
        ('[de].txt', ['e.txt']),
    ],
)
def test_paths_that_exist_as_written_are_taken_literally(tmp_path, pattern, expected):
    for name in (*BRACKETS, 'e.txt'):
        write(tmp_path / name, 'Text.')
    source = open_source(f'text:{tmp_path}/{pattern}')
    assert source.paths == [f'{tmp_path}/{name}' for name in expected]


def test_a_name_that_is_also_a_glob_of_other_files_is_refused(tmp_path):
    for name in ('a[1].txt', 'a1.txt'):
        write(tmp_path / name, 'Text.')
    with pytest.raises(UserError, match=r'is the name of .*/a\[1\]\.txt, .* matches .*/a1\.txt'):
        open_source(f'text:{tmp_path}/a[1].txt')
    assert open_source(f'text:{tmp_path}/a[[]1].txt').paths == [f'{tmp_path}/a[1].txt']


@pytest.fixture
def repeated_line(tmp_path, monkeypatch):
    source = extending.load('repeated_line', tmp_path, monkeypatch).RepeatedLine
    monkeypatch.setitem(sources.SOURCES, 'line', source)


def test_a_corpus_is_prepared_from_a_new_kind_of_source(repeated_line, tmp_path):
    spec = 'line:The old dog went home.;times=20;language=en'
    corpus = prepare([spec], 'train:wordpiece:60', tmp_path / 'out', workers=0)
    (source,) = corpus.manifest['sources']
    assert (source['spec'], source['language']) == (spec, 'en')
    assert source['report']['documents'] == 20
    assert sum(corpus.split(name).num_sentences for name in ('train', 'held_out')) == 40


def test_help_describes_every_source_and_option(repeated_line):
    text = ' '.join(sources.describe_sources().split())
    assert 'line:TEXT: a line, repeated' in text
    assert 'times=…: number of documents (default: 3)' in text
    for name, kind in sources.SOURCES.items():
        assert sources.usage(name) in text
        assert kind.description in text
        for option in kind.options.values():
            assert option.help in text


def test_specs_of_a_new_kind_of_source_are_checked(repeated_line):
    with pytest.raises(UserError, match="source 'line' has no TEXT; write line:TEXT"):
        open_source('line')
    with pytest.raises(UserError, match="'time'; did you mean times. known: language, "):
        open_source('line:a;time=3')
