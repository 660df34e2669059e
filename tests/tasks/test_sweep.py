"""Sweeps: the configs of the runs, resuming, and the comparison of the results."""

import contextlib
import io
import json
import pathlib
import sys

import pytest

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.storage import paths
from bert_jax.tasks import is_sweep
from bert_jax.tasks.sweeps import summary, sweep
from bert_jax.training.workdir import Workdir
from configs import finetune
from tests.training import toy


def config(tmp_path, **more):
    return toy.config(tmp_path / 'sweep', **more)


def results(metric, value):
    return {'held_out': {metric: value, 'f1': 2 * value}, 'steps': 3}


class Trainer:
    """Stands in for training: records the configs, and may be interrupted at a run."""

    def __init__(self, killed_at=None):
        self.configs, self.killed_at = [], killed_at

    def __call__(self, config, pause_at=0):
        if len(self.configs) == self.killed_at:
            raise KeyboardInterrupt
        self.configs.append(config)
        accuracy = 0.8 + config.seed / 100 + (0.05 if config.schedule.learning_rate == 2e-5 else 0)
        found = results('accuracy', accuracy)
        with contextlib.closing(Workdir.of(config.workdir)) as workdir:
            workdir.claim(config)
            workdir.write_config(config)
            workdir.write_results(found)
        return found


def test_every_rate_is_trained_with_every_seed(tmp_path):
    made = config(tmp_path, sweep__seeds=(3, 5), sweep__learning_rates=(1e-5, 2e-5))
    trainer = Trainer()
    sweep.run(made, trainer)
    assert [(own.schedule.learning_rate, own.seed) for own in trainer.configs] == [
        (1e-5, 3),
        (1e-5, 5),
        (2e-5, 3),
        (2e-5, 5),
    ]
    assert trainer.configs[1].workdir == str(tmp_path / 'sweep/learning_rate_1e-05_seed_5')
    for own in trainer.configs:
        assert not is_sweep(own)
        changed = {'seed', 'workdir', 'sweep', 'schedule'}
        assert all(own[key] == made[key] for key in made if key not in changed)
        assert {**own.schedule, 'learning_rate': 0} == {**made.schedule, 'learning_rate': 0}
    assert made.sweep.seeds == (3, 5)


def test_a_sweep_in_a_bucket_writes_its_table_there(buckets, capsys):
    made = config(paths.path('gs://bucket'), sweep__seeds=(3, 5))
    for (_, seed), own in sweep.runs(made).items():
        folder = buckets / f'bucket/sweep/seed_{seed}'
        folder.mkdir(parents=True)
        (folder / 'config.json').write_text(json.dumps(own.to_dict()))
        (folder / 'results.json').write_text(json.dumps(results('accuracy', seed / 10)))
    sweep.run(made, Trainer(killed_at=0))  # no run is left to train
    written = json.loads((buckets / 'bucket/sweep/results.json').read_text())
    assert written['best_run'] == 'seed_5'
    assert 'sweep in gs://bucket/sweep: ' in capsys.readouterr().out


def test_rates_and_seeds_can_be_swept_alone(tmp_path):
    seeds = sweep.runs(config(tmp_path, sweep__seeds=(0, 1)))
    assert [(key, own.workdir) for key, own in seeds.items()] == [
        ((0, seed), str(tmp_path / f'sweep/seed_{seed}')) for seed in (0, 1)
    ]
    rates = sweep.runs(config(tmp_path, seed=7, sweep__learning_rates=(0.1, 0.2)))
    assert list(rates) == [(0, 7), (1, 7)]
    assert [own.schedule.learning_rate for own in rates.values()] == [0.1, 0.2]
    assert not is_sweep(config(tmp_path))
    assert not is_sweep(config(tmp_path, sweep__seeds=(0, 1), debug__batch=3))


