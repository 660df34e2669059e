"""Processes that split texts into sentences and these into tokens."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

import bert_jax
from bert_jax import errors
from bert_jax.data import corpus, sentences, sources, tokenizers


@dataclasses.dataclass(frozen=True)
class Block:
    """An encoded block: `hashes` (uint64) are of the texts of its documents."""

    documents: corpus.Documents
    hashes: np.ndarray
    characters: int
    dropped: dict[str, int]


def blocks(source: sources.Source, characters: int) -> Iterator[list[str]]:
    """The texts of a source's documents, so many characters or a little more at a time."""
    block, size = [], 0
    for document in source.documents():
        block.append(document.text)
        size += len(document.text)
        if size >= characters:
            yield block
            block, size = [], 0
    if block:
        yield block


def encode(texts: list[str], tokenizer: tokenizers.Tokenizer) -> Block:
    """Splits texts into sentences and these into tokens; what has no token is counted."""
    split = [sentences.split_sentences(text) for text in texts]
    prefix = tokenizer.sentence_prefix
    ids, lengths = tokenizer.encode_ids([prefix + sentence for text in split for sentence in text])
    document_of_sentence = np.repeat(np.arange(len(texts)), [len(document) for document in split])
    full = lengths > 0
    document_lengths = np.bincount(document_of_sentence[full], minlength=len(texts))
    kept = document_lengths > 0
    hashes = np.array([text_hash(text) for text in texts], np.uint64)
    return Block(
        corpus.Documents(
            ids.astype(corpus.token_dtype(tokenizer.vocab_size)),
            lengths[full],
            document_lengths[kept],
        ),
        hashes[kept],
        sum(map(len, texts)),
        {
            'sentences_without_tokens': int(np.sum(~full)),
            'documents_without_tokens': int(np.sum(~kept)),
        },
    )


def text_hash(text: str) -> int:
    """64 bits that depend on the text alone."""
    data = text.encode('utf-8', 'surrogatepass')
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), 'little')


class Workers:
    """Processes that encode blocks, or none: then it is done in this process.

    They are fresh interpreters talking through pipes rather than `multiprocessing`, whose workers
    would inherit or import the main program, JAX and its threads included.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, number: int):
        self._tokenizer = tokenizer
        self._number = number
        self._processes: list[subprocess.Popen] = []
        self._idle: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()
        self._threads = concurrent.futures.ThreadPoolExecutor(max(number, 1))

    def __enter__(self) -> 'Workers':
        try:
            for _ in range(self._number):
                self._start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _start(self):
        root = str(pathlib.Path(bert_jax.__file__).parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get('PYTHONPATH'))))
        process = subprocess.Popen(
            [sys.executable, '-c', 'from bert_jax.data import workers; workers.serve()'],
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

    def __exit__(self, kind, error, traceback):
        for process in self._processes:
            process.kill()  # idle, or its result is wanted no more
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def encode(self, blocks: Iterator[list[str]]) -> Iterator[Block]:
        """The encoded blocks, in order; at most two for each worker are under way."""
        if not self._number:
            yield from (encode(block, self._tokenizer) for block in blocks)
            return
        under_way = collections.deque()
        for block in blocks:
            under_way.append(self._threads.submit(self._encode_in_worker, block))
            if len(under_way) >= 2 * self._number:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _encode_in_worker(self, block: list[str]) -> Block:
        process = self._idle.get()
        try:
            _send(process, block)
            return pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise _worker_ended(process) from None
        finally:
            self._idle.put(process)


def _worker_ended(process: subprocess.Popen) -> errors.UserError:
    return errors.UserError(
        f'a worker process ended before its work was done (status {process.wait()}; '
        f'-{signal.SIGKILL.value} often means out of memory): try fewer workers'
    )


def _send(process: subprocess.Popen, message):
    pickle.dump(message, process.stdin, protocol=5)
    process.stdin.flush()


def serve():
    """A worker's life: receives the tokenizer, then encodes blocks until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    tokenizer = pickle.load(sys.stdin.buffer)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            block = encode(pickle.load(sys.stdin.buffer), tokenizer)
            pickle.dump(block, answers, protocol=5)
            answers.flush()
