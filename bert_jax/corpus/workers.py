"""Worker processes that split documents into sentences and tokenize them."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

import bert_jax
from bert_jax import errors, tokenizers
from bert_jax.corpus.corpus import token_dtype
from bert_jax.corpus.corpus_writer import TokenizedDocuments
from bert_jax.text import personal_data, sentences
from bert_jax.text.sources import Document, Source
from bert_jax.tokenizers.backend import encodable

_CPU_QUOTA = pathlib.Path('/sys/fs/cgroup/cpu.max')  # of a container


class Amounts(NamedTuple):
    """How much is done at once; the files of the corpus do not depend on it.

    Attributes:
        block_characters: Minimum text of a block that is tokenized at once.
        unit_bytes: Size of a unit on another machine: a range of a file, or several small files.
        part_tokens: A machine writes a part of a unit as soon as it has this many tokens.
    """

    block_characters: int = 2**19
    unit_bytes: int = 2**24
    part_tokens: int = 2**25


AMOUNTS = Amounts()


class TextBlock(NamedTuple):
    """Documents of a source that are tokenized together.

    Attributes:
        documents: The documents.
        language: ISO 639 code of their language.
        one_per_line: Whether every line is a sentence.
        position: The `position` of the source after these documents.
    """

    documents: list[Document]
    language: str = 'und'
    one_per_line: bool = False
    position: int = 0


@dataclasses.dataclass(frozen=True)
class DocumentBlock:
    """A block of tokenized documents.

    Attributes:
        documents: The documents that have at least one token.
        hashes: uint64 [documents], `Document.hash` of each.
        empty_hashes: uint64 [documents without tokens], `Document.hash` of each.
        characters: Characters in the block's text.
        counts: Numbers of sentences and documents without tokens, of unknown tokens, and of
            personal data by kind.
        position: As in `TextBlock`.
    """

    documents: TokenizedDocuments
    hashes: np.ndarray
    empty_hashes: np.ndarray
    characters: int
    counts: dict[str, int]
    position: int


def read_blocks(source: Source, stream: Iterable[Document], characters: int) -> Iterator[TextBlock]:
    """Yield documents of a source in blocks of at least this many characters."""
    documents: list[Document] = []
    size = 0

    def block() -> TextBlock:
        return TextBlock(documents, source.language, source.one_per_line, source.position)

    for document in stream:
        documents.append(document)
        size += len(document.text)
        if size >= characters:
            yield block()
            documents, size = [], 0
    if documents:
        yield block()


def tokenize_block(block: TextBlock, tokenizer: tokenizers.Tokenizer) -> DocumentBlock:
    """Split documents into sentences and tokenize them; drop sentences without tokens."""
    documents, language, one_per_line, position = block
    split = [
        sentences.split_sentences(document.text, language, one_per_line) for document in documents
    ]
    prefix = tokenizer.sentence_prefix
    sizes = np.array([len(encodable(sentence).encode()) for text in split for sentence in text])
    ids, lengths = tokenizer.encode_ids([prefix + sentence for text in split for sentence in text])
    document_of_sentence = np.repeat(np.arange(len(documents)), list(map(len, split)))
    has_tokens = lengths > 0
    document_lengths = np.bincount(document_of_sentence[has_tokens], minlength=len(documents))
    is_empty = document_lengths == 0
    byte_lengths = np.bincount(
        document_of_sentence[has_tokens], sizes[has_tokens], minlength=len(documents)
    ).astype(np.int64)
    hashes = np.array([document.hash() for document in documents], np.uint64)
    counts = {
        'sentences_without_tokens': int(np.sum(~has_tokens)),
        'documents_without_tokens': int(np.sum(is_empty)),
        'unknown_tokens': int(np.count_nonzero(tokenizer.is_unknown(ids))),
    }
    personal = (personal_data.count(document.text) for document in documents)
    return DocumentBlock(
        documents=TokenizedDocuments(
            tokens=ids.astype(token_dtype(tokenizer.vocab_size)),
            sentence_lengths=lengths[has_tokens],
            document_lengths=document_lengths[~is_empty],
            byte_lengths=byte_lengths[~is_empty],
        ),
        hashes=hashes[~is_empty],
        empty_hashes=hashes[is_empty],
        characters=sum(len(document.text) for document in documents),
        counts=counts | sum(personal, collections.Counter()),
        position=position,
    )


def usable_cores() -> int:
    """Return how many cores this process may use, by its CPU affinity and its cgroup's quota."""
    cores = os.cpu_count() or 1
    if hasattr(os, 'sched_getaffinity'):  # not on macOS
        cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup v2, or no quota: 'max 100000'
        quota, period = map(int, _CPU_QUOTA.read_text().split())
        cores = min(cores, max(1, round(quota / period)))
    return cores


