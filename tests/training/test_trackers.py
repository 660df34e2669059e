"""TensorBoard, Weights & Biases and profiler traces of a run."""

import json
import shutil
import sys
import types

import pytest

from bert_jax.errors import UserError
from bert_jax.storage import paths
from bert_jax.training import run
from tests.training import toy


class FakeService(types.ModuleType):
    """What the package wandb offers, as far as it is used."""

    Error = type('Error', (Exception,), {})

    def __init__(self):
        super().__init__('wandb')
        self.runs, self.points, self.finished = [], [], 0
        self.id = 'id0'

    def init(self, **options):
        self.runs.append(options)
        return self

    def log(self, values, step):
        self.points.append((step, values))

    def finish(self):
        self.finished += 1


@pytest.fixture
def service(monkeypatch):
    fake = FakeService()
    monkeypatch.setitem(sys.modules, 'wandb', fake)
    return fake


def test_weights_and_biases_gets_all_records_and_a_resumed_run_continues(service, tmp_path):
    folder = tmp_path / 'run'
    toy.train(folder, training__steps=(6, 4), logging__wandb='project')
    folder = shutil.copytree(folder, tmp_path / 'copy')  # this process has locked the run itself
    toy.train(folder, training__steps=(6, 9), logging__wandb='project')
    first, second = service.runs
    assert (first['project'], first['name']) == ('project', 'run')
    assert (first['id'], second['id']) == (None, 'id0')
    assert second['resume'] == 'allow'
    assert first['config']['training']['steps'] == [6, 4]
    assert service.finished == 2
    lines = (folder / 'metrics.jsonl').read_text().splitlines()
    expected = []
    for record in map(json.loads, lines):
        kind, step = record.pop('kind'), record.pop('step')
        expected.append((step, {f'{kind}/{name}': value for name, value in record.items()}))
    assert service.points == expected


def test_a_run_in_a_bucket_uploads_its_curves_and_traces(service, buckets):
    more = {'logging__wandb': 'project', 'logging__profile_steps': (2, 3)}
    for last in (4, 9):
        toy.train('gs://bucket/run', training__steps=(6, last), **more)
        paths.drop('gs://bucket/run')  # as on another machine
    assert [run['id'] for run in service.runs] == [None, 'id0']
    folder = buckets / 'bucket/run'
    assert (folder / 'wandb_id').read_text() == 'id0'
    for pattern in ('tensorboard/events*', 'profile/plugins/profile/*/*.xplane.pb'):
        assert list(folder.glob(pattern)), pattern
    records = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
    assert [record['step'] for record in records if record['kind'] == 'train'] == [5, 6, 10, 15]


def test_wandb_must_be_installed_and_reachable(service, tmp_path, monkeypatch):
    def fail(**_):
        raise service.Error('no API key')

    service.init = fail
    with pytest.raises(UserError, match='no API key; run wandb login, or set WANDB_MODE=offline'):
        toy.train(tmp_path, logging__wandb='project')
    monkeypatch.setitem(sys.modules, 'wandb', None)
    with pytest.raises(UserError, match='wandb is not installed: pip install wandb$'):
        run.check(toy.config(tmp_path / 'new', logging__wandb='project'))
    assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize('steps', [(3, 4), (29, 40)])
def test_chosen_steps_are_traced(steps, tmp_path):
    toy.train(tmp_path, logging__profile_steps=steps)
    (trace,) = tmp_path.glob('profile/plugins/profile/*/*.xplane.pb')
    assert trace.stat().st_size > 1000


@pytest.mark.parametrize('steps', [(3,), (4, 3)])
def test_profile_steps_must_be_a_first_and_a_last_step(steps, tmp_path):
    with pytest.raises(UserError, match='give the first and the last step'):
        toy.train(tmp_path, logging__profile_steps=steps)
