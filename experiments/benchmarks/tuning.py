"""Measures training steps of full and parameter-efficient tuning, and of concurrent runs.

    python experiments/benchmarks/tuning.py --size=256 --layers=4 --runs=8

The sides are the task of configs/finetune.py:sample_sentiment with a newly initialized base:

    full            all parameters are trained
    METHOD          transfer.method, for each of --methods
    lora at once    --runs runs of LoRA in one program (sweep.vmap); its time is that of one run

All sides are in one process and take turns, so that the load of the machine affects all of them
alike. Prints the median of the steps, the median of their ratios to the step of `full` in the same
turn, the share of parameters trained, and the memory of the optimizer state of a run.

With --commands, the sides are two commands that train --runs seeds of LoRA, one after the other and
at once (sweep.vmap). Prints their seconds from start to end, and the tokens per second.
"""

import argparse
import contextlib
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import report

from bert_jax import files, main
from bert_jax.tasks.finetuning import builder
from bert_jax.tasks.sweeps import vmapped
from bert_jax.training import devices, runtime
from bert_jax.training.run import Plan
from bert_jax.training.step import make_train_step
from configs import finetune
from experiments.studies import runner


def config_of(options, folder, **changes):
    """Return the config of a run; '__' in the names of keys stands for '.'."""
    config = finetune.get_config('sample_sentiment').unlock()
    keys = {
        'workdir': str(folder),
        'training.epochs': 0.0,
        'training.steps': options.steps,
        'training.batch_size': options.batch,
    } | {name.replace('__', '.'): value for name, value in changes.items()}
    config.update_from_flattened_dict(keys)
    return config.lock()


def make_base(options, folder):
    """Train a base model for one step, so that other runs can start from its folder."""
    sizes = dict(model__hidden_size=options.size, model__num_layers=options.layers)
    config = config_of(
        options,
        folder,
        data__tokenizer='train:wordpiece:400',
        model__architecture='bert',
        model__max_position_embeddings=128,
        training__steps=1,
        **sizes,
    )
    main.run(config)
    return folder


def make_side(config):
    """Return a function that runs a step, the share of parameters trained, the optimizer bytes."""
    task = builder.build(config)
    with Plan.of(task, config) as plan:
        state = plan.initial_state()
        accumulation = task.stages[0].accumulation
        step = jax.jit(
            make_train_step(task, plan.optimizer, accumulation, plan.transfer),
            donate_argnums=0,
            compiler_options=runtime.compiler_options(),
        )
        trained = devices.local_bytes(plan.transfer.select(state.params))
        share = trained / devices.local_bytes(state.params)
        size = devices.local_bytes(state.opt_state)
        numbers = itertools.count()

    def run():
        nonlocal state
        batch = task.stages[0].source.batch(next(numbers))
        state, metrics = step(state, batch, jax.random.key(0))
        jax.block_until_ready(metrics)

    return run, share, size


def make_at_once(configs):
    """Return the same as `make_side`, for several runs in one program."""
    built = [builder.build(config) for config in configs]
    tasks = vmapped.with_common_parts(built)
    with contextlib.ExitStack() as stack:
        group = vmapped.Group.of(stack, tasks)
        frozen, state = group.initial_params(), group.initial_state()
        steps, keys = vmapped.make_steps([group]), group.keys()
        share = devices.local_bytes(state.params) / len(tasks) / devices.local_bytes(frozen)
        size = devices.local_bytes(state.opt_state) / len(tasks)
    states, numbers = [state], itertools.count()

    def run():
        nonlocal states
        states, metrics = steps(states, frozen, [group.batch(next(numbers))], [keys])
        jax.block_until_ready(metrics)

    return run, share, size


def measure_commands(options):
    """Return the records of two commands: the runs one after the other, and at once."""
    records = []
    with tempfile.TemporaryDirectory() as folder:
        base = make_base(options, pathlib.Path(folder) / 'base')
        seeds = tuple(range(options.runs))
        for side in ('one after the other', 'at once'):
            workdir = pathlib.Path(folder) / side.replace(' ', '_')
            keys = {
                'init_from': base,
                'workdir': workdir,
                'training.epochs': 0.0,
                'training.steps': options.command_steps,
                'training.batch_size': options.batch,
                'transfer.method': 'lora',
                'schedule.learning_rate': 1e-3,
                'sweep.seeds': seeds,
                'sweep.vmap': side == 'at once',
            }
            command = runner.main_command('configs/finetune.py:sample_sentiment', keys)
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            seconds = time.perf_counter() - start
            results = [files.read_json(workdir / f'seed_{seed}/results.json') for seed in seeds]
            tokens = sum(result['tokens'] for result in results)
            records.append(
                {
                    'side': side,
                    'seconds': round(seconds, 1),
                    'tokens_per_second': round(tokens / seconds),
                    'accuracy': round(
                        statistics.mean(result['held_out']['accuracy'] for result in results), 4
                    ),
                }
            )
    return records


def measure(options):
    """Return one record for each side."""
    with tempfile.TemporaryDirectory() as folder:
        base = make_base(options, pathlib.Path(folder) / 'base')
        keys = dict(init_from=str(base), schedule__learning_rate=1e-3)
        sides = {
            method: make_side(config_of(options, folder, transfer__method=method, **keys))
            for method in ('full', *options.methods)
        }
        configs = [
            config_of(options, folder, transfer__method='lora', seed=seed, **keys)
            for seed in range(options.runs)
        ]
        sides['lora at once'] = make_at_once(configs)
        seconds = report.take_turns({side: run for side, (run, *_) in sides.items()}, options.steps)
        seconds['lora at once'] = [total / options.runs for total in seconds['lora at once']]
    records = []
    for side, (_, share, size) in sides.items():
        times, full_times = (seconds[name][options.warm_up :] for name in (side, 'full'))
        ratios = [step / full for step, full in zip(times, full_times, strict=True)]
        records.append(
            {
                'side': side,
                'milliseconds': round(1000 * statistics.median(times), 1),
                'ratio_to_full': round(statistics.median(ratios), 2),
                'trained': f'{share:.2%}',
                'optimizer_MB': round(size / 1e6, 2),
            }
        )
    return records


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', type=int, default=256)
    parser.add_argument('--layers', type=int, default=4)
    parser.add_argument('--batch', type=int, default=16)
    parser.add_argument('--runs', type=int, default=8, help='number of runs at once')
    parser.add_argument('--methods', nargs='*', default=['lora', 'pfeiffer', 'prefix', 'bitfit'])
    parser.add_argument('--steps', type=int, default=12)
    parser.add_argument('--warm_up', type=int, default=2)
    parser.add_argument('--commands', action='store_true', help='measure whole commands')
    parser.add_argument('--command_steps', type=int, default=200, help='steps of their runs')
    parser.add_argument('--output', help='path without suffix; writes .json, .md and .png')
    options = parser.parse_args()
    if options.commands:
        report.show(measure_commands(options), options.output, 'seconds', ('side',))
    else:
        report.show(measure(options), options.output, 'milliseconds', ('side',))
