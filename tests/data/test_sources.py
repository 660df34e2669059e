"""Every kind of source on small files, and what each says of trouble."""

import gzip
import json
import os
import tracemalloc

import pytest

from bert_jax.data import sources
from bert_jax.data.sentences import split_sentences
from bert_jax.data.sources import docstring_prose, docstrings, files
from bert_jax.errors import UserError


def write(path, text, encoding='utf-8'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def read(spec):
    source = sources.open_source(str(spec))
    return source, list(source.documents())


def texts(spec):
    return [document.text for document in read(spec)[1]]


# text


def test_text_files_recursive_gz_bom_and_crlf(tmp_path):
    write(tmp_path / 'b.txt', '\ufeffOne.\r\nTwo.\r\n\r\nThree.\r\n')
    write(tmp_path / 'deep' / 'er' / 'a.txt', 'Été.')
    (tmp_path / 'c.txt.gz').write_bytes(gzip.compress(b'Zip.\nZap.'))
    write(tmp_path / 'd.md', 'Not asked for.')
    source, documents = read(f'text:{tmp_path}/**/*.txt*;language=fr;license=CC0')
    assert [document.text.strip('\n') for document in documents] == [
        *('One.\nTwo.\n\nThree.', 'Zip.\nZap.', 'Été.'),
    ]
    assert [os.path.basename(document.name) for document in documents] == [
        *('b.txt', 'c.txt.gz', 'a.txt'),
    ]
    assert (source.language, source.license) == ('fr', 'CC0')
    assert source.report['documents'] == source.report['files'] == 3
    assert source.report['bytes'] == sum(len(d.text.encode()) for d in documents)


def test_documents_between_blank_lines(tmp_path):
    path = write(tmp_path / 'a.txt', '\n\nOne.\nMore.\n \t\nTwo.\n\n\n\nThree.')
    assert texts(f'text:{path};documents=blank_line') == ['One.\nMore.', 'Two.', 'Three.']


def test_documents_by_title(tmp_path):
    text = ' \n = Birds = \n\n They fly . \n\n = = Food = = \n Seeds . \n = Fish = \n They swim .\n'
    path = write(tmp_path / 'a.txt', text)
    found = texts(f'text:{path};documents=title:^ = [^=].* = $')
    assert [text.split()[1] for text in found] == ['Birds', 'Fish']
    assert 'Seeds' in found[0]
    assert found[0].startswith(' = Birds')


def test_undecodable_bytes_are_replaced_counted_and_placed(tmp_path):
    write(tmp_path / 'a.txt', 'Fine – really.')
    (tmp_path / 'b.txt').write_bytes(b'Caf\xe9 \xff\xfe and \xc3\xa9.\nNext.')
    source, documents = read(f'text:{tmp_path}/*.txt')
    assert documents[1].text.startswith('Caf\ufffd \ufffd\ufffd and é.')
    assert source.report['undecodable_bytes'] == 3
    assert source.first_place['undecodable_bytes'].endswith('b.txt')
    assert '3 undecodable bytes (first in' in source.summary()
    assert '2 documents' in source.summary()
    documents[1].text.encode()


def test_another_encoding(tmp_path):
    path = write(tmp_path / 'a.txt', 'Café.', 'latin-1')
    assert texts(f'text:{path};encoding=latin-1') == ['Café.']


def test_report_starts_anew_with_each_pass(tmp_path):
    (tmp_path / 'a.txt').write_bytes(b'One \xff.')
    source, first = read(f'text:{tmp_path}/a.txt')
    report = dict(source.report)
    assert list(source.documents()) == first
    assert dict(source.report) == report


def test_a_huge_file_is_streamed_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(files, 'MAX_DOCUMENT_CHARACTERS', 1000)
    paragraph = 'Words of a line.\n' * 20
    path = write(tmp_path / 'a.txt', '\n'.join([paragraph] * 50))
    source, documents = read(f'text:{path}')
    assert len(documents) > 10
    assert all(1000 < len(document.text) < 1500 for document in documents[:-1])
    assert all(document.text.count('\n\n') >= 2 for document in documents[:-1])
    assert source.report['cut_documents'] == len(documents) - 1
    assert len({document.name for document in documents}) == len(documents)
    assert ' '.join(d.text for d in documents).split() == path.read_text().split()


def test_a_file_of_one_endless_line_is_cut_too(tmp_path, monkeypatch):
    monkeypatch.setattr(files, 'MAX_DOCUMENT_CHARACTERS', 1000)
    path = write(tmp_path / 'a.txt', 'é' * 10_000)
    source, documents = read(f'text:{path}')
    assert max(len(document.text) for document in documents) <= 4000
    assert sum(document.text.count('é') for document in documents) == 10_000
    assert source.report['cut_documents'] == len(documents) - 1 > 0


def test_memory_stays_small(tmp_path, monkeypatch):
    """32 MB of text go through with the memory of a few documents."""
    monkeypatch.setattr(files, 'MAX_DOCUMENT_CHARACTERS', 2**18)
    path = tmp_path / 'big.txt'
    path.write_text(('A line of some words that is as long as lines are.\n' * 20 + '\n') * 32_000)
    source = sources.open_source(f'text:{path}')
    tracemalloc.start()
    total = sum(len(document.text) for document in source.documents())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 32e6
    assert peak < 4e6


# JSON lines


def test_json_lines(tmp_path):
    lines = [
        json.dumps({'text': 'One.\n\nTwo.', 'id': 3}),
        '{"text": "cut off',
        '',
        json.dumps({'body': 'No text here.'}),
        '["text"]',
        json.dumps({'text': None}),
        json.dumps({'text': 'Dvě \ud800.'}),
        json.dumps({'text': '  '}),
    ]
    write(tmp_path / 'a.jsonl', '\n'.join(lines))
    (tmp_path / 'b.jsonl.gz').write_bytes(gzip.compress(b'{"text": "Caf\xe9."}\r\n'))
    source, documents = read(f'jsonl:{tmp_path}/*.jsonl*')
    assert [d.text for d in documents] == ['One.\n\nTwo.', 'Dvě \ufffd.', 'Caf\ufffd.']
    counted = {'malformed_lines': 2, 'missing_field': 2, 'lone_surrogates': 1, 'empty_documents': 1}
    assert {key: source.report[key] for key in counted} == counted
    assert source.report['undecodable_bytes'] == 1
    assert source.first_place['malformed_lines'].endswith('a.jsonl:2')
    assert source.first_place['missing_field'].endswith('a.jsonl:4')
    assert documents[1].name.endswith('a.jsonl:7')
    assert texts(f'jsonl:{tmp_path}/a.jsonl;field=body') == ['No text here.']


# TFDS

MARKERS = (
    '\n_START_ARTICLE_\n{0}\n_START_PARAGRAPH_\n{0} is first._NEWLINE_It goes on.\n'
    '_START_SECTION_\nHistory\n_START_PARAGRAPH_\nIt is old.'
)


@pytest.fixture(scope='module')
def tfds_folder(tmp_path_factory):
    """Two datasets on disk, as TFDS writes them: plain texts, and wiki40b's markers."""
    from bert_jax.data import tensorflow_import

    tf, tfds = tensorflow_import.tensorflow(), tensorflow_import.tensorflow_datasets()
    folder = tmp_path_factory.mktemp('tensorflow_datasets')

    def store(name, config, split_texts):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version='1.0.0',
            data_dir=folder,
            config=config,
            split_datasets={
                split: tf.data.Dataset.from_tensor_slices({'text': found})
                for split, found in split_texts.items()
            },
            features=tfds.features.FeaturesDict({'text': tfds.features.Text()}),
        )

    store('plain', None, {'train': [b'One.', b'Caf\xe9.', b''], 'test': [b'Three.']})
    store('wiki', 'fr', {'train': [MARKERS.format(name).encode() for name in ('Rome', 'Été')]})
    return folder


