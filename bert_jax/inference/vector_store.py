"""Vectors that are kept on a disk, with what they were computed from.

    FOLDER/vectors.npy     float32 [N, D]
    FOLDER/manifest.json   the origin of the vectors, and the SHA-256 of vectors.npy

Vectors are used again only if model, texts and options are the same; else they are computed anew.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.types import JsonObject

MANIFEST, VECTORS = 'manifest.json', 'vectors.npy'


class Stored(NamedTuple):
    """The vectors of some texts.

    Attributes:
        vectors_ND: float32, memory-mapped.
        news: what happened, for the log; '' if they were used as they are.
    """

    vectors_ND: np.ndarray
    news: str


def load_or_make(
    folder: pathlib.Path, origin: JsonObject, make: Callable[[], np.ndarray]
) -> Stored:
    """Return the vectors in a folder, or make and keep them there.

    Args:
        folder: the folder; missing or empty, or with vectors, which are replaced if their origin
            differs.
        origin: what the vectors depend on, JSON values by name, such as {'model': DIGEST}.
        make: computes the vectors, float32 [N, D].

    Raises:
        UserError: the folder has other files, cannot be written, or its vectors are damaged.
    """
    news = f'vectors written to {folder}'
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = _read_manifest(folder)['origin']
        if found == origin:
            return Stored(_open(folder), '')
        changed = [name for name in origin if found.get(name) != origin[name]]
        news = f'vectors in {folder} computed anew: changed {", ".join(changed)}'
    vectors_ND = np.asarray(make(), np.float32)
    with files.new_folder(folder, MANIFEST, overwrite=True) as partial:
        np.save(partial / VECTORS, vectors_ND)
        content = {'origin': origin, 'sha256': files.sha256(partial / VECTORS)}
        files.write_json(partial / MANIFEST, content)
    return Stored(_open(folder), news)


def digest(origin: JsonObject) -> str:
    """SHA-256 of JSON values."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()


def _read_manifest(folder: pathlib.Path) -> JsonObject:
    """Read the manifest. Raises UserError if the folder was not made by this module."""
    path = folder / MANIFEST
    if not folder.is_dir() or not path.is_file():
        raise UserError(f'--vectors={folder} has no vectors; choose a new or an empty folder')
    manifest: JsonObject = files.read_json(path)
    if not isinstance(manifest.get('origin'), dict) or not isinstance(manifest.get('sha256'), str):
        raise UserError(f'{path} is not a manifest of vectors; choose another folder')
    return manifest


def _open(folder: pathlib.Path) -> np.ndarray:
    path = folder / VECTORS
    if not path.is_file() or files.sha256(path) != _read_manifest(folder)['sha256']:
        raise UserError(f'{path} is damaged; remove {folder} to compute its vectors anew')
    vectors_ND: np.ndarray = np.load(path, mmap_mode='r', allow_pickle=False)
    return vectors_ND
