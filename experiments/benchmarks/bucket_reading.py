"""Measures tokens per second of training from a bucket, after the first epoch.

    python experiments/benchmarks/bucket_reading.py --corpus=corpora/tiny

configs/tiny.py is trained from a corpus on a disk, which is prepared if it does not exist, and from
copies in gs:// and s3://, on the servers of tests/storage (extra test-buckets). All sides share one
process, one compiled step and one state. Each side first reads an epoch; then the sides take turns.
Each turn is compared with the turn on the disk in the same round, because the load of the machine
changes.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time

import jax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bert_jax.corpus.corpus import Corpus
from bert_jax.storage import paths
from bert_jax.tasks import make_task
from bert_jax.tasks.pretraining import sources
from bert_jax.training import batches, loop, runtime
from bert_jax.training.run import Plan
from configs import tiny
from tests.storage import servers

STAGE = -1  # the longest sequences


def make_config(corpus: str, cache: pathlib.Path):
    """Return the config of a side."""
    config = tiny.get_config()
    config.data.corpus, config.data.cache_folder = corpus, str(cache)
    sources.follow_corpus(config.data, ['corpus'])
    return config


def measure(corpus: str, folder: pathlib.Path, proxies: dict, steps: int, turns: int):
    """Print a Markdown table."""
    task = make_task(make_config(corpus, folder / 'disk'))
    stages = {'disk': task.stages[STAGE]}
    for scheme in proxies:
        place = f'{scheme}://{servers.BUCKET}/corpus'
        paths.upload(pathlib.Path(corpus), paths.path(place))
        stages[scheme] = make_task(make_config(place, folder / scheme)).stages[STAGE]
    with Plan.of(task, make_config(corpus, folder / 'disk')) as plan:
        stage = stages['disk']
        step, _ = loop._compile(plan, stage)
        state, key = plan.initial_state(), jax.random.key(0)
        corpus_tokens = sum(
            len(shard.tokens) for shard in Corpus.open(corpus).split('train').shards
        )
        epoch = corpus_tokens // stage.tokens_per_step + 1
        readers = {}
        for name, side in stages.items():
            start = time.perf_counter()
            for _ in batches.read(side.source, 0, epoch, threads=2):
                pass
            print(f'{name}: an epoch is read in {time.perf_counter() - start:.1f} s', flush=True)
            readers[name] = batches.read(side.source, epoch, epoch + (turns + 1) * steps, threads=2)
        before = {scheme: len(proxy.requests) for scheme, proxy in proxies.items()}
        rates: dict[str, list[float]] = {name: [] for name in stages}
        for turn in range(turns + 1):
            order = list(stages) if turn % 2 else list(stages)[::-1]
            for name in order:
                start = time.perf_counter()
                for _ in range(steps):
                    state, metrics = step(state, next(readers[name]), key)
                jax.block_until_ready(metrics)
                seconds = time.perf_counter() - start
                if turn:  # the first turn is a warm-up
                    rates[name].append(steps * stage.tokens_per_step / seconds)
    print(f'\n{corpus_tokens:,} tokens, {turns} turns of {steps} steps\n')
    print('| corpus | tokens/s | ratio to disk | quartiles | requests |')
    print('|---|---|---|---|---|')
    for name, side_rates in rates.items():
        ratios = [rate / disk for rate, disk in zip(side_rates, rates['disk'], strict=True)]
        first, middle, last = statistics.quantiles(ratios, n=4)
        requests = len(proxies[name].requests) - before[name] if name in proxies else 0
        print(
            f'| {name} | {statistics.median(side_rates):,.0f} | {middle:.3f} '
            f'| {first:.3f}–{last:.3f} | {requests} |'
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--corpus', default='corpora/tiny', help='folder of a prepared corpus')
    parser.add_argument('--steps', type=int, default=40, help='steps of a turn')
    parser.add_argument('--turns', type=int, default=20, help='turns of each side')
    options = parser.parse_args()
    runtime.configure()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxies = {scheme: stack.enter_context(servers.started(scheme)) for scheme in ('gs', 's3')}
        measure(options.corpus, folder, proxies, options.steps, options.turns)


if __name__ == '__main__':
    main()
