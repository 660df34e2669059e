"""The interface of a task: flags, the fields of a row, and a function from rows to records."""

import abc
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from bert_jax.answers import input_rows
from bert_jax.answers.input_rows import TEXT, Fields, InputRow
from bert_jax.answers.output_files import OutputFile, TextFile
from bert_jax.errors import InvalidText, UserError
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import outputs
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor  # imports JAX

Models: TypeAlias = 'Mapping[str, Predictor]'  # by name
Item = TypeVar('Item')

FAST, SLOW = 4096, 512  # rows at once, for one and for many forward passes a row
_NO_ORIGIN = ('input', 'output', 'overwrite')  # flags that no record depends on
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
        rows_at_once: how many rows `answer` gets, which it sorts by length into batches; a killed
            command loses the answers to as many. None: an iterator of all, for a conversation.
        shows_progress: whether a bar counts the windows.
    """

    summary: ClassVar[str]
    reads: ClassVar[str] = 'a text a line'
    writes: ClassVar[str]
    fields: ClassVar[Fields] = TEXT
    method: ClassVar[str] = ''
    rows_at_once: ClassVar[int | None] = FAST
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

    def start(self, model: 'Predictor') -> None:  # noqa: B027  (most tasks have nothing to do)
        """Do what comes once, after the first rows were read and before they are answered."""

    @abc.abstractmethod
    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterable[Any]:
        """Yield the records for some rows, dictionaries that become lines of JSON.

        Args:
            model: the model.
            rows: `rows_at_once` of them, or the last.

        Raises:
            UserError: the model cannot answer a row.
        """

    def records(self, models: Models, rows: Iterable[InputRow]) -> Iterator[Any]:
        """Yield the records of one model; with --tuned those of each, with its name, row by row."""
        by_model = [self._answer(model, rows) for model in models.values()]
        if not self.tuned:
            yield from by_model[0]
            return
        for records in zip(*by_model, strict=True):
            for name, record in zip(models, records, strict=True):
                yield {'model': name, **record}

    def _answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[Any]:
        try:
            yield from self.answer(model, rows)
        except InvalidText as error:
            row = next(itertools.islice(rows, error.number - 1, None))
            raise UserError(f'{row.place} {error.problem}') from None

    def origin(self, models: Models) -> JsonObject:
        """Return all that records depend on except the rows, JSON values by name."""
        flags = {
            f'--{field.name}': getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _NO_ORIGIN
        }
        digests = {f'the model {name}': model.fingerprint for name, model in models.items()}
        origin = flags | digests | {'the number of rows at a time': self.rows_at_once}
        copied: JsonObject = json.loads(json.dumps(origin))
        return copied

    def to_text(self, record: Any) -> str:
        """Return what a record is in the output, with its line ends."""
        return json.dumps(record, ensure_ascii=False, default=str) + '\n'

    def output_file(self) -> OutputFile:
        """Return the kind of file that is written."""
        return TextFile(self.to_text)


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


def chunks(items: Iterable[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield lists of `size` items; the last may be shorter."""
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk
