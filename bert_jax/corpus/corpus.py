"""A tokenized corpus: memory-mapped arrays, a manifest with hashes, a datasheet.

    manifest.json  tokenizer.json  DATASHEET.md
    train/     00000.tokens.npy  00000.sentences.npy  00000.documents.npy  …  unigram.npy
    held_out/  the same

`tokens` (uint16, or uint32 for more than 65,536 tokens) holds the token ids of a shard, sentence
after sentence, without special tokens. `sentences` (int64 [sentences + 1]) is the index of each
sentence's first token, `documents` (int64 [documents + 1]) the index of each document's first
sentence. All text of a shard is from one source. `text_bytes` in the manifest counts the bytes of
the sentences in UTF-8, as they were read and without what separates them. This module needs neither
JAX nor TensorFlow.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax import errors, limits, tokenizers
from bert_jax.files import WatchedFile, parse_json, read_text, sha256
from bert_jax.storage import names, paths, trust
from bert_jax.storage.path import Path
from bert_jax.tokenizers.backend import library_errors
from bert_jax.types import JsonObject, JsonView

_VERIFYING_THREADS = 8
FORMAT = 2
SPLITS = ('train', 'held_out')
ARRAYS = ('tokens', 'sentences', 'documents')
COUNTS = ('documents', 'sentences', 'tokens', 'text_bytes')  # of a shard and of a split
# Settings that only affect a tokenizer that is trained.
_TRAINING_DEFAULTS = {
    'language_alpha': 1.0,
    'tokenizer_characters': tokenizers.TRAINING_CHARACTERS,
}


@dataclasses.dataclass(frozen=True)
class Shard:
    """One shard of a split.

    Attributes:
        tokens: uint16 or uint32 [tokens], memory-mapped; see the docstring of this module.
        sentences: int64 [sentences + 1], memory-mapped.
        documents: int64 [documents + 1], memory-mapped.
        source: Index of the text's source in the manifest.
        language: ISO 639 code of the source.
        files: The files of the three arrays; empty if they are not on a disk.
    """

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    source: int
    language: str
    files: tuple[WatchedFile, ...] = ()


@dataclasses.dataclass(frozen=True)
class Split:
    """The 'train' or 'held_out' split of a corpus, in all languages or in one.

    Attributes:
        shards: Shards, in order.
        num_documents: Number of documents in all shards.
        num_sentences: Number of sentences.
        num_tokens: Number of tokens.
    """

    shards: list[Shard]
    num_documents: int
    num_sentences: int
    num_tokens: int

    @property
    def languages(self) -> dict[str, dict[str, int]]:
        """The number of documents, sentences and tokens of each language."""
        totals: dict[str, dict[str, int]] = {}
        for shard in self.shards:
            counts = totals.setdefault(shard.language, dict.fromkeys(reversed(ARRAYS), 0))
            counts['documents'] += len(shard.documents) - 1
            counts['sentences'] += len(shard.sentences) - 1
            counts['tokens'] += len(shard.tokens)
        return totals


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A finished corpus; open one with `Corpus.open`.

    Attributes:
        directory: Folder of the corpus.
        manifest: Contents of manifest.json.
        tokenizer: The tokenizer the text was tokenized with.
        cache: Where blocks of the arrays are cached if the folder is in a bucket.
    """

    directory: Path
    manifest: JsonObject
    tokenizer: tokenizers.Tokenizer
    cache: paths.CacheSettings = paths.DEFAULT_CACHE
    _unigram: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, init=False)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the hashes of all files, the tokenizer included."""
        files = sorted(self.manifest['files'].items())
        lines = [f'{name} {file["sha256"]}\n' for name, file in files]
        return hashlib.sha256(''.join(lines).encode()).hexdigest()

    @property
    def is_mapped(self) -> bool:
        """Whether the arrays are mapped into memory; otherwise they are read block by block."""
        return paths.local(self.directory) == self.directory

    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], cache: paths.CacheSettings = paths.DEFAULT_CACHE
    ) -> 'Corpus':
        """Open a corpus and check the presence and size of its files; see also `verify`.

        Args:
            directory: Folder of the corpus.
            cache: Where blocks of the arrays are cached if the folder is in a bucket.

        Raises:
            UserError: The folder does not hold a corpus of this format, or a file is missing or
                has the wrong size.
        """
        directory = paths.path(directory)
        manifest = read_manifest(directory)
        sizes = paths.sizes(directory, manifest['files'])
        for name, file in manifest['files'].items():
            size = sizes.get(name)
            if size != file['bytes']:
                problem = 'is missing' if size is None else f'has {size} bytes'
                raise errors.UserError(
                    f'{directory / name} {problem}, expected {file["bytes"]} bytes: prepare the '
                    'corpus again'
                )
        tokenizer = _read_tokenizer(directory / 'tokenizer.json')
        if tokenizer.fingerprint != manifest['tokenizer']['fingerprint']:
            raise errors.UserError(
                f'{directory}/tokenizer.json does not match manifest.json: prepare the corpus again'
            )
        return cls(directory, manifest, tokenizer, cache)

    def split(self, name: str, language: str | None = None) -> Split:
        """Open a split, or its part in one language.

        Args:
            name: 'train' or 'held_out'.
            language: ISO 639 code as in the manifest; all languages if None.

        Raises:
            UserError: The split is unknown or has no text in this language.
        """
        if name not in SPLITS:
            raise errors.unknown('split', name, SPLITS)
        entries = self.manifest['splits'][name]['shards']
        known = {entry['language'] for entry in entries}
        if language is not None and language not in known:
            raise errors.unknown(f'language of the {name} split', language, known)
        entries = [entry for entry in entries if language in (None, entry['language'])]
        files = [file for entry in entries for file in shard_files(name, entry)]
        digests = {self.directory / file: self.manifest['files'][file]['sha256'] for file in files}
        arrays = iter(self._open_arrays(digests))
        watched = itertools.starmap(WatchedFile, digests.items() if self.is_mapped else ())
        shards = [
            Shard(
                **{array: next(arrays) for array in ARRAYS},
                source=entry['source'],
                language=entry['language'],
                files=tuple(itertools.islice(watched, len(ARRAYS))),
            )
            for entry in entries
        ]
        for entry, shard in zip(entries, shards, strict=True):
            self._check_shard(name, entry, shard)
        return Split(
            shards=shards,
            num_documents=sum(entry['documents'] for entry in entries),
            num_sentences=sum(entry['sentences'] for entry in entries),
            num_tokens=sum(entry['tokens'] for entry in entries),
        )

    def _open_arrays(self, digests: Mapping[Path, str]) -> list[Any]:
        try:
            return paths.open_arrays(digests, self.cache)
        except ValueError as error:  # NumPy's, of a header
            raise errors.UserError(
                f'corpus {str(self.directory)!r} is damaged: {error!s:.200}: prepare it again'
            ) from error

    def _check_shard(self, split: str, entry: JsonView, shard: Shard) -> None:
        """Raise UserError if the arrays of a shard are not those that the manifest describes."""
        ids = token_dtype(self.tokenizer.vocab_size)
        for file, array, dtype, length in (
            (shard_files(split, entry)[0], shard.tokens, ids, entry['tokens']),
            (shard_files(split, entry)[1], shard.sentences, np.int64, entry['sentences'] + 1),
            (shard_files(split, entry)[2], shard.documents, np.int64, entry['documents'] + 1),
        ):
            is_flat = getattr(array, 'ndim', 1) == 1  # arrays in buckets always are
            if array.dtype != dtype or not is_flat or len(array) != length:
                raise errors.UserError(
                    f'{self.directory / file} has {len(array):,} values of {array.dtype}, but the '
                    f'manifest has {length:,} of {np.dtype(dtype)}: prepare the corpus again'
                )

    def bytes_per_token(self, split: str) -> float:
        """Return the mean number of bytes of the text, in UTF-8, that a token of a split covers."""
        counts = self.manifest['splits'][split]
        return float(counts['text_bytes'] / counts['tokens'])

    def unigram_counts(self, split: str) -> np.ndarray:
        """Return how often each token id occurs in a split, int64 [V]."""
        if split not in self._unigram:
            path = paths.fetch(self.directory / split / 'unigram.npy')
            (counts_V,) = self._open_arrays({path: ''})
            if counts_V.shape != (self.tokenizer.vocab_size,) or counts_V.dtype != np.int64:
                raise errors.UserError(
                    f'{path} has {counts_V.dtype}{list(counts_V.shape)}, but the vocabulary has '
                    f'{self.tokenizer.vocab_size:,} tokens: prepare the corpus again'
                )
            self._unigram[split] = np.array(counts_V)
        return self._unigram[split]

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Compare files with their SHA-256, and token ids with the size of the vocabulary.

        Args:
            names: Files of the manifest; by default all of them.

        Raises:
            UserError: Files are damaged, with their names, or a token id is not in the vocabulary.
        """
        chosen = list(self.manifest['files'] if names is None else names)
        with concurrent.futures.ThreadPoolExecutor(_VERIFYING_THREADS) as pool:
            are_intact = list(pool.map(self._is_intact, chosen))
        if bad := [
            name for name, is_intact in zip(chosen, are_intact, strict=True) if not is_intact
        ]:
            raise errors.UserError(
                f'corpus {str(self.directory)!r} is damaged: {errors.join_first(bad)}: prepare it '
                'again'
            )
        if self.is_mapped:
            for name in chosen:
                if name.endswith('.tokens.npy'):
                    tokens = np.load(self.directory / name, mmap_mode='r')
                    check_ids(tokens, self.tokenizer.vocab_size, self.directory / name)

    def _is_intact(self, name: str) -> bool:
        path = self.directory / name
        return path.is_file() and sha256(path) == self.manifest['files'][name]['sha256']

    def check_settings(self, **wanted: Any) -> None:
        """Raise UserError if this corpus was made with other settings.

        A tokenizer given as a path is compared by its contents if it can still be read.

        Args:
            **wanted: The arguments of `settings`.
        """
        wanted = settings(**wanted)
        made_from = self.manifest['made_from']
        for key, value in wanted.items():
            is_same = made_from[key] == value
            # An equal value may come from the manifest, which must not choose what is opened.
            file = self.directory / 'manifest.json'
            is_chosen = not is_same or (key == 'tokenizer' and trust.is_trusted(value, file))
            if key == 'tokenizer' and is_chosen and paths.path(value.partition(';')[0]).exists():
                tokenizer = tokenizers.load(value, wanted['lowercase'], wanted['strip_accents'])
                is_same = tokenizer.fingerprint == self.tokenizer.fingerprint
            if not is_same:
                raise errors.UserError(
                    f'the corpus in {str(self.directory)!r} was made with {key}='
                    f'{made_from[key]!r}, not {value!r}: name another folder, or prepare this '
                    'one anew with python -m bert_jax.prepare --overwrite'
                )


