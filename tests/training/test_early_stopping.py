"""The best evaluation is kept, waited for and returned; the same after kills."""

import json
import shutil

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.tasks.initialization import InitialModel
from bert_jax.training import checkpoints
from bert_jax.training.early_stopping import BestEvaluation, EarlyStopping
from tests.training import toy


class Killed(Exception):
    """Ends a run at a step, as a kill would."""


def make(metric='accuracy', patience=0, best=None):
    early_stopping = EarlyStopping(ConfigDict(dict(best=metric, patience=patience)))
    early_stopping.best = best or BestEvaluation()
    return early_stopping


def best_of(metric, values):
    early_stopping = make(metric)
    for step, value in enumerate(values, start=1):
        early_stopping.update(step, {metric: value, 'other': -value})
    return early_stopping.best


@pytest.mark.parametrize(
    ('metric', 'expected'),
    [
        ('accuracy', 2),
        ('entity_f1', 2),
        ('loss', 3),
        ('mlm_loss/cy', 3),
        ('perplexity', 3),
        ('mlm_perplexity', 3),
        ('rmse', 3),
    ],
)
def test_the_name_of_the_metric_tells_which_value_is_best(metric, expected):
    best = best_of(metric, [0.5, 0.9, 0.1, 0.9, 0.1])
    assert best.step == expected
    assert best.waited == 5 - expected
    value = (0.9, 0.1)[expected - 2]
    assert best.metrics == {metric: value, 'other': -value}


@pytest.mark.parametrize('metric', ['accuracy', 'loss'])
def test_nan_is_never_the_best(metric):
    nan = float('nan')
    assert best_of(metric, [nan, nan]) == BestEvaluation(None, None, 2)
    best = best_of(metric, [nan, 0.5, nan, nan])
    assert best._replace(metrics=None) == BestEvaluation(2, None, 2)


def test_without_a_metric_there_is_no_best():
    early_stopping = make('', best=BestEvaluation(None, None, 100))
    early_stopping.update(1, {'loss': 1.0})
    assert early_stopping.best == BestEvaluation(None, None, 100)
    assert not early_stopping.is_over


def test_the_run_is_over_when_the_patience_is():
    waited = [make(patience=2, best=BestEvaluation(5, {}, n)).is_over for n in (0, 1, 2, 3)]
    assert waited == [False, False, True, True]
    assert not make(patience=0, best=BestEvaluation(5, {}, 1000)).is_over


def test_a_patience_below_zero_is_refused():
    with pytest.raises(UserError, match='evaluation.patience is -1, but must be at least 0'):
        make('loss', -1)


def test_a_patience_without_a_metric_is_refused_with_the_metrics_there_are(tmp_path):
    expected = (
        'evaluation.patience is 3, but evaluation.best is not set: .*, one of accuracy, loss$'
    )
    with pytest.raises(UserError, match=expected):
        toy.train(tmp_path / 'run', evaluation__patience=3)
    assert records(tmp_path / 'run', 'train') == []
    with pytest.raises(UserError, match='a metric of held-out examples'):
        make('', 3).check({})


def records(folder, kind):
    found = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    return [record for record in found if record['kind'] == kind]


def arrays(path):
    return tree_paths.flatten(checkpoint_arrays.load(path).state)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """(folder, parameters, results) of a run that overfits and stops early."""
    folder = tmp_path_factory.mktemp('toy') / 'run'
    return folder, *toy.train(folder, **toy.PATIENT)


def test_the_run_stops_when_the_patience_ends_and_returns_the_best_parameters(finished):
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


def test_the_best_checkpoint_is_kept_beside_the_newest(finished):
    folder, params, results = finished
    kept = {int(path.name) for path in (folder / 'checkpoints').iterdir()}
    assert kept == {results['best_step'], results['steps']}
    loaded = checkpoint_arrays.load(folder)
    assert loaded.step == results['best_step']
    jax.tree.map(np.testing.assert_array_equal, loaded.state['params'], jax.device_get(params))


def test_a_run_that_stopped_early_does_not_continue(finished, tmp_path):
    folder, _, results = finished
    copy = shutil.copytree(folder, tmp_path / 'run')
    _, again = toy.train(copy, **toy.PATIENT)
    for key in ('steps', 'best_step', 'held_out', 'tokens', 'skipped_steps'):
        assert again[key] == results[key]
    assert (copy / 'metrics.jsonl').read_text() == (folder / 'metrics.jsonl').read_text()


