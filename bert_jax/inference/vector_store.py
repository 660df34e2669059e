"""Vectors that are kept on a disk, with what they were computed from.

    FOLDER/vectors.npy     float32 [N, D]; or vectors.npz, a sparse matrix of SciPy
    FOLDER/manifest.json   the origin of the vectors, what was counted while they were computed, and
                           the SHA-256 of the other file

Vectors are used again only if model, texts and options are the same; else they are computed anew.
"""

import hashlib
import json
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.types import JsonObject

MANIFEST, VECTORS, SPARSE = 'manifest.json', 'vectors.npy', 'vectors.npz'

Vectors: TypeAlias = np.ndarray | sparse.csr_array  # float32 [N, D]


class Stored(NamedTuple):
    """The vectors of some texts.

    Attributes:
        vectors_ND: dense ones are memory-mapped.
        news: what happened, for the log; '' if they were used as they are.
    """

    vectors_ND: Vectors
    news: str


def load_or_make(
    folder: pathlib.Path,
    origin: JsonObject,
    make: Callable[[], Vectors],
    counts: Counter[str],
) -> Stored:
    """Return the vectors in a folder, or make and keep them there.

    Args:
        folder: the folder; missing or empty, or with vectors, which are replaced if their origin
            differs.
        origin: what the vectors depend on, JSON values by name, such as {'model': DIGEST}.
        make: computes the vectors.
        counts: what `make` counts, such as truncated texts; kept with the vectors, and added again
            when they are used again.

    Raises:
        UserError: the folder has other files, cannot be written, or its vectors are damaged.
    """
    news = f'vectors written to {folder}'
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        manifest = _read_manifest(folder)
        found = manifest['origin']
        if found == origin:
            counts.update(manifest['counts'])
            return Stored(_open(folder), '')
        changed = [name for name in origin if found.get(name) != origin[name]]
        news = f'vectors in {folder} computed anew: changed {", ".join(changed)}'
    before = counts.copy()
    vectors_ND = make()
    counted = {what: n - before[what] for what, n in counts.items() if n > before[what]}
    with files.new_folder(folder, MANIFEST, overwrite=True) as partial:
        if isinstance(vectors_ND, np.ndarray):
            np.save(path := partial / VECTORS, np.asarray(vectors_ND, np.float32))
        else:
            sparse.save_npz(path := partial / SPARSE, vectors_ND, compressed=False)
        content = {'origin': origin, 'counts': counted, 'sha256': files.sha256(path)}
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
    kinds = {'origin': dict, 'counts': dict, 'sha256': str}
    if not all(isinstance(manifest.get(name), kind) for name, kind in kinds.items()):
        raise UserError(f'{path} is not a manifest of vectors; choose another folder')
    return manifest


def _open(folder: pathlib.Path) -> Vectors:
    path = folder / VECTORS
    if (folder / SPARSE).is_file():
        path = folder / SPARSE
    if not path.is_file() or files.sha256(path) != _read_manifest(folder)['sha256']:
        raise UserError(f'{path} is damaged; remove {folder} to compute its vectors anew')
    if path.name == SPARSE:
        return sparse.csr_array(sparse.load_npz(path))
    vectors_ND: np.ndarray = np.load(path, mmap_mode='r', allow_pickle=False)
    return vectors_ND
