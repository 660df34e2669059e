"""The interface of an analysis: flags, and a function from a model to results."""

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from flax import traverse_util
from numpy.typing import DTypeLike

from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference import vectors
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.streams import stream_words
from bert_jax.inference.word_states import Located
from bert_jax.interop import MODEL_HELP
from bert_jax.labels.formats import expand_globs
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Usage
from bert_jax.metrics.scores import Table
from bert_jax.models import head_states, initial_values
from bert_jax.models.architecture import Compute
from bert_jax.text import scripts, text_files
from bert_jax.types import JsonRecord, Key, RecordView, Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class AnalyzedModel:
    """The analyzed model.

    Attributes:
        name: its path, for reports and errors.
        pretrained: its parameters, tokenizer and architecture.
        options: arguments of `Predictor`, such as `dtype`, `batch_tokens` and `max_length`.
        stage: sets the label of the progress bar, such as 'dev'.
    """

    name: str
    pretrained: LoadedModel
    options: JsonRecord = dataclasses.field(default_factory=dict)
    stage: Callable[[str], object] = lambda text: None

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The predictor of the model."""
        return Predictor(self.pretrained, name=self.name, **self.options)

    @property
    def num_layers(self) -> int:
        """Number of layers; layer 0 of the states is the embeddings."""
        return self.pretrained.architecture.num_layers

    def untrained(self, seed: int, heads: Sequence[str] = ()) -> 'AnalyzedModel':
        """Return an encoder of the same architecture with newly initialized parameters.

        If a head of the model reads an LSTM, it has a newly initialized LSTM too.

        Args:
            seed: seed of the parameters.
            heads: heads to initialize too, if the model has them.
        """
        architecture = self.pretrained.architecture
        has_lstm = bool(vectors.lstm_layers(self.predictor))
        heads = [name for name in heads if name in self.pretrained.heads]

        def start(key: Key) -> Tree:
            params = loaded_model.init(architecture, heads, key)
            if has_lstm:
                lstm = head_states.HeadStates(architecture, Compute())
                params['lstm'] = {'states': lstm.initial(key)}
            return params

        params = traverse_util.unflatten_dict(initial_values.draw(start, seed), sep='/')
        untrained = dataclasses.replace(
            self.pretrained, params=params, other_parts={}, usage=Usage()
        )
        return dataclasses.replace(self, name=f'{self.name}, untrained', pretrained=untrained)

    def word_states(
        self, texts: Sequence[Located], layers: tuple[int | str, ...], dtype: DTypeLike
    ) -> np.ndarray:
        """The states of the words of texts in K layers, [N, K, D]; see `stream_words`."""
        num_words = sum(len(spans) for _, spans in texts)
        states_NKD = np.empty(
            (num_words, len(layers), vectors.width(self.predictor, layers)), dtype
        )
        start = 0
        for states_WKD in stream_words(self.predictor, texts, layer=layers):
            states_NKD[start : start + len(states_WKD)] = states_WKD
            start += len(states_WKD)
        return states_NKD


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of an analysis.

    Attributes:
        values: numbers for results.json; may contain NumPy arrays.
        tables: title → table; the first table also goes into the model card.
        figures: file name without a suffix → figure.
        notes: facts about this run, such as skipped words; one sentence each.
    """

    values: RecordView
    tables: Mapping[str, Table]
    figures: 'Mapping[str, Figure]' = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis(abc.ABC):
    """Base class of an analysis: its flags, and a function from a model to results.

    Attributes:
        description: what the analysis measures, in one line without a full stop.
        limits: what the results do not show; sentences for the report and the model card.
    """

    description: ClassVar[str]
    limits: ClassVar[Sequence[str]]

    model: str = flag(MODEL_HELP)
    input: tuple[str, ...]  # see `inputs`
    output: str = flag('folder for the results; must not exist yet')
    overwrite: bool = flag('replace the results of an earlier analysis', False)
    card: bool = flag(
        'also add the first table to the model card, README.md in the folder of the model', False
    )
    max_length: int | None = flag(
        "tokens per window of a long text (default: the model's maximum)", None, '[1, inf)'
    )
    batch_tokens: int = flag('padded tokens per batch', 2048, '[1, inf)')
    dtype: str = flag('float32 or bfloat16', 'float32')

    def check(self) -> None:  # noqa: B027  (optional)
        """Raise UserError for flags that do not fit each other."""

    @abc.abstractmethod
    def run(self, model: AnalyzedModel) -> Results:
        """Analyze a model.

        Raises:
            UserError: a flag or an input is invalid.
        """


def inputs(meaning: str, default: Any = dataclasses.MISSING) -> Any:
    """Declare the flag --input."""
    return flag(f'{meaning}; file or glob, may be repeated', default, form='repeated')


def read_lines(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the location ('FILE, line N') and the text of each line that is not blank.

    Args:
        patterns: files or globs; plain or compressed, in UTF-8.

    Raises:
        UserError: no file matches, a file cannot be read, or all lines are blank.
    """
    is_empty = True
    for path in expand_globs(patterns):
        for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
            place = f'{path}, line {number}'
            if scripts.has_surrogates(line):
                raise UserError(f'{place}: not valid UTF-8')
            if line.strip():
                is_empty = False
                yield place, line
    if is_empty:
        raise UserError(f'{", ".join(patterns)} has no text')


def read_texts(patterns: Sequence[str], limit: int | None = None) -> list[str]:
    """The first `limit` (default: all) lines that are not blank; see `read_lines`."""
    return [line for _, line in itertools.islice(read_lines(patterns), limit)]
