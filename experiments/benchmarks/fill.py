"""Measures training steps with the fastest batch size on a GPU, compared with torch.

    python experiments/benchmarks/fill.py --output=results/h200

For every shape (BERT-base and large at 128 and 512 tokens) and side (sides.py), the batch size is
doubled from --smallest until a process runs out of memory or --largest is reached. Each batch size
has its own process, alone on the device. Reports the batch size with the most tokens per second:
median and range of its steps, model FLOP/s, their share of the peak (MFU) and peak memory. --all
reports every batch size. To try it on a CPU:

    python experiments/benchmarks/fill.py --shapes=tiny --sides=bert_jax,torch_gathered \
        --dtypes=float32 --smallest=1 --largest=2 --steps=1 --warmup=1
"""

import argparse
import sys

import report
import sides
import training_step

SHAPES = 'base,base_512,large,large_512'


def doubled(smallest: int, largest: int):
    """Iterate over smallest, 2 · smallest, … up to largest."""
    while smallest <= largest:
        yield smallest
        smallest *= 2


def measure(shape: str, side: str, dtype: str, peak: float, options) -> list[dict]:
    """Return a record for every batch size that fits into memory."""
    records = []
    for batch in doubled(options.smallest, options.largest):
        worker = training_step.Worker(side, shape, batch, dtype, options.compute)
        turns = options.warmup + options.steps
        answers = [worker.step(options.per_turn) for _ in range(turns)]
        worker.close()
        if None in answers:
            print(f'{shape} {side} {dtype}: batch size {batch} failed', file=sys.stderr)
            break
        key = side, dtype
        records.append(training_step.summarize(shape, batch, key, answers, options.warmup, peak))
        print(report.as_table(records[-1:]), file=sys.stderr, flush=True)
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shapes', default=SHAPES, type=lambda text: text.split(','))
    parser.add_argument('--smallest', default=16, type=int, help='smallest batch size')
    parser.add_argument('--largest', default=2048, type=int, help='largest batch size')
    parser.add_argument('--all', action='store_true', help='report every batch size')
    training_step.add_options(parser, 'bfloat16', ','.join(('bert_jax', *sides.TORCH_SIDES)))
    options = parser.parse_args()
    records = []
    for dtype in options.dtypes:
        peak = training_step.device_peak(dtype)
        for shape in options.shapes:
            for side in options.sides:
                sizes = measure(shape, side, dtype, peak, options)
                if not options.all:
                    sizes = sorted(sizes, key=lambda record: -record['tokens_per_second'])[:1]
                records += sizes
    if not records:
        sys.exit('error: no batch size worked; see the messages above')
    report.show(records, options.output, 'tokens_per_second')


if __name__ == '__main__':
    main()
