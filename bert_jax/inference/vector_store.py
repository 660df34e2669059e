"""Vectors that are kept on a disk, with what they were computed from.

    FOLDER/vectors.npy     float32 [N, D]; or vectors.npz, a sparse matrix of SciPy
    FOLDER/manifest.json   the origin of the vectors, what was counted while they were computed, and
                           the SHA-256 of the other file

Vectors are used again only if model, texts and options are the same; else they are computed anew.
"""

import hashlib
import io
import json
import os
import pathlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from bert_jax import errors, files
from bert_jax.errors import UserError, report
from bert_jax.storage import partial_files
from bert_jax.storage.partial_files import PartialFiles
from bert_jax.types import JsonObject

MANIFEST, VECTORS, SPARSE = 'manifest.json', 'vectors.npy', 'vectors.npz'
_TEXTS_AT_ONCE = 4096  # batched together, sorted by length; a kill loses the vectors of as many

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
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Vectors],
    counts: Counter[str],
) -> Stored:
    """Return the vectors in a folder, or make and keep them there.

    They are made a part at a time in FOLDER.partial, from which the next process resumes.

    Args:
        folder: the folder; missing or empty, or with vectors, which are replaced if their origin
            differs.
        origin: what the vectors depend on, JSON values by name, such as {'model': DIGEST}.
        texts: what they are the vectors of.
        encode: computes the vectors of some texts.
        counts: what `encode` counts, such as truncated texts; kept with the vectors, and added
            again when they are used again.

    Raises:
        UserError: the folder has other files, cannot be written, or its vectors are damaged.
    """
    stored, news = _read(folder, origin, counts)
    if stored is not None:
        return stored
    place = f'the folder of the vectors, --vectors={folder},'
    with errors.writing(place), partial_files.resumed(folder, can_wait=True) as partial:
        stored, _ = _read(folder, origin, counts)
        if stored is not None:  # made by the process that this one has waited for
            return stored
        _make(partial, folder, origin, texts, encode, counts)
    return Stored(_open(folder), news)


def _read(
    folder: pathlib.Path, origin: JsonObject, counts: Counter[str]
) -> tuple[Stored | None, str]:
    """Return the vectors in a folder, None if they must be made, and the news once they are."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None, f'vectors written to {folder}'
    manifest = read_manifest(folder)
    if manifest['origin'] == origin:
        counts.update(manifest['counts'])
        return Stored(_open(folder), ''), ''
    return None, why_anew(folder, manifest['origin'], origin)


def _make(
    partial: PartialFiles,
    folder: pathlib.Path,
    origin: JsonObject,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Vectors],
    counts: Counter[str],
) -> None:
    """Make the vectors of texts, after those that an interrupted process has made."""
    before = counts.copy()
    if partial.origin and partial.origin != origin:
        partial.clear()
    first = partial.progress.get('texts', 0)
    if first:
        counts.update(partial.progress['counts'])
        report(f'vectors of {first:,} of {len(texts):,} texts are in {partial.folder}')
    for start in range(first, len(texts), _TEXTS_AT_ONCE):
        part = texts[start : start + _TEXTS_AT_ONCE]
        columns = _append(partial, encode(part), len(texts))
        counted = {what: n - before[what] for what, n in counts.items() if n > before[what]}
        progress = {'texts': start + len(part), 'counts': counted, 'columns': columns}
        partial.save(lambda: origin, progress)
    partial.close()
    with files.new_folder(folder, MANIFEST, overwrite=True) as new:
        path = _finish(partial, new)
        counted = partial.progress['counts']
        content = {'origin': origin, 'counts': counted, 'sha256': files.sha256(path)}
        files.write_json(new / MANIFEST, content)


def _append(partial: PartialFiles, vectors_ND: Vectors, total: int) -> int:
    """Append the vectors of some texts; return the number of columns.

    Dense vectors are appended to the finished file, which starts with its shape.
    """
    columns = int(vectors_ND.shape[1])
    if isinstance(vectors_ND, np.ndarray):
        if not partial.progress:
            header = {'descr': '<f4', 'fortran_order': False, 'shape': (total, columns)}
            start = io.BytesIO()
            np.lib.format.write_array_header_1_0(start, header)
            partial.append(VECTORS, start.getvalue())
        partial.append(VECTORS, np.ascontiguousarray(vectors_ND, '<f4').tobytes())
    else:
        partial.append('data', vectors_ND.data.astype('<f4').tobytes())
        partial.append('indices', vectors_ND.indices.astype('<i4').tobytes())
        partial.append('row_sizes', np.diff(vectors_ND.indptr).astype('<i8').tobytes())
    return columns


def _finish(partial: PartialFiles, folder: pathlib.Path) -> pathlib.Path:
    """Put the file of all vectors into a folder; a kill leaves the partial files as they are."""
    dense = partial.folder / VECTORS
    if dense.exists():
        try:
            os.link(dense, folder / VECTORS)
        except OSError:  # a disk without links
            shutil.copyfile(dense, folder / VECTORS)
        return folder / VECTORS
    data_E = np.fromfile(partial.folder / 'data', '<f4')
    terms_E = np.fromfile(partial.folder / 'indices', '<i4')
    ends_N = np.cumsum(np.fromfile(partial.folder / 'row_sizes', '<i8'))
    shape = (len(ends_N), partial.progress['columns'])
    weights_NV = sparse.csr_array((data_E, terms_E, np.append(0, ends_N)), shape=shape)
    sparse.save_npz(folder / SPARSE, weights_NV, compressed=False)
    return folder / SPARSE


def digest(origin: JsonObject) -> str:
    """SHA-256 of JSON values."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()


def why_anew(folder: pathlib.Path, found: JsonObject, origin: JsonObject) -> str:
    """Say what differs between the origin of the vectors in a folder and the wanted one."""
    changed = [name for name in origin if found.get(name) != origin[name]]
    return f'vectors in {folder} computed anew: changed {", ".join(changed)}'


def read_manifest(folder: pathlib.Path) -> JsonObject:
    """Read the manifest. Raises UserError if the folder was not made by this module."""
    path = folder / MANIFEST
    if not folder.is_dir() or not path.is_file():
        raise UserError(f'--vectors={folder} has no vectors; choose a new or an empty folder')
    manifest: JsonObject = files.read_json(path)
    kinds = {'origin': dict, 'counts': dict}
    if not all(isinstance(manifest.get(name), kind) for name, kind in kinds.items()):
        raise UserError(f'{path} is not a manifest of vectors; choose another folder')
    return manifest


def _open(folder: pathlib.Path) -> Vectors:
    path = folder / VECTORS
    if (folder / SPARSE).is_file():
        path = folder / SPARSE
    if not path.is_file() or files.sha256(path) != read_manifest(folder).get('sha256'):
        raise UserError(f'{path} is damaged; remove {folder} to compute its vectors anew')
    if path.name == SPARSE:
        return sparse.csr_array(sparse.load_npz(path))
    vectors_ND: np.ndarray = np.load(path, mmap_mode='r', allow_pickle=False)
    return vectors_ND
