"""Dask and Beam, with workers as processes of their own, make the corpus of a local run."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from bert_jax.corpus import corpus, preparation
from bert_jax.corpus.engines import BeamEngine, DaskEngine
from bert_jax.errors import UserError
from tests.corpus import clusters
from tests.end_to_end.preparation import ROOT, contents, make_text

pytestmark = pytest.mark.slow
TOKENIZER = 'train:wordpiece:80'
SMALL_UNITS = (
    'from bert_jax.corpus import preparation, workers; '
    "preparation.prepare.__kwdefaults__['amounts'] = workers.Amounts(unit_bytes=40_000); "
)
MAIN = 'from bert_jax import prepare; prepare.main()'
PROCESSES = (
    *('--runner=FnApiRunner', '--direct_running_mode=multi_processing'),
    '--direct_num_workers=2',
)


@pytest.fixture(scope='module')
def text(tmp_path_factory):
    """The spec of a file with about 100 units, and the files of its corpus."""
    folder = tmp_path_factory.mktemp('text')
    rng = random.Random(0)
    lines = [json.dumps({'text': make_text(rng)}) for _ in range(4000)]
    (folder / 'many.jsonl').write_text('\n'.join(lines))
    spec = f'jsonl:{folder}/many.jsonl'
    preparation.prepare([spec], TOKENIZER, folder / 'local', workers=2)
    return spec, contents(folder / 'local')


def start(spec, output, runner, *options):
    """Start the command line with small units."""
    flags = [f'--input={spec}', f'--tokenizer={TOKENIZER}', f'--output={output}']
    return subprocess.Popen(
        [sys.executable, '-c', SMALL_UNITS + MAIN, *flags, f'--runner={runner}', '--', *options],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr[-3000:]
    return stdout


def has_encoded(output, number):
    folder = output.with_name('out.partial') / 'parts/encode'
    return lambda: len(list(folder.glob('*.json'))) >= number


def test_a_killed_worker_costs_nothing(text, tmp_path):
    spec, expected = text
    with clusters.started(tmp_path / 'cluster') as cluster:
        output = tmp_path / 'out'
        process = start(spec, output, 'dask', f'--scheduler={cluster.address}')
        clusters.wait_for(has_encoded(output, 10))
        clusters.kill(cluster.workers[0])
        assert not has_encoded(output, 100)()
        finish(process)
    assert contents(output) == expected
    assert sorted(path.name for path in tmp_path.glob('out*')) == ['out']


def test_all_workers_may_be_replaced(text, tmp_path):
    spec, expected = text
    with clusters.started(tmp_path / 'cluster') as cluster:
        output = tmp_path / 'out'
        process = start(spec, output, 'dask', f'--scheduler={cluster.address}')
        clusters.wait_for(has_encoded(output, 10))
        for worker in cluster.workers:
            clusters.kill(worker)
        cluster.add_worker()
        finish(process)
    assert contents(output) == expected


def test_a_killed_command_resumes_with_what_is_encoded(text, tmp_path):
    spec, expected = text
    with clusters.started(tmp_path / 'cluster') as cluster:
        output = tmp_path / 'out'
        process = start(spec, output, 'dask', f'--scheduler={cluster.address}')
        clusters.wait_for(has_encoded(output, 20))
        clusters.kill(process)
        encoded = tmp_path / 'out.parts/encode'
        done = [path.stem for path in encoded.glob('*.json')]
        times = {name: (encoded / f'{name}-000.tokens.npy').stat().st_mtime_ns for name in done}
        process = start(spec, output, 'dask', f'--scheduler={cluster.address}')
        clusters.wait_for(lambda: (tmp_path / 'out.parts/assemble').exists())
        same = {name: (encoded / f'{name}-000.tokens.npy').stat().st_mtime_ns for name in done}
        finish(process)
    assert len(times) >= 20
    assert times == same
    assert contents(output) == expected


def test_a_cluster_without_workers_or_scheduler_is_one_line(text, tmp_path, monkeypatch):
    dask_config = pytest.importorskip('dask').config
    monkeypatch.setattr('bert_jax.corpus.engines._WAIT_SECONDS', 1.0)
    with clusters.started(tmp_path / 'cluster', workers=0) as cluster:
        engine = DaskEngine([f'--scheduler={cluster.address}'])
        with pytest.raises(UserError, match='Dask failed: .*1 worker') as found:
            preparation.prepare([text[0]], TOKENIZER, tmp_path / 'out', engine=engine)
    assert '\n' not in str(found.value)
    engine = DaskEngine(['--scheduler=tcp://127.0.0.1:9'])
    with (
        pytest.raises(UserError, match='Dask failed: .*127.0.0.1:9') as found,
        dask_config.set({'distributed.comm.timeouts.connect': '1s'}),
    ):
        preparation.prepare([text[0]], TOKENIZER, tmp_path / 'out', engine=engine)
    assert '\n' not in str(found.value)


def test_beam_in_several_processes(text, tmp_path):
    pytest.importorskip('apache_beam')
    spec, expected = text
    finish(start(spec, tmp_path / 'out', 'beam', *PROCESSES))
    assert contents(tmp_path / 'out') == expected


def test_beam_resumes_after_its_worker_was_killed(text, tmp_path):
    """Its local runner waits forever for the lost process, so the command is killed too."""
    pytest.importorskip('apache_beam')
    spec, expected = text
    output = tmp_path / 'out'
    process = start(spec, output, 'beam', *PROCESSES)
    clusters.wait_for(has_encoded(output, 10))
    workers = clusters.descendants(process.pid)
    os.kill(workers[-1], signal.SIGKILL)
    clusters.kill(process)
    for worker in workers[:-1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    process.communicate()
    finish(start(spec, output, 'beam', *PROCESSES))
    assert contents(output) == expected


def test_beam_on_dask(text, tmp_path):
    pytest.importorskip('apache_beam')
    spec, expected = text
    with clusters.started(tmp_path / 'cluster') as cluster:
        finish(
            start(
                spec,
                tmp_path / 'out',
                'beam',
                '--runner=apache_beam.runners.dask.dask_runner.DaskRunner',
                f'--dask_client_address={cluster.address}',
                '--dask_partition_size=1',
            )
        )
    assert contents(tmp_path / 'out') == expected
    corpus.Corpus.open(tmp_path / 'out').verify()


def test_what_beam_meets_is_one_line(tmp_path):
    pytest.importorskip('apache_beam')
    with pytest.raises(UserError, match='Beam failed: .*there is no such thing.*resume') as found:
        BeamEngine(['--runner=FnApiRunner']).run(fail, [1, 2])
    assert '\n' not in str(found.value)


def fail(item):
    raise OSError('there is no such thing')
