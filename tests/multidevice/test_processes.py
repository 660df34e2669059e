"""Runs the tests marked eight_devices in a process with eight devices.

To run one of them by hand: BERT_JAX_TEST_DEVICES=8 python -m pytest -n 0 FILE
"""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
FILES = sorted(
    str(path.relative_to(TESTS.parent))
    for path in TESTS.rglob('test_*.py')
    if 'pytest.mark.eight_devices' in path.read_text() and path != pathlib.Path(__file__)
)
NONE_SELECTED = 5  # pytest's exit status


def run(files: list[str], marks: str) -> None:
    pytest_command = [sys.executable, '-m', 'pytest', '-n', '0', '-q']
    done = subprocess.run(
        [*pytest_command, '-m', f'eight_devices and {marks}', *files],
        cwd=TESTS.parent,
        env={name: value for name, value in os.environ.items() if name != 'XLA_FLAGS'}
        | {'BERT_JAX_TEST_DEVICES': '8'},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NONE_SELECTED:
        pytest.skip(f'{files} have no such test')
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.splitlines()[-1]
    assert 'passed' in summary
    assert 'skipped' not in summary


def test_on_eight_devices():
    """All files in one process, because every process imports JAX, PyTorch and TensorFlow."""
    run(FILES, 'not slow')


@pytest.mark.slow
@pytest.mark.parametrize('file', FILES)
def test_slowly_on_eight_devices(file):
    run([file], 'slow')
