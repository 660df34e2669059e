"""The file formats of labeled data, and how the format of a file is chosen."""

import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import (
    arrow_rows,
    conll,
    json_rows,
    markup,
    questions,
    standoff,
    tabular,
    text_lines,
    trees,
    webanno,
)
from bert_jax.labels.records import Record
from bert_jax.storage import wrong_paths
from bert_jax.text import text_files

SAMPLES = pathlib.Path(__file__).parent / 'samples'


class FileFormat(NamedTuple):
    """A file format.

    Attributes:
        read: (path, the config's `data`) → the records of the file.
        suffixes: file name suffixes that imply this format.
        is_table: whether a file is rows of cells, which are texts.
        is_list: whether a file is records of named values, which may be lists.
        has_columns: whether `data.columns` names the values of a record.
        is_text: whether files are text, in `data.encoding`.
    """

    read: Callable[[str, ConfigDict], Iterator[Record]]
    suffixes: Sequence[str] = ()
    is_table: bool = False
    is_list: bool = False
    has_columns: bool = True
    is_text: bool = True


_TAB_SUFFIXES = ('.tsv', '.tab')
# A line for each format. Every kind of problem reads those of TABLES and LISTS.
FORMATS: dict[str, FileFormat] = {
    'csv': FileFormat(partial(tabular.read_table, file_format='csv'), ('.csv',), is_table=True),
    'jsonl': FileFormat(
        json_rows.read_json_lines, ('.jsonl', '.jsonlines', '.ndjson'), is_list=True
    ),
    'squad': FileFormat(questions.read_squad, ('.json',), has_columns=False),
    'json': FileFormat(json_rows.read_json_list, ('.json',), is_list=True),
    'lines': FileFormat(text_lines.read_text_lines),
    'labeled_lines': FileFormat(text_lines.read_labeled_lines, ('.label',)),
    'files': FileFormat(text_lines.read_whole_text),
    # A problem that reads CoNLL does so from .tsv too, as these files are usually named.
    'conll': FileFormat(
        conll.read_sentences, ('.conll', '.bio', '.iob', '.iob2', *_TAB_SUFFIXES), has_columns=False
    ),
    'tsv': FileFormat(partial(tabular.read_table, file_format='tsv'), _TAB_SUFFIXES, is_table=True),
    'webanno': FileFormat(webanno.read_webanno),
    'conllu': FileFormat(
        partial(conll.read_sentences, comment='#'), ('.conllu',), has_columns=False
    ),
    'parquet': FileFormat(
        arrow_rows.read_rows, ('.parquet', '.arrow', '.feather'), is_list=True, is_text=False
    ),
    'xml': FileFormat(markup.read_elements, ('.xml', '.html', '.htm', '.sgml'), is_list=True),
    'brat': FileFormat(standoff.read_brat, ('.ann',)),
    'brackets': FileFormat(trees.read_trees, ('.mrg', '.ptb', '.brackets'), has_columns=False),
}
TABLES = tuple(name for name, one in FORMATS.items() if one.is_table)
LISTS = tuple(name for name, one in FORMATS.items() if one.is_list)
WITH_COLUMNS = tuple(name for name, one in FORMATS.items() if one.has_columns)
TEXT_FILES = tuple(name for name, one in FORMATS.items() if one.is_text)


def matching_files(pattern: str) -> list[str]:
    """Return the files that a glob matches, or those of a folder that save_to_disk wrote."""
    sample = pattern.removeprefix('sample:')
    if sample != pattern:
        return text_files.matching_files(str(SAMPLES / sample))
    return text_files.matching_files(pattern) or arrow_rows.saved_files(pattern)


def expand_globs(patterns: Sequence[str]) -> list[str]:
    """Return the files of globs and folders; 'sample:NAME' is a file of bert_jax/labels/samples/.

    Raises:
        UserError: a pattern that matches no file.
    """
    paths: list[str] = []
    for pattern in patterns:
        matches = matching_files(pattern)
        if not matches:
            raise UserError(wrong_paths.explain_glob(pattern, text_files.matching_files))
        paths += matches
    return paths


def format_of(path: str, data: ConfigDict, readable: Sequence[str], kind: str) -> str:
    """Return the format of a file, from its suffix unless `data.format` is set.

    WebAnno's files are told from other .tsv files by their first line.

    Args:
        path: the file.
        data: the config's `data`.
        readable: formats that can hold the problem; the first is used for other suffixes.
        kind: the kind of problem, for messages.

    Raises:
        UserError: `data.format` cannot hold the problem.
    """
    if not data.format:
        suffix = os.path.splitext(text_files.uncompressed_name(path))[1].lower()
        if (
            'webanno' in readable
            and suffix in _TAB_SUFFIXES
            and webanno.is_webanno(path, data.encoding)
        ):
            return 'webanno'
        names = (name for name in FORMATS if suffix in FORMATS[name].suffixes and name in readable)
        return next(names, readable[0])
    if data.format not in readable:
        raise UserError(
            f'data.format {data.format!r} cannot hold {kind} examples; set it to one of '
            f'{", ".join(readable)}'
        )
    return str(data.format)