class Workers:
    """A pool of processes that tokenize blocks of documents; use it as a context manager.

    The processes are new interpreters that communicate through pipes. `multiprocessing` is not used
    because its workers inherit or import the main program, with JAX and its threads.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, number: int):
        """Create a pool of `number` processes; with 0, this process tokenizes."""
        self._tokenizer, self._number = tokenizer, number
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._threads = concurrent.futures.ThreadPoolExecutor(max(number, 1))

    def __enter__(self) -> 'Workers':
        try:
            for _ in range(self._number):
                self._start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _start(self) -> None:
        root = str(pathlib.Path(bert_jax.__file__).parents[1])
        # Neither -c nor an empty entry of PYTHONPATH may import modules of the current folder.
        path = os.pathsep.join(
            [root, *filter(None, os.environ.get('PYTHONPATH', '').split(os.pathsep))]
        )
        process = subprocess.Popen(
            [sys.executable, '-P', '-c', 'from bert_jax.corpus import workers; workers.serve()'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {'PYTHONPATH': path, 'TOKENIZERS_PARALLELISM': 'false'},
        )
        self._processes.append(process)
        self._idle.put(process)
        try:
            _send(process, self._tokenizer)
        except BrokenPipeError:
            raise _worker_ended(process) from None

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()  # it is idle, or its result is no longer needed
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()  # closes the pipes

    def tokenize(self, blocks: Iterable[TextBlock]) -> Iterator[DocumentBlock]:
        """Yield the tokenized blocks in order; up to two blocks per worker are in progress."""
        if not self._number:
            yield from (tokenize_block(block, self._tokenizer) for block in blocks)
            return
        pending: collections.deque[concurrent.futures.Future[DocumentBlock]] = collections.deque()
        for block in blocks:
            pending.append(self._threads.submit(self._tokenize_in_worker, block))
            if len(pending) >= 2 * self._number:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _tokenize_in_worker(self, block: TextBlock) -> DocumentBlock:
        process = self._idle.get()
        try:
            _send(process, block)
            assert process.stdout
            tokenized: DocumentBlock = pickle.load(process.stdout)
            return tokenized
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise _worker_ended(process) from None
        finally:
            self._idle.put(process)


def _worker_ended(process: subprocess.Popen[bytes]) -> errors.UserError:
    return errors.UserError(
        f'a worker process ended early with status {process.wait()} '
        f'(-{signal.SIGKILL.value} often means out of memory): try fewer workers'
    )


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    assert process.stdin
    pickle.dump(message, process.stdin, protocol=5)
    process.stdin.flush()


def serve() -> None:
    """Main function of a worker: receives the tokenizer, then tokenizes blocks until EOF."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    results, sys.stdout = sys.stdout.buffer, sys.stderr
    tokenizer = pickle.load(sys.stdin.buffer)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            block = tokenize_block(pickle.load(sys.stdin.buffer), tokenizer)
            pickle.dump(block, results, protocol=5)
            results.flush()
