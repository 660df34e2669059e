"""Builds examples of predicates with their arguments, from CoNLL-2005, CoNLL-2012 and rows."""

import re
from collections.abc import Sequence

from bert_jax.errors import UserError
from bert_jax.labels import conll, word_lists, word_spans
from bert_jax.labels.builder import ExampleBuilder, parse_int
from bert_jax.labels.conll import Sentence
from bert_jax.labels.examples import TaggedExample
from bert_jax.labels.records import InvalidRecord, Row
from bert_jax.labels.tag_schemes import WordSpan, convert_tags, spans_to_tags

PREDICATE = 'V'  # the role of the predicate itself, which is given
_NO_PREDICATE = '-'
# The cell of a word in a column of roles: the roles that start there, and the ends.
_CELL = re.compile(r'((?:\([^()*\s]+)*)\*((?:[^()*\s]*\))*)')


def build_conll(
    document: list[Sentence], example_id: str, builder: ExampleBuilder
) -> list[TaggedExample]:
    """One example for each predicate of each sentence, with the words of `columns.word`.

    The words whose cell in `columns.predicate` is not '-' are predicates. The n-th of them has the
    n-th column of roles, from `columns.roles` on (by default, the column after that of the
    predicates).

    Raises:
        UserError: `data.documents` is set, or a column is not a number from 0.
        InvalidRecord: the columns of a sentence differ, or the roles are not legal.
    """
    if builder.data.documents:
        raise UserError(
            'data.documents is True, but predicates have their arguments in one sentence; set it '
            'to False'
        )
    examples = []
    for sentence in document:
        rows = conll.rows_of_words(sentence, builder.data)
        examples += _examples_of(rows, example_id, builder)
    return examples


def _examples_of(
    rows: Sequence[Sequence[str]], example_id: str, builder: ExampleBuilder
) -> list[TaggedExample]:
    columns = builder.columns
    word, predicate = _number(columns.word, 'word'), _number(columns.predicate, 'predicate')
    first_role = _number(columns.roles, 'roles') if columns.roles else predicate + 1
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise InvalidRecord(
            f'its lines have {min(map(len, rows))} to {max(map(len, rows))} columns'
        )
    if max(word, predicate) >= width:
        raise InvalidRecord(
            f'its lines have {width} columns; set data.columns.word and data.columns.predicate'
        )
    text, offsets = word_spans.join_words([row[word] for row in rows])
    places = [place for place, row in enumerate(rows) if row[predicate] != _NO_PREDICATE]
    builder.counts['sentences_without_a_predicate'] += not places
    num_roles = width - first_role
    if num_roles < len(places) and (builder.labeled or num_roles > 0):
        raise InvalidRecord(
            f'{len(places)} predicates, but {max(num_roles, 0)} columns of roles from column '
            f'{first_role} on'
        )
    examples = []
    for number, place in enumerate(places):
        tags = None
        if num_roles > 0:
            spans = _read_roles([row[first_role + number] for row in rows])
            _check_place(spans, place)
            renamed = [(a, b, builder.new_labels.get(role, role)) for a, b, role in spans]
            tags = spans_to_tags(renamed, len(rows), 'bio')
        examples.append(TaggedExample(f'{example_id}-{place}', text, offsets, tags, place))
    return examples


def _number(value: str, name: str) -> int:
    if not value.isdecimal():
        raise UserError(
            f'data.columns.{name} is {value!r}; for CoNLL, set it to the number of a column, from 0'
        )
    return int(value)


def _read_roles(cells: Sequence[str]) -> list[WordSpan]:
    """Read a column of roles such as '(A0*', '*', '*)', '(V*)'.

    Raises:
        InvalidRecord: a cell has another form, or roles overlap or do not end.
    """
    spans: list[WordSpan] = []
    opened: list[tuple[int, str]] = []
    for number, cell in enumerate(cells):
        match = _CELL.fullmatch(cell)
        if not match:
            raise InvalidRecord(
                f'{cell[:40]!r} at word {number} is not a cell of roles such as (A0* or *); set '
                'data.columns.predicate and data.columns.roles'
            )
        opened += [(number, role) for role in match[1].split('(')[1:]]
        for role in match[2].split(')')[:-1]:
            if not opened or role not in ('', opened[-1][1]):
                raise InvalidRecord(f'{cell[:40]!r} at word {number} ends no role')
            start, label = opened.pop()
            if opened:
                raise InvalidRecord(f'the role {label} is inside {opened[-1][1]}')
            spans.append((start, number + 1, label))
    if opened:
        raise InvalidRecord(f'the role {opened[0][1]} does not end')
    return spans


def _check_place(spans: Sequence[WordSpan], place: int) -> None:
    """Raise InvalidRecord if a column of roles is that of another predicate."""
    own = [start <= place < end for start, end, role in spans if role == PREDICATE]
    if own and not any(own):
        raise InvalidRecord(
            f'the role {PREDICATE} is not at the predicate, word {place}; set '
            'data.columns.predicate and data.columns.roles'
        )


def build_rows(row: Row, example_id: str, builder: ExampleBuilder) -> list[TaggedExample]:
    """Words with the tags of their roles, and the index of the predicate among the words.

    Raises:
        UserError: `data.scheme` is 'none'.
        InvalidRecord: the predicate is not the index of a word, or a word is blank.
    """
    if builder.data.scheme == 'none':
        raise UserError("data.scheme='none' describes no roles; set it to bio, iob1 or bioes")
    name = builder.columns.predicate
    place = parse_int(row[name])
    (example,) = word_lists.build_tagging(row, example_id, builder)
    given = row[builder.columns.tokens if builder.columns.tokens in row else 'words']
    number = len(given if isinstance(given, list) else given.split())
    if number != len(example.words):
        raise InvalidRecord('a word is blank')
    if not 0 <= place < number:
        raise InvalidRecord(
            f'column {name!r} is {place}; it must be the index of one of {number} words'
        )
    tags = example.tags
    if tags is not None:  # in BIO, whatever tags are converted to for other problems
        tags, _ = convert_tags(tags, builder.data.tags_as, 'bio')
    return [example._replace(tags=tags, predicate=place)]
