"""Writes a tokenized corpus (see `data.corpus`) shard by shard, in bounded memory."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_jax import tokenizers
from bert_jax.corpus.corpus import ARRAYS, SPLITS, shard_files, token_dtype
from bert_jax.corpus.manifest import describe_file, write_manifest
from bert_jax.storage.disk_folder import sync
from bert_jax.types import JsonObject, JsonView

SHARD_TOKENS = 2**27


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Tokenized documents in flat arrays, to be written to a shard.

    Attributes:
        tokens: uint16 or uint32 [tokens], ids without special tokens.
        sentence_lengths: int64 [sentences], tokens in each sentence, at least 1.
        document_lengths: int64 [documents], sentences in each document, at least 1.
        byte_lengths: int64 [documents], bytes of the sentences of each document in UTF-8.
    """

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    document_lengths: np.ndarray
    byte_lengths: np.ndarray

    def select(self, chosen: np.ndarray) -> 'TokenizedDocuments':
        """Return the documents for which `chosen` (bool [documents]) is true."""
        sentences = np.repeat(chosen, self.document_lengths)
        tokens = np.repeat(sentences, self.sentence_lengths)
        return TokenizedDocuments(
            self.tokens[tokens],
            self.sentence_lengths[sentences],
            self.document_lengths[chosen],
            self.byte_lengths[chosen],
        )

    def token_ends(self) -> np.ndarray:
        """Return the index after the last token of each document, int64 [documents]."""
        return np.asarray(np.cumsum(self.sentence_lengths)[np.cumsum(self.document_lengths) - 1])

    def token_counts(self) -> np.ndarray:
        """Return the number of tokens of each document, int64 [documents]."""
        return np.diff(self.token_ends(), prepend=0)

    def slice(self, first: int, end: int) -> 'TokenizedDocuments':
        """Return the documents from index `first` to `end`."""
        if (first, end) == (0, len(self.document_lengths)):
            return self
        sentence = int(self.document_lengths[:first].sum())
        sentences = slice(sentence, sentence + int(self.document_lengths[first:end].sum()))
        token = int(self.sentence_lengths[: sentences.start].sum())
        tokens = slice(token, token + int(self.sentence_lengths[sentences].sum()))
        return TokenizedDocuments(
            self.tokens[tokens],
            self.sentence_lengths[sentences],
            self.document_lengths[first:end],
            self.byte_lengths[first:end],
        )


class CorpusWriter:
    """Writes a corpus into an existing folder."""

    def __init__(
        self,
        directory: pathlib.Path,
        tokenizer: tokenizers.Tokenizer,
        languages: Sequence[str],
        shard_tokens: int = SHARD_TOKENS,
        state: JsonView | None = None,
    ):
        """Open the writer.

        Args:
            directory: The folder; empty if there is no state.
            tokenizer: The tokenizer of the corpus.
            languages: ISO 639 code of each source.
            shard_tokens: A shard ends after the document that brings it to this many tokens.
            state: Result of `state` from which to resume.
        """
        self._directory, self._tokenizer = directory, tokenizer
        self._languages, self._shard_tokens = languages, shard_tokens
        self._dtype = token_dtype(tokenizer.vocab_size)
        self._open: dict[str, ShardWriter] = {}
        self._shards: dict[str, list[JsonObject]] = {name: [] for name in SPLITS}
        self._closed_files: dict[str, JsonObject] = {}  # as in 'files' of the manifest
        self._unigram = {name: np.zeros(tokenizer.vocab_size, np.int64) for name in SPLITS}
        for name in SPLITS:
            (directory / name).mkdir(exist_ok=True)
        if state:
            self._restore(state)

    @property
    def num_tokens(self) -> int:
        """Tokens in all splits."""
        return sum(int(counts.sum()) for counts in self._unigram.values())

    @property
    def num_closed(self) -> int:
        """Number of finished shards."""
        return sum(map(len, self._shards.values()))

    def state(self) -> JsonObject:
        """Flush all files to disk and return the state of the writer, as JSON values."""
        open_shards = {split: shard.state() for split, shard in self._open.items()}
        for split in SPLITS:
            sync(self._directory / split)
        return {
            'shards': self._shards,
            'open': open_shards,
            'unigram': {split: counts.tolist() for split, counts in self._unigram.items()},
            'files': self._closed_files,
        }

    def _restore(self, state: JsonView) -> None:
        """Restore a state and remove everything that was written after it."""
        self._shards = state['shards']
        self._closed_files = state.get('files', {})
        self._unigram = {name: np.array(counts) for name, counts in state['unigram'].items()}
        for split in SPLITS:
            names = {shard['name'] for shard in self._shards[split]}
            names |= {state['open'][split]['name']} if split in state['open'] else set()
            for path in (self._directory / split).iterdir():
                if path.name.partition('.')[0] not in names:
                    path.unlink()
        for split, shard in state['open'].items():
            self._open[split] = ShardWriter(self._directory / split, dtype=self._dtype, **shard)

    def append(self, split: str, source: int, documents: TokenizedDocuments) -> None:
        """Append documents of the source with this index to a split."""
        if not len(documents.document_lengths):
            return
        self._unigram[split] += np.bincount(documents.tokens, minlength=self._tokenizer.vocab_size)
        if split in self._open and self._open[split].source != source:
            self._close(split)
        ends = documents.token_ends()
        first = 0
        while first < len(ends):
            if split not in self._open:
                name = f'{len(self._shards[split]):05d}'
                self._open[split] = ShardWriter(self._directory / split, name, source, self._dtype)
            before = self._open[split].num_tokens - (ends[first - 1] if first else 0)
            last = int(np.searchsorted(ends, self._shard_tokens - before))
            self._open[split].append(documents.slice(first, min(last + 1, len(ends))))
            if last < len(ends):
                self._close(split)
            first = last + 1

    def has_documents(self, split: str) -> bool:
        """Whether documents were added to a split."""
        return split in self._open or bool(self._shards[split])

    def _close(self, split: str) -> None:
        shard = self._open.pop(split)
        entry = shard.close() | {'language': self._languages[shard.source]}
        self._shards[split].append(entry)
        names = shard_files(split, entry)
        self._closed_files |= {name: describe_file(self._directory / name) for name in names}

    def close(self) -> None:
        """Close the open files of a corpus that will not be finished."""
        for shard in self._open.values():
            shard.close()

    def finish(self, made_from: JsonObject, sources: list[JsonObject]) -> JsonObject:
        """Close all files and write tokenizer.json, DATASHEET.md and, last, manifest.json.

        Args:
            made_from: See `corpus.settings`.
            sources: See `Source.describe`.

        Returns:
            The manifest.
        """
        for split in list(self._open):
            self._close(split)
        return write_manifest(
            self._directory,
            self._tokenizer,
            made_from,
            sources,
            self._shards,
            self._unigram,
            self._closed_files,
        )