def test_tfds_plain_text(tfds_folder):
    source, documents = read(f'tfds:plain;data_dir={tfds_folder}')
    assert sorted(d.text for d in documents) == ['Caf\ufffd.', 'One.']
    assert source.report['empty_documents'] == source.report['undecodable_bytes'] == 1
    assert texts(f'tfds:plain:1.0.0;data_dir={tfds_folder};split=test') == ['Three.']


def test_tfds_markers_become_documents_and_paragraphs(tfds_folder, monkeypatch):
    monkeypatch.setenv('TFDS_DATA_DIR', str(tfds_folder))
    source, documents = read('tfds:wiki/fr')
    found = {document.name: document.text for document in documents}
    assert found['Rome'] == 'Rome is first.\n\nIt goes on.\n\nIt is old.'
    assert set(found) == {'Rome', 'Été'}
    assert source.report['section_titles_left_out'] == 2
    assert source.language == 'fr'


def test_tfds_that_is_not_there(tmp_path, tfds_folder, monkeypatch):
    monkeypatch.delenv('TFDS_DATA_DIR', raising=False)
    with pytest.raises(UserError, match=r'wiki40b/en was not found in .*download=true') as caught:
        sources.open_source(f'tfds:wiki40b/en;data_dir={tmp_path}')
    assert '\n' not in str(caught.value)
    with pytest.raises(UserError, match=r"unknown split.*'nope'; known: test, train"):
        sources.open_source(f'tfds:plain;data_dir={tfds_folder};split=nope')
    with pytest.raises(UserError, match=r"unknown field.*'body'; known: text"):
        sources.open_source(f'tfds:plain;data_dir={tfds_folder};field=body')


