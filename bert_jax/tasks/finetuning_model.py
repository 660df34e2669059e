"""The model of a fine-tuning problem, and its predictions for examples in packed batches."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import numpy as np

from bert_jax import averages
from bert_jax.data.finetune_batches import (
    BatchShape,
    Items,
    evaluation_batches,
    evaluation_slots,
    unpack_outputs,
)
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.packed_rows import encoder_arguments
from bert_jax.tasks.problems.base import ExampleOutputs, HostOutputs, Outputs, Problem
from bert_jax.types import Batch, Params

PredictionStep = Callable[[Params, Batch], tuple[averages.Terms, HostOutputs]]


class FineTuningModel(nn.Module):
    """An encoder and the heads of a problem: params['encoder'] and params[NAME]['head']."""

    architecture: Architecture
    compute: Compute
    problem: Problem[Any, Any]

    @nn.compact
    def __call__(self, batch: Batch, dropout_seeds_R: jax.Array | None = None) -> Outputs:
        """Return the problem's outputs for a batch of packed rows.

        Args:
          batch: as made by data/finetune_batches.py.
          dropout_seeds_R: uint32, one for each row; None for evaluation.
        """
        ids = (batch['input_ids'], batch['attention_mask'], batch['token_type_ids'])
        encoder = build_encoder(self.architecture, self.compute, name='encoder')
        encoded = encoder(*ids, dropout_seeds_R, **encoder_arguments(batch))
        constructors = self.problem.make_heads(self.architecture, self.compute)
        heads = {name: _NamedHead(make, name=name) for name, make in constructors.items()}
        return self.problem.apply_heads(heads, encoded, batch, dropout_seeds_R)


def apply_model(
    model: FineTuningModel, params: Params, batch: Batch, dropout_seeds_R: jax.Array | None = None
) -> Outputs:
    """Return the outputs of a model with given parameters."""
    return cast(Outputs, model.apply({'params': params}, batch, dropout_seeds_R))


class _NamedHead(nn.Module):
    """A head with parameters params[name]['head'], the same place as in pretraining."""

    make: Callable[..., nn.Module]

    @nn.compact
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.make(name='head')(*arguments, **options)


class EncodedExamples(NamedTuple):
    """Examples and their items: example i has the items first[i] … first[i + 1] − 1."""

    examples: Sequence[Any]
    items: Items
    first: np.ndarray

    @classmethod
    def of(cls, problem: Problem[Any, Any], examples: Sequence[Any]) -> 'EncodedExamples':
        """Encode examples with a problem."""
        items = [problem.encode(example) for example in examples]
        first = np.cumsum([0, *map(len, items)])
        flat = [item for own in items for item in own]
        return cls(examples, Items(flat, problem.tokenizer.pad_id), first)

    def by_example(self, by_item: Sequence[Any]) -> list[ExampleOutputs]:
        """Group one value for each item by example."""
        bounds = zip(self.first[:-1], self.first[1:], strict=True)
        return [by_item[begin:end] for begin, end in bounds]


def prediction_step(model: FineTuningModel, with_terms: bool) -> PredictionStep:
    """Return a step for `jax.jit`; `with_terms` needs the labels of the batch."""

    def step(params: Params, batch: Batch) -> tuple[averages.Terms, HostOutputs]:
        outputs = apply_model(model, params, batch)
        terms = model.problem.terms(outputs, batch) if with_terms else {}
        return terms, model.problem.host_outputs(outputs, batch)

    return step


def predict(
    step: PredictionStep,
    params: Params,
    encoded: EncodedExamples,
    shape: BatchShape,
    advance: Callable[[int], object] = lambda number: None,
) -> tuple[list[ExampleOutputs], averages.Terms]:
    """Run a prediction step over all items.

    Args:
      step: compiled `prediction_step`.
      shape: of a batch; the number of slots is raised to what the items need.
      advance: called with the number of items of each batch that is done.
    Returns:
      The host outputs of every example, and the terms summed over all of them.
    """
    shape = shape._replace(slots=evaluation_slots(encoded.items, shape))
    by_item: list[Any] = [None] * len(encoded.items)
    total: averages.Terms = {}
    for batch, places in evaluation_batches(encoded.items, shape):
        terms, host_outputs = jax.device_get(step(params, batch))
        total = averages.add(total, terms)
        for placed in places:
            by_item[placed.item] = unpack_outputs(
                batch, host_outputs.per_sequence, host_outputs.per_token, placed
            )
        advance(len(places))
    return encoded.by_example(by_item), total


def decode_all(
    problem: Problem[Any, Any], examples: Sequence[Any], outputs: Iterable[ExampleOutputs]
) -> Sequence[Any]:
    """Return the prediction for each example, from its host outputs."""
    predictions = [
        problem.decode(example, parts) for example, parts in zip(examples, outputs, strict=True)
    ]
    return problem.postprocess(examples, predictions)
