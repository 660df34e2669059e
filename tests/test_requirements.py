"""Versions of dependencies, parts of CI, and what a wheel holds."""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
EXTRAS = PROJECT['optional-dependencies']
LOCKED = [
    Requirement(line)
    for line in (ROOT / 'requirements.lock').read_text().splitlines()
    if not line.startswith('#')
]
PYTHONS = ('3.11', '3.12', '3.13', '3.14')


def applies(requirement: Requirement, python: str, machine: str = 'x86_64') -> bool:
    environment = {
        'python_version': python,
        'python_full_version': f'{python}.0',
        'platform_machine': machine,
        'sys_platform': 'linux',
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def locked(name: str, python: str, machine: str = 'x86_64') -> list[str]:
    """Return the versions of a package that a Python and a machine get: one, or none."""
    return [
        str(found.specifier).removeprefix('==')
        for found in LOCKED
        if canonicalize_name(found.name) == canonicalize_name(name)
        and applies(found, python, machine)
    ]


@pytest.mark.parametrize('python', PYTHONS)
@pytest.mark.parametrize('machine', ['x86_64', 'aarch64'])
@pytest.mark.parametrize(
    'line', [*PROJECT['dependencies'], *(line for extra in EXTRAS.values() for line in extra)]
)
def test_locked_versions_are_in_the_ranges_which_allow_newer_patches(line, machine, python):
    requirement = Requirement(line)
    if requirement.name == 'bert-jax' or not applies(requirement, python, machine):
        return
    (version,) = locked(requirement.name, python, machine)
    assert version in requirement.specifier
    assert f'{version}.1' in requirement.specifier


def test_only_python_3_11_has_an_older_jax():
    """Newer releases of jax need Python 3.12; this lock file must not hold the others back."""
    jax = {python: locked('jax', python) for python in PYTHONS}
    assert jax['3.11'] == ['0.10.2']
    assert jax['3.12'] == jax['3.13'] == jax['3.14']
    assert Version(*jax['3.12']) > Version('0.12')


def test_python_3_14_gets_no_tensorflow():
    for name in ('tensorflow-cpu', 'tensorflow-datasets'):
        assert [len(locked(name, python)) for python in PYTHONS] == [1, 1, 1, 0]


def test_the_lock_file_covers_every_optional_dependency():
    """jax alone chooses the packages of accelerators."""
    extras = re.search(r'^extras=\((.*?)\)', (ROOT / '.ci/lock').read_text(), re.MULTILINE)[1]
    assert {*extras.split()} == {*EXTRAS} - {'tpu', 'cuda12', 'cuda13'}


def test_ci_runs_every_python_that_the_package_names():
    text = (ROOT / '.github/workflows/ci.yml').read_text()
    named = re.findall(r'Python :: (3\.\d+)', '\n'.join(PROJECT['classifiers']))
    tested = re.search(r'python: \[(.*)\]', text)[1]
    assert named == [*PYTHONS] == re.findall(r'"(.*?)"', tested) + ['3.14']
    assert 'python-version: "3.14"' in text


@pytest.mark.parametrize('path', sorted((ROOT / '.github/workflows').glob('*.yml')))
def test_actions_of_workflows_are_pinned_by_hash_and_may_only_read(path):
    text = path.read_text()
    actions = re.findall(r'uses: *\S+@(\S+)', text)
    assert actions
    assert all(re.fullmatch('[0-9a-f]{40}', action) for action in actions)
    assert re.search(r'^permissions:\n  contents: read\n(?!  )', text, re.MULTILINE)
    written = re.findall(r'\S+: write', text)
    assert written == (['id-token: write'] if path.name == 'release.yml' else [])


def test_jobs_of_ci_together_run_every_folder_of_tests():
    """The part "unit" runs all that the parts "parity" and "end-to-end" do not."""
    script = (ROOT / '.ci/run').read_text()
    left_out = re.search(r'slow_to_run=\((.*?)\)', script)[1].split()
    others = re.findall(r'^    (?:parity|end-to-end)\) quick (.*) ;;', script, re.MULTILINE)
    assert sorted(left_out) == sorted(' '.join(others).split())
    assert all((ROOT / folder).is_dir() for folder in left_out)
    matrix = re.search(r'part: \[(.*)\]', (ROOT / '.github/workflows/ci.yml').read_text())[1]
    assert all(f'    {part}) ' in script for part in matrix.split(', '))


def test_a_wheel_says_that_the_package_is_typed(tmp_path):
    """Also guards the recipes and the sample, without which the first command fails."""
    shutil.copytree(
        ROOT,
        tmp_path / 'source',
        ignore=shutil.ignore_patterns('.*', 'tests', 'build', '*.egg-info'),
    )
    build = 'import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])'
    subprocess.run(
        [sys.executable, '-c', build, tmp_path],
        cwd=tmp_path / 'source',
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob('*.whl')
    names = zipfile.ZipFile(wheel).namelist()
    assert {'bert_jax/py.typed', 'configs/base.py'} <= {*names}
    folders = {name.partition('/')[0] for name in names}
    assert {name for name in folders if 'dist-info' not in name} == {'bert_jax', 'configs'}
    assert any(name.startswith('bert_jax/text/sources/sample_books/') for name in names)