# Mistakes


@pytest.mark.parametrize(
    ('spec', 'message'),
    [
        ('wikipedia:en', "unknown source 'wikipedia'; known: docstrings, jsonl, text, tfds"),
        ('text:{}/a.txt;langauge=en', "unknown option of source text 'langauge'; known: "),
        ('text:{}/a.txt;language', 'has no value'),
        ('text', 'names no GLOB'),
        ('text:{}/*.doc', 'no file matches'),
        ('jsonl:{}/*.doc', 'no file matches'),
        ('text:{}/a.txt;documents=line', 'documents=.line. is not file, blank_line or title'),
        ('text:{}/a.txt;documents=title', 'is not file'),
        ('text:{}/a.txt;documents=title:(', 'not a valid regular expression'),
        ('text:{}/a.txt;encoding=utf-9', 'unknown encoding of source'),
        ('docstrings:json', 'takes options only'),
        ('docstrings;packages=json,no_such_thing', 'not installed: no_such_thing'),
        ('tfds:x;download=yes', 'not true or false'),
    ],
)
def test_mistakes_are_found_on_opening(tmp_path, spec, message):
    write(tmp_path / 'a.txt', 'Text.')
    with pytest.raises(UserError, match=message):
        sources.open_source(spec.format(tmp_path))


def test_empty_and_unreadable_files(tmp_path):
    path = write(tmp_path / 'a.txt', ' \n\n')
    with pytest.raises(UserError, match='has no text'):
        read(f'text:{path}')
    path = write(tmp_path / 'b.jsonl', 'no\nno\n')
    with pytest.raises(UserError, match=r'has no text.*2 malformed lines \(first in .*:1\)'):
        read(f'jsonl:{path}')
    whole = gzip.compress(os.urandom(10_000))
    for name, content in (('c.gz', b'not zipped'), ('d.gz', whole[:5000])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f'cannot read .*{name}'):
            read(f'text:{tmp_path}/{name}')


# Docstrings

NUMPY_STYLE = """
Find a *root* of the function `f` with :func:`~solve.bisect`.

The interval is halved until it is short enough to answer the question
[1]_.  Each step costs one call, see https://example.org/bisection

Parameters
----------
f : callable
    The function.
low, high : float
    The ends of the interval. The function must not have the same sign at
    both of them.

Returns
-------
float
    The root.

Warnings
--------
.. note::
   The result is only as good as the function is smooth.

.. code-block:: python

   root(lambda x: x - 1, 0, 2)

=====  =====
Good   Bad
=====  =====

.. math:: x = y

Notes
-----
The method converges slowly but it never fails. It is described in [1]_.

- It works for any continuous function.
- foo_bar(x)

References
----------
.. [1] A. Author, The title of the book is here.

Examples
--------
The root is found at one.

>>> root(lambda x: x - 1, 0, 2)
1.0
"""

GOOGLE_STYLE = """Opens the door and waits for the visitor.

Use it as follows::

    door = open_door(3)

Args:
  visitor: The one who comes in. It may be None when nobody is there.
  count (int): How many.
    >>> 3

Returns:
  True.

The door is closed again after a while.

```
The code in a fence is not prose at all.
```

:param x: This field is for the tool that makes pages.
    It goes on here.

# A heading of the page.
Copyright 2020 by the authors of this text.
"""


def flat(docstring):
    return [' '.join(paragraph) for paragraph in docstring_prose.extract_prose(docstring)]


def test_prose_of_a_numpy_style_docstring():
    assert flat(NUMPY_STYLE) == [
        'Find a root of the function f with solve.bisect.',
        'The interval is halved until it is short enough to answer the question.',
        'The ends of the interval. The function must not have the same sign at both of them.',
        'The result is only as good as the function is smooth.',
        'The method converges slowly but it never fails.',
        'It works for any continuous function.',
    ]


