"""The form of the scripts in findings/; they need a network and are run by hand."""

import os
import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / 'findings'
SCRIPTS = sorted(FOLDER.glob('*.sh'))


@pytest.mark.parametrize('path', SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_states_what_was_seen_and_pins_what_it_installs(path):
    text = path.read_text()
    assert os.access(path, os.X_OK)
    for part in ('# Version', '# Behavior:', '# Output:', 'set -euo pipefail', 'mktemp -d'):
        assert part in text
    (install,) = re.findall(r'pip install .*', text)
    options = {'install', '--quiet', '--no-deps', '--target', '"$folder"', '"$folder/site"', 'pip'}
    packages = [word for word in install.split() if word not in options]
    assert packages
    assert all('==' in package for package in packages)
    assert 'bert_jax' not in text


def test_there_are_findings():
    assert len(SCRIPTS) >= 8
