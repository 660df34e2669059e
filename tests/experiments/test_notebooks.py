"""The notebooks of experiments/colab, executed with small parameters."""

import json
import os
import pathlib
import shlex

import nbclient
import nbformat
import pytest

from tests.end_to_end import small

FOLDER = pathlib.Path(__file__).parents[2] / 'experiments/colab'


def execute(notebook_name: str, folder: pathlib.Path, **parameters) -> str:
    """Run a notebook in a folder and return all that it shows, as text.

    The cell tagged `parameters` gets other values, and the one tagged `install` is left out.
    """
    notebook = nbformat.read(FOLDER / notebook_name, as_version=4)
    (cell,) = (cell for cell in notebook.cells if 'parameters' in cell.metadata.get('tags', ()))
    for name, value in parameters.items():
        assert f'{name} = ' in cell.source
        cell.source += f'\n{name} = {value!r}'
    notebook.cells = [c for c in notebook.cells if 'install' not in c.metadata.get('tags', ())]
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={'metadata': {'path': folder}}
    )
    client.execute()
    return json.dumps([cell.get('outputs', []) for cell in notebook.cells])


@pytest.fixture(autouse=True)
def _checkout_on_the_path(monkeypatch):
    """The kernel finds the package without an installation."""
    root = str(pathlib.Path(__file__).parents[2])
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join([root, os.environ.get('PYTHONPATH', '')]))
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
        patch.setenv('PYTHONPATH', str(pathlib.Path(__file__).parents[2]))
        shown = execute('tiny.ipynb', folder, workdir=str(folder / 'run'), options=options)
    return folder / 'run', shown


def test_the_notebook_that_pretrains(run):
    folder, shown = run
    assert (folder / 'results.json').exists()
    assert 'image/png' in shown
    assert 'tokens_per_second' in shown


def test_the_notebook_that_explores(run, tmp_path):
    folder, _ = run
    shown = execute('explore.ipynb', tmp_path, path=str(folder))
    assert shown.count('image/png') == 1
    assert 'Likelihood' in shown
    assert '<iframe srcdoc=' in shown
    assert 'class=&quot;' in shown  # the page, escaped


@pytest.mark.slow
def test_the_notebook_that_fine_tunes(tmp_path):
    shown = execute('finetune.ipynb', tmp_path)
    assert 'image/png' in shown
    assert "'predicted': 'positive'" in shown
