"""Builds tagged examples from CoNLL-U (universaldependencies.org/format.html)."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.conll import Sentence
from bert_jax.labels.examples import TaggedExample
from bert_jax.labels.records import InvalidRecord, MissingColumn
from bert_jax.labels.word_spans import WordOffsets

COLUMNS = ('id', 'form', 'lemma', 'upos', 'xpos', 'feats', 'head', 'deprel', 'deps', 'misc')
WORD_ID = re.compile(r'\d+|\d+-\d+|\d+\.\d+')


class _Token(NamedTuple):
    """A token of CoNLL-U as written in the text."""

    form: str
    tag: str | None
    space_after: bool


def build_tagging(
    document: list[Sentence], example_id: str, builder: ExampleBuilder
) -> list[TaggedExample]:
    """The text of '# text =' with a column (upos, xpos, feats.Number, …) as tags of its words.

    A multiword token is split if its words make up its form ("don't": "do", "n't"). Otherwise
    ("du": "de", "le") it is one word, whose tag joins the tags of its words with '+'. Empty nodes
    are ignored.
    """
    text = ''
    offsets: list[tuple[int, int]] = []
    tags: list[str | None] = []
    for sentence in document:
        text_comment, tokens = _tokens(sentence, builder)
        builder.counts.note_columns(COLUMNS, ('id', 'form', 'misc', builder.columns.tag))
        sentence_text, words = _align(text_comment, tokens, builder.counts)
        shift = len(text) + bool(text)
        text = f'{text} {sentence_text}' if text else sentence_text
        offsets += [(start + shift, end + shift) for start, end in words]
        tags += [token.tag for token in tokens]
    if not offsets:
        raise InvalidRecord('no words')
    renamed = [builder.new_labels.get(tag, tag) for tag in tags if tag is not None]
    complete = builder.columns.tag and len(renamed) == len(tags)
    example_id = _comment_id(document, builder.data) or example_id
    return [TaggedExample(example_id, text, tuple(offsets), tuple(renamed) if complete else None)]


def _comment_id(document: list[Sentence], data: ConfigDict) -> str | None:
    """The id of the document or sentence in the comments of the first sentence."""
    id_key = '# newdoc id' if data.documents else '# sent_id'
    for _, line in document[0]:
        key, _, value = line.partition('=')
        if key.strip() == id_key and value.strip():
            return value.strip()
    return None


def _tokens(sentence: Sentence, builder: ExampleBuilder) -> tuple[str | None, list[_Token]]:
    """The text of the comment '# text =', if there is one, and the tokens."""
    text, tokens = None, []
    multiword: _Token | None = None
    last_id, parts = 0, []  # of the multiword token
    for _, line in sentence:
        if line.startswith('#'):
            key, _, value = line.partition('=')
            text = value.strip() if key.strip() == '# text' else text
            continue
        fields = line.split('\t')
        if len(fields) != len(COLUMNS) or not WORD_ID.fullmatch(fields[0]):
            raise InvalidRecord(
                f'not CoNLL-U: {len(fields)} columns instead of 10, or invalid id {fields[0]!r}'
            )
        row = dict(zip(COLUMNS, fields, strict=True))
        space_after = 'SpaceAfter=No' not in row['misc'].split('|')
        if '.' in row['id']:
            builder.counts['empty_nodes'] += 1
        elif '-' in row['id']:
            multiword = _Token(row['form'], None, space_after)
            last_id = int(row['id'].partition('-')[2])
        elif multiword:
            parts.append(_Token(row['form'], _tag(row, builder.columns.tag), False))
            if int(row['id']) == last_id:
                tokens += _split_multiword(multiword, parts, builder.counts)
                multiword, parts = None, []
        else:
            tokens.append(_Token(row['form'], _tag(row, builder.columns.tag), space_after))
    if multiword:
        raise InvalidRecord(f'words of the multiword token {multiword.form!r} are missing')
    return text, tokens


def _split_multiword(multiword: _Token, parts: list[_Token], counts: Counter[str]) -> list[_Token]:
    if ''.join(part.form for part in parts) == multiword.form:
        return [*parts[:-1], parts[-1]._replace(space_after=multiword.space_after)]
    counts['multiword_tokens_kept_whole'] += 1
    tags = [part.tag for part in parts if part.tag is not None]
    return [multiword._replace(tag='+'.join(tags) if len(tags) == len(parts) else None)]


def _tag(row: dict[str, str], tag_column: str) -> str | None:
    """The value of 'column', or of 'column.key' in key=value pairs; '_' if the key is missing."""
    if not tag_column:
        return None
    column, _, key = tag_column.partition('.')
    if column not in row:
        raise MissingColumn(column, COLUMNS)
    if not key:
        return row[column]
    for pair in row[column].split('|'):
        name, _, value = pair.partition('=')
        if name == key:
            return value
    return '_'


def _align(
    text: str | None, tokens: Sequence[_Token], counts: Counter[str]
) -> tuple[str, WordOffsets]:
    """The text and the offsets of its words.

    The text is joined from the words if `text`, the comment, is missing or has other words.
    """
    forms = [token.form for token in tokens]
    offsets = None if text is None else word_spans.locate_words(forms, text)
    if text is not None and offsets is not None:
        return text, offsets
    counts['texts_made_of_words'] += 1
    return word_spans.join_words(forms, [token.space_after for token in tokens])
