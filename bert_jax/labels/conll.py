"""Reads CoNLL: a line of columns per word, and a blank line after each sentence.

Only spaces and tabs separate columns: other white space, such as U+00A0, is part of a word.
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import tag_schemes, word_spans
from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.examples import Span, SpansExample, TaggedExample
from bert_jax.labels.records import InvalidRecord, Record, Row, make_record
from bert_jax.labels.text_lines import is_blank, numbered_lines
from bert_jax.text.held_out import hash_of_parts

Sentence = list[tuple[int, str]]  # numbered lines

_NEW_DOCUMENT = re.compile(r'# *newdoc\b|#begin document\b')
_END_OF_DOCUMENT = '#end document'  # of CoNLL-2011 and CoNLL-2012


def read_sentences(path: str, data: ConfigDict, comment: str = '') -> Iterator[Record]:
    """Yield the sentences, or with `data.documents` the documents, as lists of sentences.

    Documents start at -DOCSTART- lines, in CoNLL-U at '# newdoc' lines, in CoNLL-2012 at '#begin
    document' lines. Comments before a blank line belong to the next sentence.

    Args:
        path: the file.
        data: the config's `data`.
        comment: prefix of comments in this format; '' for `data.comment`.
    """
    document: list[Sentence] = []
    num_documents = 0
    name = ''
    for sentence, starts_document in _sentences(path, data, comment or data.comment):
        if document and (starts_document or not data.documents):
            yield _record(path, document, name)
            document = []
        if starts_document or not name:
            num_documents += 1
            # The path is not in the name, so that a moved file is split in the same way.
            name = f'{num_documents}/{hash_of_parts(line for _, line in sentence)}'
        document.append(sentence)
    if document:
        yield _record(path, document, name)


def _sentences(path: str, data: ConfigDict, comment: str) -> Iterator[tuple[Sentence, bool]]:
    """Yield each sentence, and whether it starts a document."""
    sentence: Sentence = []
    starts_document = False
    has_words = False
    for number, line in numbered_lines(path, data):
        is_mark = line.startswith(('-DOCSTART-', _END_OF_DOCUMENT))
        if not is_blank(line) and not is_mark:
            starts_document |= bool(_NEW_DOCUMENT.match(line))
            has_words = has_words or not _is_comment(line, comment)
            sentence.append((number, line))
        elif has_words:
            yield sentence, starts_document
            sentence, starts_document, has_words = [], False, False
        starts_document |= is_mark
    if has_words:
        yield sentence, starts_document


def _record(path: str, document: list[Sentence], document_name: str) -> Record:
    first_line = document[0][0][0]
    default_id = f'{os.path.basename(path)}:{first_line}'
    for number, line in itertools.chain(*document):
        record = make_record(path, number, None, text=line)
        if record.content is not None:
            return record._replace(default_id=default_id)
    groups = {'document': document_name}
    return Record(f'{path}:{first_line}', default_id, document, groups)


def build_tagging(
    document: list[Sentence], example_id: str, builder: ExampleBuilder
) -> list[TaggedExample]:
    """Words joined by spaces, with the tags of `columns.tag` converted to `data.tags_as`."""
    words: list[str] = []
    tags: list[str] = []
    labeled = True
    for sentence in document:
        sentence_words, sentence_tags = _columns(sentence, builder)
        words += sentence_words
        labeled &= sentence_tags is not None
        tags += builder.tags(sentence_tags or ())
    if not words:
        raise InvalidRecord('no words')
    text, offsets = word_spans.join_words(words)
    return [TaggedExample(example_id, text, offsets, tuple(tags) if labeled else None)]


def build_spans(
    document: list[Sentence], example_id: str, builder: ExampleBuilder
) -> list[SpansExample]:
    """Words joined by spaces, with the spans that the tags of `columns.tag` describe."""
    if builder.data.scheme == 'none':
        raise UserError("data.scheme='none' describes no spans; set it to bio, iob1 or bioes")
    (example,) = build_tagging(document, example_id, builder)
    spans = None
    if example.tags is not None:
        in_words, _ = tag_schemes.tags_to_spans(example.tags, builder.data.tags_as)
        spans = tuple(
            Span(*word_spans.words_to_characters(example.words, start, end), label)
            for start, end, label in in_words
        )
    return [SpansExample(example_id, example.text, example.words, spans)]


def _columns(sentence: Sentence, builder: ExampleBuilder) -> tuple[list[str], list[str] | None]:
    """The words and tags of a sentence; the tags are None if a word has no tag.

    Lines with an empty word and tag O, from conversions that lost a character, are skipped and
    counted.

    Raises:
        InvalidRecord: a line has more or fewer columns than the file, or no word or tag.
    """
    columns = builder.columns
    file_widths = builder.once_per_file(_count_columns)
    words: list[str] = []
    tags: list[str] = []
    for line_number, line in sentence:
        if _is_comment(line, builder.data.comment):
            continue
        fields = _fields(line, builder.data)
        row = Row({str(number): field for number, field in enumerate(fields)})
        if not words:
            row = builder.observed(row)
        _check_line(line_number, line, row, file_widths, builder)
        word, tag = row[columns.word], None
        if builder.has_label(row, columns.tag, 'tag') and len(fields) > 1:
            tag = row[columns.tag]
        elif builder.labeled:
            raise InvalidRecord(f'only one column in {line[:40]!r}; set data.separator')
        if not word and tag == 'O':
            builder.counts['lines_without_a_word'] += 1
            continue
        if not word or tag == '':
            raise InvalidRecord(f'line {line_number} has an empty {"tag" if word else "word"}')
        words.append(word)
        if tag is not None:
            tags.append(tag)
    return words, tags if len(tags) == len(words) else None


def rows_of_words(sentence: Sentence, data: ConfigDict) -> list[list[str]]:
    """Return the columns of each word of a sentence, without comments."""
    return [_fields(line, data) for _, line in sentence if not _is_comment(line, data.comment)]


def _is_comment(line: str, comment: str) -> bool:
    is_marked = bool(comment) and line.startswith(comment)
    return is_marked or bool(_NEW_DOCUMENT.match(line))


def _fields(line: str, data: ConfigDict) -> list[str]:
    if data.separator or '\t' in line:
        return [field.strip(' \t') for field in line.split(data.separator or '\t')]
    return re.split(' +', line.strip(' '))


class _Widths(NamedTuple):
    """Numbers of columns of a file.

    Attributes:
        usual: the number that most lines have.
        allowed: the numbers that a line may have.
    """

    usual: int
    allowed: frozenset[int]


def _count_columns(records: Iterator[Record], builder: ExampleBuilder) -> _Widths:
    """Count the columns of the lines of a file.

    A line has as many columns as most lines. In files of semantic roles (CoNLL-2005, CoNLL-2012)
    each sentence has its own number, one more for each predicate. Such numbers are allowed if words
    and tags are counted from the left, and if all lines of at least two sentences agree.
    """
    numbers: Counter[int] = Counter()
    marked: Counter[int] = Counter()  # in lines that may be comments
    agreed: Counter[int] = Counter()  # in sentences of several lines with one number
    for record in records:
        for sentence in record.content:
            lines = [line for _, line in sentence if not _is_comment(line, builder.data.comment)]
            widths = [len(_fields(line, builder.data)) for line in lines]
            agreed.update(set(widths) if len(widths) > 1 and len(set(widths)) == 1 else ())
            for line, width in zip(lines, widths, strict=True):
                (marked if line.startswith('#') else numbers)[width] += 1
    counts = numbers or marked
    usual = max(counts, key=counts.__getitem__, default=0)
    from_right = {builder.columns.word[:1], builder.columns.tag[:1]} & {'-'}
    others = () if from_right else (width for width, times in agreed.items() if times > 1)
    return _Widths(usual, frozenset({usual, *others}))


def _check_line(
    line_number: int, line: str, row: Row, widths: _Widths, builder: ExampleBuilder
) -> None:
    """Raise InvalidRecord for a line with other columns than the file, such as a comment."""
    number, tag_column = len(row.values), builder.columns.tag
    has_value = tag_column in row and '=' in row[tag_column]
    is_allowed = number in widths.allowed
    if line.startswith('#') and (not is_allowed or has_value):
        prefix = ' '.join(line.split(' ')[:2])
        raise InvalidRecord(
            f'line {line_number}, {line[:40]!r}, looks like a comment; set '
            f'data.comment={prefix[:20]!r} to skip such lines'
        )
    if not is_allowed:
        raise InvalidRecord(
            f'line {line_number}, {line[:40]!r}, has {number} columns instead of {widths.usual}'
        )
