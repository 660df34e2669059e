"""The notebooks of experiments/colab: executed with small parameters, and their stored outputs."""

import copy
import csv
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys

import nbclient
import nbformat
import pytest

from bert_jax import figures
from experiments.colab.execute import FIRST_CELL, NAMES, badge, digest, write_headings
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

    The cell tagged `parameters` gets other values. The folder has a checkout, as after a clone.
    """
    if not (folder / 'bert_jax').exists():
        (folder / 'bert_jax').symlink_to(ROOT)
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
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(figures.VARIABLE, '1')  # the notebooks show them
        client.execute()
    return json.dumps([cell.get('outputs', []) for cell in notebook.cells])


def small_options(folder: pathlib.Path) -> str:
    """Flags that reduce configs/tiny.py to a run of seconds."""
    arguments = small.arguments(
        folder, '--config.training.steps=(6, 4)', '--config.evaluation.cloze_examples=2'
    )
    return shlex.join(
        argument
        for argument in arguments
        if not argument.startswith(('--config=', '--config.workdir='))
    )


@pytest.fixture(autouse=True, scope='module')
def _environment():
    """One device, and no installation into this environment, which must have what is needed."""
    with pytest.MonkeyPatch.context() as patch:
        one_device = '--xla_force_host_platform_device_count=1'
        patch.setenv('XLA_FLAGS', f'{os.environ.get("XLA_FLAGS", "")} {one_device}')
        patch.setenv('PIP_DRY_RUN', '1')
        yield


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A run of the notebook `tiny`, and what it shows."""
    folder = tmp_path_factory.mktemp('tiny')
    options = small_options(folder)
    shown = execute(read('tiny'), folder, workdir=str(folder / 'run'), options=options)
    return folder / 'run', shown


def test_the_notebook_that_pretrains(run):
    folder, shown = run
    assert (folder / 'results.json').exists()
    assert 'image/png' in shown
    assert '| predict hidden tokens | ' in shown


@pytest.mark.slow  # its cells call what tests/analyze and tests/page test
def test_the_notebook_that_explores(run, tmp_path):
    folder, _ = run
    shown = execute(read('explore'), tmp_path, path=str(folder), show_page=True)
    assert shown.count('image/png') == 1
    assert '| The children were very happy. | -' in shown
    assert '<iframe srcdoc=' in shown
    assert 'class=&quot;' in shown  # the page, escaped


@pytest.mark.slow  # its cells call what tests/inference/test_generation.py tests
def test_the_notebook_that_writes(run, tmp_path):
    folder, _ = run
    shown = execute(read('generation'), tmp_path, path=str(folder), new_tokens=4)
    assert shown.count('image/png') == 1
    assert '| The old man | The old man' in shown
    assert '| The old man went home. | -' in shown


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


@pytest.mark.parametrize(
    ('name', 'flags'),
    [('tiny', 'options'), ('explore', 'options'), ('generation', 'tiny_options')],
)
def test_a_command_that_fails_stops_the_notebook(name, flags, tmp_path):
    """Explore and generation run the command of tiny, whose run is not there."""
    notebook = read(name)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match='ended with status 2'):
        execute(notebook, tmp_path, **{flags: '--config.no_such_key=1'})
    failed = next(cell for cell in notebook.cells if 'configs/tiny.py' in cell.source)
    later = notebook.cells[notebook.cells.index(failed) + 1 :]
    assert 'unknown config key no_such_key' in json.dumps(failed.outputs)
    assert {cell.execution_count for cell in later if cell.cell_type == 'code'} == {None}


def test_the_first_cell_clones_unless_there_is_a_checkout(tmp_path, monkeypatch):
    monkeypatch.delenv('PYTHONPATH', raising=False)
    repository = tmp_path / 'published'
    (repository / 'bert_jax').mkdir(parents=True)
    (repository / 'bert_jax/__init__.py').write_text('is_a_clone = True\n')
    (repository / 'pyproject.toml').write_text(
        '[project]\ndependencies = []\noptional-dependencies = {}\n'
    )
    (repository / 'experiments/colab').mkdir(parents=True)
    shutil.copy(FOLDER / 'runtime.py', repository / 'experiments/colab')
    git = ['git', '-C', repository, '-c', 'user.name=x', '-c', 'user.email=x@y.z']
    for command in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'all']):
        subprocess.run([*git, *command], check=True)
    (tmp_path / 'here').mkdir()

    def run_cell(url: str) -> subprocess.CompletedProcess:
        empty = "repository = ''"
        assert empty in FIRST_CELL
        code = FIRST_CELL.replace(empty, f'repository = {url!r}')
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
    assert 'returned non-zero exit status 128' in missing.stderr
    assert 'none' in missing.stderr
    done = run_cell(f'file://{repository}')
    assert done.stdout == 'True\n', done.stderr
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
def test_first_cells_and_badges_are_those_of_one_file(name):
    notebook = read(name)
    written = copy.deepcopy(notebook)
    write_headings(name, written)
    assert written == notebook, 'run experiments/colab/execute.py --only-headings'
    first = next(cell for cell in notebook.cells if cell.cell_type == 'code')
    assert first.source == FIRST_CELL


def test_a_badge_leads_to_the_notebook_once_there_is_an_address():
    colab = 'https://colab.research.google.com/'
    link = f'({colab}github/someone/name/blob/main/experiments/colab/tiny.ipynb)'
    assert badge('tiny', 'https://github.com/someone/name.git').endswith(link)
    assert f'({colab})\n(there, upload this file' in badge('tiny', '')
