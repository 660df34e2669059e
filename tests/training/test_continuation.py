"""What may change when a run is resumed, and that the change is logged and kept in config.json."""

import json
import shutil

import jax
import numpy as np
import pytest

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.training.workdir import Workdir
from configs import base, finetune
from tests.training import toy

STAGES = dict(training__steps=(6, 4), checkpoint__every_steps=4, logging__every_steps=1)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp('trained') / 'run'
    toy.train(folder, **STAGES)
    return folder


def resume(before, folder, **changes):
    """Resume a copy of a run: this process has locked the run itself."""
    return toy.train(shutil.copytree(before, folder), **STAGES | changes)


def test_a_run_can_train_longer_with_another_learning_rate(trained, tmp_path, capfd):
    folder = tmp_path / 'run'
    _, results = resume(trained, folder, training__steps=(6, 8), schedule__learning_rate=0.5)
    assert results['steps'] == 14
    told = capfd.readouterr().err
    assert 'changed since the run was started: training.steps was [6, 4], is [6, 8]' in told
    assert 'schedule.learning_rate was' in told
    kept = json.loads((folder / 'config.json').read_text())
    assert kept['training']['steps'] == [6, 8]
    assert kept['schedule']['learning_rate'] == 0.5
    lines = map(json.loads, (folder / 'metrics.jsonl').read_text().splitlines())
    rates = {line['step']: line['learning_rate'] for line in lines if line['kind'] == 'train'}
    assert rates[11] > 0.05 > rates[9]


def test_training_longer_continues_from_the_same_parameters(trained, tmp_path):
    whole, _ = toy.train(tmp_path / 'whole', **STAGES | dict(training__steps=(6, 8)))
    parts, _ = resume(trained, tmp_path / 'parts', training__steps=(6, 8))
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(parts), jax.device_get(whole))


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(training__steps=(7, 4)), r'training.steps was \[6, 4\], is \[7, 4\]'),
        (dict(training__steps=(6,)), r'training.steps was \[6, 4\], is \[6\]'),
        (dict(training__steps=(6, 2)), 'has done 10 steps, but the config asks for 8; set'),
        (dict(optimizer__beta1=0.8), 'optimizer.beta1 was 0.9, is 0.8'),
        (dict(seed=5), 'seed was 0, is 5'),
    ],
)
def test_what_would_make_another_run_of_it_is_refused(trained, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        resume(trained, tmp_path / 'run', **changes)
    for path in ('config.json', 'metrics.jsonl', 'checkpoints/10/metadata.json'):
        assert (tmp_path / 'run' / path).read_bytes() == (trained / path).read_bytes()


def test_another_metric_selects_among_the_evaluations_from_now_on(trained, tmp_path):
    one, two = tmp_path / 'one', tmp_path / 'two'
    longer = dict(training__steps=(6, 8), evaluation__every_steps=2)
    _, results = resume(trained, one, evaluation__best='accuracy', **longer)
    assert results['best_step'] > 10
    _, results = resume(one, two, evaluation__best='loss', **longer)
    assert results['best_step'] is None  # no step was left to evaluate


def test_limits_for_skipped_steps_can_change_either_way(trained, tmp_path):
    folders = [trained, *(tmp_path / name for name in ('on', 'still_on', 'off'))]
    on = dict(spike_factor=50.0, max_skipped_in_row=3)
    for number, limits in enumerate((on, on, {})):
        steps = (6, 6 + 2 * number)
        _, results = resume(folders[number], folders[number + 1], training__steps=steps, **limits)
        assert results['steps'] == sum(steps)


def write(folder, config):
    files.write_json(folder / 'config.json', config.to_dict())
    (folder / 'checkpoints/10').mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize(
    'changes',
    [
        {'init_from': '/moved/weights'},
        {'data.train': ('/moved/train.tsv',), 'data.dev': ('/moved/dev.tsv',)},
        {'evaluation.patience': 3, 'evaluation.best': 'accuracy'},
        {'training.epochs': 5.0},
        {'schedule.name': 'constant'},
    ],
)
def test_files_that_moved_and_the_rest_of_a_fine_tuning_run_can_change(changes, tmp_path):
    config = finetune.get_config()
    write(tmp_path, config)
    config.update_from_flattened_dict(changes)
    told = Workdir.of(tmp_path).check_config(config)
    assert [line.partition(' was ')[0] for line in told] == sorted(changes)


@pytest.mark.parametrize(
    'changes',
    [
        {'data.columns.label': 'stars'},
        {'training.batch_size': 64},
        {'problem.label_smoothing': 0.1},
        {'data.dev_fraction': 0.3},
    ],
)
def test_the_examples_of_a_fine_tuning_run_cannot_change(changes, tmp_path):
    config = finetune.get_config()
    write(tmp_path, config)
    config.update_from_flattened_dict(changes)
    (key,) = changes
    with pytest.raises(UserError, match=rf'holds a run of another config \({key} was .*, is '):
        Workdir.of(tmp_path).check_config(config)


def test_a_folder_in_which_nothing_was_trained_takes_any_config(tmp_path):
    config = base.get_config()
    files.write_json(tmp_path / 'config.json', config.to_dict())
    config.seed = 5
    assert Workdir.of(tmp_path).check_config(config) == []