def check_ids(ids_X: np.ndarray, vocab_size: int, place: object) -> None:
    """Raise UserError if a token id is not in the vocabulary."""
    if ids_X.size and (largest := int(ids_X.max())) >= vocab_size:
        raise errors.UserError(
            f'{place} has the token id {largest}, but the vocabulary has {vocab_size} tokens: '
            'prepare the corpus again'
        )


def read_manifest(directory: Path) -> JsonObject:
    """Return the manifest of a corpus; UserError if it is missing, damaged or of another format."""
    path = directory / 'manifest.json'
    try:
        manifest = parse_json(read_text(path, limit=limits.LARGE_FILE))
    except OSError:
        from bert_jax.storage import wrong_paths  # only to say what is wrong

        kind = wrong_paths.describe(directory)
        similar = f', which is {kind}' if kind else wrong_paths.suggest(directory, is_folder=True)
        advice = similar or ': make one with python -m bert_jax.prepare'
        raise errors.UserError(f'no corpus in {str(directory)!r}{advice}') from None
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        raise errors.UserError(f'{path} is damaged: prepare the corpus again')
    if manifest.get('format') != FORMAT:
        raise errors.UserError(
            f'{path} has format {manifest.get("format")!r}, but this version reads {FORMAT}: '
            'prepare the corpus again'
        )
    try:
        _check_structure(manifest, path)
        return manifest
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise errors.UserError(
            f'{path} is damaged ({error!r:.80}): prepare the corpus again'
        ) from error


