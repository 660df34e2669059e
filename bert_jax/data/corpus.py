"""The tokenized corpus on disk: memory-mapped arrays, a manifest with hashes, a datasheet.

    manifest.json  tokenizer.json  DATASHEET.md
    train/     00000.tokens.npy  00000.sentences.npy  00000.documents.npy  …  unigram.npy
    held_out/  the same

`tokens` (uint16, or uint32 above 65,536 tokens) holds the ids of a shard's sentences end to end,
without special tokens; `sentences` (int64 [sentences + 1]) where each sentence starts in it;
`documents` (int64 [documents + 1]) which sentence each document starts with.  A shard has text of
one source only.  Needs NumPy and the tokenizer, neither JAX nor TensorFlow.
"""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Sequence

import numpy as np

from bert_jax import errors
from bert_jax.data import datasheet, tokenizers

FORMAT = 1
SPLITS = ('train', 'held_out')
SHARD_TOKENS = 2**27
ARRAYS = ('tokens', 'sentences', 'documents')


@dataclasses.dataclass(frozen=True)
class Shard:
    """Memory-mapped arrays of one shard (see the top of the file) and where its text is from.

    `source` is the position of its source in the manifest's list.
    """

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    source: int
    language: str


@dataclasses.dataclass(frozen=True)
class Split:
    """The shards of 'train' or 'held_out', all or those of one language, with the counts over them.

    `unigram_counts` (int64 [V]) is how often each token id occurs in the split.
    """

    shards: list[Shard]
    num_documents: int
    num_sentences: int
    num_tokens: int
    unigram_counts: np.ndarray

    @property
    def languages(self) -> dict[str, dict[str, int]]:
        """The number of documents, sentences and tokens of each language."""
        found = {}
        for shard in self.shards:
            counts = found.setdefault(shard.language, dict.fromkeys(reversed(ARRAYS), 0))
            counts['documents'] += len(shard.documents) - 1
            counts['sentences'] += len(shard.sentences) - 1
            counts['tokens'] += len(shard.tokens)
        return found


class Corpus:
    """A finished corpus, opened by `Corpus.open`.

    Attributes:
      directory: where it lies.
      manifest: everything in manifest.json.
      tokenizer: the tokenizer it was made with.
      fingerprint: sha256 over the hashes of all files, the tokenizer's among them.
    """

    def __init__(self, directory: pathlib.Path, manifest: dict, tokenizer: tokenizers.Tokenizer):
        self.directory = directory
        self.manifest = manifest
        self.tokenizer = tokenizer
        lines = [f'{name} {file["sha256"]}\n' for name, file in sorted(manifest['files'].items())]
        self.fingerprint = hashlib.sha256(''.join(lines).encode()).hexdigest()

    @classmethod
    def open(cls, directory: str | os.PathLike) -> 'Corpus':
        """Opens a corpus; raises UserError if it is missing, of another format or has a file of
        the wrong size. `verify` also reads the contents."""
        directory = pathlib.Path(directory)
        path = directory / 'manifest.json'
        try:
            manifest = json.loads(path.read_text(encoding='utf-8'))
        except OSError:
            raise errors.UserError(
                f'no corpus in {str(directory)!r}: make one with python -m bert_jax.prepare'
            ) from None
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict):
            raise errors.UserError(f'{path} is damaged: prepare the corpus again')
        if manifest.get('format') != FORMAT:
            raise errors.UserError(
                f'{path} has format {manifest.get("format")!r}, this version reads {FORMAT}: '
                'prepare the corpus again'
            )
        for name, file in manifest['files'].items():
            size = (directory / name).stat().st_size if (directory / name).is_file() else None
            if size != file['bytes']:
                found = 'is missing' if size is None else f'has {size} bytes'
                raise errors.UserError(
                    f'{directory / name} {found}, expected {file["bytes"]} bytes: '
                    'prepare the corpus again'
                )
        tokenizer = tokenizers.load(str(directory / 'tokenizer.json'))
        if tokenizer.fingerprint != manifest['tokenizer']['fingerprint']:
            raise errors.UserError(f'{directory}/tokenizer.json is not the one of its manifest')
        return cls(directory, manifest, tokenizer)

    def split(self, name: str, language: str | None = None) -> Split:
        """The split 'train' or 'held_out', or what it has in one language.

        Raises UserError for another name, or a language it has nothing in.
        """
        if name not in SPLITS:
            raise errors.unknown('split', name, SPLITS)
        entries = self.manifest['splits'][name]['shards']
        known = {entry['language'] for entry in entries}
        if language is not None and language not in known:
            raise errors.unknown(f'language of the {name} split', language, known)
        chosen = [entry for entry in entries if language in (None, entry['language'])]
        folder = self.directory / name
        shards = [
            Shard(
                *(np.load(folder / f'{entry["name"]}.{a}.npy', mmap_mode='r') for a in ARRAYS),
                source=entry['source'],
                language=entry['language'],
            )
            for entry in chosen
        ]
        if len(known) == 1 or language is None:
            unigram = np.load(folder / 'unigram.npy')
        else:
            size = self.tokenizer.vocab_size
            unigram = sum(np.bincount(shard.tokens, minlength=size) for shard in shards)
        return Split(
            shards=shards,
            num_documents=sum(entry['documents'] for entry in chosen),
            num_sentences=sum(entry['sentences'] for entry in chosen),
            num_tokens=sum(entry['tokens'] for entry in chosen),
            unigram_counts=unigram,
        )

    def verify(self):
        """Reads every file; raises UserError naming the ones whose sha256 differs."""
        bad = [
            name
            for name, file in self.manifest['files'].items()
            if _sha256(self.directory / name) != file['sha256']
        ]
        if bad:
            raise errors.UserError(
                f'corpus {str(self.directory)!r} is damaged: {", ".join(bad)}: prepare it again'
            )

    def check_made_from(
        self,
        sources: Sequence[str],
        tokenizer: str,
        lowercase: bool,
        held_out_fraction: float,
        language_alpha: float = 1.0,
    ):
        """Raises UserError naming the first setting this corpus was made with another value of.

        A tokenizer given as a path is compared by its contents if it can still be read.
        """
        wanted = settings(sources, tokenizer, lowercase, held_out_fraction, language_alpha)
        made_from = {'language_alpha': 1.0} | self.manifest['made_from']
        for key, value in wanted.items():
            same = made_from[key] == value
            if key == 'tokenizer' and os.path.exists(value.partition(';')[0]):
                same = tokenizers.load(value, lowercase).fingerprint == self.tokenizer.fingerprint
            if not same:
                raise errors.UserError(
                    f'the corpus in {str(self.directory)!r} was made with {key}='
                    f'{made_from[key]!r}, not {value!r}: name another folder or remove this one'
                )


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest type the ids of a vocabulary are stored in."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def settings(
    sources: Sequence[str],
    tokenizer: str,
    lowercase: bool,
    held_out_fraction: float,
    language_alpha: float = 1.0,
) -> dict:
    """What decides a corpus's contents, as the manifest records it under 'made_from'.

    language_alpha is about the text a tokenizer is trained on, and 1 where none is trained.
    """
    return {
        'sources': list(sources),
        'tokenizer': tokenizer,
        'lowercase': bool(lowercase),
        'held_out_fraction': float(held_out_fraction),
        'language_alpha': float(language_alpha) if tokenizer.startswith('train:') else 1.0,
    }


