"""What an analysis is: its options, and a function from a model to results."""

import abc
import argparse
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from bert_jax.data import text_files
from bert_jax.data.labeled.formats import expand_globs
from bert_jax.errors import UserError
from bert_jax.evaluation.scores import Table
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import pretrained
from bert_jax.interop.pretrained import Pretrained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Model:
    """The model that an analysis is about.

    Attributes:
        name: its path, for reports and errors.
        pretrained: its parameters, tokenizer and architecture.
        options: arguments of `Predictor`, such as `dtype`, `batch_tokens` and `max_length`.
        stage: shows what is being done, such as 'dev: ', before the number of windows.
    """

    name: str
    pretrained: Pretrained
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stage: Callable[[str], object] = lambda text: None

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The model ready for inference."""
        return Predictor(self.pretrained, name=self.name, **self.options)

    @property
    def num_layers(self) -> int:
        """Number of layers; layer 0 of the states is the embeddings."""
        return self.pretrained.architecture.num_layers

    def untrained(self, seed: int, heads: Sequence[str] = ()) -> 'Model':
        """The encoder of the same architecture with newly initialized parameters.

        Args:
            seed: of the parameters.
            heads: heads to initialize as well if the model has them.
        """
        architecture = self.pretrained.architecture
        own_heads = [name for name in heads if name in self.pretrained.heads]

        @jax.jit
        def initialize() -> dict[str, Any]:
            return nn.unbox(pretrained.init(architecture, own_heads, jax.random.key(seed)))

        params = jax.device_get(initialize())
        own = dataclasses.replace(self.pretrained, params=params, other_parts={}, metadata={})
        return dataclasses.replace(self, name=f'{self.name}, untrained', pretrained=own)


@dataclasses.dataclass(frozen=True)
class Results:
    """What an analysis found.

    Attributes:
        values: the numbers, as JSON with NumPy arrays.
        tables: title → table; the first one also goes into the model card.
        figures: name of the file, without a suffix → figure.
        notes: what the reader must know of this run, such as skipped words; a sentence each.
    """

    values: Mapping[str, Any]
    tables: Mapping[str, Table]
    figures: 'Mapping[str, Figure]' = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()


class Analysis(abc.ABC):
    """An analysis; subclasses have no state.

    Attributes:
        description: what it measures, in one line.
        input_help: what --input names.
        limits: what its results do not show; sentences of the report and of the model card.
    """

    description: str
    input_help: str
    limits: Sequence[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027  (optional)
        """Add the options of this analysis."""

    @abc.abstractmethod
    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """Analyze a model.

        Args:
            flags: the parsed command line; `input` is a list of files or globs.
            model: the model.

        Raises:
            UserError: an option or an input cannot be used.
        """


def read_lines(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the place (file and line number) and the content of each line that is not blank.

    Args:
        patterns: files or globs; plain or compressed, in UTF-8.

    Raises:
        UserError: no file matches, a file cannot be read, or all lines are blank.
    """
    is_empty = True
    for path in expand_globs(patterns):
        for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
            place = f'{path}, line {number}'
            if text_files.has_surrogates(line):
                raise UserError(f'{place}: not valid UTF-8')
            if line.strip():
                is_empty = False
                yield place, line
    if is_empty:
        raise UserError(f'{", ".join(patterns)} has no text')


def read_texts(patterns: Sequence[str], limit: int | None = None) -> list[str]:
    """The lines that are not blank, at most `limit`; see `read_lines`."""
    return [line for _, line in itertools.islice(read_lines(patterns), limit)]