def test_every_rank_is_trained_with_every_rate_and_seed(tmp_path):
    made = finetune.get_config('classification')
    changes = {'transfer.method': 'lora', 'sweep.ranks': (2, 4), 'sweep.seeds': (0, 1)}
    made.update_from_flattened_dict({'workdir': str(tmp_path), 'data.dev_fraction': 0.2} | changes)
    runs = sweep.runs(made)
    assert [(own.transfer.rank, own.seed) for own in runs.values()] == [
        (2, 0),
        (2, 1),
        (4, 0),
        (4, 1),
    ]
    assert [pathlib.Path(own.workdir).name for own in runs.values()] == [
        'rank_2_seed_0',
        'rank_2_seed_1',
        'rank_4_seed_0',
        'rank_4_seed_1',
    ]
    accuracies = dict(zip(runs, (0.5, 0.7, 0.9, 0.8), strict=True))
    by_folder = {own.workdir: accuracies[key] for key, own in runs.items()}
    found = sweep.run(made, lambda own, _: results('accuracy', by_folder[own.workdir]))
    assert (found['best'], found['best_run']) == ({'transfer.rank': 4}, 'rank_4_seed_0')
    lines = summary.table(found).splitlines()
    assert lines[0].startswith('| transfer.rank | seeds | accuracy |')
    assert lines[2].startswith('| 4 | 2 | 0.8500 ')


def test_finished_runs_are_not_repeated(tmp_path):
    made = config(tmp_path, sweep__seeds=(0, 1, 2))
    with pytest.raises(KeyboardInterrupt):
        sweep.run(made, Trainer(killed_at=2))
    trainer = Trainer()
    found = sweep.run(made, trainer)
    assert [own.seed for own in trainer.configs] == [2]
    assert found['settings'][0]['metrics']['accuracy']['values'] == pytest.approx([0.8, 0.81, 0.82])
    assert sweep.run(made, None) == found


def test_finished_runs_of_another_config_are_rejected(tmp_path):
    sweep.run(config(tmp_path, sweep__seeds=(0,)), Trainer())
    with pytest.raises(UserError, match='optimizer.beta2 was 0.999, is 0.9'):
        sweep.run(config(tmp_path, sweep__seeds=(0,), optimizer__beta2=0.9), None)


def test_the_table_is_printed_where_stdout_takes_only_ascii(tmp_path, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(raw, 'ascii', write_through=True))
    sweep.run(config(tmp_path, sweep__seeds=(0, 1)), Trainer())
    assert b'0.8050 \\xb1 0.0071' in raw.getvalue()


def test_the_best_rate_has_the_best_mean(tmp_path):
    made = config(tmp_path, sweep__seeds=(0, 1, 2), sweep__learning_rates=(1e-5, 2e-5))
    found = sweep.run(made, Trainer())
    assert found['metric'] == 'accuracy'
    assert found['best'] == {'schedule.learning_rate': 2e-5}
    assert found['best_run'] == 'learning_rate_2e-05_seed_2'
    best = found['settings'][0]['metrics']['accuracy']
    assert best['mean'] == pytest.approx(0.86)
    assert best['sd'] == pytest.approx(0.01)  # of 0.85, 0.86, 0.87
    assert best['low'] is best['high'] is None  # three seeds have a range
    folder = tmp_path / 'sweep'
    assert json.loads((folder / 'results.json').read_text()) == found
    lines = (folder / 'table.md').read_text().splitlines()
    interval = '95% interval of the mean'
    assert lines[0] == f'| schedule.learning_rate | seeds | accuracy | {interval} | f1 |'
    assert lines[2].startswith('| 2e-05 | 3 | 0.8600 ± 0.0100 | range 0.8500 – 0.8700 |')
    assert lines[2].endswith('| 1.7200 ± 0.0200 |')
    assert lines[3].startswith('| 1e-05 | 3 | 0.8100 ± 0.0100 | range 0.8')
    assert (folder / 'plot.png').read_bytes().startswith(b'\x89PNG')
    assert (folder / 'plot.pdf').read_bytes().startswith(b'%PDF')


