"""Searches over any keys: the settings, the rungs, resuming, and the table."""

import contextlib
import json
from unittest import mock

import numpy as np
import pytest

from bert_jax import recipes, tree_paths
from bert_jax.errors import Diverged, UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.tasks import is_sweep
from bert_jax.tasks.sweeps import settings, sweep
from bert_jax.training import loop
from bert_jax.training.logging import Log
from bert_jax.training.run import Hooks, Paused
from bert_jax.training.workdir import Workdir
from configs import finetune
from tests.training import toy

RATES = 'schedule.learning_rate=0.0003|0.003|0.03|0.0001'


def config(folder, keys=(RATES,), **more):
    made = toy.config(folder / 'search', schedule__name='linear', **more)
    made.sweep['keys'] = keys
    return made


class Trainer:
    """Trains toys; may be interrupted before a call, and diverges at given rates."""

    def __init__(self, killed_at=None, diverge=()):
        self.calls, self.killed_at, self.diverge = [], killed_at, diverge

    def __call__(self, made, pause_at=0):
        if len(self.calls) == self.killed_at:
            raise KeyboardInterrupt
        self.calls.append((made.schedule.learning_rate, made.seed, pause_at))
        if made.schedule.learning_rate in self.diverge:
            raise Diverged('too many steps were skipped', 12)
        workdir = Workdir.of(made.workdir)
        with mock.patch.object(Log, 'plot'), contextlib.closing(workdir):
            try:
                _, results = loop.train(toy.Toy(made), made, workdir, Hooks(pause_at=pause_at))
            except Paused:
                return None
            workdir.write_results(results)
            return results


def arrays(folder):
    return tree_paths.flatten(checkpoint_arrays.load(folder).state)


@pytest.fixture(scope='module')
def halved(tmp_path_factory):
    """A search with two rungs over four rates, interrupted twice, and the calls of the third."""
    folder = tmp_path_factory.mktemp('halved')
    made = config(folder, sweep__rungs=(7, 14))
    for killed_at in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            sweep.run(made, Trainer(killed_at))
    trainer = Trainer()
    return folder / 'search', sweep.run(made, trainer), trainer.calls


def test_rungs_discard_the_worse_half_and_a_rerun_resumes(halved):
    folder, results, calls = halved
    # 5 of the runs to the first two rungs were done before.
    assert [pause_at for _, _, pause_at in calls] == [14, 0]
    states = {row['values']['schedule.learning_rate']: row for row in results['settings']}
    assert {rate: (row['state'], row['step']) for rate, row in states.items()} == {
        0.03: ('finished', 30),
        0.003: ('discarded', 14),
        0.0003: ('discarded', 7),
        0.0001: ('discarded', 7),
    }
    assert results['best'] == {'schedule.learning_rate': 0.03}
    assert results['best_run'] == 'learning_rate_0.03_seed_0'
    assert results['metric'] == 'loss'
    assert json.loads((folder / 'results.json').read_text()) == results
    assert (folder / 'plot.png').exists()


def test_a_setting_that_paused_ends_like_an_undisturbed_run(halved, tmp_path):
    folder, results, _ = halved
    made = toy.config(tmp_path / 'run', schedule__name='linear', schedule__learning_rate=0.03)
    Trainer()(made)
    ours, theirs = arrays(folder / results['best_run']), arrays(tmp_path / 'run')
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_a_discarded_setting_trained_to_its_rung_only(halved):
    folder, results, _ = halved
    steps = [
        max(int(path.name) for path in folder.glob(f'learning_rate_{rate}_seed_0/checkpoints/*'))
        for rate in (0.0003, 0.003, 0.0001)
    ]
    assert steps == [7, 14, 7]


def test_a_table_shows_the_settings_best_first(halved):
    lines = (halved[0] / 'table.md').read_text().splitlines()
    assert lines[0].startswith('| schedule.learning_rate | run | seeds | loss |')
    assert [line.split(' | ')[:2] for line in lines[2:6]] == [
        ['| 0.03', 'finished'],
        ['| 0.003', 'discarded at 14'],
        ['| 0.0003', 'discarded at 7'],
        ['| 0.0001', 'discarded at 7'],
    ]