def test_killed_runs_wait_as_long_and_end_the_same(finished, tmp_path):
    folder, _, results = finished
    run = tmp_path / 'run'
    best = results['best_step']
    for number, last in enumerate((2, best - 3, best + 8)):  # first before any checkpoint

        def die(step, last=last):
            if step == last:
                raise Killed

        with pytest.raises(Killed):
            toy.train(run, after_step=die, **toy.PATIENT)
        run = shutil.copytree(run, tmp_path / f'resumed_{number}')
    toy.train(run, **toy.PATIENT)
    for number in (results['best_step'], results['steps']):
        ours, theirs = (at / 'checkpoints' / str(number) for at in (run, folder))
        ours_named, theirs_named = arrays(ours), arrays(theirs)
        assert ours_named.keys() == theirs_named.keys()
        for name in ours_named:
            np.testing.assert_array_equal(ours_named[name], theirs_named[name], err_msg=name)
        one, other = (checkpoint_arrays.load(at).metadata['best'] for at in (ours, theirs))
        assert one == other
    assert records(run, 'held_out') == records(folder, 'held_out')


@pytest.mark.parametrize('step', ['best_step', 'steps'])
def test_a_run_that_dies_in_an_evaluation_has_saved_and_evaluates_once_when_resumed(
    finished, tmp_path, step
):
    """Also at the best step and the last, where the result belongs to the checkpoint."""
    folder, params, results = finished
    evaluated = []

    class DyingOnce(toy.Toy):
        def evaluate(self, params, stage):
            evaluated.append(params)
            if len(evaluated) == 1 + results[step] // 5:  # the first is before training
                raise Killed
            return super().evaluate(params, stage)

    changes = toy.PATIENT | dict(checkpoint__every_steps=5, kind=DyingOnce)
    run = tmp_path / 'run'
    with pytest.raises(Killed):
        toy.train(run, **changes)
    assert checkpoint_arrays.load(run / 'checkpoints' / str(results[step])).step == results[step]
    assert [record['step'] for record in records(run, 'held_out')][-1] == results[step] - 5
    run = shutil.copytree(run, tmp_path / 'resumed')
    found, again = toy.train(run, **changes)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(found), jax.device_get(params))
    for key in ('steps', 'best_step', 'held_out'):
        assert again[key] == results[key]
    assert records(run, 'held_out') == records(folder, 'held_out')
    assert checkpoint_arrays.load(run).step == results['best_step']
    number = len(evaluated)
    toy.train(shutil.copytree(run, tmp_path / 'again'), **changes)
    assert len(evaluated) == number


def test_a_run_killed_after_the_record_of_an_evaluation_repeats_it(finished, tmp_path, monkeypatch):
    folder, _, results = finished
    changes = toy.PATIENT | dict(checkpoint__every_steps=5)

    def kill(self, step, metadata):
        raise Killed

    monkeypatch.setattr(checkpoints.Checkpoints, 'replace_metadata', kill)
    with pytest.raises(Killed):
        toy.train(tmp_path / 'run', **changes)
    monkeypatch.undo()
    assert [record['step'] for record in records(tmp_path / 'run', 'held_out')] == [0, 5]
    run = shutil.copytree(tmp_path / 'run', tmp_path / 'resumed')
    _, again = toy.train(run, **changes)
    assert again['best_step'] == results['best_step']
    assert records(run, 'held_out') == records(folder, 'held_out')


def test_a_damaged_best_checkpoint_is_an_error_that_names_it(finished, tmp_path):
    folder, _, results = finished
    copy = shutil.copytree(folder, tmp_path / 'run')
    best = copy / 'checkpoints' / str(results['best_step'])
    (best / 'arrays.json').write_text('{}')
    with pytest.raises(UserError, match=f'the best checkpoint, {best}, is damaged'):
        checkpoint_arrays.load(copy)
    assert (
        checkpoint_arrays.load(copy / 'checkpoints' / str(results['steps'])).step
        == results['steps']
    )
    with pytest.raises(UserError, match=f'the best checkpoint, {best}, is damaged or missing'):
        toy.train(copy, **toy.PATIENT)


@pytest.mark.parametrize(
    ('name', 'first'), [('encoder/pooler/kernel', 5), ('sequence_classification/head/kernel', 0)]
)
def test_only_a_trained_head_is_evaluated_before_training(tmp_path, name, first):
    given = np.ones(
        {'encoder/pooler/kernel': (4, 4), 'sequence_classification/head/kernel': (4,)}[name]
    )

    class FromWeights(toy.Toy):
        start = InitialModel(None, None, {name: given.astype(np.float32)}, [])

    toy.train(tmp_path / 'run', kind=FromWeights, training__steps=(10,))
    assert [record['step'] for record in records(tmp_path / 'run', 'held_out')][0] == first


def test_a_misspelled_metric_is_found_before_the_first_step(tmp_path):
    with pytest.raises(
        UserError, match="evaluation.best 'acuracy'; did you mean accuracy. known: accuracy, loss"
    ):
        toy.train(tmp_path / 'run', evaluation__best='acuracy')
    assert records(tmp_path / 'run', 'train') == []
