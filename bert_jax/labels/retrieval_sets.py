"""Reads test sets of retrieval in BEIR's layout: documents, queries and judgments.

    FOLDER/corpus.jsonl      {"_id": "d1", "title": "…", "text": "…"} a line
    FOLDER/queries.jsonl     {"_id": "q1", "text": "…"} a line
    FOLDER/qrels/test.tsv    query-id<tab>corpus-id<tab>score, after a line with these names

Source: Thakur et al. 2021, BEIR, and the format of its repository.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bert_jax import files
from bert_jax.errors import UserError, join_first
from bert_jax.labels.records import ReadingReport, printable
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.text import scripts, text_files

CORPUS, QUERIES, QRELS = 'corpus.jsonl', 'queries.jsonl', 'qrels'
_SHOWN = 3  # malformed lines in an error


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """Documents, queries, and which documents answer which query.

    Attributes:
        name: name of the folder.
        documents: id → title and text, joined by a space.
        queries: id → text, of the judged queries.
        relevance: query id → document id → relevance; 0 or less is not relevant.
        report: what was counted in the files.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]
    report: ReadingReport

    @property
    def shared_ids(self) -> list[str]:
        """The queries that have the id of a document."""
        return [query for query in self.queries if query in self.documents]


class _Text(NamedTuple):
    id: str
    text: str


def is_retrieval_set(folder: Path) -> bool:
    """Whether a folder has documents in BEIR's layout."""
    return (folder / CORPUS).is_file()


def read(name: str, split: str) -> RetrievalSet:
    """Read the documents of a folder, and the queries that a split judges.

    Args:
        name: the folder, on a disk or in a bucket.
        split: name of a file in qrels/, without .tsv.

    Raises:
        UserError: a file is missing or has malformed lines, an id occurs twice, or a judgment names
            a query or a document that does not exist.
    """
    folder, report = paths.path(name), ReadingReport()
    documents = read_documents(folder, report)
    queries = _read_texts(folder / QUERIES)
    relevance = _read_judgments(_qrels(folder, split))
    _check_named(relevance, queries, documents, folder / QRELS / f'{split}.tsv')
    judged = {query: queries[query] for query in relevance}
    if blank := [query for query, text in judged.items() if not text.strip()]:
        raise UserError(f'{folder / QUERIES}: the query {blank[0]!r} has no text')
    return RetrievalSet(folder.name, documents, judged, relevance, report)


def read_documents(folder: Path, report: ReadingReport) -> dict[str, str]:
    """Read the documents of a folder, id → title and text; see `read`."""
    documents = _read_texts(folder / CORPUS)
    if without := sum(not text for text in documents.values()):
        report['documents without text'] += without
    return documents


def _qrels(folder: Path, split: str) -> Path:
    path = folder / QRELS / f'{split}.tsv'
    if not path.is_file():
        found = folder / QRELS
        known = sorted(one.stem for one in found.iterdir()) if found.is_dir() else []
        raise UserError(
            f'{folder} has no {QRELS}/{split}.tsv; '
            + (f'its splits are {join_first(known)}' if known else f'it has no folder {QRELS}')
        )
    return path


def _read_texts(path: Path) -> dict[str, str]:
    """Read a file of objects with `_id`, `text` and perhaps `title`."""
    texts: dict[str, str] = {}
    errors = _Malformed(path)
    for number, line in _lines(path):
        try:
            row = _parse_text(line)
        except ValueError as error:
            errors.add(number, str(error))
            continue
        if row.id in texts:
            raise UserError(f'{path}, line {number}: the id {printable(row.id)!r} occurs twice')
        texts[row.id] = row.text
    errors.check()
    if not texts:
        raise UserError(f'{path} is empty')
    return texts


def _parse_text(line: str) -> _Text:
    """Parse a line. Raises ValueError with the reason why it is malformed."""
    try:
        row = files.parse_json(line)
    except ValueError:
        raise ValueError('not valid JSON') from None
    if not isinstance(row, dict):
        raise ValueError('not a JSON object')
    if scripts.has_surrogates(line):
        raise ValueError('not valid UTF-8')
    identifier = row.get('_id')
    if isinstance(identifier, bool) or not isinstance(identifier, str | int) or identifier == '':
        raise ValueError(f'_id is {identifier!r:.40}, not a string')
    parts = [row.get('title') or '', row.get('text')]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError('no text' if parts[1] is None else 'title or text is not a string')
    return _Text(str(identifier), ' '.join(filter(None, map(str, parts))).strip())


def _read_judgments(path: Path) -> dict[str, dict[str, int]]:
    """Read the lines query<tab>document<tab>relevance after the header."""
    relevance: dict[str, dict[str, int]] = {}
    errors = _Malformed(path)
    for number, line in _lines(path):
        values = line.rstrip('\r').split('\t')
        if number == 1 and values[-1].strip() == 'score':
            continue
        if len(values) != 3:
            errors.add(number, f'{len(values)} columns separated by tabs instead of 3')
            continue
        query, document, value = values
        try:
            grade = _parse_grade(value)
        except ValueError:
            errors.add(number, f'the score {value!r:.40} is not an integer')
            continue
        grades = relevance.setdefault(query, {})
        if grades.setdefault(document, grade) != grade:
            raise UserError(
                f'{path}, line {number}: query {printable(query)!r} and document '
                f'{printable(document)!r} have two scores, {grades[document]} and {grade}'
            )
    errors.check()
    if not any(grade > 0 for grades in relevance.values() for grade in grades.values()):
        raise UserError(f'{path} has no judgment above 0, so no document is relevant to a query')
    return relevance


def _parse_grade(text: str) -> int:
    number = float(text)
    if not number.is_integer():  # nor infinite or not a number
        raise ValueError
    return int(number)


def _check_named(
    relevance: Mapping[str, Mapping[str, int]],
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    path: Path,
) -> None:
    """Raise UserError if a judgment names no query or no document."""
    missing = [query for query in relevance if query not in queries]
    if missing:
        raise UserError(
            f'{path}: {len(missing):,} of {len(relevance):,} queries are not in {QUERIES}, such as '
            f'{printable(missing[0])!r}'
        )
    pairs = [document for grades in relevance.values() for document in grades]
    absent = [document for document in pairs if document not in documents]
    if absent:
        raise UserError(
            f'{path}: {len(absent):,} of {len(pairs):,} judgments name a document that is not in '
            f'{CORPUS}, such as {printable(absent[0])!r}'
        )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, numbered from 1."""
    if not path.is_file():
        raise UserError(f'{path} does not exist; a test set in the layout of BEIR has it')
    lines = enumerate(text_files.read_lines(str(path), 'utf-8'), start=1)
    return ((number, line) for number, line in lines if line.strip())


@dataclasses.dataclass
class _Malformed:
    """The malformed lines of a file."""

    path: Path
    number: int = 0
    first: list[str] = dataclasses.field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        self.number += 1
        if self.number <= _SHOWN:
            self.first.append(f'line {line}: {reason}')

    def check(self) -> None:
        """Raise UserError if there are any: a score over the other lines would mislead."""
        if self.number:
            raise UserError(
                f'{self.path}: {self.number:,} malformed lines; ' + '; '.join(self.first)
            )