def test_other_splits_count_with_the_rate_that_is_best_on_dev_for_each_seed(tmp_path):
    made = config(tmp_path, sweep__seeds=(0, 1), sweep__learning_rates=(1e-5, 2e-5))
    dev = {(1e-5, 0): 0.9, (1e-5, 1): 0.5, (2e-5, 0): 0.8, (2e-5, 1): 0.6}
    test = {(1e-5, 0): 0.1, (1e-5, 1): 0.2, (2e-5, 0): 0.3, (2e-5, 1): 0.4}

    def train(own, pause_at):
        key = own.schedule.learning_rate, own.seed
        for split, values in (('dev', dev), ('test', test)):
            folder = pathlib.Path(own.workdir) / split
            folder.mkdir(parents=True)
            files.write_json(folder / 'metrics.json', {'metrics': {'accuracy': values[key]}})
        return results('accuracy', dev[key])

    found = sweep.run(made, train)
    assert found['other_splits'].keys() == {'test'}
    assert found['other_splits']['test']['accuracy']['values'] == [0.1, 0.4]
    lines = (tmp_path / 'sweep/table.md').read_text()
    assert 'test, each seed with its best schedule.learning_rate on dev' in lines
    assert '| accuracy | 0.2500 ± 0.2121 | range 0.1000 – 0.4000 |' in lines


def test_every_seed_draws_its_own_few_examples(tmp_path):
    few = finetune.get_config('few_shot')
    few.workdir = str(tmp_path)
    own = sweep.runs(few)
    assert [(c.seed, c.data.split_seed, c.data.shots) for c in own.values()] == [
        (seed, seed, 16) for seed in (13, 21, 42, 87, 100)
    ]
    full = finetune.get_config('prompt')
    full.sweep.seeds = (1, 2)
    assert [c.data.split_seed for c in sweep.runs(full).values()] == [0, 0]


def test_lower_losses_are_better(tmp_path):
    losses = {1e-5: 0.5, 2e-5: 0.4}

    def train(own, pause_at):
        return results('loss', losses[own.schedule.learning_rate])

    rates = {'sweep__learning_rates': (1e-5, 2e-5)}
    found = sweep.run(config(tmp_path, **rates), train)
    assert (found['metric'], found['best']) == ('loss', {'schedule.learning_rate': 2e-5})
    found = sweep.run(config(tmp_path / 'f1', evaluation__best='f1', **rates), train)
    assert (found['metric'], found['best']) == ('f1', {'schedule.learning_rate': 1e-5})


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(sweep__seeds=(0, 0)), r'sweep.seeds is \(0, 0\)'),
        (dict(sweep__seeds=(-1,)), r'sweep.seeds is \(-1,\)'),
        (dict(sweep__learning_rates=(1e-5, 0.0)), r'sweep.learning_rates is \(1e-05, 0.0\)'),
        (dict(sweep__learning_rates=(1e-5, 1e-5)), 'its values must differ'),
        (dict(sweep__seeds=('a',)), 'all its values must be whole numbers'),
        (dict(sweep__learning_rates=('a',)), 'all its values must be numbers'),
        (dict(sweep__ranks=(0,)), r'sweep.ranks is \(0,\)'),
        (dict(sweep__ranks=(4, 8)), "transfer.method is 'full'"),
        (dict(sweep__seeds=(0, 1), sweep__vmap=True), 'sweep.vmap is for fine-tuning'),
    ],
)
def test_invalid_sweeps_are_rejected(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        sweep.run(config(tmp_path, **changes), None)


def test_a_sweep_without_a_dev_split_is_refused_before_it_trains(tmp_path):
    without = finetune.get_config()
    without.update_from_flattened_dict(
        {'workdir': str(tmp_path), 'sweep.seeds': (0, 1), 'data.dev_fraction': 0.0}
    )
    with pytest.raises(UserError, match='compares runs on a dev split; set data.dev_fraction or'):
        sweep.run(without, None)


def test_the_workdir_of_a_single_run_is_rejected(tmp_path):
    made = config(tmp_path)
    workdir = Workdir.of(made.workdir)
    workdir.claim(made)
    workdir.write_config(made)
    with pytest.raises(UserError, match='holds a single run'):
        sweep.run(config(tmp_path, sweep__seeds=(0, 1)), None)