class ShardWriter:
    """The three files of a shard while it is written."""

    def __init__(
        self,
        folder: pathlib.Path,
        name: str,
        source: int,
        dtype: np.dtype,
        lengths: Sequence[int] = (0, 0, 0),
        num_bytes: int = 0,
    ):
        """Create the files, or open existing files at these lengths of their arrays."""
        self.source = source
        self._num_bytes = num_bytes
        self._name = name
        dtypes = dtype, np.dtype(np.int64), np.dtype(np.int64)
        self._files = self._tokens, self._sentences, self._documents = [
            _ArrayFile(folder / f'{name}.{array}.npy', array_dtype, length)
            for array, array_dtype, length in zip(ARRAYS, dtypes, lengths, strict=True)
        ]
        if not self._sentences.length:
            self._sentences.append(np.zeros(1, np.int64))
            self._documents.append(np.zeros(1, np.int64))

    def state(self) -> JsonObject:
        """Flush the files to disk and return the arguments that reopen the shard."""
        for file in self._files:
            file.sync()
        lengths = [file.length for file in self._files]
        return {
            'name': self._name,
            'source': self.source,
            'lengths': lengths,
            'num_bytes': self._num_bytes,
        }

    @property
    def num_tokens(self) -> int:
        return self._tokens.length

    def append(self, documents: TokenizedDocuments) -> None:
        last_sentence = self._sentences.length - 1
        self._documents.append(last_sentence + np.cumsum(documents.document_lengths))
        self._sentences.append(self.num_tokens + np.cumsum(documents.sentence_lengths))
        self._tokens.append(documents.tokens)
        self._num_bytes += int(documents.byte_lengths.sum())

    def close(self) -> JsonObject:
        """Close the files and return the shard's entry in the manifest."""
        for file in self._files:
            file.close()
        return {
            'name': self._name,
            'source': self.source,
            'documents': self._documents.length - 1,
            'sentences': self._sentences.length - 1,
            'tokens': self.num_tokens,
            'text_bytes': self._num_bytes,
        }


class _ArrayFile:
    """A one-dimensional .npy file; `close` writes its final length into the header."""

    def __init__(self, path: pathlib.Path, dtype: np.dtype, length: int):
        """Create the file, or open an existing one and remove the values after `length`."""
        self._dtype, self.length = dtype, length
        self._file = open(path, 'r+b' if length else 'wb')  # noqa: SIM115  closed by close()
        self._header_size = self._write_header()
        self._file.truncate(self._file.seek(length * dtype.itemsize, os.SEEK_CUR))

    def append(self, values: np.ndarray) -> None:
        self._file.write(values.astype(self._dtype, copy=False).data)
        self.length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        # NumPy pads the header so that any length of the first axis fits.
        assert self._write_header() == self._header_size
        self.sync()
        self._file.close()

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _write_header(self) -> int:
        header = np.lib.format.header_data_from_array_1_0(np.empty(0, self._dtype))
        np.lib.format.write_array_header_1_0(self._file, header | {'shape': (self.length,)})
        return self._file.tell()
