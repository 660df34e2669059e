"""Reads judgments of retrieval: how relevant a document is to a query.

    qrels/test.tsv      query-id<tab>corpus-id<tab>score, after a header, perhaps quoted (BEIR)
    qrels/test.jsonl    {"query-id": "q1", "corpus-id": "d1", "score": 1} a line (MTEB)
    qrels/test.txt      query, iteration, document and score between spaces or tabs (TREC)

Sources: `GenericDataLoader` of BEIR 2, which skips the first line and reads three columns; the
format of `trec_eval`.
"""

import csv
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax import files
from bert_jax.errors import UserError, join_first
from bert_jax.labels.records import printable
from bert_jax.storage.path import Path
from bert_jax.text import text_files

SUFFIXES = ('.tsv', '.jsonl', '.csv', '.txt', '.trec', '.qrels')
_SHOWN = 3  # malformed lines in an error
# Names of the columns in headers, in lower case and without marks between words.
_QUERY = ('queryid', 'qid', 'query', 'topic', 'topicid')
_DOCUMENT = ('corpusid', 'docid', 'documentid', 'docno', 'pid', 'passageid', 'document', 'doc')
_SCORE = ('score', 'relevance', 'rel', 'label', 'grade')

Judgments = dict[str, dict[str, int]]  # query id → document id → relevance


class _Columns(NamedTuple):
    """The indices of the columns, and whether the first row has their names."""

    query: int
    document: int
    score: int
    has_header: bool


class _Line(NamedTuple):
    number: int
    values: list[str]


def find(folder: Path, split: str) -> Path:
    """Return the file with the judgments of a split. Raises UserError if there is none."""
    for path in (folder / f'{split}{suffix}' for suffix in SUFFIXES):
        if path.is_file():
            return path
    known = sorted({one.stem for one in folder.iterdir()}) if folder.is_dir() else []
    raise UserError(
        f'{folder.parent} has no {folder.name}/{split}.tsv; '
        + (f'its splits are {join_first(known)}' if known else f'it has no folder {folder.name}')
    )


def read(path: Path) -> Judgments:
    """Read the judgments of a file in one of the formats above.

    Raises:
        UserError: malformed lines, two scores of one query and document, or no score above 0.
    """
    malformed = MalformedLines(path)
    is_json = path.suffix == '.jsonl'
    lines = list(_json_lines(path, malformed) if is_json else _table_lines(path))
    columns = _Columns(0, 1, 2, False) if is_json or not lines else _columns(lines)
    width = len(lines[0].values) if lines else 0
    judgments: Judgments = {}
    for number, values in lines[columns.has_header :]:
        if len(values) != width or width < 3:
            malformed.add(number, f'{len(values)} columns instead of {max(width, 3)}')
            continue
        query, document, value = (values[column] for column in columns[:3])
        try:
            grade = _parse_grade(value)
        except ValueError:
            malformed.add(number, f'the score {value!r:.40} is not an integer')
            continue
        grades = judgments.setdefault(query, {})
        if grades.setdefault(document, grade) != grade:
            raise UserError(
                f'{path}, line {number}: query {printable(query)!r} and document '
                f'{printable(document)!r} have two scores, {grades[document]} and {grade}'
            )
    malformed.check()
    if not any(grade > 0 for grades in judgments.values() for grade in grades.values()):
        raise UserError(f'{path} has no judgment above 0, so no document is relevant to a query')
    return judgments


def _json_lines(path: Path, malformed: 'MalformedLines') -> Iterator[_Line]:
    """The query, the document and the score of each line of JSON."""
    for number, line in filled_lines(path):
        try:
            row = files.parse_json(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            malformed.add(number, 'not a JSON object')
            continue
        names = [_plain(str(name)) for name in row]
        named = [_index(names, known) for known in (_QUERY, _DOCUMENT, _SCORE)]
        values = [str(list(row.values())[column]) for column in named if column is not None]
        if len(values) == len(named):
            yield _Line(number, values)
        else:
            malformed.add(number, f'no query, document and score in {", ".join(row)!r:.60}')


def _table_lines(path: Path) -> Iterator[_Line]:
    """The columns of each line, between tabs, between commas, or between spaces."""
    separator = None
    for number, line in filled_lines(path):
        if separator is None:
            is_csv = ',' in line and not re.search(r'\s', line.strip())
            separator = '\t' if '\t' in line else ',' if is_csv else ' '
        yield _Line(number, line.split() if separator == ' ' else _split(line, separator))


def _split(line: str, separator: str) -> list[str]:
    line = line.rstrip('\r')
    if '"' in line:
        try:
            return next(csv.reader([line], delimiter=separator, strict=True))
        except csv.Error:  # the quote is part of an id
            pass
    return line.split(separator)


def _columns(lines: Sequence[_Line]) -> _Columns:
    """Tell the columns by their names, or by what is in them.

    Four columns without known names are those of TREC if the second has one value, the iteration,
    and the fourth the scores; otherwise the first three columns are read, as BEIR does.
    """
    first, *others = (line.values for line in lines)
    names = list(map(_plain, first))
    query, document, score = (_index(names, known) for known in (_QUERY, _DOCUMENT, _SCORE))
    if query is not None and document is not None and score is not None:
        return _Columns(query, document, score, has_header=True)
    rows = [values for values in others if len(values) == len(first)] or [first]
    is_trec = False
    if len(first) == 4 and all(_is_number(values[3]) for values in rows):
        scored = [first, *rows] if _is_number(first[3]) else rows
        is_trec = len({values[1] for values in scored}) == 1
    query, document, score = (0, 2, 3) if is_trec else (0, 1, 2)
    if len(first) <= score or _is_number(first[score]):
        return _Columns(query, document, score, False)
    is_query = first[query] in {values[query] for values in rows}
    return _Columns(query, document, score, has_header=bool(others) and not is_query)


def _plain(name: str) -> str:
    return re.sub('[-_ ]', '', name.strip().lower())


def _index(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_grade(text: str) -> int:
    number = float(text)
    if not number.is_integer():  # nor infinite or not a number
        raise ValueError
    return int(number)


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, numbered from 1."""
    if not path.is_file():
        raise UserError(f'{path} does not exist; a test set in the layout of BEIR has it')
    lines = enumerate(text_files.read_lines(str(path), 'utf-8'), start=1)
    return ((number, line) for number, line in lines if line.strip())


@dataclasses.dataclass
class MalformedLines:
    """The malformed lines of a file."""

    path: Path
    number: int = 0
    first: list[str] = dataclasses.field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Count a line."""
        self.number += 1
        if self.number <= _SHOWN:
            self.first.append(f'line {line}: {reason}')

    def check(self) -> None:
        """Raise UserError if there are any: a score over the other lines would mislead."""
        if self.number:
            raise UserError(
                f'{self.path}: {self.number:,} malformed lines; ' + '; '.join(self.first)
            )
