"""Measures training steps with different masking schemes and the span boundary objective.

    python experiments/benchmarks/masking.py --shape=base --dtype=bfloat16

A step is masking, forward pass with dropout 0.1, losses, backward pass and AdamW update, run by the
training code on random tokens. Four of five tokens start a word. The sides are

    tokens       masked language model with single tokens: the reference
    whole_words, ngrams, spans    the same model with other masking schemes
    spans_sbo    spans with masked language model and span boundary objective

All sides are in one process and take turns, so that the load of the machine affects all of them
alike. Prints the median of the steps and the median of their ratios to the step of `tokens` in the
same turn.

    python experiments/benchmarks/masking.py --masks=8192

measures only masking, of rows of this length with 30 % of the tokens to predict.
"""

import argparse
import dataclasses
import functools
import json
import statistics
from collections.abc import Callable

import jax
import numpy as np
import report
import sides
from flax import linen as nn

from bert_jax import objectives
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import SCHEMES
from bert_jax.objectives.mlm import MaskedLanguageModel
from bert_jax.objectives.sbo import SpanBoundaryObjective
from bert_jax.training import optimizers, runtime
from bert_jax.training.state import TrainState
from bert_jax.training.step import compile_train_step, make_train_step
from configs import base

SPECIAL_IDS = (0, 1, 2, 3, 4)
SIDES = {
    'tokens': ('tokens', {'mlm': 1.0}),
    'whole_words': ('whole_words', {'mlm': 1.0}),
    'ngrams': ('ngrams', {'mlm': 1.0}),
    'spans': ('spans', {'mlm': 1.0}),
    'spans_sbo': ('spans', {'mlm': 1.0, 'sbo': 1.0}),
}
KINDS = {'mlm': MaskedLanguageModel(), 'sbo': SpanBoundaryObjective(200, 20)}


class MaskingTask:
    """The part of a task (training/task.py) that a step needs."""

    def __init__(self, side: str, shape: sides.Shape, dtype: str):
        scheme, weights = SIDES[side]
        vocabulary = shape.vocabulary
        architecture = architectures.build(
            'bert', num_layers=shape.layers, hidden_size=shape.size, vocab_size=vocabulary
        )
        self.weights = objectives.loss_weights(weights)
        self.objectives = [KINDS[name] for name in weights]
        self.model = objectives.build_model(architecture, Compute(dtype), self.objectives)
        self.corruption = make_masking(scheme, shape, rate=0.15)

    def terms(self, params, batch, key, train: bool, progress=1.0):
        keys_B = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
        clean, seeds_B = Rows.of(batch), jax.vmap(jax.random.bits)(keys_B)
        output = self.model.apply({'params': params}, self.corruption(keys_B, clean), seeds_B)
        return objectives.compute_terms(self.objectives, output, clean)


def make_masking(scheme: str, shape: sides.Shape, rate: float) -> MaskedText:
    starts_V, kind = np.arange(shape.vocabulary) % 5 > 0, SCHEMES[scheme]
    vocabulary = Vocabulary(4, 0, SPECIAL_IDS, np.ones(shape.vocabulary, int), starts_V)
    options = base.get_config().masking.to_dict() | {'rate': rate}
    chosen = kind(**{name: options[name] for name in kind.options()})
    return MaskedText(vocabulary, chosen, {shape.length: shape.predictions})


def make_batch(shape: sides.Shape) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = (shape.batch, shape.length)
    ids = rng.integers(len(SPECIAL_IDS), shape.vocabulary, rows, np.int32)
    ids[:, 0], ids[:, -1] = 2, 3
    return {
        'input_ids': ids,
        'attention_mask': np.ones(rows, np.int32),
        'token_type_ids': np.zeros(rows, np.int32),
        'example_index': np.arange(shape.batch, dtype=np.int32),
    }


def make_step(side: str, shape: sides.Shape, dtype: str):
    """Return a function that runs one training step and waits for its result."""
    task, optimizer = (
        MaskingTask(side, shape, dtype),
        optimizers.build(sides.ADAMW, lambda step: 1e-4),
    )
    batch = jax.device_put(make_batch(shape))

    @jax.jit
    def init(key):
        rows = task.corruption(jax.random.split(key, shape.batch), Rows.of(batch))
        params = nn.unbox(task.model.init(key, rows))['params']
        return TrainState(0, 0, 0, params, optimizer.init(params))

    state = init(jax.random.key(0))
    run_key = jax.random.key(1)
    compiled = compile_train_step(make_train_step(task, optimizer), state, batch)

    def step():
        nonlocal state
        state, metrics = compiled(state, batch, run_key)
        return float(metrics['loss'])

    return step


def measure(options) -> list[dict]:
    shape = sides.SHAPES[options.shape]
    steps = {side: make_step(side, shape, options.dtype) for side in options.sides}
    seconds = report.take_turns(steps, options.warmup + options.steps)
    results = []
    for side, times in seconds.items():
        timed, reference = times[options.warmup :], seconds['tokens'][options.warmup :]
        ratios = [step / tokens for step, tokens in zip(timed, reference, strict=True)]
        results.append(
            {
                'side': side,
                'median_seconds': round(statistics.median(timed), 4),
                'ratio': round(statistics.median(ratios), 3),
                'lowest_ratio': round(min(ratios), 3),
                'highest_ratio': round(max(ratios), 3),
            }
        )
    return results


def measure_masks(length: int, turns: int) -> list[dict]:
    """Return the milliseconds per row of every masking scheme; the schemes take turns."""
    rows, predictions = 4, round(0.3 * length)
    shape = dataclasses.replace(
        sides.SHAPES['base'], batch=rows, length=length, predictions=predictions
    )
    keys = jax.random.split(jax.random.key(0), rows)
    inputs = jax.device_put((keys, Rows.of(make_batch(shape))))

    def run(mask: Callable[[jax.Array, Rows], Rows]):
        jax.block_until_ready(mask(*inputs))

    runs = {
        scheme: functools.partial(run, jax.jit(make_masking(scheme, shape, rate=0.3)))
        for scheme in SCHEMES
    }
    seconds = report.take_turns(runs, 1 + turns)
    medians = {scheme: statistics.median(times[1:]) for scheme, times in seconds.items()}
    return [
        {'scheme': scheme, 'length': length, 'median_ms_per_row': round(1e3 * median / rows, 2)}
        for scheme, median in medians.items()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--shape', choices=sides.SHAPES, default='base')
    parser.add_argument('--dtype', default='float32')
    parser.add_argument(
        '--sides',
        type=lambda text: text.split(','),
        default=['tokens', 'spans', 'spans_sbo'],
        help=f'some of {",".join(SIDES)}, including tokens',
    )
    parser.add_argument('--steps', type=int, default=20)
    parser.add_argument('--warmup', type=int, default=3)
    parser.add_argument('--masks', type=int, metavar='LENGTH', help='measure only masks')
    options = parser.parse_args()
    if 'tokens' not in options.sides or set(options.sides) - set(SIDES):
        parser.error(f'--sides must be some of {", ".join(SIDES)} and include tokens')
    runtime.keep_freed_memory()
    if options.masks:
        for result in measure_masks(options.masks, options.steps):
            print(json.dumps(result), flush=True)
        return
    about = {'shape': options.shape, 'dtype': options.dtype, 'device': jax.devices()[0].device_kind}
    for result in measure(options):
        print(json.dumps(about | result), flush=True)


if __name__ == '__main__':
    main()
