"""Time and memory of a training step, compared with transformers + torch on the same shapes.

    python experiments/benchmarks/training_step.py --shape=mini --dtypes=float32,bfloat16

sides.py describes the sides and a step. Every side has its own process, with the same allocator
settings. The first steps, which compile, run at the same time; then the processes take turns, so
that changes in the load of the machine affect all of them alike. A turn is one step, or several
(--per_turn) that do not wait for each other, as in training on a GPU. Reports the median and range
of the turns after warm-up, tokens per second, model FLOP/s and their share of the peak (MFU,
training/devices.py), and the peak memory of each process.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

import report
import sides


def work(side: str, shape: sides.Shape, dtype: str, compute_options: dict):
    """In a child process: run the number of steps of every line on stdin.

    Prints the seconds of a step, the last loss and the peak MiB.
    """
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    if side == 'peak':
        from bert_jax.training import devices

        print(devices.peak_flops(dtype), file=answers, flush=True)
        return
    step, peak_bytes = sides.make_step(side, shape, dtype, compute_options)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            loss = step()
        loss = float(loss)  # waits
        seconds = (time.perf_counter() - start) / int(line)
        print(json.dumps([seconds, loss, peak_bytes() / 2**20]), file=answers, flush=True)


class Worker:
    """A child process that runs the steps of one side."""

    def __init__(self, side: str, shape_name: str, batch: int, dtype: str, compute: dict):
        command = [sys.executable, __file__, '--work', side, '--shape', shape_name]
        command += ['--batch', str(batch), '--dtypes', dtype, '--compute', json.dumps(compute)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Several processes share the memory of a GPU.
            env=os.environ | {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'},
        )

    def start(self, steps: int = 1):
        """Start some steps."""
        with contextlib.suppress(BrokenPipeError):
            print(steps, file=self.process.stdin, flush=True)

    def finish(self):
        """Return [seconds, loss, peak MiB], or None if the process has ended (out of memory)."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def step(self, steps: int = 1):
        """Run some steps and return what `finish` returns."""
        self.start(steps)
        return self.finish()

    def close(self):
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def device_peak(dtype: str) -> float:
    """Return the peak FLOP/s of this machine, from its own process."""
    worker = Worker('peak', 'tiny', 0, dtype, {})
    peak = float(worker.process.stdout.readline())
    worker.close()
    return peak


def measure(shape_name: str, options) -> list[dict]:
    """Start a process for every side and dtype; they take turns.

    Returns:
        A record of each process that did not end early.
    """
    peaks = {dtype: device_peak(dtype) for dtype in options.dtypes}
    workers = {
        (side, dtype): Worker(side, shape_name, options.batch, dtype, options.compute)
        for side in options.sides
        for dtype in options.dtypes
    }
    for worker in workers.values():
        worker.start()
    answers = {key: [worker.finish()] for key, worker in workers.items()}
    for _ in range(options.warmup + options.steps - 1):
        for key, worker in workers.items():
            answers[key].append(worker.step(options.per_turn))
    for worker in workers.values():
        worker.close()
    return [
        summarize(shape_name, options.batch, key, answers[key], options.warmup, peaks[key[1]])
        for key in workers
        if None not in answers[key]
    ]


def summarize(shape_name: str, batch: int, key, answers, warmup: int, peak: float) -> dict:
    """Return the record of one side; `key` is (side, dtype)."""
    shape = shape_of(shape_name, batch)
    seconds = [answer[0] for answer in answers[warmup:]]
    median = statistics.median(seconds)
    flops = sides.flops_per_step(shape) / median
    return {
        'shape': shape_name,
        'batch': shape.batch,
        'length': shape.length,
        'side': key[0],
        'dtype': key[1],
        'median_ms': round(1e3 * median, 1),
        'min_ms': round(1e3 * min(seconds), 1),
        'max_ms': round(1e3 * max(seconds), 1),
        'tokens_per_second': round(shape.batch * shape.length / median),
        'tflops_per_second': round(flops / 1e12, 3),
        'mfu': round(flops / peak, 3),
        'peak_mib': round(max(answer[2] for answer in answers)),
        'first_step_s': round(answers[0][0], 1),
        'last_loss': answers[-1][1],
    }


def shape_of(name: str, batch: int) -> sides.Shape:
    """Return the shape of this name, with `batch` sequences unless `batch` is 0."""
    shape = sides.SHAPES[name]
    return dataclasses.replace(shape, batch=batch) if batch else shape


def add_options(parser: argparse.ArgumentParser, dtypes: str, chosen: str):
    """Add the options that all measurements of steps share, with these defaults."""
    parser.add_argument('--dtypes', default=dtypes, type=lambda text: text.split(','))
    parser.add_argument('--sides', default=chosen, type=lambda text: text.split(','))
    parser.add_argument('--steps', default=10, type=int, help='timed turns of each side')
    parser.add_argument('--per_turn', default=1, type=int, help='steps of a turn')
    parser.add_argument('--warmup', default=2, type=int)
    parser.add_argument('--compute', default={}, type=json.loads, help='JSON, options of Compute')
    parser.add_argument('--output', help='write NAME.json, NAME.md and NAME.png')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shape', default='mini', choices=sides.SHAPES)
    parser.add_argument('--batch', default=0, type=int, help='sequences; 0: as in the shape')
    add_options(parser, 'float32,bfloat16', 'bert_jax,torch,torch_gathered')
    parser.add_argument('--work', choices=(*sides.SIDES, 'peak'), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        shape = shape_of(options.shape, options.batch)
        work(options.work, shape, options.dtypes[0], options.compute)
        return
    records = measure(options.shape, options)
    if records:
        report.show(records, options.output, 'tokens_per_second')
    if len(records) < len(options.sides) * len(options.dtypes):
        sys.exit('error: a process ended early; see its message above')


if __name__ == '__main__':
    main()
