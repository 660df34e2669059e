"""The notebooks, each from its first cell, in an imitation of Colab: versions, kernel, no checkout.

Needs `python3.13`, pip's index and 3 GB of disk; the environment alone takes minutes. Python's
version and the packages that the notebooks do not use are not Colab's.
"""

import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import time

import nbclient
import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager

from experiments.colab.execute import NAMES, copy_checkout
from tests.experiments.test_notebooks import read, small_options, tagged

VERSIONS = pathlib.Path(__file__).parent / 'colab_versions.txt'
OUTSIDE = ('PYTHONPATH', 'XLA_FLAGS', 'JAX_PLATFORMS', 'JAX_COMPILATION_CACHE_DIR')
# Its kernel has imported numpy and PIL before the first cell (google/colab/_reprs.py).
KERNEL = (
    *('-m', 'ipykernel_launcher', '-f', '{connection_file}'),
    '--IPKernelApp.exec_lines=import numpy, PIL.Image',
)

# Of masked diffusion, within the 32 positions of the small run that it continues.
ONE_STAGE = ('steps=(4,)', 'sequence_length=(32,)', 'max_predictions=(32,)')

pytestmark = pytest.mark.slow


@dataclasses.dataclass(frozen=True)
class Colab:
    python: pathlib.Path
    content: pathlib.Path  # /content there: the folder in which kernels start
    repository: str

    def run(self, name: str, **parameters) -> str:
        """Run a notebook as a user who restarts when told so; return all that it shows, as JSON."""
        restarts = 0
        while True:
            notebook = self.notebook(name, parameters)
            try:
                self.execute(notebook)
            except nbclient.exceptions.CellExecutionError:
                if restarts or 'Restart the session' not in shown(tagged(notebook, 'setup')):
                    raise
                restarts += 1
            else:
                return json.dumps({'restarts': restarts, 'shown': shown(*notebook.cells)})

    def notebook(self, name: str, parameters: dict) -> nbformat.NotebookNode:
        notebook = read(name)
        empty = "repository = ''"
        assert empty in tagged(notebook, 'setup').source
        setup = tagged(notebook, 'setup')
        setup.source = setup.source.replace(empty, f'repository = {self.repository!r}')
        for key, value in parameters.items():
            tagged(notebook, 'parameters').source += f'\n{key} = {value!r}'
        for cell in notebook.cells:
            if cell.cell_type == 'code':
                cell.outputs, cell.execution_count = [], None
        return notebook

    def execute(self, notebook: nbformat.NotebookNode) -> None:
        manager = AsyncKernelManager()
        manager.kernel_spec.argv = [str(self.python), *KERNEL]
        outside = {name for name in os.environ if name.startswith('BERT_JAX')} | {*OUTSIDE}
        nbclient.NotebookClient(
            notebook, km=manager, timeout=3600, resources={'metadata': {'path': self.content}}
        ).execute(
            cleanup_kc=True,  # also ends the kernel
            env={key: value for key, value in os.environ.items() if key not in outside},
        )


def shown(*cells: nbformat.NotebookNode) -> str:
    return json.dumps([cell.get('outputs', []) for cell in cells])


@pytest.fixture(scope='module')
def colab(tmp_path_factory):
    python = shutil.which('python3.13')
    if not python or subprocess.run([python, '--version'], check=False).returncode:
        pytest.skip("no python3.13, which is Colab's")
    folder = tmp_path_factory.mktemp('colab')
    subprocess.run([python, '-m', 'venv', folder / 'env'], check=True)
    inside = folder / 'env/bin/python'
    # All versions are given, so that pip has nothing to resolve.
    install = [inside, '-m', 'pip', 'install', '--quiet', '--no-deps', '-r', VERSIONS]
    subprocess.run(install, check=True)
    rename_tensorflow(next((folder / 'env/lib').glob('python*/site-packages')))
    repository = copy_checkout(folder / 'published')
    git = ['git', '-C', repository, '-c', 'user.name=x', '-c', 'user.email=x@y.z']
    for command in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'all']):
        subprocess.run([*git, *command], check=True)
    content = folder / 'content'
    content.mkdir()
    yield Colab(inside, content, f'file://{repository}')
    shutil.rmtree(folder / 'env')


def rename_tensorflow(packages: pathlib.Path) -> None:
    """Let the distribution be called tensorflow, as in Colab."""
    (old,) = packages.glob('tensorflow_cpu-*.dist-info')
    new = old.with_name(old.name.replace('_cpu', ''))
    old.rename(new)
    for name in ('METADATA', 'RECORD'):
        text = (new / name).read_text()
        (new / name).write_text(
            text.replace('Name: tensorflow_cpu', 'Name: tensorflow').replace(old.name, new.name)
        )


def test_colab_lacks_what_the_package_needs(colab):
    """The other tests would pass without an installation, were this environment complete."""
    command = [colab.python, '-m', 'bert_jax.main', '--config=configs/tiny.py']
    source = colab.repository.removeprefix('file://')
    done = subprocess.run(command, cwd=source, env={}, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "ModuleNotFoundError: No module named 'ml_collections'" in done.stderr


@pytest.fixture(scope='module')
def tiny(colab):
    """What `tiny` shows, the first notebook in the new environment, and how long it takes."""
    before = time.monotonic()
    result = colab.run('tiny', options=small_options(colab.content))
    return result, time.monotonic() - before


def test_the_package_is_installed_the_kernel_restarted_and_tiny_pretrains(colab, tiny):
    result, seconds = tiny
    print(f'tiny with its installation: {seconds:.0f} s')
    assert json.loads(result)['restarts'] == 1
    assert 'image/png' in result
    assert (colab.content / 'runs/tiny/results.json').exists()
    command = [colab.python, '-m', 'pip', 'list', '--format=json']
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    versions = {each['name'].lower(): each['version'] for each in json.loads(listed)}
    assert versions['jax'] == versions['jaxlib'] != '0.7.2'
    assert 'tensorflow' not in versions  # tensorflow-cpu took its place


@pytest.mark.parametrize('name', [name for name in NAMES if name != 'tiny'])
def test_the_other_notebooks(colab, tiny, name, tmp_path):
    """In folders of their own: a runtime of Colab has one notebook and no run of another."""
    own = dataclasses.replace(colab, content=tmp_path)
    options = small_options(tmp_path)
    data = [flag for flag in shlex.split(options) if flag.startswith('--config.data.')]
    one_stage = [f'--config.training.{key}' for key in ONE_STAGE]
    parameters = {
        'explore': {'options': options},
        'generation': {
            'tiny_options': options,
            'options': shlex.join([*data, *one_stage]),
            'new_tokens': 4,
        },
        'finetune': {},
        'python': {'steps': (6, 4), 'epochs': 0.1},
    }
    result = own.run(name, **parameters[name])
    assert json.loads(result)['restarts'] == 0
    assert 'image/png' in result
