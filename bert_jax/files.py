"""Hashing files, and flushing them to disk."""

import hashlib
import os
import pathlib


def sha256(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file's contents, in hexadecimal."""
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def sync(path: pathlib.Path) -> None:
    """Wait until the contents of a file, or the entries of a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
