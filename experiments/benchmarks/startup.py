"""Measures the time from the command to the compiled step, with a cold and a warm cache.

    python experiments/benchmarks/startup.py --rounds=3 --output=results/startup

Runs `python -m bert_jax.main` with the arguments after `--`, by default base.py on the sample with
batches of 8 × 128 tokens, and reads its log: seconds from the start of Python until the state is
initialized ('state') and until the step is compiled ('step_ready'). Of these seconds, XLA takes
'step' and 'evaluation' to lower and compile these two programs, and 'others' for all others in a
run ('other programs' names the slowest). 'cold' starts with an empty compilation cache, 'warm' with
the cache of the cold run. Reports medians. An earlier run prepares the corpus.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import report

ARGUMENTS = [
    '--config=configs/base.py',
    "--config.data.sources=('sample',)",
    '--config.data.prepare_workers=2',
    '--config.training.steps=(20000,)',
    '--config.training.sequence_length=(128,)',
    '--config.training.batch_size=(8,)',
    '--config.training.accumulation=(1,)',
    '--config.training.max_predictions=(20,)',
]
LOG_LINES = {'state': ' parameters on ', 'step_ready': 'memory of each device'}  # parts of lines
PROGRAMS = {'train_step': 'step', '_held_out_terms': 'evaluation'}  # function → name of the value
XLA = re.compile(r'Finished (?:jaxpr to MLIR .*|XLA compilation of) jit\((.*)\) in ([\d.]+) sec')
SHOWN = 3  # other programs


def time_run(arguments: list[str], folder: pathlib.Path) -> dict[str, float | str]:
    """Start a run and end it once its step is compiled; return the seconds of its parts.

    `folder` holds the corpus and the compilation cache.
    """
    shutil.rmtree(folder / 'run', ignore_errors=True)
    command = [sys.executable, '-m', 'bert_jax.main', *arguments]
    command += [f'--config.data.corpus={folder}/corpus', f'--config.workdir={folder}/run']
    environment = os.environ | {
        'JAX_COMPILATION_CACHE_DIR': f'{folder}/cache',
        'JAX_LOG_COMPILES': '1',
    }
    environment.pop('PYTHONDONTWRITEBYTECODE', None)  # cache bytecode, as for users
    seconds, log, start = {}, [], time.perf_counter()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as run:
        for line in run.stderr:
            log.append(line)
            for name, part in LOG_LINES.items():
                if part in line:
                    seconds[name] = time.perf_counter() - start
            if len(seconds) == len(LOG_LINES):
                run.kill()
                return seconds | compilations(log)
    sys.exit(''.join(log))


def compilations(log: list[str]) -> dict[str, float | str]:
    """Return the seconds that XLA takes for the step, the evaluation and other programs."""
    programs = collections.Counter()
    for match in filter(None, map(XLA.search, log)):
        function, seconds = match.groups()
        programs[function] += float(seconds)
    values = {name: programs.pop(function, 0.0) for function, name in PROGRAMS.items()}
    slowest = [f'{name} {seconds:.2f}' for name, seconds in programs.most_common(SHOWN)]
    return values | {'others': programs.total(), 'other programs': ', '.join(slowest)}


def measure(arguments: list[str], rounds: int) -> list[dict]:
    """Return one record for a cold cache and one for a warm cache."""
    results = {'cold': [], 'warm': []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        time_run(arguments, folder)  # prepares the corpus
        for _ in range(rounds):
            shutil.rmtree(folder / 'cache')
            for runs in results.values():
                runs.append(time_run(arguments, folder))
    return [
        {'cache': cache} | {name: median([run[name] for run in runs]) for name in runs[0]}
        for cache, runs in results.items()
    ]


def median(values: list[float | str]) -> float | str:
    """Return the median of numbers, and the first of texts."""
    return values[0] if isinstance(values[0], str) else round(statistics.median(values), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', default=3, type=int)
    parser.add_argument('--output', help='write NAME.json, NAME.md and NAME.png')
    parser.add_argument(
        'arguments', nargs='*', default=ARGUMENTS, help='arguments of the run, after --'
    )
    options = parser.parse_args()
    report.show(measure(options.arguments, options.rounds), options.output, 'step_ready')


if __name__ == '__main__':
    main()