@dataclasses.dataclass(frozen=True)
class Documents:
    """Encoded documents on their way to a shard.

    tokens: ids, [tokens]; sentence_lengths: tokens of each sentence, int64 [sentences];
    document_lengths: sentences of each document, int64 [documents]. None of them is empty.
    """

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    document_lengths: np.ndarray

    def select(self, chosen: np.ndarray) -> 'Documents':
        """The documents for which `chosen` (bool [documents]) is true."""
        sentences = np.repeat(chosen, self.document_lengths)
        tokens = np.repeat(sentences, self.sentence_lengths)
        return Documents(
            self.tokens[tokens],
            self.sentence_lengths[sentences],
            self.document_lengths[chosen],
        )


class Writer:
    """Writes a corpus into an existing, empty folder, shard by shard, in bounded memory."""

    def __init__(
        self,
        directory: pathlib.Path,
        tokenizer: tokenizers.Tokenizer,
        languages: Sequence[str],
        shard_tokens: int = SHARD_TOKENS,
    ):
        """`languages` has the language of each source; a shard is closed once it holds
        `shard_tokens` tokens."""
        self._directory = directory
        self._tokenizer = tokenizer
        self._languages = languages
        self._shard_tokens = shard_tokens
        self._dtype = token_dtype(tokenizer.vocab_size)
        self._open: dict[str, _ShardWriter] = {}
        self._shards: dict[str, list[dict]] = {name: [] for name in SPLITS}
        self._unigram = {name: np.zeros(tokenizer.vocab_size, np.int64) for name in SPLITS}
        for name in SPLITS:
            (directory / name).mkdir()

    def append(self, split: str, source: int, documents: Documents):
        """Adds documents of one source (its position in the list) to a split."""
        if not len(documents.document_lengths):
            return
        shard = self._open.get(split)
        if shard and shard.source != source:
            self._close(split)
        if split not in self._open:
            name = f'{len(self._shards[split]):05d}'
            self._open[split] = _ShardWriter(self._directory / split, name, source, self._dtype)
        self._open[split].append(documents)
        self._unigram[split] += np.bincount(documents.tokens, minlength=self._tokenizer.vocab_size)
        if self._open[split].tokens >= self._shard_tokens:
            self._close(split)

    def holds(self, split: str) -> bool:
        """Whether the split has any document."""
        return split in self._open or bool(self._shards[split])

    def _close(self, split: str):
        shard = self._open.pop(split)
        entry = shard.close() | {'language': self._languages[shard.source]}
        self._shards[split].append(entry)

    def close(self):
        """Closes what files are open, if the corpus will not be finished."""
        for shard in self._open.values():
            shard.abandon()

    def finish(self, made_from: dict, sources: list[dict]) -> dict:
        """Closes all files and writes tokenizer.json, DATASHEET.md and, last, manifest.json.

        Args:
          made_from: see `settings`.
          sources: {'spec', 'language', 'license', 'report'} of each source.

        Returns:
          The manifest.
        """
        for split in list(self._open):
            self._close(split)
        for split in SPLITS:
            np.save(self._directory / split / 'unigram.npy', self._unigram[split])
        self._tokenizer.save(self._directory)
        manifest = {
            'format': FORMAT,
            'created': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
            'made_from': made_from,
            'tokenizer': {
                'kind': self._tokenizer.kind,
                'spec': made_from['tokenizer'],
                'fingerprint': self._tokenizer.fingerprint,
                'vocab_size': self._tokenizer.vocab_size,
                'lowercase': self._tokenizer.lowercase,
            },
            'sources': sources,
            'splits': {
                name: {key: sum(s[key] for s in shards) for key in reversed(ARRAYS)}
                | {'unknown_tokens': int(self._unigram[name][self._tokenizer.unk_id])}
                | {'shards': shards}
                for name, shards in self._shards.items()
            },
            'versions': {
                'python': platform.python_version(),
                'numpy': np.__version__,
                'tokenizers': importlib.metadata.version('tokenizers'),
                'sentencepiece': importlib.metadata.version('sentencepiece'),
            },
            'files': {
                path.relative_to(self._directory).as_posix(): {
                    'bytes': path.stat().st_size,
                    'sha256': _sha256(path),
                }
                for path in sorted(self._directory.rglob('*'))
                if path.is_file()
            },
        }
        text = datasheet.write(manifest, self._tokenizer)
        (self._directory / 'DATASHEET.md').write_text(text, encoding='utf-8')
        (self._directory / 'manifest.json').write_text(
            json.dumps(manifest, indent=1, ensure_ascii=False) + '\n', encoding='utf-8'
        )
        return manifest


