"""Sentences as columns, a word a line and a blank line between: CoNLL and CoNLL-U."""

import itertools
import os
import re
from collections.abc import Iterator

from bert_jax.data import text_files
from bert_jax.data.labeled import tabular, tag_schemes
from bert_jax.data.labeled import word_spans as word_places
from bert_jax.data.labeled.examples import Span, SpansExample, TaggedExample
from bert_jax.data.labeled.tabular import BadRow, MissingColumn, Row, Unit
from bert_jax.errors import UserError

Lines = list[tuple[int, str]]

_CONLLU = ('id', 'form', 'lemma', 'upos', 'xpos', 'feats', 'head', 'deprel', 'deps', 'misc')
_NEW_DOCUMENT = re.compile(r'# *newdoc\b')
_WORD_ID = re.compile(r'\d+|\d+-\d+|\d+\.\d+')


def sentences(path: str, data) -> Iterator[Unit]:
    """Sentences, lists of numbered lines, in a list of their own or, with data.documents, in one
    for all between two -DOCSTART- lines (in CoNLL-U: '# newdoc' lines)."""
    document, number_of_documents = [], 0
    for sentence, starts in _blocks(path, data.encoding):
        if document and (starts or not data.documents):
            yield _unit(path, document, number_of_documents)
            document = []
        number_of_documents += starts
        if sentence:
            document.append(sentence)
    if document:
        yield _unit(path, document, number_of_documents)


def _blocks(path: str, encoding: str) -> Iterator[tuple[Lines, bool]]:
    """The numbered lines of each sentence, and whether a document starts with it."""
    block: Lines = []
    starts = False
    for number, line in enumerate(text_files.read_lines(path, encoding), start=1):
        mark = line.startswith('-DOCSTART-')
        if line.strip() and not mark:
            starts |= bool(_NEW_DOCUMENT.match(line))
            block.append((number, line))
        elif block:
            yield block, starts
            block, starts = [], False
        starts |= mark
    if block:
        yield block, starts


def _unit(path: str, document: list[Lines], number_of_documents: int) -> Unit:
    number = document[0][0][0]
    name = f'{os.path.basename(path)}:{number}'
    groups = {'document': f'{path}#{number_of_documents}'}
    for line_number, line in itertools.chain(*document):
        found = tabular.unit(path, line_number, line)
        if isinstance(found.content, BadRow):
            return found._replace(name=name)
    return Unit(f'{path}:{number}', name, document, groups)


def tagged(document: list[Lines], name: str, maker) -> list[TaggedExample]:
    """An example of CoNLL columns: the words with a space between, the tags in data.tags_as."""
    forms, tags = [], []
    for sentence in document:
        found, written = _columns(sentence, maker)
        forms += found
        tags += [None] if written is None else maker.in_scheme(written)
    if not forms:
        raise BadRow('no word')
    text, words = word_places.joined(forms)
    return [TaggedExample(name, text, words, None if None in tags else tuple(tags))]


def spans(document: list[Lines], name: str, maker) -> list[SpansExample]:
    """The same with the spans that the tags describe."""
    if maker.data.scheme == 'none':
        raise UserError("data.scheme 'none' describes no spans: none of bio, iob1, bioes")
    (example,) = tagged(document, name, maker)
    found = None
    if example.tags is not None:
        bounds, _ = tag_schemes.spans(example.tags, maker.data.tags_as)
        found = tuple(
            Span(*word_places.between(example.words, start, end), label)
            for start, end, label in bounds
        )
    return [SpansExample(name, example.text, example.words, found)]


def _columns(sentence: Lines, maker) -> tuple[list[str], list[str] | None]:
    """The words and the tags of a sentence. A line of blanks and the tag O (such lines are left of
    signs that a conversion lost) is left out and counted."""
    forms, tags = [], []
    for _, line in sentence:
        if maker.data.comment and line.startswith(maker.data.comment):
            continue
        fields = line.split(maker.data.separator or ('\t' if '\t' in line else None))
        row = Row({str(number): field.strip() for number, field in enumerate(fields)})
        word, tag = row[maker.columns.word], None
        if maker.has(row, maker.columns.tag) and len(fields) > 1:
            tag = row[maker.columns.tag]
        elif maker.labeled:
            raise BadRow(f'one column only: {line[:40]!r}')
        if not word and tag == 'O':
            maker.counts['lines_without_a_word'] += 1
            continue
        if not word:
            raise BadRow('a line without a word')
        forms.append(word)
        tags.append(tag)
    return forms, None if None in tags else tags


