"""Measures the input pipeline: tokens per second from memory-mapped shards to batches.

    python experiments/benchmarks/input_pipeline.py --tokens=100000000 --shards=4
    python experiments/benchmarks/input_pipeline.py --corpus=corpora/books

Without --corpus, writes a synthetic text to a temporary folder (sentences of 22 and documents of
550 tokens on average). 'NumPy' is source.batch of four steps at a time in one thread, 'tf.data' is
training.batches.read_ahead with its worker threads. The last column divides by the CPU time of all
threads instead of the wall time, and so does not depend on the load of the machine. Tokens include
padding: rows × length. All numbers are medians of the repeats, with the best in parentheses; the
kinds of examples take turns.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time
import types

import numpy as np

from bert_jax.corpus import corpus
from bert_jax.examples import sentence_pairs, single_segments
from bert_jax.examples.text_example_source import RowSettings
from bert_jax.training import batches

ARRAYS = ('tokens', 'sentences', 'documents')


def write_shard(folder: pathlib.Path, number: int, num_tokens: int):
    """Write random tokens with geometric sentence and document lengths."""
    rng = np.random.default_rng(number)
    lengths = np.clip(rng.geometric(1 / 22, size=num_tokens // 22), 3, 120)
    sentences = np.concatenate([[0], np.cumsum(lengths)])
    documents = np.cumsum(rng.geometric(1 / 25, size=len(lengths)))
    documents = np.concatenate([[0], documents[documents < len(lengths)], [len(lengths)]])
    tokens = rng.integers(5, 30000, size=sentences[-1], dtype=np.uint16)
    for name, array in zip(ARRAYS, (tokens, sentences, documents), strict=True):
        np.save(folder / f'{number}.{name}.npy', array)


def synthetic(folder: pathlib.Path, num_tokens: int, num_shards: int):
    """Return a split of random text and its tokenizer."""
    shards = []
    for number in range(num_shards):
        write_shard(folder, number, num_tokens // num_shards)
        paths = {name: folder / f'{number}.{name}.npy' for name in ARRAYS}
        shards.append(
            types.SimpleNamespace(**{k: np.load(v, mmap_mode='r') for k, v in paths.items()})
        )
    tokenizer = types.SimpleNamespace(pad_id=0, cls_id=1, sep_id=2)
    return types.SimpleNamespace(shards=shards), tokenizer


def numpy_rate(source, length: int, steps: int) -> float:
    """Return the million tokens per second of source.batch."""
    start = time.perf_counter()
    for step in range(0, steps, 4):
        source.batch(np.arange(step, step + 4))
    return steps * source.batch_size * length / (time.perf_counter() - start) / 1e6


def pipeline_rates(source, length: int, steps: int, workers: int) -> tuple[float, float]:
    """Return the million tokens of `read_ahead` per second and per second of CPU time."""
    warmup = 20
    iterator = batches.read_ahead(source, 0, steps + warmup, workers=workers)
    for _ in range(warmup):
        next(iterator)
    start, processor = time.perf_counter(), time.process_time()
    count = sum(1 for _ in iterator)
    tokens = count * source.batch_size * length / 1e6
    return tokens / (time.perf_counter() - start), tokens / (time.process_time() - processor)


def measure(split, tokenizer, workers: int, repeats: int):
    """Print a Markdown table."""
    kinds = {}
    for kind in (sentence_pairs.SentencePairs, single_segments.SingleSegments):
        for rows, length in ((256, 128), (256, 512), (32, 128)):
            source = kind(RowSettings(split, tokenizer, length, rows, seed=0))
            kinds[f'{kind.__name__} {rows} × {length}'] = source, length, 2**25 // (rows * length)
    rates = {name: [] for name in kinds}
    for _ in range(repeats):
        for name, (source, length, steps) in kinds.items():
            alone = numpy_rate(source, length, steps)
            rates[name].append((alone, *pipeline_rates(source, length, steps, workers)))
    print('| M tokens/s | NumPy, one thread | tf.data | tf.data, per CPU second |')
    print('|---|---|---|---|')
    for name, runs in rates.items():
        cells = (f'{statistics.median(c):.1f} ({max(c):.1f})' for c in zip(*runs, strict=True))
        print(f'| {name} | {" | ".join(cells)} |')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--corpus', help='folder of a prepared corpus; synthetic text by default')
    parser.add_argument(
        '--tokens', type=int, default=100_000_000, help='tokens of the synthetic text'
    )
    parser.add_argument('--shards', type=int, default=1, help='shards of the synthetic text')
    parser.add_argument('--workers', type=int, default=2, help='threads that make batches')
    parser.add_argument('--repeats', type=int, default=5, help='measurements of each kind')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.corpus:
            opened = corpus.Corpus.open(options.corpus)
            split, tokenizer = opened.split('train'), opened.tokenizer
        else:
            split, tokenizer = synthetic(pathlib.Path(folder), options.tokens, options.shards)
        tokens = sum(len(shard.tokens) for shard in split.shards)
        print(f'{tokens:,} tokens in {len(split.shards)} shard(s), {os.cpu_count()} cores\n')
        measure(split, tokenizer, options.workers, options.repeats)


if __name__ == '__main__':
    main()
