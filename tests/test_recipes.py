"""Recipes are found from any folder, also after an installation."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

from bert_jax import recipes
from tests.end_to_end import small

ROOT = pathlib.Path(__file__).parents[1]
PRINT = '--print_config'
OWN = """
from configs import tiny

def get_config():
    config = tiny.get_config()
    config.workdir = 'runs/mine'
    return config
"""


def test_a_recipe_is_located_by_its_name_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = ROOT / 'configs'
    assert recipes.locate('configs/tiny.py') == f'{folder}/tiny.py'
    assert recipes.locate('configs/finetune.py:sst2') == f'{folder}/finetune.py:sst2'


def test_other_files_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / 'configs/tiny.py'
    own.parent.mkdir()
    own.touch()
    for file in ('configs/tiny.py', 'configs/missing.py', 'base.py'):
        assert recipes.locate(file) == file


@pytest.mark.parametrize('hidden', [False, True])
def test_a_recipe_imports_configs_unless_a_package_of_that_name_hides_them(hidden, tmp_path):
    (tmp_path / 'configs').mkdir()
    (tmp_path / 'mine.py').write_text(OWN)
    if hidden:
        (tmp_path / 'configs/__init__.py').touch()
    code = (
        'import sys\n'
        'for finder in list(sys.meta_path):  # of a development install\n'
        "    if '__editable__' in getattr(finder, '__module__', ''):\n"
        '        sys.meta_path.remove(finder)\n'
        "from bert_jax import recipes; print(recipes.load('mine.py').workdir)"
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ('' if hidden else 'runs/mine\n'), done.stderr
    assert (f'the recipes of bert_jax are in {ROOT}/configs' in done.stderr) == hidden


@pytest.mark.slow
def test_an_installed_wheel_trains_and_predicts_in_another_folder(tmp_path):
    """The wheel with the dependencies of this environment, without the checkout on the path."""
    python, site = [sys.executable, '-m'], tmp_path / 'site'
    wheel = ['wheel', '--quiet', '--no-deps', '--wheel-dir', str(tmp_path), str(ROOT)]
    subprocess.run([*python, 'pip', *wheel], check=True)
    (built,) = tmp_path.glob('*.whl')
    subprocess.run(
        [*python, 'pip', 'install', '--quiet', '--no-deps', '--target', str(site), str(built)],
        check=True,
    )
    environment = os.environ | {'PYTHONPATH': f'{site}:{sysconfig.get_paths()["purelib"]}'}

    def run(command: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(site / 'bin/bert-jax'), command, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / 'configs').mkdir()  # a folder of the user's hides nothing
    (tmp_path / 'configs/mine.py').write_text(OWN)
    assert "workdir = 'runs/mine'" in run('train', '--config=configs/mine.py', PRINT)
    assert "workdir = 'runs/tiny'" in run('train', '--config=configs/tiny.py', PRINT)
    arguments = small.arguments(tmp_path, '--config.training.steps=(4, 2)')
    run('train', *arguments)
    (tmp_path / 'texts.txt').write_text('The [MASK] and the gull .\n')
    answer = run(
        'predict',
        f'--model={tmp_path}/run',
        '--task=fill_mask',
        '--input=texts.txt',
        '--output=-',
    )
    assert answer.count('\n') == 1
    run('prepare', '--input=sample', '--tokenizer=train:wordpiece:300', '--output=books')
    assert 'files: 18' in (tmp_path / 'books/DATASHEET.md').read_text()
