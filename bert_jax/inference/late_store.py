"""Vectors of the tokens of documents, kept on a disk in parts that are written one by one.

    FOLDER/manifest.json       the origin of the vectors, what was counted while they were computed,
                               and the digests of the parts that are complete
    FOLDER/00000.tokens.npy    float16, float32 or int8 [Y, E], the tokens of some documents
    FOLDER/00000.scales.npy    float32 [Y], factors of int8 vectors
    FOLDER/00000.offsets.npy   int64 [N + 1], the first token of each document

An interrupted command continues after the last complete part.
"""

import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.inference import compact_vectors, vector_store
from bert_jax.metrics import late_scores
from bert_jax.storage.locks import Lock
from bert_jax.types import JsonObject

PRECISIONS = ('float32', 'float16', 'int8')
_DOCUMENTS = 2048  # of a part
_FIELDS = ('tokens', 'scales', 'offsets')


class Part(NamedTuple):
    """The vectors of the tokens of some documents, one document after the other.

    Attributes:
        tokens_YE: float32, float16 or int8.
        scales_Y: float32, factors of int8 vectors; empty for others.
        offsets_N: int64 [N + 1], the first token of each document, and the number of tokens.
    """

    tokens_YE: np.ndarray
    scales_Y: np.ndarray
    offsets_N: np.ndarray

    @classmethod
    def of(cls, documents: Sequence[np.ndarray], precision: str) -> 'Part':
        """Collect vectors, float32 [T, E] for each document."""
        tokens_YE, scales_Y = np.concatenate(documents), np.zeros(0, np.float32)
        offsets_N = np.cumsum([0, *map(len, documents)]).astype(np.int64)
        if precision == 'int8':
            tokens_YE, scales_Y = compact_vectors.to_int8(tokens_YE)
        return cls(tokens_YE.astype(precision), scales_Y, offsets_N)

    def __len__(self) -> int:
        return len(self.offsets_N) - 1

    def decode(self, tokens_YE: np.ndarray, place: slice) -> np.ndarray:
        """Return a block of `tokens_YE` as float32."""
        vectors_YE = tokens_YE.astype(np.float32)
        return vectors_YE * self.scales_Y[place, None] if len(self.scales_Y) else vectors_YE

    def document(self, number: int) -> np.ndarray:
        """Return the vectors of a document, float32 [T, E]."""
        place = slice(*map(int, self.offsets_N[number : number + 2]))
        return self.decode(self.tokens_YE[place], place)

    def scores(self, queries: Sequence[np.ndarray]) -> np.ndarray:
        """Return the scores of queries, float32 [L, E] each, with the documents, [Q, N]."""
        return late_scores.max_similarities(queries, self.tokens_YE, self.offsets_N, self.decode)


class LateVectors(NamedTuple):
    """The vectors of the tokens of many documents.

    Attributes:
        parts: in the order of the documents.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, documents: Sequence[np.ndarray], precision: str) -> 'LateVectors':
        """Collect vectors, float32 [T, E] for each document."""
        return cls((Part.of(documents, precision),) if documents else ())

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        """The size of the vectors."""
        return sum(array.nbytes for part in self.parts for array in part)

    def documents(self, numbers: Iterable[int]) -> list[np.ndarray]:
        """Return the vectors of some documents, float32 [T, E] each."""
        first = np.cumsum([0, *map(len, self.parts)])
        places = [(int(np.searchsorted(first, n, side='right')) - 1, n) for n in numbers]
        return [self.parts[place].document(n - int(first[place])) for place, n in places]


def load_or_make(
    folder: pathlib.Path,
    origin: JsonObject,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], LateVectors],
    counts: Counter[str],
    documents: int = _DOCUMENTS,
) -> tuple[LateVectors, str]:
    """Return the vectors in a folder and what happened, or make and keep those that are missing.

    Args:
        folder: missing or empty, or with vectors, which are replaced if their origin differs.
        origin: what the vectors depend on, JSON values by name.
        texts: the documents.
        encode: computes the vectors of some documents.
        counts: what `encode` counts; kept with the vectors, and added again.
        documents: of a part.

    Raises:
        UserError: the folder has other files, cannot be written, or a part is damaged.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.with_name(f'.{folder.name}.lock'))
    with lock.waited_for(lambda: f'it writes {folder}'):
        manifest, news = _start(folder, origin)
        counts.update(manifest['counts'])
        number = sum(part['documents'] for part in manifest['parts'])
        if number and number < len(texts):
            news = f'vectors in {folder}: resumed after {number:,} of {len(texts):,} documents'
        while number < len(texts):
            before = counts.copy()
            (part,) = encode(texts[number : number + documents]).parts
            described = _write(folder, len(manifest['parts']), part)
            added = {what: n - before[what] for what, n in counts.items() if n > before[what]}
            manifest['counts'] = dict(Counter(manifest['counts']) + Counter(added))
            manifest['parts'] = [*manifest['parts'], described]
            files.write_json(folder / vector_store.MANIFEST, manifest)
            number += len(part)
    parts = (_open(folder, number, one) for number, one in enumerate(manifest['parts']))
    return LateVectors(tuple(parts)), news


def _start(folder: pathlib.Path, origin: JsonObject) -> tuple[JsonObject, str]:
    """Return the manifest of a folder, and what happens to its vectors; '' if they are used."""
    news = f'vectors written to {folder}'
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        manifest = vector_store.read_manifest(folder)
        if manifest['origin'] == origin and isinstance(manifest.get('parts'), list):
            return manifest, ''
        news = vector_store.why_anew(folder, manifest['origin'], origin)
    manifest = {'origin': origin, 'counts': {}, 'parts': []}
    with files.new_folder(folder, vector_store.MANIFEST, overwrite=True) as partial:
        files.write_json(partial / vector_store.MANIFEST, manifest)
    return manifest, news


def _write(folder: pathlib.Path, number: int, part: Part) -> JsonObject:
    """Write a part; return its entry in the manifest."""
    digests = {}
    for name, array in zip(_FIELDS, part, strict=True):
        path = folder / f'{number:05d}.{name}.npy'
        with files.new_file(path) as partial, open(partial, 'wb') as file:
            np.save(file, array)
        digests[name] = files.sha256(path)
    return {'documents': len(part), 'sha256': digests}


def _open(folder: pathlib.Path, number: int, described: JsonObject) -> Part:
    """Map a part into memory. Raises UserError if a file is damaged."""
    arrays = []
    for name in _FIELDS:
        path = folder / f'{number:05d}.{name}.npy'
        if not path.is_file() or files.sha256(path) != described['sha256'][name]:
            raise UserError(f'{path} is damaged; remove {folder} to compute its vectors anew')
        arrays.append(np.load(path, mmap_mode='r', allow_pickle=False))
    return Part(*arrays)
