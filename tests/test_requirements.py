"""Versions of dependencies: ranges for users, one set for the tests; actions of CI by hash."""

import pathlib
import re
import tomllib

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


def test_actions_of_ci_are_pinned_by_hash_and_may_only_read():
    for path in (ROOT / '.github/workflows').glob('*.yml'):
        text = path.read_text()
        actions = re.findall(r'uses: *\S+@(\S+)', text)
        assert actions
        assert all(re.fullmatch('[0-9a-f]{40}', action) for action in actions)
        assert re.search(r'^permissions:\n  contents: read\n(?!  )', text, re.MULTILINE)
        assert 'write' not in text
