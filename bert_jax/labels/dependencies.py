"""Dependency trees in CoNLL-U: builds parsed examples, and writes predicted trees into a file."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.conll import Sentence
from bert_jax.labels.conllu import COLUMNS, WORD_ID
from bert_jax.labels.examples import ParsedExample
from bert_jax.labels.records import InvalidRecord, SkippedRecord
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.storage.names import is_number
from bert_jax.types import JsonObject, JsonRecord

_HEAD, _RELATION = COLUMNS.index('head'), COLUMNS.index('deprel')


class SyntacticWords(NamedTuple):
    """The W words of a sentence that have heads.

    Attributes:
        text: the text of the words.
        offsets: range of characters of each word.
        rows: the ten columns of each word.
        sentence_id: of the comment '# sent_id ='; None without it.
    """

    text: str
    offsets: WordOffsets
    rows: list[list[str]]
    sentence_id: str | None


def build_parsing(
    document: list[Sentence], example_id: str, builder: ExampleBuilder
) -> list[ParsedExample]:
    """The words, heads and relations of each sentence; see `read_words`.

    Raises:
        UserError: `data.documents` is set.
        InvalidRecord: not CoNLL-U, or the heads are not a tree.
        SkippedRecord: the tree has several roots.
    """
    if builder.data.documents:
        raise UserError(
            'data.documents is True, but a dependency tree is that of one sentence; set it to '
            "False (data.group='document' keeps the sentences of a document in one split)"
        )
    examples = []
    for sentence in document:
        words = read_words([line for _, line in sentence], builder.counts)
        builder.counts.note_columns(COLUMNS, ('id', 'form', 'head', 'deprel', 'misc'))
        heads = relations = None
        if builder.labeled or any(row[_HEAD] != '_' for row in words.rows):
            heads = check_tree([row[_HEAD] for row in words.rows])
            relations = tuple(row[_RELATION] for row in words.rows)
        name = words.sentence_id or example_id
        examples.append(ParsedExample(name, words.text, words.offsets, heads, relations))
    return examples


def read_words(lines: Sequence[str], counts: Counter[str]) -> SyntacticWords:
    """Read the words of a sentence and their places in its text.

    Words of a multiword token are parts of its form ("don't": "do", "n't"). Otherwise ("du": "de",
    "le") the words replace the token in the text. Empty nodes have no head in the basic tree and
    are left out.

    Raises:
        InvalidRecord: not CoNLL-U.
    """
    comment_text, sentence_id = None, None
    rows: list[list[str]] = []
    space_after: list[bool] = []
    token, last = ('', True), 0  # form and space of the multiword token up to the word `last`
    first_part = 0
    for line in lines:
        if line.startswith('#'):
            key, _, value = (part.strip() for part in line.partition('='))
            comment_text = value if key == '# text' else comment_text
            sentence_id = (value or None) if key == '# sent_id' else sentence_id
            continue
        row = line.split('\t')
        if len(row) != len(COLUMNS) or not WORD_ID.fullmatch(row[0]):
            raise InvalidRecord(
                f'not CoNLL-U: {len(row)} columns instead of 10, or invalid id {row[0]!r}'
            )
        has_space = 'SpaceAfter=No' not in row[-1].split('|')
        if '.' in row[0]:
            counts['empty_nodes'] += 1
        elif '-' in row[0]:
            token, last = (row[1], has_space), int(row[0].partition('-')[2])
            first_part = len(rows)
        else:
            if int(row[0]) != len(rows) + 1:
                raise InvalidRecord(f'word {len(rows) + 1} has the id {row[0]}')
            rows.append(row)
            space_after.append(has_space)
            if len(rows) == last:
                forms = [part[1] for part in rows[first_part:]]
                is_whole = ''.join(forms) == token[0]
                counts['multiword_tokens_replaced_by_their_words'] += not is_whole
                space_after[first_part:] = [*(not is_whole for _ in forms[1:]), token[1]]
    if not rows or len(rows) < last:
        raise InvalidRecord('words of a multiword token are missing' if rows else 'no words')
    forms = [row[1] for row in rows]
    if blank := [number for number, form in enumerate(forms, 1) if not form.strip()]:
        raise InvalidRecord(f'word {blank[0]} is blank')
    offsets = None if comment_text is None else word_spans.locate_words(forms, comment_text)
    if comment_text is None or offsets is None:
        counts['texts_made_of_words'] += 1
        comment_text, offsets = word_spans.join_words(forms, space_after)
    return SyntacticWords(comment_text, offsets, rows, sentence_id)


def check_tree(heads: Sequence[str]) -> tuple[int, ...]:
    """Return heads as numbers: of a word from 1, or 0 of the root.

    Raises:
        InvalidRecord: a head is not a word, or there is a cycle or no root.
        SkippedRecord: there are several roots, as in treebanks that are not of Universal
            Dependencies.
    """
    if invalid := [head for head in heads if not is_number(head) or int(head) > len(heads)]:
        raise InvalidRecord(f'the head {invalid[0]!r} is not one of the {len(heads)} words or 0')
    numbers = tuple(map(int, heads))
    if 0 not in numbers:
        raise InvalidRecord('the tree has no root')
    for word in range(1, len(numbers) + 1):
        seen: set[int] = set()
        while word and word not in seen:
            seen.add(word)
            word = numbers[word - 1]
        if word:
            raise InvalidRecord(f'the heads have a cycle at word {word}')
    if numbers.count(0) > 1:
        raise SkippedRecord('sentences_with_several_roots')
    return numbers


def split_sentences(lines: Iterable[str]) -> list[list[str]]:
    """The sentences of a CoNLL-U file, which blank lines separate; comments belong to the next."""
    sentences: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            sentences[-1].append(line)
        elif any(not line.startswith('#') for line in sentences[-1]):
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def as_input(lines: Sequence[str], counts: Counter[str]) -> JsonRecord:
    """The input of a parser for a sentence of CoNLL-U: 'text', 'spans' and maybe 'id'."""
    words = read_words(lines, counts)
    named = {} if words.sentence_id is None else {'id': words.sentence_id}
    return {**named, 'text': words.text, 'spans': [list(span) for span in words.offsets]}


def with_tree(lines: Sequence[str], record: JsonObject) -> list[str]:
    """The lines of a sentence of CoNLL-U with the predicted heads and relations.

    Comments, multiword tokens, empty nodes and all other columns stay, except enhanced
    dependencies, which would contradict the new tree. A word without a prediction has '_'.
    """
    words, written = iter(record['words']), []
    for line in lines:
        row = line.split('\t')
        if is_number(row[0]):
            word = next(words)
            row[_HEAD], row[_RELATION] = _cells(word)
            row[COLUMNS.index('deps')] = '_'
        written.append('\t'.join(row))
    return written


def new_sentence(record: JsonObject) -> list[str]:
    """The lines of a record of a parser that was not read from CoNLL-U."""
    text = ' '.join(record['text'].split())
    lines = [f'# sent_id = {record["id"]}', f'# text = {text}']
    words = record['words']
    for number, word in enumerate(words, 1):
        following = words[number]['start'] if number < len(words) else None
        misc = 'SpaceAfter=No' if following == word['end'] else '_'
        form = ' '.join(word['text'].split())
        lines.append('\t'.join([str(number), form, *'_' * 4, *_cells(word), '_', misc]))
    return lines


def _cells(word: JsonRecord) -> tuple[str, str]:
    if word['head'] is None:
        return '_', '_'
    return str(word['head']), str(word['relation'])
