"""How much a checkpoint written in the background delays training.

    python experiments/benchmarks/saving.py --shape=base --dtype=float32 --every=20 --rounds=15

One process trains windows of --steps steps, in turns with a checkpoint saved at the beginning of
the window (bert_jax.training.checkpoints: parameters, both moments of AdamW and their digests) and
without; a window ends when its checkpoint is complete. Its delay is what it takes longer than the
window beside it. Reported are the median seconds of a step without saving, the quartiles of the
delay, the ratio of --every steps with one save to as many without, how long `save` itself kept the
training, and what was saved. Before that a step is compiled and as many checkpoints are saved as
lie on the disk at once, for in a virtual machine the first touch of a page of memory costs the
host's time too. --output=NAME writes NAME.json, NAME.md and NAME.png.
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
    """Windows of training: `blocked` are the seconds of every `save`."""

    def __init__(self, options, folder: str):
        shape = sides.SHAPES[options.shape]
        self.step, self.state, self.arguments = sides.make_bert_jax_training(
            shape, options.dtype, {}
        )
        self.steps = options.steps
        self.checkpoints = Checkpoints(folder, keep=1)
        self.saves, self.blocked = 0, []

    def save(self):
        start = time.perf_counter()
        self.checkpoints.save(self.saves, self.state, {})
        self.blocked.append(time.perf_counter() - start)
        self.saves += 1

    def seconds(self, saves: bool) -> float:
        """Of one window, with a save or without."""
        start = time.perf_counter()
        if saves:
            self.save()
        for _ in range(self.steps):
            self.state, metrics = self.step(self.state, *self.arguments)
        metrics['loss'].block_until_ready()
        self.checkpoints.wait()
        return time.perf_counter() - start


def measure(options) -> dict:
    """The record of one process."""
    import jax

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        windows = Windows(options, folder)
        windows.seconds(saves=True)
        windows.seconds(saves=True)
        without, delays = [], []
        for number in range(options.rounds):
            order = (False, True) if number % 2 else (True, False)  # a drift of the machine's speed
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
    parser.add_argument('--every', default=20, type=int, help='steps from a save to the next')
    parser.add_argument('--steps', default=6, type=int, help='steps of a window')
    parser.add_argument('--rounds', default=15, type=int, help='two or more')
    parser.add_argument('--folder', help='where to save; the system’s temporary folder by default')
    parser.add_argument('--output', help='NAME of NAME.json, NAME.md and NAME.png to write')
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f'--rounds={options.rounds}: quartiles need two or more')
    runtime.keep_freed_memory()
    report.show([measure(options)], options.output, 'ratio')


if __name__ == '__main__':
    main()
