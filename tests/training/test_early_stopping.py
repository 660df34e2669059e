"""The best evaluation: kept, waited for, handed on; the same after kills."""

import json
import os
import shutil

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.tasks.initialization import Start
from bert_jax.training import checkpoints
from bert_jax.training.early_stopping import Best, Watch
from tests.end_to_end import commands
from tests.training import toy


def watch(best='accuracy', patience=0):
    return Watch(ConfigDict(dict(best=best, patience=patience)))


def after(name, values):
    found, best = watch(name), Best()
    for step, value in enumerate(values, start=1):
        best = found.after(best, step, {name: value, 'other': -value})
    return best


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('accuracy', 2),
        ('entity_f1', 2),
        ('loss', 3),
        ('mlm_loss/cy', 3),
        ('perplexity', 3),
        ('mlm_perplexity', 3),
    ],
)
def test_the_best_by_the_name_of_the_metric(name, expected):
    best = after(name, [0.5, 0.9, 0.1, 0.9, 0.1])
    assert best.step == expected
    assert best.waited == 5 - expected
    assert best.metrics == {name: (0.9, 0.1)[expected - 2], 'other': -(0.9, 0.1)[expected - 2]}


@pytest.mark.parametrize('name', ['accuracy', 'loss'])
def test_what_is_no_number_is_never_the_best(name):
    nan = float('nan')
    assert after(name, [nan, nan]) == Best(None, None, 2)
    assert after(name, [nan, 0.5, nan, nan])._replace(metrics=None) == Best(2, None, 2)


def test_without_a_metric_there_is_no_best():
    assert watch('').after(Best(), 1, {'loss': 1.0}) == Best()
    assert not watch('').is_over(Best(None, None, 100))


def test_patience():
    assert [watch(patience=2).is_over(Best(5, {}, waited)) for waited in (0, 1, 2, 3)] == [
        False,
        False,
        True,
        True,
    ]
    assert not watch(patience=0).is_over(Best(5, {}, 1000))


@pytest.mark.parametrize(('best', 'patience'), [('', 3), ('loss', -1)])
def test_patience_that_waits_for_nothing_is_refused(best, patience):
    with pytest.raises(UserError, match=f'evaluation.patience is {patience}'):
        watch(best, patience)


def again(folder, **options):
    """The toy's command line, on the devices of this process."""
    flags = os.environ['XLA_FLAGS']
    return commands.run('tests.training.toy', folder, xla_flags=flags, **options)


def records(folder, kind):
    found = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    return [record for record in found if record['kind'] == kind]


def arrays(path):
    return tree_paths.flatten(checkpoints.load(path).state)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """(folder, parameters, results) of a run that gets worse and is stopped."""
    folder = tmp_path_factory.mktemp('toy') / 'run'
    return folder, *toy.train(folder, **toy.PATIENT)


def test_the_run_ends_where_patience_does_with_the_best_parameters(finished):
    folder, params, results = finished
    losses = {record['step']: record['loss'] for record in records(folder, 'held_out')}
    losses.pop(0)
    best = min(losses, key=losses.get)
    assert results['best_step'] == best
    assert results['steps'] == max(losses) == best + 4 * 5 < 200
    assert results['tokens'] == 8 * results['steps']
    assert results['held_out']['loss'] == losses[best]
    task = toy.Toy(toy.config(folder))
    assert task.evaluate(params, None) == results['held_out']
    assert json.loads((folder / 'results.json').read_text()) == results


def test_the_best_checkpoint_stays_beside_the_newest(finished):
    folder, params, results = finished
    kept = {int(path.name) for path in (folder / 'checkpoints').iterdir()}
    assert kept == {results['best_step'], results['steps']}
    loaded = checkpoints.load(folder)
    assert loaded.step == results['best_step']
    jax.tree.map(np.testing.assert_array_equal, loaded.state['params'], jax.device_get(params))


def test_a_run_that_was_stopped_does_not_go_on(finished, tmp_path):
    folder, _, results = finished
    copy = shutil.copytree(folder, tmp_path / 'run')
    said = again(copy)
    assert said.returncode == 0, said.stderr
    once_more = json.loads((copy / 'results.json').read_text())
    for key in ('steps', 'best_step', 'held_out', 'tokens', 'skipped_steps'):
        assert once_more[key] == results[key]
    assert (copy / 'metrics.jsonl').read_text() == (folder / 'metrics.jsonl').read_text()


def test_killed_runs_wait_as_long_and_end_with_the_same(finished, tmp_path):
    folder, _, results = finished
    for step in (results['best_step'] - 3, results['best_step'] + 8):
        assert again(tmp_path / 'run', die_at=step).returncode == -9
    said = again(tmp_path / 'run')
    assert said.returncode == 0, said.stderr
    for number in (results['best_step'], results['steps']):
        ours, theirs = (at / 'checkpoints' / str(number) for at in (tmp_path / 'run', folder))
        ours_named, theirs_named = arrays(ours), arrays(theirs)
        assert ours_named.keys() == theirs_named.keys()
        for name in ours_named:
            np.testing.assert_array_equal(ours_named[name], theirs_named[name], err_msg=name)
        one, other = (checkpoints.load(at).metadata['best'] for at in (ours, theirs))
        assert one == other
    assert records(tmp_path / 'run', 'held_out') == records(folder, 'held_out')


def test_a_best_checkpoint_that_is_damaged_is_named(finished, tmp_path):
    folder, _, results = finished
    copy = shutil.copytree(folder, tmp_path / 'run')
    best = copy / 'checkpoints' / str(results['best_step'])
    (best / 'arrays.json').write_text('{}')
    with pytest.raises(UserError, match=f'the best checkpoint, {best}, is damaged'):
        checkpoints.load(copy)
    assert checkpoints.load(copy / 'checkpoints' / str(results['steps'])).step == results['steps']
    said = again(copy)
    assert said.returncode == 1
    assert f'the best checkpoint, {best}, is damaged or missing' in said.stderr


@pytest.mark.parametrize(
    ('name', 'first'), [('encoder/pooler/kernel', 5), ('sequence_classification/head/kernel', 0)]
)
def test_a_head_that_was_not_trained_is_not_evaluated(tmp_path, monkeypatch, name, first):
    given = np.ones(
        {'encoder/pooler/kernel': (4, 4), 'sequence_classification/head/kernel': (4,)}[name]
    )
    begun = Start(None, None, {name: given.astype(np.float32)}, [])
    monkeypatch.setattr(toy, 'Start', lambda *_: begun)
    toy.train(tmp_path / 'run', stages__steps=(10,))
    assert [record['step'] for record in records(tmp_path / 'run', 'held_out')][0] == first


def test_a_misspelled_metric_is_found_before_the_first_step(tmp_path):
    with pytest.raises(UserError, match="evaluation.best 'acuracy'; known: accuracy, loss"):
        toy.train(tmp_path / 'run', evaluation__best='acuracy')
    assert records(tmp_path / 'run', 'train') == []