class DirectedTrainer(Trainer):
    """A trainer of causal models."""

    def __call__(self, made, pause_at=0):
        results = super().__call__(made, pause_at)
        return results and results | {'attention': 'from left to right'}


def test_a_table_names_its_metric_the_interval_and_the_direction_of_attention(tmp_path):
    made = config(tmp_path, keys=('schedule.learning_rate=0.003|0.03',), sweep__seeds=(0, 1))
    results = sweep.run(made, DirectedTrainer())
    assert results['attention'] == 'from left to right'
    assert [row['step'] for row in results['settings']] == [30, 30]
    table = (tmp_path / 'search/table.md').read_text()
    assert '| loss | 95% interval of the mean |' in table
    low, high = sorted(results['settings'][0]['metrics']['loss']['values'])
    assert f'| range {low:.4f} – {high:.4f} |' in table
    assert 'The best setting has the lowest loss (evaluation.best chooses another' in table
    assert 'Attention from left to right.' in table


def test_a_search_over_masks_says_that_their_losses_differ(tmp_path, capsys):
    made = recipes.base()
    made.sweep['keys'] = ('masking.scheme=tokens|whole_words', 'masking.rate=0.15|0.3')
    sweep._warn_of_masks(made)
    warned = capsys.readouterr().err
    assert 'differ in masking.scheme are compared on different held-out masks' in warned
    assert 'set evaluation.masking_rate' in warned
    made.evaluation.update(masking_scheme='tokens', masking_rate=0.15)
    sweep._warn_of_masks(made)
    assert not capsys.readouterr().err


def test_a_setting_that_diverges_is_discarded(tmp_path):
    made = config(tmp_path, keys=('schedule.learning_rate=0.003|0.03',), sweep__seeds=(0, 1))
    results = sweep.run(made, Trainer(diverge=(0.03,)))
    assert [row['state'] for row in results['settings']] == ['finished', 'diverged']
    assert [row['step'] for row in results['settings']] == [30, 12]
    assert results['settings'][0]['seeds'] == [0, 1]
    assert len(results['settings'][0]['metrics']['loss']['values']) == 2
    with pytest.raises(UserError, match='all settings of the sweep diverged'):
        sweep.run(config(tmp_path / 'all'), Trainer(diverge=(3e-4, 3e-3, 3e-2, 1e-4)))


def test_all_combinations_are_tried_without_trials(tmp_path):
    keys = ('optimizer.name=adamw|lamb', 'training.steps=10|20', 'compute.float32_residual=True')
    made = config(tmp_path, keys)
    assert settings.settings(made) == [
        {'optimizer.name': name, 'training.steps': (steps,), 'compute.float32_residual': True}
        for name in ('adamw', 'lamb')
        for steps in (10, 20)
    ]
    runs = sweep.runs(made)
    assert [(one.optimizer.name, one.training.steps) for one in runs.values()] == [
        ('adamw', (10,)),
        ('adamw', (20,)),
        ('lamb', (10,)),
        ('lamb', (20,)),
    ]
    assert is_sweep(made)
    assert not any(map(is_sweep, runs.values()))
    assert len({one.workdir for one in runs.values()}) == 4


def test_random_draws_cover_their_ranges_and_continue(tmp_path):
    keys = (
        'schedule.learning_rate=log:1e-5..1e-1',
        'optimizer.beta2=0.9..0.999',
        'model.num_layers=2..4',
        'optimizer.name=adamw|lamb',
    )
    made = config(tmp_path, keys, sweep__trials=400)
    drawn = settings.settings(made)
    assert len(drawn) == 400
    logs = np.log10([one['schedule.learning_rate'] for one in drawn])
    assert np.allclose(np.quantile(logs, (0.0, 0.5, 1.0)), (-5, -3, -1), atol=0.3)
    betas = [one['optimizer.beta2'] for one in drawn]
    assert 0.9 <= min(betas) < 0.91
    assert 0.99 < max(betas) <= 0.999
    for key, values in (('model.num_layers', (2, 3, 4)), ('optimizer.name', ('adamw', 'lamb'))):
        counts = [sum(one[key] == value for one in drawn) for value in values]
        assert sum(counts) == 400
        assert min(counts) > 0.75 * 400 / len(values)
    made.sweep.trials = 5
    assert settings.settings(made) == drawn[:5]
    made.sweep.trial_seed = 1
    assert settings.settings(made) != drawn[:5]
    few = config(tmp_path, ('optimizer.name=adamw|lamb',), sweep__trials=9)
    assert len(settings.settings(few)) == 2