def conllu(document: list[Lines], name: str, maker) -> list[TaggedExample]:
    """An example of CoNLL-U: the text of '# text =' and in it the words, with the column named by
    data.columns.tag (upos, xpos, feats.Number, …) as tags.

    A multiword token that is written as its words are ("don't" of "do", "n't") is these words; any
    other ("du" of "de", "le") is one word with their tags joined by '+'. Empty nodes are left out.
    """
    texts, places, tags = '', [], []
    for sentence in document:
        stated, surface = _surface(sentence, maker)
        text, found = _placed(stated, surface, maker.counts)
        offset = len(texts) + bool(texts)
        texts = f'{texts} {text}' if texts else text
        places += [(start + offset, end + offset) for start, end in found]
        tags += [tag for _, tag, _ in surface]
    if not places:
        raise BadRow('no word')
    known = maker.columns.tag and None not in tags
    tags = tuple(maker.renamed.get(tag, tag) for tag in tags) if known else None
    return [TaggedExample(_stated_id(document, maker) or name, texts, tuple(places), tags)]


def _stated_id(document: list[Lines], maker) -> str | None:
    """The id that the first comments state, of the document or of the sentence."""
    wanted = '# newdoc id' if maker.data.documents else '# sent_id'
    for _, line in document[0]:
        key, _, value = line.partition('=')
        if key.strip() == wanted and value.strip():
            return value.strip()
    return None


def _surface(sentence: Lines, maker) -> tuple[str | None, list[tuple[str, str | None, bool]]]:
    """The stated text, and of each word as it stands there: form, tag, whether a space follows."""
    stated, found = None, []
    multiword: tuple[str, int, bool] | None = None
    parts: list[tuple[str, str | None]] = []
    for _, line in sentence:
        if line.startswith('#'):
            key, _, value = line.partition('=')
            stated = value.strip() if key.strip() == '# text' else stated
            continue
        fields = line.split('\t')
        if len(fields) != len(_CONLLU) or not _WORD_ID.fullmatch(fields[0]):
            raise BadRow(f'{len(fields)} columns, not the 10 of CoNLL-U, or a wrong id')
        row = dict(zip(_CONLLU, fields, strict=True))
        spaced = 'SpaceAfter=No' not in row['misc'].split('|')
        if '.' in row['id']:
            maker.counts['empty_nodes'] += 1
        elif '-' in row['id']:
            multiword = row['form'], int(row['id'].partition('-')[2]), spaced
        elif multiword:
            parts.append((row['form'], _tag(row, maker)))
            if int(row['id']) == multiword[1]:
                found += _words_of(multiword, parts, maker.counts)
                multiword, parts = None, []
        else:
            found.append((row['form'], _tag(row, maker), spaced))
    if multiword:
        raise BadRow(f'the words of {multiword[0]!r} are not all there')
    return stated, found


def _words_of(multiword, parts, counts) -> list[tuple[str, str | None, bool]]:
    form, _, spaced = multiword
    if ''.join(part for part, _ in parts) == form:
        return [(part, tag, False) for part, tag in parts[:-1]] + [(*parts[-1], spaced)]
    counts['multiword_tokens_kept_whole'] += 1
    tags = [tag for _, tag in parts]
    return [(form, None if None in tags else '+'.join(tags), spaced)]


def _tag(row: dict[str, str], maker) -> str | None:
    """The value of a column, or of a key in a column of key=value pairs ('_' where it has none)."""
    if not maker.columns.tag:
        return None
    column, _, key = maker.columns.tag.partition('.')
    if column not in row:
        raise MissingColumn(column, _CONLLU)
    if not key:
        return row[column]
    pairs = dict(pair.partition('=')[::2] for pair in row[column].split('|'))
    return pairs.get(key, '_')


def _placed(stated: str | None, surface, counts) -> tuple[str, word_places.Places]:
    """The text and the places of the words in it; where '# text' is missing or says something else
    it is made of the words."""
    forms = [form for form, _, _ in surface]
    places = None if stated is None else word_places.located(forms, stated)
    if places is not None:
        return stated, places
    counts['texts_made_of_words'] += 1
    return word_places.joined(forms, [spaced for _, _, spaced in surface])
