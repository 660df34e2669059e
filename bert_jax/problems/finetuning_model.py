"""The model of a fine-tuning problem, and its predictions on packed batches of examples."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import averages
from bert_jax.examples.finetune_batches import (
    BatchShape,
    Item,
    Items,
    evaluation_batches,
    evaluation_slots,
    unpack_outputs,
)
from bert_jax.labels.examples import Example
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.problems.base import AnyProblem, ExampleOutputs, HostOutputs, Outputs
from bert_jax.types import Batch, Params, Tree

# Examples and their items → the host outputs of every example.
ItemRunner = Callable[[Sequence[Example], Sequence[list[Item]]], list[ExampleOutputs]]
PredictionStep = Callable[[Params, Batch], tuple[averages.Terms, HostOutputs]]


@dataclasses.dataclass(frozen=True)
class FineTuningModel:
    """A problem and a model with the heads of the problem."""

    problem: AnyProblem
    model: Model

    def rows(self, batch: Batch, dropout_seeds_R: jax.Array | None = None) -> Rows:
        """Return the rows of a batch that the model reads."""
        return self.problem.loss.corrupt(Rows.of(batch), dropout_seeds_R)

    def outputs(
        self, params: Params, batch: Batch, dropout_seeds_R: jax.Array | None = None
    ) -> Outputs:
        """Return the problem's outputs for a batch of packed rows.

        Args:
            params: parameters of the model.
            batch: a batch of examples/finetune_batches.py.
            dropout_seeds_R: uint32, one for each row; None for evaluation.
        """
        rows = self.rows(batch, dropout_seeds_R)
        output: Tree = self.model.apply({'params': params}, rows, dropout_seeds_R)
        return self.problem.loss.outputs(output.heads, rows)


class EncodedExamples(NamedTuple):
    """Examples and their items: example i has the items first[i] … first[i + 1] − 1."""

    problem: AnyProblem
    examples: Sequence[Example]
    items: Items
    first: np.ndarray

    @classmethod
    def of(cls, problem: AnyProblem, examples: Sequence[Example]) -> 'EncodedExamples':
        """Encode examples with a problem."""
        return cls.of_items(problem, examples, list(map(problem.encoding.encode, examples)))

    @classmethod
    def of_items(
        cls, problem: AnyProblem, examples: Sequence[Example], items: Sequence[list[Item]]
    ) -> 'EncodedExamples':
        """Collect the items of examples."""
        first = np.cumsum([0, *map(len, items)])
        flat = list(itertools.chain.from_iterable(items))
        return cls(problem, examples, Items(flat, problem.encoding.tokenizer.pad_id), first)

    def by_example(self, by_item: Sequence[Tree]) -> list[ExampleOutputs]:
        """Group one value for each item by example."""
        bounds = zip(self.first[:-1], self.first[1:], strict=True)
        return [by_item[begin:end] for begin, end in bounds]


def prediction_step(model: FineTuningModel, with_terms: bool) -> PredictionStep:
    """Return a step for `jax.jit`; `with_terms` needs the labels of the batch."""
    with_terms = with_terms and not model.problem.loss.reads_whole_batch

    def step(params: Params, batch: Batch) -> tuple[averages.Terms, HostOutputs]:
        outputs = model.outputs(params, batch)
        terms = model.problem.loss.terms(outputs, batch) if with_terms else {}
        return terms, model.problem.loss.host_outputs(outputs, batch)

    return step


class Predicted(NamedTuple):
    """The host outputs of examples.

    Attributes:
        parts: of each example.
        references: of the problem's reference examples.
        terms: loss terms, summed over all examples.
    """

    parts: list[ExampleOutputs]
    references: list[ExampleOutputs]
    terms: averages.Terms


def predict(
    step: PredictionStep,
    params: Params,
    encoded: EncodedExamples,
    shape: BatchShape,
    advance: Callable[[int], object] = lambda number: None,
) -> Predicted:
    """Run a prediction step over all items, then over the further items of the problem.

    Args:
        step: compiled `prediction_step`.
        shape: shape of a batch; its number of slots is raised to fit the items.
        advance: called with the number of items of each finished batch.
    """
    problem = encoded.problem

    def run(examples: Sequence[Example], items: Sequence[list[Item]]) -> list[ExampleOutputs]:
        encoded_items = EncodedExamples.of_items(problem, examples, items)
        return _predict_packed(step, params, encoded_items, shape, advance)[0]

    references = run_examples(problem, problem.encoding.references(), run)
    outputs, terms = _predict_packed(step, params, encoded, shape, advance)
    return Predicted(_complete(problem, encoded.examples, outputs, run), references, terms)


def run_examples(
    problem: AnyProblem, examples: Sequence[Example], run: ItemRunner
) -> list[ExampleOutputs]:
    """Run the items of examples, then the further items of the problem."""
    if not examples:
        return []
    outputs = run(examples, list(map(problem.encoding.encode, examples)))
    return _complete(problem, examples, outputs, run)


def _complete(
    problem: AnyProblem,
    examples: Sequence[Example],
    outputs: list[ExampleOutputs],
    run: ItemRunner,
) -> list[ExampleOutputs]:
    """Run the further items of the problem and append their outputs, until none are left."""
    while any(items := list(map(problem.encoding.further_items, examples, outputs))):
        new_outputs = run(examples, items)
        outputs = [[*old, *new] for old, new in zip(outputs, new_outputs, strict=True)]
    return outputs


def _predict_packed(
    step: PredictionStep,
    params: Params,
    encoded: EncodedExamples,
    shape: BatchShape,
    advance: Callable[[int], object],
) -> tuple[list[ExampleOutputs], averages.Terms]:
    """Run a prediction step over items in packed rows."""
    problem, shape = encoded.problem, shape._replace(slots=evaluation_slots(encoded.items, shape))
    by_item: list[Tree] = [None] * len(encoded.items)
    total: averages.Terms = {}
    for batch, places in evaluation_batches(encoded.items, shape):
        terms, host_outputs = jax.device_get(step(params, batch))
        total = averages.add(total, terms)
        for placed in places:
            unpacked = unpack_outputs(
                batch, host_outputs.per_sequence, host_outputs.per_token, placed
            )
            by_item[placed.item] = list(map(problem.loss.compact, unpacked))
        advance(len(places))
    return encoded.by_example(by_item), total
