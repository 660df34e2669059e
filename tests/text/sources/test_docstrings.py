"""Docstrings as text: only English prose is kept, and nothing twice."""

import pytest

from bert_jax.text.sentences import split_sentences
from bert_jax.text.sources import docstring_prose, docstrings
from tests.text.sources.reading import read, write

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
def test_lines_that_are_not_prose_are_left_out(line):
    assert flat(line) == []


@pytest.fixture
def site_packages(tmp_path, monkeypatch):
    """A small standard library and site-packages."""
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


def test_modules_and_classes_with_enough_prose_are_documents(site_packages):
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


def test_the_option_packages_selects_packages(site_packages):
    assert [d.name for d in read('docstrings;packages=alone')[1]] == ['alone']
    assert [d.name for d in read('docstrings;packages=pack')[1]] == ['pack', 'pack.A']


def test_the_text_of_installed_packages_is_prose():
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