@pytest.mark.parametrize(
    ('keys', 'more', 'message'),
    [
        (
            ('optimizer.nam=adamw',),
            {},
            'unknown config key optimizer.nam; did you mean optimizer.name',
        ),
        (('optimizer.name',), {}, 'write KEY=A'),
        (('optimizer.name=adam',), {}, "unknown optimizer.name 'adam'"),
        (('optimizer.beta2=1.5',), {}, r'must be in \[0, 1\)'),
        (('optimizer.beta2=high|low',), {}, 'the value must be a number'),
        (('optimizer.beta2=0.9|0.9',), {}, 'its values must differ'),
        (('optimizer.beta2=0.9..0.99',), {}, 'set sweep.trials'),
        (('optimizer.beta2=0.99..0.9',), {'sweep__trials': 2}, 'with LOW < HIGH'),
        (('optimizer.beta2=log:0..0.9',), {'sweep__trials': 2}, 'LOW < HIGH above 0'),
        (('seed=0|1',), {}, 'sweep.seeds'),
        (('sweep.trials=1',), {}, 'cannot be searched'),
        ((RATES, RATES), {}, 'has schedule.learning_rate twice'),
        (('optimizer.muon_rate=1|2',), {}, "optimizer.name is 'adamw'"),
        ((RATES,), {'sweep__rungs': (5, 5)}, 'rising numbers'),
        ((RATES,), {'sweep__learning_rates': (0.1,)}, 'both have schedule.learning_rate'),
        ((RATES,), {'sweep__rungs': (5,), 'training__minutes': 1.0}, 'training.minutes'),
    ],
)
def test_searches_that_cannot_be_run_are_one_line(keys, more, message, tmp_path):
    with pytest.raises(UserError, match=message) as raised:
        sweep.check(config(tmp_path, keys, **more))
    assert '\n' not in str(raised.value)


def test_a_key_that_is_set_and_searched_is_refused(tmp_path):
    with pytest.raises(UserError, match='schedule.learning_rate is set and is in sweep.keys'):
        sweep.check(config(tmp_path), user_keys=('schedule.learning_rate',))


def test_a_search_with_another_value_resumes_the_others(tmp_path):
    sweep.run(config(tmp_path, keys=('schedule.learning_rate=0.003|0.03',)), Trainer())
    trainer = Trainer()
    made = config(tmp_path, keys=('schedule.learning_rate=0.01|0.03|0.003',), sweep__keep=0.3)
    results = sweep.run(made, trainer)
    assert [rate for rate, *_ in trainer.calls] == [0.01]
    assert {row['values']['schedule.learning_rate'] for row in results['settings']} == {
        0.01,
        0.03,
        0.003,
    }


def test_folders_are_named_after_values_that_differ_in_punctuation_only(tmp_path):
    made = config(tmp_path, ('init_from=runs/a|runs_a', 'optimizer.beta1=0.8'))
    assert [one.workdir.rpartition('/')[2] for one in sweep.runs(made).values()] == [
        'init_from_runs_a_beta1_0.8_seed_0',
        'init_from_runs_a_beta1_0.8_seed_0_1',
    ]


def test_fine_tuning_has_the_keys(tmp_path):
    made = finetune.get_config('classification')
    made.sweep['keys'] = ('problem.label_smoothing=0.0|0.1',)
    if 'label_smoothing' in made.problem:
        assert len(sweep.runs(made)) == 2
    made.sweep['keys'] = ('training.batch_size=8|16', 'schedule.learning_rate=1e-5|1e-4')
    assert len(sweep.runs(made)) == 4
