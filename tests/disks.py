"""Small file systems of their own, for what happens when a disk is full or read-only."""

import contextlib
import pathlib
import subprocess

import pytest


@contextlib.contextmanager
def small(parent: pathlib.Path, size: str):
    """A folder in `parent` on a file system of `size`, as '6m'; skips the test where mounting is
    not allowed."""
    folder = parent / 'disk'
    folder.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', str(folder)]
    try:
        refused = subprocess.run(command, capture_output=True).returncode
    except FileNotFoundError:
        refused = True
    if refused:
        pytest.skip('no right to mount a small file system')
    try:
        yield folder
    finally:
        subprocess.run(['umount', str(folder)], check=True)
