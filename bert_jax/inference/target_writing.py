"""Writes the targets of the problem 'generation', with the searches of inference/generation.py."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.inference import batching, generation
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.causal_options import CausalOptions
from bert_jax.inference.watch import Watch, target_text
from bert_jax.models.architecture import Architecture
from bert_jax.models.model import Model
from bert_jax.problems.base import AnyProblem, ExampleOutputs
from bert_jax.problems.generation.encoding import TargetEncoding
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Params


class _Writer(NamedTuple):
    """What constraints of generation depend on."""

    tokenizer: Tokenizer
    architecture: Architecture
    learned_end: bool = True


def writes(problem: AnyProblem) -> bool:
    """Whether predictions of a problem are texts, written token by token."""
    return isinstance(problem.encoding, TargetEncoding)


def options_of(encoding: TargetEncoding) -> CausalOptions:
    """Return the options of generation that the config's `problem` has."""
    settings = encoding.settings
    names = ('beams', 'length_penalty', 'no_repeat_ngrams', 'min_new_tokens', 'target_language')
    chosen = {name: settings[name] for name in names}
    if settings.beams == 1:
        del chosen['length_penalty']
        chosen['temperature'] = 0.0
    return CausalOptions(new_tokens=settings.target_tokens, **chosen)


def write(
    problem: AnyProblem,
    model: Model,
    params: Params,
    examples: Sequence[Any],
    batch_tokens: int,
    concurrent_batches: int = batching.CONCURRENT_BATCHES,
    advance: Callable[[int], object] = lambda number: None,
) -> list[ExampleOutputs]:
    """Write a text for each example; a text does not depend on the other examples.

    Args:
        problem: of the kind 'generation'.
        model: a model with its head.
        params: its parameters.
        examples: of the class TargetExample; their targets are not read.
        batch_tokens: tokens of the sources of a batch, padding included.
        concurrent_batches: batches that are written at the same time.
        advance: called with the number of examples of each finished batch.

    Returns:
        For each example, 'ids' int32 [n] and 'log_p' fp32 [n] of the written tokens.
    """
    encoding = problem.encoding
    assert isinstance(encoding, TargetEncoding)
    options = options_of(encoding)
    writer = _Writer(encoding.tokenizer, model.architecture)
    constraints = generation.constraints_of(writer, options)
    flags = {'seed': np.zeros(1, np.int32), 'is_text': np.ones(1, np.int32)}
    rows = [TokenizedText(encoding.source_ids(example), flags) for example in examples]
    tokenizer = encoding.tokenizer
    watch = Watch(functools.partial(target_text, tokenizer))
    max_length = model.architecture.max_length
    results = batching.run(
        functools.partial(
            generation.write_batch, options, tokenizer, constraints, watch, model, params
        ),
        rows,
        batch_tokens=max(1, batch_tokens // options.beams),
        max_length=max_length - (options.new_tokens if encoding.is_causal else 0),
        pad_id=tokenizer.pad_id,
        advance=advance,
        concurrent_batches=concurrent_batches,
    )
    return [
        [[{name: result[name][: int(result['length'])] for name in ('ids', 'log_p')}]]
        for result in results
    ]
