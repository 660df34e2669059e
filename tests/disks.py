"""Small file systems, for tests of full and read-only disks."""

import contextlib
import pathlib
import subprocess

import pytest


@contextlib.contextmanager
def small(parent: pathlib.Path, size: str):
    """Mount a file system of `size`, such as '6m', on a folder in `parent` and yield the folder.

    Skips the test if mounting is not allowed.
    """
    folder = parent / 'disk'
    folder.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', str(folder)]
    try:
        refused = subprocess.run(command, capture_output=True).returncode
    except FileNotFoundError:
        refused = True
    if refused:
        pytest.skip('mounting a small file system is not allowed')
    try:
        yield folder
    finally:
        subprocess.run(['umount', str(folder)], check=True)
