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

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
EXTRAS = PROJECT['optional-dependencies']
LOCKED = dict(
    line.split('==')
    for line in (ROOT / 'requirements.lock').read_text().lower().replace('_', '-').splitlines()
    if not line.startswith('#')
)


@pytest.mark.parametrize(
    'line', [*PROJECT['dependencies'], *(line for extra in EXTRAS.values() for line in extra)]
)
def test_locked_versions_are_in_the_ranges_which_allow_newer_patches(line):
    requirement = Requirement(line)
    if requirement.name in ('bert-jax', 'tensorflow'):  # tensorflow: for other processors
        return
    version = LOCKED[requirement.name.lower().replace('_', '-')]
    assert version in requirement.specifier
    assert f'{version}.1' in requirement.specifier


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
