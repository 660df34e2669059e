"""The interface of a task: flags, the fields of a row, and a function from rows to records."""

import abc
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar

from bert_jax.answers import input_rows
from bert_jax.answers.input_rows import TEXT, Fields, InputRow
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import outputs
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor  # imports JAX

Item = TypeVar('Item')

_CHUNK = 4096  # rows that are batched together, sorted by length
_LOADING = ('dtype', 'max_length', 'overlap', 'batch_tokens')  # flags that `bert_jax.load` takes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question(abc.ABC):
    """Base class of a task: its flags are the fields of the dataclass.

    A subclass that has no use for one of these flags declares the field again without `flag`.

    Attributes:
        summary: what the task does, in one line without a full stop.
        reads: what a line of the input is, for --help.
        writes: what a record is, for --help.
        fields: the fields of a row.
        method: the task of the model (`Predictor.require`) if its name is another one.
        rows_at_once: how many rows `answer` gets; None: an iterator of all.
        shows_progress: whether a bar counts the windows.
    """

    summary: ClassVar[str]
    reads: ClassVar[str] = 'a text a line'
    writes: ClassVar[str]
    fields: ClassVar[Fields] = TEXT
    method: ClassVar[str] = ''
    rows_at_once: ClassVar[int | None] = _CHUNK
    shows_progress: ClassVar[bool] = True

    task: str = flag('this task')
    model: str = flag(MODEL_HELP, '')
    tuned: str = flag(
        'instead of --model: comma-separated runs of parameter-efficient tuning, which all answer; '
        'each record names its run; runs with the same base share its parameters in memory',
        '',
    )
    input: str = flag('file with one text or example a line or row; - for stdin')
    output: str = flag('file to write; - for stdout')
    overwrite: bool = flag(outputs.HELP, False)
    input_format: str = flag(
        'text or jsonl: what every line is; auto: tables by the name of the file',
        'auto',
        choices=('auto', 'text', 'jsonl'),
    )
    encoding: str = flag('encoding of the input', 'utf-8')
    batch_tokens: int = flag('padded tokens of a batch', 1024, '[1, inf)')
    dtype: str = flag('float32 or bfloat16', 'float32')

    def check(self) -> None:
        """Raise UserError for flags that do not fit each other, before anything is loaded."""
        if bool(self.tuned) == bool(self.model):
            raise UserError('give either --tuned or --model; --help describes them')
        if self.output != '-':
            outputs.check_file(self.output, self.overwrite)

    @property
    def models(self) -> list[str]:
        """The models that answer."""
        return self.tuned.split(',') if self.tuned else [self.model]

    def loading(self) -> JsonObject:
        """Return the arguments of `bert_jax.load` that are flags of this task."""
        return {name: getattr(self, name) for name in _LOADING if hasattr(self, name)}

    def prepare(self, model: 'Predictor') -> 'Predictor':
        """Return a model with the settings that the flags of this task change."""
        return model

    def read(self, model: 'Predictor') -> Iterator[InputRow]:
        """Yield the rows of the input.

        Raises:
            UserError: the input cannot be read, or a row lacks a field.
        """
        return self._read(model, self.fields)

    def _read(self, model: 'Predictor', fields: Fields) -> Iterator[InputRow]:
        data = model.data_config({'encoding': self.encoding})
        return input_rows.read(self.input, self.input_format, fields, data, self.task)

    @abc.abstractmethod
    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterable[Any]:
        """Yield the records for some rows, dictionaries that become lines of JSON.

        Raises:
            UserError: the model cannot answer a row.
        """

    def run(self, model: 'Predictor', rows: Iterator[InputRow]) -> Iterator[Any]:
        """Yield the records for all rows; see `answer`."""
        size = self.rows_at_once
        for part in chunks(rows, size) if size else [rows]:
            yield from self.answer(model, part)

    def results(self, models: Mapping[str, 'Predictor']) -> Iterator[Any]:
        """Yield the records of one model; with --tuned those of each, with its name, row by row."""
        first = next(iter(models.values()))
        if not self.tuned:
            yield from self.run(first, self.read(first))
            return
        read = list(self.read(first))
        by_model = [self.run(model, iter(read)) for model in models.values()]
        for records in zip(*by_model, strict=True):
            for name, record in zip(models, records, strict=True):
                yield {'model': name, **record}

    def to_text(self, record: Any) -> str:
        """Return what a record is in the output, with its line ends."""
        return json.dumps(record, ensure_ascii=False, default=str) + '\n'

    def write(self, file: BinaryIO, results: Iterable[Any]) -> None:
        """Write the output."""
        for record in results:
            file.write(self.to_text(record).encode())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows(Question):
    """A task whose long texts are split into windows."""

    max_length: int | None = flag(
        'tokens in a window of a long text (default and limit: the length of the model)', None
    )
    overlap: float = flag('share of a window that the next window repeats', 0.25)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorFlags:
    """How the vector of a text is made; see `Predictor.embed`."""

    long_texts: str | None = flag(
        'windows (default), or truncate (default for a sentence-transformers folder)',
        None,
        choices=('windows', 'truncate'),
    )
    dimensions: int | None = flag(
        'use only as many numbers of each vector, normalized again (Matryoshka embeddings)',
        None,
        '[1, inf)',
    )


def chunks(items: Iterable[Item], size: int = _CHUNK) -> Iterator[list[Item]]:
    """Yield lists of `size` items; the last may be shorter."""
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk
