"""The notebooks of experiments/colab: executed with small parameters, and their stored outputs."""

import csv
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys

import nbclient
import nbformat
import pytest

from experiments.colab.execute import NAMES, digest
from tests.end_to_end import small

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / 'experiments/colab'


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)


def tagged(notebook: nbformat.NotebookNode, tag: str) -> nbformat.NotebookNode:
    """The cell with a tag."""
    (cell,) = (cell for cell in notebook.cells if tag in cell.metadata.get('tags', ()))
    return cell


def execute(notebook: nbformat.NotebookNode, folder: pathlib.Path, **parameters) -> str:
    """Run a notebook in a folder and return all that it shows, as text.

    The cell tagged `parameters` gets other values.
    """
    cell = tagged(notebook, 'parameters')
    for name, value in parameters.items():
        assert f'{name} = ' in cell.source
        cell.source += f'\n{name} = {value!r}'
    for cell in notebook.cells:
        if cell.cell_type == 'code':
            cell.outputs, cell.execution_count = [], None
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={'metadata': {'path': folder}}
    )
    client.execute()
    return json.dumps([cell.get('outputs', []) for cell in notebook.cells])


@pytest.fixture(autouse=True)
def _checkout(monkeypatch):
    """The notebook finds the checkout, although it runs in another folder."""
    monkeypatch.setenv('BERT_JAX_CHECKOUT', str(ROOT))
    one_device = '--xla_force_host_platform_device_count=1'
    monkeypatch.setenv('XLA_FLAGS', f'{os.environ["XLA_FLAGS"]} {one_device}')


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A run of the notebook `tiny`, and what it shows."""
    folder = tmp_path_factory.mktemp('tiny')
    options = ' '.join(
        shlex.quote(argument)
        for argument in small.arguments(folder, '--config.training.steps=(6, 4)')
        if not argument.startswith(('--config=', '--config.workdir='))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('BERT_JAX_CHECKOUT', str(ROOT))
        shown = execute(read('tiny'), folder, workdir=str(folder / 'run'), options=options)
    return folder / 'run', shown


def test_the_notebook_that_pretrains(run):
    folder, shown = run
    assert (folder / 'results.json').exists()
    assert 'image/png' in shown
    assert '| predict hidden tokens | ' in shown


def test_the_notebook_that_explores(run, tmp_path):
    folder, _ = run
    shown = execute(read('explore'), tmp_path, path=str(folder), show_page=True)
    assert shown.count('image/png') == 1
    assert '| The children were very happy. | -' in shown
    assert '<iframe srcdoc=' in shown
    assert 'class=&quot;' in shown  # the page, escaped


def test_the_notebook_that_writes(run, tmp_path):
    folder, _ = run
    shown = execute(read('generation'), tmp_path, path=str(folder), new_tokens=4)
    assert shown.count('image/png') == 1
    assert '| The old man | The old man' in shown
    assert '| The old man went home. | -' in shown


def test_without_the_run_of_another_notebook_one_line_says_so(tmp_path):
    notebook = read('explore')
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        execute(notebook, tmp_path)
    (failed,) = (cell for cell in notebook.cells if 'bert_jax.load' in cell.source)
    (shown,) = failed.outputs
    assert len(shown.traceback) == 1
    assert 'no folder runs/tiny: run tiny.ipynb first' in shown.traceback[0]


@pytest.mark.slow
def test_the_notebook_that_fine_tunes(tmp_path):
    shown = execute(read('finetune'), tmp_path)
    assert shown.count('image/png') == 2
    assert '| Sara sat by the fire in the attic. | Burnett | ' in shown
    rows = {name: read_rows(tmp_path / name) for name in ('train.csv', 'dev.csv')}
    assert min(len(set(texts)) for texts in rows.values()) > 1000
    assert not set(rows['train.csv']) & set(rows['dev.csv'])
    results = json.loads((tmp_path / 'runs/authors/results.json').read_text())
    assert results['held_out']['accuracy'] > 0.75  # the most frequent label: 0.52


def read_rows(path):
    with path.open(newline='') as file:
        return [row['text'] for row in csv.DictReader(file)]


def test_a_command_that_fails_stops_the_notebook(tmp_path):
    notebook = read('tiny')
    with pytest.raises(nbclient.exceptions.CellExecutionError, match='ended with status 2'):
        execute(notebook, tmp_path, options='--config.no_such_key=1')
    (failed,) = (cell for cell in notebook.cells if 'bert_jax.main' in cell.source)
    later = notebook.cells[notebook.cells.index(failed) + 1 :]
    assert 'unknown config key no_such_key' in json.dumps(failed.outputs)
    assert {cell.execution_count for cell in later if cell.cell_type == 'code'} == {None}


def test_the_first_cell_clones_unless_there_is_a_checkout(tmp_path, monkeypatch):
    monkeypatch.delenv('BERT_JAX_CHECKOUT')
    monkeypatch.delenv('PYTHONPATH', raising=False)
    repository = tmp_path / 'published'
    (repository / 'bert_jax').mkdir(parents=True)
    (repository / 'bert_jax/__init__.py').write_text('is_a_clone = True\n')
    git = ['git', '-C', repository, '-c', 'user.name=x', '-c', 'user.email=x@y.z']
    for command in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'all']):
        subprocess.run([*git, *command], check=True)
    (tmp_path / 'here').mkdir()

    def run_cell(url: str) -> subprocess.CompletedProcess:
        empty = 'repository = ""'
        source = tagged(read('tiny'), 'setup').source
        assert empty in source
        code = source.replace(empty, f'repository = {url!r}')
        code += '\nimport bert_jax; print(bert_jax.is_a_clone)'
        return subprocess.run(
            [sys.executable, '-c', code],
            cwd=tmp_path / 'here',
            capture_output=True,
            text=True,
            check=False,
        )

    assert 'set `repository` above' in run_cell('').stderr
    missing = run_cell(f'file://{tmp_path}/none')
    assert missing.returncode == 1
    assert 'RuntimeError: the command ended with status 128: git clone' in missing.stderr
    done = run_cell(f'file://{repository}')
    assert done.stdout.endswith('True\n'), done.stderr
    again = run_cell('')  # the clone is a checkout
    assert again.stdout == 'True\n', again.stderr


@pytest.mark.parametrize('name', NAMES)
def test_stored_outputs_are_those_of_the_code(name):
    notebook = read(name)
    assert notebook.metadata.executed_code == digest(notebook), 'run experiments/colab/execute.py'
    code = [cell for cell in notebook.cells if cell.cell_type == 'code']
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert all(output.output_type in ('stream', 'display_data') for output in outputs)
    shown = json.dumps(outputs)
    assert '| --- |' in shown
    assert 'image/png' in shown
    assert len(shown) < 500_000


@pytest.mark.parametrize('name', NAMES)
def test_stored_outputs_name_no_folder_and_no_machine(name):
    for cell in read(name).cells:
        for output in cell.get('outputs', ()):
            text = output.get('text') or str(output.data.get('text/markdown', ''))
            assert not re.search(r'(?<![\w.:/])/(tmp|home|root|work|usr|content|Users)\b', text)
            assert socket.gethostname() not in text


@pytest.mark.parametrize('name', NAMES)
def test_a_badge_leads_to_colab(name):
    assert '[![Open in Colab](' in read(name).cells[0].source
    assert f'/blob/main/experiments/colab/{name}.ipynb' in tagged(read(name), 'setup').source
