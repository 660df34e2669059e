"""Reads test sets of retrieval in BEIR's layout: documents, queries and judgments.

    FOLDER/corpus.jsonl      {"_id": "d1", "title": "…", "text": "…"} a line
    FOLDER/queries.jsonl     {"_id": "q1", "text": "…"} a line
    FOLDER/qrels/test.tsv    query-id<tab>corpus-id<tab>score, or another form of `judgments`

Source: Thakur et al. 2021, BEIR, and the format of its repository.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.labels import judgments
from bert_jax.labels.judgments import MalformedLines, filled_lines
from bert_jax.labels.records import ReadingReport, printable
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.text import scripts
from bert_jax.types import JsonRecord

CORPUS, QUERIES, QRELS = 'corpus.jsonl', 'queries.jsonl', 'qrels'
_COLUMNS = ('_id', 'id', 'title', 'text')


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
        split: name of a file in qrels/, without its suffix.

    Raises:
        UserError: a file is missing or has malformed lines, an id occurs twice, a judgment names a
            query that does not exist, or most name documents that do not exist.
    """
    folder, report = paths.bring(name), ReadingReport()
    documents = read_documents(folder, report)
    queries = _read_texts(folder / QUERIES, report)
    qrels = judgments.find(folder / QRELS, split)
    relevance = judgments.read(qrels)
    _check_queries(relevance, queries, qrels)
    _check_documents(relevance, documents, qrels, report)
    if zero := sum(max(grades.values()) <= 0 for grades in relevance.values()):
        report['queries without a relevant document, which count as 0'] += zero
    judged = {query: queries[query] for query in relevance}
    if blank := [query for query, text in judged.items() if not text.strip()]:
        raise UserError(f'{folder / QUERIES}: the query {blank[0]!r} has no text')
    return RetrievalSet(folder.name, documents, judged, relevance, report)


def read_documents(folder: Path, report: ReadingReport) -> dict[str, str]:
    """Read the documents of a folder, id → title and text; see `read`."""
    documents = _read_texts(folder / CORPUS, report)
    if without := sum(not text for text in documents.values()):
        report['documents without text'] += without
    return documents


def _read_texts(path: Path, report: ReadingReport) -> dict[str, str]:
    """Read a file of objects with `_id`, `text` and perhaps `title`; note its other columns."""
    texts: dict[str, str] = {}
    errors = MalformedLines(path)
    for number, line in filled_lines(path):
        try:
            row = _parse_row(line)
            text = _text(row)
        except ValueError as error:
            errors.add(number, str(error))
            continue
        report.note_columns(row, _COLUMNS)
        if text.id in texts:
            raise UserError(f'{path}, line {number}: the id {printable(text.id)!r} occurs twice')
        texts[text.id] = text.text
    errors.check()
    if not texts:
        raise UserError(f'{path} is empty')
    return texts


def _parse_row(line: str) -> JsonRecord:
    """Parse a line. Raises ValueError with the reason why it is malformed."""
    try:
        row = files.parse_json(line)
    except ValueError:
        raise ValueError('not valid JSON') from None
    if not isinstance(row, dict):
        raise ValueError('not a JSON object')
    if scripts.has_surrogates(line):
        raise ValueError('not valid UTF-8')
    return row


def _text(row: JsonRecord) -> _Text:
    """The id and text of a row. Raises ValueError with the reason why it has none."""
    identifier = row.get('_id', row.get('id'))
    if isinstance(identifier, bool) or not isinstance(identifier, str | int) or identifier == '':
        raise ValueError(f'_id is {identifier!r:.40}, not a string')
    parts = [row.get('title') or '', row.get('text')]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError('no text' if parts[1] is None else 'title or text is not a string')
    return _Text(str(identifier), ' '.join(filter(None, map(str, parts))).strip())


def _check_queries(
    relevance: Mapping[str, Mapping[str, int]], queries: Mapping[str, str], path: Path
) -> None:
    """Raise UserError if a judgment names no query."""
    missing = [query for query in relevance if query not in queries]
    if missing:
        raise UserError(
            f'{path}: {len(missing):,} of {len(relevance):,} queries are not in {QUERIES}, such as '
            f'{printable(missing[0])!r}'
        )


def _check_documents(
    relevance: Mapping[str, Mapping[str, int]],
    documents: Mapping[str, str],
    path: Path,
    report: ReadingReport,
) -> None:
    """Count the judgments of documents that do not exist, as ArguAna has them.

    A relevant one is never found, as trec_eval, BEIR and MTEB score it.

    Raises:
        UserError: they are most of the judgments: the documents are hardly those that were judged.
    """
    pairs = [document for grades in relevance.values() for document in grades]
    absent = [document for document in pairs if document not in documents]
    if 2 * len(absent) > len(pairs):
        raise UserError(
            f'{path}: {len(absent):,} of {len(pairs):,} judgments name a document that is not in '
            f'{CORPUS}, such as {printable(absent[0])!r}'
        )
    for document in absent:
        report.add(f'judgments of documents that are not in {CORPUS}', printable(document))