class _ShardWriter:
    """The three growing files of one shard."""

    def __init__(self, folder: pathlib.Path, name: str, source: int, dtype: np.dtype):
        self.source = source
        self.tokens = 0
        self._name = name
        dtypes = {'tokens': dtype, 'sentences': np.dtype(np.int64), 'documents': np.dtype(np.int64)}
        self._files = {a: _ArrayFile(folder / f'{name}.{a}.npy', dtypes[a]) for a in ARRAYS}
        self._sentences = 0
        self._documents = 0
        self._files['sentences'].append(np.zeros(1, np.int64))
        self._files['documents'].append(np.zeros(1, np.int64))

    def append(self, documents: Documents):
        self._files['tokens'].append(documents.tokens)
        self._files['sentences'].append(self.tokens + np.cumsum(documents.sentence_lengths))
        self._files['documents'].append(self._sentences + np.cumsum(documents.document_lengths))
        self.tokens += len(documents.tokens)
        self._sentences += len(documents.sentence_lengths)
        self._documents += len(documents.document_lengths)

    def close(self) -> dict:
        for file in self._files.values():
            file.close()
        return {
            'name': self._name,
            'source': self.source,
            'documents': self._documents,
            'sentences': self._sentences,
            'tokens': self.tokens,
        }

    def abandon(self):
        for file in self._files.values():
            file.file.close()


class _ArrayFile:
    """A one-dimensional .npy file that grows; its header is written when its length is known."""

    def __init__(self, path: pathlib.Path, dtype: np.dtype):
        self._dtype = dtype
        self._length = 0
        self.file = open(path, 'wb')  # noqa: SIM115  closed in close()
        self._header_size = self._write_header()

    def append(self, values: np.ndarray):
        self.file.write(values.astype(self._dtype, copy=False).data)
        self._length += len(values)

    def close(self):
        self.file.seek(0)
        # NumPy leaves room in the header for any length of the first axis.
        assert self._write_header() == self._header_size
        self.file.close()

    def _write_header(self) -> int:
        header = np.lib.format.header_data_from_array_1_0(np.empty(0, self._dtype))
        np.lib.format.write_array_header_1_0(self.file, header | {'shape': (self._length,)})
        return self.file.tell()


def _sha256(path: pathlib.Path) -> str | None:
    """The hash of a file's contents; None if it is missing."""
    if not path.is_file():
        return None
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
