"""Measures how much a checkpoint that is written in the background delays training.

    python experiments/benchmarks/saving.py --shape=base --dtype=float32 --every=20 --rounds=15

One process trains windows of --steps steps, alternating between windows with a checkpoint saved at
the start (bert_jax.training.checkpoints: parameters, both moments of AdamW and their digests) and
windows without. A window ends when its checkpoint is complete; the delay is the difference between
the two windows of a pair. Reports the median seconds of a step without saving, the quartiles of the
delay, the ratio of --every steps with one save to the same number without, how long the call of
`save` took, and the bytes that were saved. Two windows with checkpoints come first as a warm-up: in
a virtual machine, the first use of a page of memory also costs time of the host.
"""

import argparse
import statistics
import tempfile
import time

import report
import sides

from bert_jax.training import runtime
from bert_jax.training.checkpoints import Checkpoints


class Windows:
    """Windows of training steps; `blocked` has the seconds of every call of `save`."""

    def __init__(self, options, folder: str):
        shape = sides.SHAPES[options.shape]
        self.step, self.state, self.arguments = sides.make_bert_jax_training(
            shape, options.dtype, {}
        )
        self.steps = options.steps
        self.checkpoints = Checkpoints.open(folder, keep=1)
        self.saves, self.blocked = 0, []

    def save(self):
        start = time.perf_counter()
        self.checkpoints.save(self.saves, self.state, {})
        self.blocked.append(time.perf_counter() - start)
        self.saves += 1

    def seconds(self, saves: bool) -> float:
        """Train one window, with a save or without, and return its seconds."""
        start = time.perf_counter()
        if saves:
            self.save()
        for _ in range(self.steps):
            self.state, metrics = self.step(self.state, *self.arguments)
        metrics['loss'].block_until_ready()
        self.checkpoints.wait()
        return time.perf_counter() - start


def measure(options) -> dict:
    """Return the record of one process."""
    import jax

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        windows = Windows(options, folder)
        windows.seconds(saves=True)
        windows.seconds(saves=True)
        without, delays = [], []
        for number in range(options.rounds):
            # Alternate the order, because the speed of the machine may drift.
            order = (False, True) if number % 2 else (True, False)
            seconds = {saves: windows.seconds(saves) for saves in order}
            without.append(seconds[False] / options.steps)
            delays.append(seconds[True] - seconds[False])
    step, quartiles = statistics.median(without), statistics.quantiles(delays, method='inclusive')
    return {
        'shape': options.shape,
        'dtype': options.dtype,
        'every': options.every,
        'step': round(step, 3),
        'delay_25%': round(quartiles[0], 2),
        'delay': round(quartiles[1], 2),
        'delay_75%': round(quartiles[2], 2),
        'ratio': round(1 + quartiles[1] / (options.every * step), 4),
        'blocked': round(statistics.median(windows.blocked[2:]), 2),
        'bytes': sum(leaf.nbytes for leaf in jax.tree.leaves(windows.state)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shape', default='base', choices=sides.SHAPES)
    parser.add_argument('--dtype', default='float32')
    parser.add_argument('--every', default=20, type=int, help='steps between saves')
    parser.add_argument('--steps', default=6, type=int, help='steps in a window')
    parser.add_argument('--rounds', default=15, type=int, help='pairs of windows, at least 2')
    parser.add_argument('--folder', help='where to save; by default the temporary folder')
    parser.add_argument('--output', help='write NAME.json, NAME.md and NAME.png')
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f'--rounds={options.rounds}: quartiles need at least 2')
    runtime.keep_freed_memory()
    report.show([measure(options)], options.output, 'ratio')


if __name__ == '__main__':
    main()
