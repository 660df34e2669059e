"""The time of a training step of bert_jax and of sentence-transformers, in turns in one process.

    python -m experiments.studies.embeddings.step_times --data=FOLDER --weights=FOLDER

The steps of both sides take turns, so that the load of the machine affects both alike. A step
includes making its batch: tokenization for sentence-transformers, which tokenizes in every epoch.
Nothing is trained beforehand.
"""

import argparse
import os
import pathlib
import statistics
from collections.abc import Callable

import numpy as np

from bert_jax import problems
from bert_jax.errors import exit_cleanly
from bert_jax.files import write_json
from bert_jax.tasks.finetuning import builder
from bert_jax.training import runtime
from experiments.benchmarks.report import take_turns
from experiments.studies.embeddings import tasks
from experiments.studies.step_times import training_steps

WARM_UP = 2  # untimed steps


def their_step(config) -> Callable[[], None]:
    """Return a function that does the next training step of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    from experiments.studies.embeddings import torch_side

    model = SentenceTransformer(config.init_from, device='cpu')
    model.max_seq_length = config.training.sequence_length
    examples = problems.read(config.data, 'embedding').train
    steps = torch_side.training_steps(model, examples, config)
    return lambda: next(steps)


def measure(config, turns: int) -> dict[str, float]:
    """The medians of the seconds of a step, and of their ratio in the same turn."""
    (our_step,) = training_steps(builder.build(config))
    sides = {'bert_jax': our_step, 'sentence-transformers': their_step(config)}
    seconds = {side: times[WARM_UP:] for side, times in take_turns(sides, turns + WARM_UP).items()}
    ours_N, theirs_N = map(np.array, seconds.values())
    medians = {side: statistics.median(times) for side, times in seconds.items()}
    return medians | {'ratio': float(np.median(ours_N / theirs_N))}


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--weights', required=True, help='folder of all-MiniLM-L6-v2')
    parser.add_argument('--examples', type=int, default=3000, help='at most, of each task')
    parser.add_argument('--turns', type=int, default=20, help='timed steps of each side')
    parser.add_argument('--tasks', default=','.join(tasks.TASKS), help='names, with commas')
    parser.add_argument('--output', default='experiments/studies/embeddings')
    options = parser.parse_args(argv)
    runtime.configure()
    results: dict[str, object] = {'cores': len(os.sched_getaffinity(0)), 'turns': options.turns}
    for name in options.tasks.split(','):
        table = (pathlib.Path('runs/embeddings') / f'{name}_{options.examples}.csv').resolve()
        tasks.write_table(name, pathlib.Path(options.data), table, options.examples)
        config = tasks.make_config(name, table, options.weights, options.turns + WARM_UP, 0)
        results[name] = measure(config, options.turns)
        print(name, results[name], flush=True)
    write_json(pathlib.Path(options.output) / 'step_times.json', results, indent=1)


if __name__ == '__main__':
    main()
