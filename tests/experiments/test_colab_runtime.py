"""experiments/colab/runtime.py: versions, installation and restarts, with packages made up here."""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.colab import runtime

PYPROJECT = """
[project]
dependencies = ["madeup_array>=2", "madeup_old>=9; python_version < '3'"]
[project.optional-dependencies]
tpu = ["madeup_array[tpu]"]
"""

# Stands for pip: reports its arguments and installs the array library, with what it requires.
PIP = """
import pathlib, sys
folder = pathlib.Path(__file__).parents[1]
print(' '.join(sys.argv[1:]))
if 'install' in sys.argv:
    sys.path.insert(0, {root!r})
    from tests.experiments.test_colab_runtime import write_distribution
    write_distribution(folder, 'madeup_array', '2.1')
"""

ROOT = pathlib.Path(__file__).parents[2]


def write_distribution(folder: pathlib.Path, name: str, version: str, requires: str = '') -> None:
    """Write an importable package as pip installs it, in the place of an older version."""
    for old in folder.glob(f'{name}-*.dist-info/*'):
        old.unlink()
    for old in folder.glob(f'{name}-*.dist-info'):
        old.rmdir()
    info = folder / f'{name}-{version}.dist-info'
    info.mkdir()
    (folder / f'{name}.py').write_text(f'__version__ = {version!r}\n')
    requirement = f'Requires-Dist: {requires}\n' if requires else ''
    (info / 'METADATA').write_text(f'Name: {name}\nVersion: {version}\n{requirement}')
    (info / 'RECORD').write_text(f'{name}.py,,\n{info.name}/RECORD,,\n')


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of installed packages for this process and for commands."""
    folder = tmp_path / 'packages'
    (folder / 'pip').mkdir(parents=True)
    (folder / 'pip/__init__.py').touch()
    (folder / 'pip/__main__.py').write_text(PIP.format(root=str(ROOT)))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv('PYTHONPATH', str(folder))
    monkeypatch.setenv('PATH', '/usr/bin:/bin')  # without nvidia-smi
    monkeypatch.delitem(sys.modules, 'madeup_array', raising=False)
    monkeypatch.setattr(runtime, 'imported', {})  # as in a new kernel
    yield folder
    sys.modules.pop('madeup_array', None)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / 'a checkout'
    folder.mkdir()
    (folder / 'pyproject.toml').write_text(PYPROJECT)
    return folder


def test_an_older_version_is_replaced(packages, checkout, capfd):
    write_distribution(packages, 'madeup_array', '1.9')
    runtime.prepare(checkout)
    shown = capfd.readouterr().out
    assert 'madeup_array 1.9 is not >=2' in shown
    lock = f'--constraint {checkout}/requirements.lock'
    assert f'install --quiet {lock} --editable {checkout}\n' in shown


def test_nothing_is_installed_where_versions_are_right(packages, checkout, capfd):
    write_distribution(packages, 'madeup_array', '2.0')
    runtime.prepare(checkout)
    assert capfd.readouterr().out == ''


def test_a_restart_is_asked_for_until_it_was_done(packages, checkout):
    write_distribution(packages, 'madeup_array', '1.9')
    __import__('madeup_array')
    for _ in range(2):  # the second time nothing is left to install
        with pytest.raises(runtime.RestartNeeded, match='imported madeup_array 1.9, ') as told:
            runtime.prepare(checkout)
    assert told.value._render_traceback_() == [str(told.value)]
    code = (
        f'from experiments.colab import runtime as r; r.prepare(r.pathlib.Path({str(checkout)!r}))'
    )
    paths = {'PYTHONPATH': f'{packages}:{ROOT}', 'PATH': '/usr/bin:/bin'}
    subprocess.run([sys.executable, '-c', f'import madeup_array; {code}'], env=paths, check=True)


def test_the_same_cell_again_changes_nothing(packages, checkout):
    write_distribution(packages, 'madeup_array', '1.9')
    runtime.prepare(checkout)
    paths = os.environ['PYTHONPATH']
    assert paths.split(os.pathsep)[0] == str(checkout)
    __import__('madeup_array')
    runtime.prepare(checkout)
    assert os.environ['PYTHONPATH'] == paths


def test_an_installation_by_hand_is_noticed_in_modules_that_tell_their_version(
    packages, checkout, monkeypatch
):
    write_distribution(packages, 'madeup_array', '1.9')
    __import__('madeup_array')
    write_distribution(packages, 'madeup_array', '2.0')
    monkeypatch.setattr(runtime, 'TELL_VERSION', ('madeup_array',))
    with pytest.raises(runtime.RestartNeeded, match='it had imported madeup_array 1.9'):
        runtime.prepare(checkout)


@pytest.mark.parametrize('name', ['jax', 'jaxlib', 'numpy'])  # tensorflow: test_colab.py
def test_modules_tell_the_version_of_their_distribution(name):
    names = (name, f'{name}-cpu')
    assert importlib.import_module(name).__version__ in map(runtime.version, names)


def test_a_wrong_version_after_the_installation_stops_the_notebook(packages, checkout):
    (checkout / 'pyproject.toml').write_text(PYPROJECT.replace('>=2', '>=3'))
    with pytest.raises(RuntimeError, match='still wrong .* madeup_array 2.1 is not >=3'):
        runtime.prepare(checkout)


def test_what_packages_require_is_compared_too(packages, checkout):
    line = 'madeup_plugin==2.0; extra == "tpu"'
    write_distribution(packages, 'madeup_array', '2.0', requires=line)
    assert runtime.unmet(runtime.requirements(checkout, '')) == []
    wanted = runtime.requirements(checkout, 'tpu')
    assert runtime.unmet(wanted) == ['madeup_plugin is missing']
    write_distribution(packages, 'madeup_plugin', '1.0')
    assert runtime.unmet(wanted) == ['madeup_plugin 1.0 is not ==2.0']
    write_distribution(packages, 'madeup_plugin', '2.0')
    assert runtime.unmet(wanted) == []


def test_the_plugin_follows_the_hardware(packages, tmp_path, monkeypatch):
    monkeypatch.delenv('JAX_PLATFORMS', raising=False)
    assert runtime.accelerator(tmp_path) == ''
    (tmp_path / 'accel0').touch()
    assert runtime.accelerator(tmp_path) == 'tpu'
    stub = tmp_path / 'bin/nvidia-smi'
    stub.parent.mkdir()
    stub.touch(mode=0o755)
    monkeypatch.setenv('PATH', str(stub.parent))
    assert runtime.accelerator(tmp_path) == 'cuda12'
    write_distribution(packages, 'jax_cuda13_plugin', '1')
    assert runtime.accelerator(tmp_path) == 'cuda13'
    monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
    assert runtime.accelerator(tmp_path) == ''


def test_an_accelerator_that_jax_does_not_use_is_said(monkeypatch):
    monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
    runtime.check_backend('cpu')
    with pytest.raises(RuntimeError, match='has a GPU, but jax does not use it'):
        runtime.check_backend('gpu')
