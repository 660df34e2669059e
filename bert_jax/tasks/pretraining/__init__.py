"""Pretraining as a task of the training loop, and its evaluators.

An evaluator measures the weights in addition to the terms of the objectives. To add one, write a
subclass of `Evaluator`, and add a line to EVALUATORS.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import jax

from bert_jax import lazy_table
from bert_jax.corpus.corpus import Corpus
from bert_jax.models.model import Model
from bert_jax.types import Batch, Config, Params

TEXT_ROWS = 64  # maximum number of held-out rows in `EvaluatorInputs.text`


class EvaluatorInputs(NamedTuple):
    """What an evaluator is built from.

    Attributes:
        settings: its section of `config.evaluation`.
        model: the model.
        corpus: has the tokenizer and the frequencies of tokens.
        text: clean held-out rows, the same whatever the size of a batch.
        rows: number of rows like these in a batch; all batches should have about as many tokens.
        threads: number of threads that read batches.
        is_special: maps an array of token ids to whether each is a special token.
        flops: floating-point operations of the whole training.
        num_evaluations: number of evaluations of the run.
    """

    settings: Config
    model: Model
    corpus: Corpus
    text: Batch
    rows: int
    threads: int
    is_special: Callable[[jax.Array], jax.Array]
    flops: float
    num_evaluations: int


class Section(NamedTuple):
    """The section of an evaluator in the model card.

    Attributes:
        text: Markdown.
        metrics: held-out metrics that the section shows; other tables leave them out.
    """

    text: str
    metrics: frozenset[str]


class Evaluator(Protocol):
    """Measures parameters; a pure function of them, so that a resumed run repeats it exactly."""

    @classmethod
    def check(cls, settings: Config, model: Model) -> None:
        """Raise UserError for whatever can be wrong before the corpus is known."""

    @classmethod
    def build(cls, inputs: EvaluatorInputs) -> 'Evaluator':
        """Read the data. Raises UserError if the data or the model cannot be used."""

    @property
    def lines(self) -> Sequence[str]:
        """Lines for the start of the log: what is measured and what it costs."""

    def __call__(self, params: Params) -> dict[str, float]:
        """Return the metrics of parameters."""

    def report(self, held_out: Mapping[str, float], workdir: pathlib.Path) -> Section:
        """Write files of a finished run; return the section of its model card.

        Args:
            held_out: metrics of the kept parameters.
            workdir: folder of the run, with metrics.jsonl.
        """


# Such as the method `build` of an `Evaluator`; `settings` is empty if no section enables it.
BuildEvaluator: TypeAlias = Callable[[EvaluatorInputs], Evaluator]


class EvaluatorKind(NamedTuple):
    """An entry of EVALUATORS.

    Attributes:
        implementation: 'module:Class' of the `Evaluator`, imported if the evaluator is enabled.
        enabled_by: keys of its section of the config; any that is set enables the evaluator.
    """

    implementation: str
    enabled_by: tuple[str, ...]

    def load(self) -> type[Evaluator]:
        """Import the implementation."""
        implementation: type[Evaluator] = lazy_table.load(self.implementation)
        return implementation


# Section of `config.evaluation` → its evaluator.
EVALUATORS = {
    'linguistic': EvaluatorKind(
        'bert_jax.analyze.linguistic:LinguisticEvaluation', ('pairs', 'treebank', 'isotropy')
    ),
}


def enabled_evaluators(evaluation: Config) -> dict[str, type[Evaluator]]:
    """Return the evaluators that `config.evaluation` enables, by the name of their section."""
    return {
        name: kind.load()
        for name, kind in EVALUATORS.items()
        if any(evaluation[name][key] for key in kind.enabled_by)
    }
