"""From the command to the first training step: imports, compilation cold and warm, the step.

    python experiments/benchmarks/startup.py --shape=base --dtype=float32 --rounds=3

'imports' is what `python -m bert_jax.main --config=configs/base.py` imports until it compiles,
without TensorFlow, in a process of its own (not the first, which also writes Python's bytecode).
The others are of one more process a round and state of the compilation cache: 'cold' with an empty
one, 'warm' with what the cold process left there. Reported are medians in seconds: initializing
(with its compilation); the step traced and lowered, and from the same moment compiled or taken from
the cache ('step_ready'); running it once. Memory is kept as in a run. The step is that of sides.py:
a run's also masks its text, which takes longer to compile, and is compiled while the state is made
(first_step.py).
--output=NAME writes NAME.json, NAME.md and NAME.png.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import report
import sides

# Python keeps the bytecode of what it imported, as it does unless told otherwise.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != 'PYTHONDONTWRITEBYTECODE'
}


def import_seconds() -> float:
    """Of the modules that a run of base.py imports; in a new process."""
    code = (
        'import time; start = time.perf_counter(); '
        'from bert_jax import main; main.load("pretraining"); import sys; '
        'assert "tensorflow" not in sys.modules; print(time.perf_counter() - start)'
    )
    root = pathlib.Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=root,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def be_a_process(shape: sides.Shape, dtype: str, compute_options: dict):
    """Child: prints the seconds of each part."""
    import jax

    from bert_jax import main
    from bert_jax.training import compilation

    main.load('pretraining')  # as in a run: what is imported is not searched for garbage later
    seconds, start = {}, time.perf_counter()
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
    sides.allocator.keep_freed_memory()
    step, state, batch = sides.make_bert_jax_training(shape, dtype, compute_options)
    jax.block_until_ready(state)
    seconds['initialize'] = time.perf_counter() - start
    start = time.perf_counter()
    wait = compilation.start_compiling(step, state, batch)
    seconds['traced'] = time.perf_counter() - start
    compiled = wait()
    seconds['step_ready'] = time.perf_counter() - start
    start = time.perf_counter()
    jax.block_until_ready(compiled(state, batch))
    seconds['first_step'] = time.perf_counter() - start
    print(json.dumps(seconds))


def one_process(cache: str) -> dict[str, float]:
    """The seconds of each part of a process with this compilation cache."""
    environment = ENVIRONMENT | {'JAX_COMPILATION_CACHE_DIR': cache}
    command = [sys.executable, __file__, *sys.argv[1:], '--child']
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(options) -> list[dict]:
    """A record for a cold and one for a warm cache."""
    imports, parts = [], {'cold': [], 'warm': []}
    import_seconds()  # writes the bytecode
    for _ in range(options.rounds):
        imports.append(import_seconds())
        with tempfile.TemporaryDirectory() as cache:
            for state in parts:
                parts[state].append(one_process(cache))
    records = []
    for state, rounds in parts.items():
        medians = {
            name: statistics.median(seconds[name] for seconds in rounds) for name in rounds[0]
        }
        medians = {'imports': statistics.median(imports)} | medians
        about = {'shape': options.shape, 'dtype': options.dtype, 'cache': state}
        records.append(about | {name: round(value, 2) for name, value in medians.items()})
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shape', default='base', choices=sides.SHAPES)
    parser.add_argument('--dtype', default='float32')
    parser.add_argument('--compute', default={}, type=json.loads, help='JSON, options of Compute')
    parser.add_argument('--rounds', default=3, type=int)
    parser.add_argument('--output', help='NAME of NAME.json, NAME.md and NAME.png to write')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        be_a_process(sides.SHAPES[options.shape], options.dtype, options.compute)
    else:
        report.show(measure(options), options.output, 'step_ready')


if __name__ == '__main__':
    main()
