"""The training loop: stages, resuming, signals, skipped steps, and what it records."""

import dataclasses
import json
import os
import shutil
import signal
import time

import jax
import numpy as np
import pytest
import tqdm

from bert_jax import progress
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.training import loop, multihost, predictions, run, schedules
from bert_jax.training.interruption import Interrupted, StopSignal
from bert_jax.training.logging import Log
from bert_jax.training.workdir import Workdir
from tests.training import toy

STAGES = dict(training__steps=(6, 4), checkpoint__every_steps=4, checkpoint__keep=4)


def records(folder, kind='train'):
    found = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    return [record for record in found if record['kind'] == kind]


def check_same(params, expected):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(params), jax.device_get(expected))


@pytest.fixture
def compiled(monkeypatch):
    """The arguments of every compilation."""
    calls, lower_train_step = [], loop.lower_train_step

    def lower_and_count(*arguments):
        calls.append(arguments)
        return lower_train_step(*arguments)

    monkeypatch.setattr(loop, 'lower_train_step', lower_and_count)
    return calls


def test_each_stage_is_compiled_once_and_a_finished_one_not_at_all(tmp_path, compiled):
    """Also when the only good checkpoint is one of the first stage."""
    expected, _ = toy.train(tmp_path / 'run', **STAGES)
    assert len(compiled) == 2
    finished = shutil.copytree(tmp_path / 'run', tmp_path / 'finished')
    toy.train(finished, **STAGES)
    assert len(compiled) == 2
    damaged = shutil.copytree(tmp_path / 'run', tmp_path / 'damaged')
    shutil.rmtree(damaged / 'checkpoints' / '10')
    for step in ('6', '8'):
        (damaged / 'checkpoints' / step / 'arrays.json').write_text('{}')
    params, results = toy.train(damaged, **STAGES)
    assert len(compiled) == 4
    assert results['steps'] == 10
    check_same(params, expected)


def test_hosts_compare_the_config_the_metadata_and_the_initial_weights(tmp_path, monkeypatch):
    found = {}
    monkeypatch.setattr(multihost, 'check_same', lambda what, value: found.update({what: value()}))
    for number, weight in enumerate((1, 1, 2)):
        config = toy.config(tmp_path / str(number))
        task = toy.Toy(config)
        task.start.params['encoder/pooler/kernel'] = np.full((toy.WIDTH, 4), weight, np.float32)
        task.record = dataclasses.replace(task.record, labels=('no', 'yes'))
        with run.start(task, config, Workdir.of(config.workdir)):
            found[number] = found.pop('initial weights')
    assert found[0] == found[1] != found[2]
    assert json.loads(found['config'])['seed'] == config.seed
    assert json.loads(found['tokenizer, labels or corpus'])['labels'] == ['no', 'yes']


def test_the_memory_of_a_step_is_logged_before_it_runs(tmp_path, capfd):
    seen = []
    toy.train(
        tmp_path, training__steps=(1,), after_step=lambda _: seen.append(capfd.readouterr().err)
    )
    assert 'memory of each device' in seen[0]


@pytest.mark.eight_devices
def test_a_stage_is_divided_into_micro_batches(tmp_path, monkeypatch):
    rows = []
    monkeypatch.setattr(predictions, 'check', lambda *_: None)  # reads whole batches

    class Counting(toy.Toy):
        def terms(self, params, batch, key, train, progress=1.0):
            rows.append(len(batch['x']))
            return super().terms(params, batch, key, train, progress)

    mesh = dict(mesh__fsdp=1, mesh__tensor=jax.device_count())
    found = {}
    for number in (1, 4):
        folder = tmp_path / str(number)
        found[number], _ = toy.train(
            folder, kind=Counting, training__accumulation=(number,), **mesh
        )
        assert set(rows) == {8 // number}
        rows.clear()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *found.values()
    )


def test_the_logged_learning_rate_follows_the_schedule(tmp_path):
    changes = dict(schedule__name='linear', schedule__warmup_steps=10, logging__every_steps=1)
    toy.train(tmp_path, **changes)
    schedule = schedules.build(toy.config(tmp_path, **changes).schedule, 30)
    rates = {record['step']: record['learning_rate'] for record in records(tmp_path)}
    assert len(rates) == 30
    assert rates[1] == 0
    assert rates[11] == pytest.approx(0.03)
    for step, rate in rates.items():
        assert rate == pytest.approx(float(schedule(step - 1)))


def test_after_skipped_steps_the_logged_rate_is_used_and_the_decay_reaches_its_end(tmp_path):
    """One step after the last skipped one, Adam without moments moves by the logged rate."""
    changes = dict(
        schedule__name='linear',
        schedule__warmup_steps=1,
        optimizer__weight_decay=0.0,
        optimizer__beta1=0.0,
        optimizer__beta2=0.0,
        optimizer__clip_norm=0.0,
        training__steps=(12,),
        checkpoint__every_steps=1,
        checkpoint__keep=12,
        logging__every_steps=1,
    )
    toy.train(tmp_path, spoil=dict.fromkeys([4, 5, 6], float('nan')), **changes)
    rates = {record['step']: record['learning_rate'] for record in records(tmp_path)}
    schedule = schedules.build(toy.config(tmp_path, **changes).schedule, 12)
    for step in (3, 8, 12):
        before, after = (
            checkpoint_arrays.load(tmp_path / 'checkpoints' / str(number)).state['params']
            for number in (step - 1, step)
        )
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, after)
        assert max(jax.tree.leaves(moved)) == pytest.approx(rates[step], rel=1e-3)
        assert rates[step] == pytest.approx(float(schedule(step - 1)))


