"""How much a checkpoint written in the background delays training.

    python experiments/benchmark/saving.py --shape=base --dtype=float32 --every=20 --rounds=3

One process trains windows of --every steps, in turns with a checkpoint saved at the beginning of
the window (bert_jax.training.checkpoints: parameters, both moments of AdamW and their digests) and
without. Reported are the medians in seconds of both, their ratio (the median over the rounds), how
long `save` itself kept the training, and what was saved. Before that a step is compiled and as many
checkpoints are saved as lie on the disk at once, for in a virtual machine the first touch of a page
of memory costs the host's time too. --output=NAME writes NAME.json, NAME.md and NAME.png.
"""

import argparse
import statistics
import tempfile
import time

import report
import sides

from bert_jax.training import allocator
from bert_jax.training.checkpoints import Checkpoints


def measure(options) -> dict:
    """The record of one process."""
    import jax

    update, state = sides.make_bert_jax_update(sides.SHAPES[options.shape], options.dtype, {})
    state, loss = update(state)
    seconds = {True: [], False: []}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        checkpoints, blocked = Checkpoints(folder, keep=1), []
        for number in range(2):
            checkpoints.save(number, state, {})
        checkpoints.wait()
        for number in range(2, 2 * options.rounds + 2):
            saves = number % 2 == 1
            start = time.perf_counter()
            if saves:
                checkpoints.save(number, state, {})
                blocked.append(time.perf_counter() - start)
            for _ in range(options.every):
                state, loss = update(state)
            jax.block_until_ready(loss)
            checkpoints.wait()  # of a save longer than the window, the rest is training's loss too
            seconds[saves].append(time.perf_counter() - start)
    pairs = zip(seconds[True], seconds[False], strict=True)
    return {
        'shape': options.shape,
        'dtype': options.dtype,
        'steps': options.every,
        'without': round(statistics.median(seconds[False]), 2),
        'with_saving': round(statistics.median(seconds[True]), 2),
        'ratio': round(statistics.median(a / b for a, b in pairs), 4),
        'blocked': round(statistics.median(blocked), 2),
        'bytes': sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shape', default='base', choices=sides.SHAPES)
    parser.add_argument('--dtype', default='float32')
    parser.add_argument('--every', default=20, type=int, help='steps from a save to the next')
    parser.add_argument('--rounds', default=3, type=int)
    parser.add_argument('--folder', help='where to save; the system’s temporary folder by default')
    parser.add_argument('--output', help='NAME of NAME.json, NAME.md and NAME.png to write')
    options = parser.parse_args()
    allocator.keep_freed_memory()
    report.show([measure(options)], options.output, 'ratio')


if __name__ == '__main__':
    main()
