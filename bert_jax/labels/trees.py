"""Constituency trees in brackets, as in the Penn Treebank: reads, builds and writes them.

A tree is a list of constituents. All that cover the same words are one, whose label is a chain from
the outermost to the innermost, joined by spaces, as 'S VP'. The chain of a word ends with its tag.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.examples import Span, SpansExample
from bert_jax.labels.records import InvalidRecord, Record, make_record
from bert_jax.labels.tag_schemes import WordSpan
from bert_jax.labels.text_lines import numbered_lines

_PART = re.compile(r'[()]|[^\s()]+')
_BASE_LABEL = re.compile(r'[^-=]+')  # NP of NP-SBJ-1 and NP=2
_TRACE = '-NONE-'
_ROOTS = ('', 'TOP', 'ROOT', 'S1', 'VROOT')
_UNKNOWN = 'X'  # the tag of a word without one
# How trees write characters that they use themselves.
_ESCAPED = {'-LRB-': '(', '-RRB-': ')', '``': '"', "''": '"'}
_ESCAPES = {'(': '-LRB-', ')': '-RRB-'}


class Tree(NamedTuple):
    """A tree of W words.

    Attributes:
        words: the words, without traces.
        constituents: (first word, last word + 1, chain of labels), by first word, long ones first.
    """

    words: list[str]
    constituents: list[WordSpan]


def read_trees(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the text of each tree of a file; a tree may take several lines."""
    lines: list[str] = []
    first, depth = 0, 0
    for number, line in numbered_lines(path, data):
        if not lines and not line.strip():
            continue
        first = number if not lines else first
        lines.append(line)
        depth += line.count('(') - line.count(')')
        if depth <= 0:
            yield _record(path, first, lines)
            lines, depth = [], 0
    if lines:
        yield _record(path, first, lines)


def _record(path: str, number: int, lines: list[str]) -> Record:
    record = make_record(path, number, ' '.join(lines), text='\n'.join(lines))
    return record._replace(default_id=f'{os.path.basename(path)}:{number}')


def build_trees(text: str, example_id: str, builder: ExampleBuilder) -> list[SpansExample]:
    """The words of a tree, joined by spaces, and its constituents as labeled spans.

    Labels are without functions and indices (NP of NP-SBJ-1), traces and the root are left out.

    Raises:
        InvalidRecord: not a tree in brackets.
    """
    tree = parse(text)
    joined, offsets = word_spans.join_words(tree.words)
    spans = tuple(
        Span(*word_spans.words_to_characters(offsets, start, end), label)
        for start, end, label in tree.constituents
    )
    return [SpansExample(example_id, joined, offsets, spans)]


def parse(text: str) -> Tree:
    """Read a tree; see `build_trees`."""
    parts = _PART.findall(text)
    words: list[str] = []
    found: list[tuple[int, int, str, int]] = []  # start, end, label, place of the bracket
    opened: list[tuple[int, str, int]] = []
    place = 0
    while place < len(parts):
        part, *after = parts[place : place + 4]
        if part == ')':
            if not opened:
                raise InvalidRecord('a bracket closes that was not opened')
            start, label, opening = opened.pop()
            found.append((start, len(words), label, opening))
            place += 1
        elif part != '(':
            raise InvalidRecord(f'{part[:40]!r} is not in brackets with its tag')
        elif len(after) == 3 and after[2] == ')' and not {'(', ')'} & {*after[:2]}:
            tag, word = after[:2]
            if tag != _TRACE:
                found.append((len(words), len(words) + 1, tag, place))
                words.append(_ESCAPED.get(word, word))
            place += 4
        else:
            label = after[0] if after and after[0] not in '()' else ''
            opened.append((len(words), _base(label), place))
            place += 1 + bool(label)
    if opened:
        raise InvalidRecord(f'{len(opened)} brackets do not close')
    if not words:
        raise InvalidRecord('the tree has no words')
    return Tree(words, _chains(found))


def _base(label: str) -> str:
    match = _BASE_LABEL.match(label)
    return match[0] if match else label


def _chains(found: Sequence[tuple[int, int, str, int]]) -> list[WordSpan]:
    """Join the labels of the same words; leave out the root and what only had traces."""
    by_words: dict[tuple[int, int], list[str]] = {}
    for start, end, label, place in sorted(found, key=lambda one: one[3]):
        if start < end and not (place == 0 and label in _ROOTS):
            by_words.setdefault((start, end), []).append(label or _UNKNOWN)
    chains = [(start, end, ' '.join(labels)) for (start, end), labels in by_words.items()]
    return sorted(chains, key=lambda one: (one[0], -one[1]))


def to_text(tree: Tree) -> str:
    """Return a tree in brackets, on one line, with the root TOP.

    Raises:
        UserError: constituents cross.
    """
    by_word: dict[int, list[WordSpan]] = {}
    for one in sorted(tree.constituents, key=lambda one: (one[0], -one[1])):
        by_word.setdefault(one[0], []).append(one)
    pieces, ends = [], [len(tree.words)]
    for number, word in enumerate(tree.words):
        starting = by_word.get(number, [])
        chains = [chain.split() for _, _, chain in starting]
        has_tag = bool(starting) and starting[-1][1] == number + 1
        tag = chains[-1].pop() if has_tag else _UNKNOWN
        for (_, end, _), labels in itertools.zip_longest(starting, chains):
            if end > ends[-1]:
                raise UserError(f'the constituent of the words {number} to {end} crosses another')
            pieces += [f'({label} ' for label in labels]
            ends += [end] * len(labels)
        pieces.append(f'({tag} {_ESCAPES.get(word, word)})')
        while len(ends) > 1 and ends[-1] == number + 1:
            pieces.append(')')
            ends.pop()
        pieces.append(' ')
    return f'(TOP {"".join(pieces).strip()})'
