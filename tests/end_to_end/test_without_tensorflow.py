"""Without TensorFlow everything trains and answers, with bitwise the same parameters."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sysconfig
import tomllib
import venv

import numpy as np
import pytest
from packaging.requirements import Requirement

from bert_jax import tree_paths
from bert_jax.loaded import checkpoint_arrays
from tests.end_to_end import commands, small
from tests.end_to_end.test_finetuning import SMALL

SENTIMENT = 'bert_jax/labels/samples/sentiment.tsv'
PRETRAINING = {
    'training.steps': (7,),
    'training.sequence_length': (16,),
    'training.batch_size': (16,),
    'training.max_predictions': (3,),
    'checkpoint.every_steps': 3,
    'evaluation.every_steps': 7,
    'logging.every_steps': 1,
}
FINETUNING = SMALL | {'training.steps': 6, 'evaluation.every_steps': 6, 'logging.every_steps': 1}


def flags(changes) -> list[str]:
    return [f'--config.{key}={value}' for key, value in changes.items()]


def pretrain(folder, **options):
    return small.run_alone(folder, *flags(PRETRAINING), **options)


def finetune(folder, **options):
    recipe = '--config=configs/finetune.py:sample_sentiment'
    changes = FINETUNING | {'workdir': folder / 'run'}
    done = commands.run('bert_jax.main', recipe, *flags(changes), **options)
    return done.returncode, done.stderr


def result(folder):
    """The bytes of the final arrays, and all records without times."""
    arrays = tree_paths.flatten(checkpoint_arrays.load(folder / 'run').state)
    records = map(json.loads, (folder / 'run/metrics.jsonl').read_text().splitlines())
    kept = [
        {key: value for key, value in record.items() if 'loss' in key or key in ('kind', 'step')}
        for record in records
    ]
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}, kept


@pytest.fixture(scope='module')
def pretrained(tmp_path_factory):
    """A run with TensorFlow."""
    folder = tmp_path_factory.mktemp('pretrained')
    status, stderr = pretrain(folder)
    assert status == 0, stderr
    return folder


@pytest.mark.parametrize('is_resumed', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_pretraining_ends_with_the_same_parameters(is_resumed, pretrained, tmp_path):
    """A resumed run was killed after five steps with TensorFlow."""
    if is_resumed:
        pretrain(tmp_path, die_at=5)
        assert checkpoint_arrays.load(tmp_path / 'run').step == 3
    status, stderr = pretrain(tmp_path, has_tensorflow=False)
    assert status == 0, stderr
    ours, expected = result(tmp_path), result(pretrained)
    assert ours[0] == expected[0]
    assert [record for record in ours[1] if record['kind'] == 'train'] == [
        record for record in expected[1] if record['kind'] == 'train'
    ]


@pytest.mark.slow  # it reads batches as pretraining does
def test_fine_tuning_ends_with_the_same_parameters_and_answers(tmp_path):
    for name in ('with', 'without'):
        status, stderr = finetune(tmp_path / name, has_tensorflow=name == 'with')
        assert status == 0, stderr
    assert result(tmp_path / 'with') == result(tmp_path / 'without')
    model = tmp_path / 'without/run'
    lines = 'I am very happy with these shoes.\nThey broke.\n'
    options = ('--task=classify', '--input=-', '--output=-')
    answered = commands.run(
        'bert_jax.predict', f'--model={model}', *options, text=lines, has_tensorflow=False
    )
    assert answered.returncode == 0, answered.stderr
    assert len(answered.stdout.splitlines()) == 2
    options = (f'--input={SENTIMENT}', f'--output={tmp_path}/scores')
    evaluated = commands.run(
        'bert_jax.evaluate', f'--model={model}', *options, has_tensorflow=False
    )
    assert evaluated.returncode == 0, evaluated.stderr
    assert 'accuracy' in evaluated.stdout


@pytest.mark.slow
def test_an_environment_without_tensorflow_pretrains_and_finetunes(tmp_path):
    """It has the declared dependencies that Python 3.14 gets, and theirs; nothing else."""
    python = make_environment(tmp_path / 'environment')
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}

    def run(*arguments):
        command = [python, '-m', *map(str, arguments)]
        done = subprocess.run(
            command, cwd=commands.ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run('bert_jax.main', *small.arguments(tmp_path, *flags(PRETRAINING)))
    recipe = '--config=configs/finetune.py:sample_sentiment'
    tuned = {'init_from': tmp_path / 'run', 'workdir': tmp_path / 'tuned', 'training.epochs': 1}
    run('bert_jax.main', recipe, *flags(tuned))
    options = (f'--input={SENTIMENT}', f'--output={tmp_path}/scores')
    assert 'accuracy' in run('bert_jax.evaluate', f'--model={tmp_path}/tuned', *options)


def make_environment(folder: pathlib.Path) -> pathlib.Path:
    """Make a virtual environment with links to the packages of this one; return its Python."""
    venv.create(folder, symlinks=True)
    paths = sysconfig.get_paths('venv', vars={'base': str(folder), 'platbase': str(folder)})
    site = pathlib.Path(paths['purelib'])
    project = tomllib.loads((commands.ROOT / 'pyproject.toml').read_text())['project']
    packages = needed(project['dependencies'])
    assert 'jax' in packages
    assert 'tensorflow' not in str(packages)
    for name in packages:
        distribution = importlib.metadata.distribution(name)
        for part in {file.parts[0] for file in distribution.files if file.parts[0] != '..'}:
            if not (site / part).exists():
                (site / part).symlink_to(distribution.locate_file(part))
    python = folder / 'bin/python'
    code = 'import importlib.util as u; print(u.find_spec("tensorflow"), u.find_spec("torch"))'
    assert subprocess.check_output([python, '-c', code], text=True) == 'None None\n'
    return python


def needed(lines: list[str]) -> set[str]:
    """The distributions for the requirements of Python 3.14, with those that they need here."""
    found = set()
    waiting = [(line, {'python_version': '3.14', 'extra': ''}) for line in lines]
    while waiting:
        line, where = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate(where):
            continue
        for extra in ('', *requirement.extras):
            if (requirement.name, extra) not in found:
                found.add((requirement.name, extra))
                more = importlib.metadata.requires(requirement.name) or []
                waiting += [(line, {'extra': extra}) for line in more]
    return {name for name, _ in found}