def test_prose_of_a_google_style_docstring():
    assert flat(GOOGLE_STYLE) == [
        'Opens the door and waits for the visitor.',
        'The one who comes in. It may be None when nobody is there.',
        'The door is closed again after a while.',
    ]


@pytest.mark.parametrize(
    'line',
    [
        'x = f(y) + g(z) if the_name else self.other[0]',
        'Diese Funktion gibt den Wert der Variablen zurück.',
        'Diese Funktion gibt den Wert der Variablen wieder.',
        'returns the value of the variable.',
        'Returns the value of the',
        '| A | B |',
        'Too short.',
    ],
)
def test_what_is_not_prose(line):
    assert flat(line) == []


@pytest.fixture
def site_packages(tmp_path, monkeypatch):
    """A standard library and a site-packages of our own."""
    paths = {kind: str(tmp_path / kind) for kind in ('stdlib', 'purelib', 'platlib')}
    monkeypatch.setattr(docstrings.sysconfig, 'get_paths', lambda: paths)
    long = 'The first is here. The second is there as well. The third one is the last.'
    write(
        tmp_path / 'purelib' / 'pack' / '__init__.py',
        f'"""{long}"""\n'
        'raise SystemExit("imported")\n'
        'def f():\n    """A function has a sentence of its own."""\n'
        'class A:\n'
        '    """A class is the second document here. It has methods with them."""\n'
        '    def h(self):\n        """A function has  a sentence of its own."""\n'
        '    async def g(self):\n        """The method comes after the class."""\n'
        '    class B:\n        """This is only one sentence."""\n',
    )
    write(tmp_path / 'purelib' / 'pack' / 'copied.py', f'"""{long}"""\n')
    write(tmp_path / 'purelib' / 'pack' / 'tests' / 'test_a.py', f'"""{long} Not this."""\n')
    write(tmp_path / 'purelib' / 'pack' / 'broken.py', f'"""{long}"""\ndef (:\n')
    write(
        tmp_path / 'stdlib' / 'alone.py',
        '"""The library comes before the packages. It is read in a fixed order. So it is good."""',
    )
    return tmp_path


def test_documents_of_packages(site_packages):
    source, documents = read('docstrings')
    assert [document.name for document in documents] == ['alone', 'pack', 'pack.A']
    assert documents[1].text == (
        'The first is here. The second is there as well. The third one is the last.\n\n'
        'A function has a sentence of its own.'
    )
    assert documents[2].text.endswith('\n\nThe method comes after the class.')
    report = source.report
    assert report['duplicate_documents'] == report['duplicate_docstrings'] == 1
    assert report['duplicate_paragraphs'] == 1
    assert report['short_documents'] == report['unparsable_files'] == 1
    assert (report['documents'], report['files']) == (3, 3)
    again = dict(report)
    assert list(source.documents()) == documents
    assert dict(source.report) == again
    assert source.language == 'en'
    assert 'installed packages' in source.license


def test_packages_option(site_packages):
    assert [d.name for d in read('docstrings;packages=alone')[1]] == ['alone']
    assert [d.name for d in read('docstrings;packages=pack')[1]] == ['pack', 'pack.A']


def test_installed_packages_give_prose():
    source, documents = read('docstrings;packages=numpy,email,argparse')
    assert 150 < len(documents) == source.report['documents']
    assert source.report['bytes'] > 200_000
    everything = '\n\n'.join(document.text for document in documents)
    paragraphs = everything.split('\n\n')
    assert len(set(paragraphs)) > 0.999 * len(paragraphs)
    assert all(len(split_sentences(d.text)) >= 2 for d in documents)
    for mark in ('>>>', '``', ':func:', 'http://', '-----', '.. note'):
        assert everything.count(mark) <= 2, mark
    words = everything.lower().split()
    assert 0.04 < words.count('the') / len(words) < 0.12


# Real data


def test_novels(real_data):
    source, documents = read(f'text:{real_data}/english_novels/*_*.txt')
    assert len(documents) == 25
    assert source.report['undecodable_bytes'] == source.report['cut_documents'] == 0
    assert not any('\r' in d.text or d.text.startswith('\ufeff') for d in documents)


def test_wikitext_articles(real_data):
    spec = f'text:{real_data}/wikitext2_valid/valid.txt;documents=title:^ = [^=].* = $'
    assert len(texts(spec)) == 60
