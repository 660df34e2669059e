"""A Dask cluster that reads text from a bucket and writes the corpus there."""

import contextlib
import json
import random
import threading

import pytest

from bert_jax.corpus.engines import DaskEngine
from bert_jax.corpus.preparation import prepare
from bert_jax.corpus.workers import Amounts
from bert_jax.errors import UserError
from bert_jax.storage import paths
from bert_jax.storage.path import BucketError
from tests.corpus import clusters
from tests.end_to_end.preparation import make_text
from tests.storage.test_runs import digests

pytestmark = pytest.mark.slow
SMALL = Amounts(unit_bytes=30_000)
SETTINGS = {'tokenizer': 'train:wordpiece:80', 'held_out_fraction': 0.2, 'shard_tokens': 20_000}


@pytest.fixture
def text(root, tmp_path):
    """The spec of a file in a bucket, and the digests of its corpus."""
    rng = random.Random(0)
    lines = [json.dumps({'text': make_text(rng)}) for _ in range(400)]
    (tmp_path / 'many.jsonl').write_text('\n'.join(lines))
    (root / 'many.jsonl').upload(tmp_path / 'many.jsonl')
    prepare([f'jsonl:{tmp_path}/many.jsonl'], output=tmp_path / 'local', workers=0, **SETTINGS)
    return f'jsonl:{root}/many.jsonl', digests(tmp_path / 'local')


def test_a_cluster_makes_the_corpus_of_a_local_run(text, root, tmp_path):
    spec, expected = text
    with clusters.started(tmp_path / 'cluster') as cluster:
        engine = DaskEngine([f'--scheduler={cluster.address}'])
        made = prepare([spec], output=root / 'corpus', engine=engine, amounts=SMALL, **SETTINGS)
    made.verify()
    assert digests(root / 'corpus') == expected
    assert len(made.split('train').shards) > 2
    assert not (root / 'corpus/parts').exists()
    assert not (root / 'corpus/progress.json').exists()


def test_an_interrupted_run_resumes_from_the_bucket(text, root, tmp_path):
    spec, expected = text
    with clusters.started(tmp_path / 'cluster') as cluster:
        engine = DaskEngine([f'--scheduler={cluster.address}'])
        encoded = root / 'corpus.parts/encode'

        def kill_workers():
            with contextlib.suppress(BucketError):
                clusters.wait_for(lambda: len(list(encoded.rglob('*.json'))) > 3)
            for worker in cluster.workers:
                clusters.kill(worker)
            threading.Event().wait(0.5)
            for process in cluster.processes:
                clusters.kill(process)

        thread = threading.Thread(target=kill_workers)
        thread.start()
        with pytest.raises(UserError, match='Dask failed'):
            prepare([spec], output=root / 'corpus', engine=engine, amounts=SMALL, **SETTINGS)
        thread.join()
    assert not (root / 'corpus/manifest.json').exists()
    done = {path: path.stat() for path in encoded.rglob('*.tokens.npy')}
    assert len(done) > 3
    paths.drop(root / 'corpus')  # as on another machine
    kept = {}

    class Watched(DaskEngine):
        def run(self, function, items):
            if function.args[1].name == 'assemble':
                kept.update({path: path.stat() for path in encoded.rglob('*.tokens.npy')})
            super().run(function, items)

    with clusters.started(tmp_path / 'cluster') as cluster:
        engine = Watched([f'--scheduler={cluster.address}'])
        prepare([spec], output=root / 'corpus', engine=engine, amounts=SMALL, **SETTINGS).verify()
    assert digests(root / 'corpus') == expected
    assert sum(kept[path] == status for path, status in done.items()) >= len(done) - 2
