"""Writes the answers to all rows, a part at a time; the same command resumes after a kill."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from bert_jax import errors
from bert_jax.answers.base import Models, Question, chunks
from bert_jax.answers.input_rows import InputRow, shown
from bert_jax.answers.output_files import OutputFile
from bert_jax.errors import UserError
from bert_jax.storage import partial_files, paths
from bert_jax.storage.partial_files import PartialFiles
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    import tqdm


def write(question: Question, models: Models, bar: 'tqdm.tqdm') -> None:
    """Write the answers of a task to its --output.

    A file gets its name once it is complete; until then, what is there is in OUTPUT.partial.

    Args:
        question: the task.
        models: the models that answer, by name.
        bar: the progress bar, which counts windows.

    Raises:
        UserError: a row cannot be read or answered, the output cannot be written, or what an
            interrupted command has left depends on something else.
    """
    if question.output == '-':
        _to_stream(question, models, sys.stdout.buffer)
        return
    with errors.writing(f'--output={question.output}'):
        if paths.is_stream(question.output):
            with open(question.output, 'wb') as file:
                _to_stream(question, models, file)
            return
        with partial_files.resumed(paths.path(question.output)) as files:
            _to_file(question, models, files, bar)


def _to_stream(question: Question, models: Models, file: BinaryIO) -> None:
    for rows in _parts(question, models):
        for record in question.records(models, rows):
            file.write(question.to_text(record).encode())
        file.flush()


def _to_file(question: Question, models: Models, files: PartialFiles, bar: 'tqdm.tqdm') -> None:
    output, parts, seen = question.output_file(), _parts(question, models), _SeenRows()
    if files.progress:
        change = _skip(question, models, files, parts, seen)
        if not change:
            _restore(models, output, files.progress, bar)
        elif question.overwrite and question.input != '-':
            files.clear()
            parts, seen = _parts(question, models), _SeenRows()
        else:
            raise UserError(
                f'{files.folder} holds the answers of an interrupted command, but {change}; undo '
                f'this to resume, or {_how_to_start_again(question)}'
            )
    for rows in parts:
        output.add(files, question.records(models, rows))
        seen.add(rows)
        if seen.number % (question.rows_at_once or 1) == 0:
            counts = {name: dict(model.counts) for name, model in models.items()}
            progress = {'rows': seen.number, 'digest': seen.digest, 'counts': counts}
            progress |= {'windows': bar.n, 'output': output.state}
            files.save(lambda: question.origin(models), progress)
    files.publish(output.finish(files))


def _how_to_start_again(question: Question) -> str:
    return 'remove it to start again' if question.overwrite else 'add --overwrite to start again'


def _parts(question: Question, models: Models) -> Iterator[Iterable[InputRow]]:
    """Yield the rows that are answered together; their order and sizes never change."""
    rows = question.read(next(iter(models.values())))
    numbered = (row._replace(number=number) for number, row in enumerate(rows))
    size = question.rows_at_once
    for number, part in enumerate(chunks(numbered, size) if size else [numbered]):
        if not number:  # a bad row among them ends the command before long work
            for model in models.values():
                question.start(model)
        yield part


class _SeenRows:
    """How many rows were read, and the SHA-256 of their values."""

    def __init__(self) -> None:
        self.number, self._hasher = 0, hashlib.sha256()

    def add(self, rows: Iterable[InputRow]) -> None:
        for row in rows:
            content = json.dumps([row.values, row.source], default=str)
            self._hasher.update(f'{content}\n'.encode())
            self.number += 1

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()


def _skip(
    question: Question,
    models: Models,
    files: PartialFiles,
    parts: Iterator[Iterable[InputRow]],
    seen: _SeenRows,
) -> str:
    """Skip the rows whose answers are saved; return what has changed, '' if nothing has."""
    seen.add(next(parts, ()))
    saved, origin = files.origin, question.origin(models)
    for name in saved | origin:
        if (before := saved.get(name)) != (now := origin.get(name)):
            return f'{name} was {before!r:.40} and is {now!r:.40}'
    while seen.number < files.progress['rows'] and (rows := next(parts, ())):
        seen.add(rows)
    if (seen.number, seen.digest) != (files.progress['rows'], files.progress['digest']):
        return f'the first {files.progress["rows"]:,} rows of {shown(question.input)} have changed'
    return ''


def _restore(models: Models, output: OutputFile, progress: JsonObject, bar: 'tqdm.tqdm') -> None:
    """Bring what is counted to the state after the saved rows."""
    for name, model in models.items():
        model.counts.clear()
        model.counts.update(progress['counts'][name])
    output.state = progress['output']
    bar.n = bar.initial = progress['windows']
    errors.report(f'resumed after {progress["rows"]:,} rows')
