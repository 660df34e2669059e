"""The model of a fine-tuning problem, and its predictions for examples in packed batches."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import numpy as np

from bert_jax import averages
from bert_jax.data.finetune_batches import Items, Shape, evaluation_batches, unpacked
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoder import Encoder
from bert_jax.objectives.packed import encoder_arguments
from bert_jax.tasks.problems.base import Parts, Problem


class FineTuningModel(nn.Module):
    """An encoder and the heads of a problem: parameters `encoder`, and a part for each head."""

    architecture: Architecture
    compute: Compute
    problem: Problem

    @nn.compact
    def __call__(self, batch, dropout_seeds_R=None) -> dict[str, jax.Array]:
        """The problem's outputs for a batch of packed rows."""
        ids = (batch['input_ids'], batch['attention_mask'], batch['token_type_ids'])
        encoder = Encoder(self.architecture, self.compute, name='encoder')
        encoded = encoder(*ids, dropout_seeds_R, **encoder_arguments(batch))
        makers = self.problem.heads(self.architecture, self.compute)
        heads = {name: _Part(make, name=name) for name, make in makers.items()}
        return self.problem.outputs(heads, encoded, batch, dropout_seeds_R)


class _Part(nn.Module):
    """A head under a name of its own, as in pretraining: params[part]['head']."""

    make: nn.Module

    @nn.compact
    def __call__(self, *arguments, **options):
        return self.make(name='head')(*arguments, **options)


class Encoded(NamedTuple):
    """The items of examples; example i has the items first[i] … first[i + 1] − 1."""

    examples: Sequence
    items: Items
    first: np.ndarray

    @classmethod
    def of(cls, problem: Problem, examples: Sequence) -> 'Encoded':
        items = [problem.items(example) for example in examples]
        first = np.cumsum([0, *map(len, items)])
        flat = [item for own in items for item in own]
        return cls(examples, Items(flat, problem.tokenizer.pad_id), first)

    def by_example(self, parts: list) -> list[Parts]:
        bounds = zip(self.first[:-1], self.first[1:], strict=True)
        return [parts[begin:end] for begin, end in bounds]


def answering_step(model: FineTuningModel, with_terms: bool):
    """`step(params, batch) → (Terms, Answers)` for `jax.jit`; with_terms: of labeled examples."""

    def step(params, batch):
        outputs = model.apply({'params': params}, batch)
        terms = model.problem.terms(outputs, batch) if with_terms else {}
        return terms, model.problem.answers(outputs, batch)

    return step


def answer(
    step,
    params,
    encoded: Encoded,
    shape: Shape,
    advance: Callable[[int], None] = lambda number: None,
) -> tuple[list[Parts], averages.Terms]:
    """The Parts of every example, and the terms over all of them; `advance` is told how many items
    are done."""
    parts, total = [None] * len(encoded.items), {}
    for batch, places in evaluation_batches(encoded.items, shape):
        terms, answers = jax.device_get(step(params, batch))
        total = averages.add(total, terms)
        for placed in places:
            parts[placed.item] = unpacked(batch, *answers, placed)
        advance(len(places))
    return encoded.by_example(parts), total