def test_a_spike_is_skipped_only_with_a_spike_factor(tmp_path):
    changes = dict(training__steps=(10,), spoil={6: 1e4})
    _, ignored = toy.train(tmp_path / 'ignored', **changes)
    assert ignored['skipped_steps'] == 0
    _, skipped = toy.train(tmp_path / 'skipped', spike_factor=20.0, **changes)
    assert skipped['skipped_steps'] == 1


def test_too_many_skipped_steps_in_a_row_end_the_run(tmp_path):
    spoil = dict.fromkeys([3, *range(7, 30)], float('nan'))  # numbers of batches, from 0
    with pytest.raises(
        UserError, match='3 steps in a row, up to step 10, .* is not finite'
    ) as error:
        toy.train(tmp_path, spoil=spoil, max_skipped_in_row=3, checkpoint__every_steps=5)
    assert '--config.debug.batch=10 ' in str(error.value)
    loaded = checkpoint_arrays.load(tmp_path)
    assert loaded.step == 5
    assert int(loaded.state['skipped']) == 1


def test_many_skipped_steps_that_are_not_in_a_row_end_the_run_too(tmp_path):
    """A run that had skipped 24 of 40 steps ended with status 0."""
    spoil = dict.fromkeys(range(1, 30, 2), float('nan'))
    with pytest.raises(UserError, match='5 of the first 10 steps had .* is not finite'):
        toy.train(tmp_path, spoil=spoil, max_skipped_in_row=4)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_the_next_step_and_the_rerun_ends_the_same(tmp_path, number):
    expected, _ = toy.train(tmp_path / 'undisturbed')
    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as stopped:
        toy.train(
            tmp_path / 'stopped',
            after_step=lambda step: signal.raise_signal(number) if step == 12 else None,
        )
    assert stopped.value.code == multihost.RESTART
    assert signal.getsignal(number) is before
    assert checkpoint_arrays.load(tmp_path / 'stopped').step == 13
    params, _ = toy.train(shutil.copytree(tmp_path / 'stopped', tmp_path / 'resumed'))
    check_same(params, expected)


def test_a_run_without_held_out_data_is_not_evaluated(tmp_path, capfd):
    class Unevaluated(toy.Toy):
        def evaluate(self, params, stage):
            return {}

    _, results = toy.train(tmp_path / 'run', kind=Unevaluated, training__steps=(4,))
    assert results['held_out'] == {}
    assert records(tmp_path / 'run', 'held_out') == []
    assert 'held-out' not in capfd.readouterr().err
    copy = shutil.copytree(tmp_path / 'run', tmp_path / 'again')
    _, again = toy.train(copy, kind=Unevaluated, training__steps=(4,))
    assert again['steps'] == 4


def test_a_signal_during_the_last_evaluation_stops_a_sweep_too(tmp_path):
    class Signaling(toy.Toy):
        def evaluate(self, params, stage):
            signal.raise_signal(signal.SIGTERM)
            return super().evaluate(params, stage)

    with pytest.raises(Interrupted):
        toy.train(tmp_path, kind=Signaling, training__steps=(3,))
    assert checkpoint_arrays.load(tmp_path).step == 3


def test_a_second_signal_is_not_caught():
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_error_of_the_source_is_not_reported_as_one_of_the_workdir(tmp_path):
    class Failing(toy.ToySource):
        def batch(self, step, rows):
            if np.max(step) >= 8:
                raise FileNotFoundError(2, 'No such file', 'shard')
            return super().batch(step, rows)

    class OfFailingSource(toy.Toy):
        source = Failing

    with pytest.raises(FileNotFoundError, match='shard'):
        toy.train(tmp_path, kind=OfFailingSource)


def test_a_workdir_that_becomes_unwritable_is_a_user_error(tmp_path):
    def replace(step):
        if step == 2:
            os.remove(tmp_path / 'metrics.jsonl')
            os.mkdir(tmp_path / 'metrics.jsonl')

    with pytest.raises(UserError, match=f'workdir {tmp_path} cannot be written: Is a dir'):
        toy.train(tmp_path, after_step=replace)


def test_a_checkpoint_under_the_name_of_another_step_is_not_resumed(tmp_path):
    toy.train(tmp_path / 'run', training__steps=(5, 5))
    copy = shutil.copytree(tmp_path / 'run', tmp_path / 'copy')
    (copy / 'checkpoints/10').rename(copy / 'checkpoints/12')
    with pytest.raises(UserError, match='checkpoints/12 holds step 10; rename it to 10 or remove'):
        toy.train(copy, training__steps=(5, 15))


def test_the_time_of_compiling_and_evaluating_is_not_in_the_estimated_time_left(
    tmp_path, monkeypatch
):
    """The first steps of a run announced hours instead of minutes."""
    compile_, bars = loop._compile, []

    class Slow(toy.Toy):
        def evaluate(self, params, stage):
            time.sleep(1)
            return super().evaluate(params, stage)

    def compile_slowly(*arguments):
        time.sleep(1)
        return compile_(*arguments)

    monkeypatch.setattr(loop, '_compile', compile_slowly)
    monkeypatch.setattr(
        progress, 'bar', lambda **settings: bars.append(tqdm.tqdm(**settings)) or bars[0]
    )
    lines = []
    monkeypatch.setattr(Log, 'info', lambda self, text: lines.append(text))
    start = time.time()
    toy.train(tmp_path, kind=Slow, training__steps=(6,), evaluation__every_steps=3)
    assert bars[0].format_dict['elapsed'] < time.time() - start - 2.5  # of three seconds
    assert 'compiling stage 1 of 1' in lines
    assert not any('MFU' in text for text in lines)