def _check_structure(manifest: JsonObject, path: Path) -> None:
    """Raise an error if a value that is used later is missing or of another type."""
    for name, file in manifest['files'].items():
        names.check(name, path)
        names.check_digest(file['sha256'], path)
        _check_counts(file, 'bytes')
    for split in SPLITS:
        _check_counts(manifest['splits'][split], *COUNTS)
        for entry in manifest['splits'][split]['shards']:
            _check_counts(entry, 'source', *COUNTS)
            if not isinstance(entry['language'], str):
                raise ValueError(entry['language'])
            if missing := {*shard_files(split, entry)} - manifest['files'].keys():
                raise ValueError(missing.pop())
    made_from = manifest['made_from']
    if missing_settings := settings((), '', False, 0.0).keys() - made_from.keys():
        raise ValueError(missing_settings.pop())
    for spec in made_from['sources']:
        if not isinstance(spec, str):
            raise ValueError(spec)
    if not isinstance(manifest['tokenizer']['fingerprint'], str):
        raise ValueError(manifest['tokenizer']['fingerprint'])


def _check_counts(entry: JsonView, *keys: str) -> None:
    for key in keys:
        if type(entry[key]) is not int or entry[key] < 0:
            raise ValueError(f'{key}: {entry[key]!r}')


def shard_files(split: str, entry: JsonView) -> list[str]:
    """Return the names of a shard's files in the corpus, from its entry in the manifest."""
    return [f'{split}/{entry["name"]}.{array}.npy' for array in ARRAYS]


def _read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    try:
        with library_errors():
            return tokenizers.Tokenizer(read_text(file, limit=limits.LARGE_FILE))
    except (errors.UserError, UnicodeDecodeError) as error:
        raise errors.UserError(f'tokenizer {str(file)!r}: {error}') from None


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest dtype in which the ids of a vocabulary are stored."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def settings(
    sources: Sequence[str],
    tokenizer: str,
    lowercase: bool,
    held_out_fraction: float,
    language_alpha: float = 1.0,
    tokenizer_characters: int = tokenizers.TRAINING_CHARACTERS,
    strip_accents: bool | None = None,
) -> JsonObject:
    """Return the settings that determine a corpus, as 'made_from' in the manifest.

    `language_alpha` and `tokenizer_characters` only affect the training of a tokenizer; otherwise
    their defaults are recorded.
    """
    training = {}
    if tokenizer.startswith('train:'):
        if strip_accents:
            tokenizers.check_accents(tokenizer.split(':')[1])
        training = {
            'language_alpha': float(language_alpha),
            'tokenizer_characters': int(tokenizer_characters),
        }
    return {
        'sources': list(sources),
        'tokenizer': tokenizer,
        'lowercase': bool(lowercase),
        'held_out_fraction': float(held_out_fraction),
        'strip_accents': strip_accents,
        **(_TRAINING_DEFAULTS | training),
    }
