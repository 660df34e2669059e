"""Reads NanoBEIR: small test sets of retrieval in Parquet, one split of three tables each.

    FOLDER/corpus/NanoNAME-00000-of-00001.parquet     _id, text
    FOLDER/queries/NanoNAME-00000-of-00001.parquet    _id, text
    FOLDER/qrels/NanoNAME-00000-of-00001.parquet      query-id, corpus-id

This is the layout of sentence-transformers/NanoBEIR-en and its translations on the Hugging Face
Hub: about 50 queries and 5,000 documents a set, all judgments of the relevance 1.
"""

import re
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.errors import UserError, join_first
from bert_jax.labels import arrow_rows, retrieval_sets
from bert_jax.labels.records import ReadingReport
from bert_jax.labels.retrieval_sets import RetrievalSet
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.types import JsonView

TABLES = ('corpus', 'queries', 'qrels')
_FILE = re.compile(r'(?P<split>[^/]+?)(-\d+-of-\d+)?\.parquet')


def is_nano_beir(folder: Path) -> bool:
    """Whether a folder has documents in this layout."""
    return any((folder / 'corpus').glob('*.parquet'))


def read_any(name: str, split: str) -> list[RetrievalSet]:
    """Read the sets of a folder of NanoBEIR, or the set of another one; see `retrieval_sets`."""
    if is_nano_beir(paths.bring(name)):
        return read(name)
    return [retrieval_sets.read(name, split)]


def read(name: str) -> list[RetrievalSet]:
    """Read all sets of a folder, in the order of their names.

    Args:
        name: the folder, on a disk or in a bucket.

    Raises:
        UserError: a table or a column is missing, an id occurs twice, or a judgment names a query
            or a document that does not exist.
    """
    folder = paths.fetch(name)
    splits = {table: _splits(folder / table) for table in TABLES}
    for table, found in splits.items():
        if missing := sorted(splits['corpus'].keys() ^ found.keys()):
            raise UserError(
                f'{folder}: corpus/ and {table}/ have different sets: {join_first(missing)} is in '
                'one of them only'
            )
    return [
        _read_set(split, {table: splits[table][split] for table in TABLES})
        for split in sorted(splits['corpus'])
    ]


def _splits(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob('*.parquet')):
        if match := _FILE.fullmatch(path.name):
            found.setdefault(match['split'], []).append(path)
    return found


def _read_set(name: str, files: dict[str, list[Path]]) -> RetrievalSet:
    documents, queries = (_read_texts(files[table]) for table in ('corpus', 'queries'))
    relevance: dict[str, dict[str, int]] = {}
    for path, row in _rows(files['qrels'], ('query-id', 'corpus-id')):
        query, answers = str(row['query-id']), row['corpus-id']
        for document in answers if isinstance(answers, list) else [answers]:
            if query not in queries or str(document) not in documents:
                raise UserError(
                    f'{path}: a judgment of {query!r} and {document!r}, one of which does not exist'
                )
            relevance.setdefault(query, {})[str(document)] = 1
    judged = {query: queries[query] for query in relevance}
    return RetrievalSet(name, documents, judged, relevance, ReadingReport())


def _read_texts(files: list[Path]) -> dict[str, str]:
    """Read texts by id; those without text are left out, as sentence-transformers does."""
    texts: dict[str, str] = {}
    for path, row in _rows(files, ('_id', 'text')):
        name = str(row['_id'])
        if name in texts:
            raise UserError(f'{path}: the id {name!r} occurs twice')
        texts[name] = str(row['text'] or '')
    return {name: text for name, text in texts.items() if text}


def _rows(files: list[Path], columns: tuple[str, ...]) -> Iterator[tuple[Path, JsonView]]:
    """Yield the rows of files. Raises UserError if a column is missing."""
    for path in files:
        for record in arrow_rows.read_rows(str(path), ConfigDict()):
            row = record.content.values
            if missing := [name for name in columns if name not in row]:
                raise UserError(f'{path} lacks the column {missing[0]}; it has {", ".join(row)}')
            yield path, row
