"""Text → tokenised corpus on disk.

    python -m bert_jax.prepare --source='text:books/*.txt;language=en;licence=CC0' \\
        --tokenizer=train:wordpiece:8000 --output=corpora/books --workers=2

Imports neither JAX nor TensorFlow (unless a source is one of TensorFlow's datasets).
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import tqdm

import bert_jax
from bert_jax import errors
from bert_jax.data import corpus, sentences, tokenizers
from bert_jax.data import sources as text_sources

BLOCK_CHARACTERS = 2**19  # documents go to the workers in blocks of at least this much text


def prepare(
    sources: Sequence[str],
    tokenizer: str,
    output: str | os.PathLike,
    *,
    lowercase: bool = True,
    held_out_fraction: float = 0.01,
    workers: int = 2,
    shard_tokens: int = corpus.SHARD_TOKENS,
) -> corpus.Corpus:
    """Makes the corpus of the sources in `output`, or opens it if it is there already.

    The files are the same whatever the number of workers. All work happens in `output`.partial,
    which is renamed at the very end; what a killed run left there is removed by the next one.

    Args:
      sources: see `data.sources.open_source`.
      tokenizer: 'train:wordpiece:8000', or the path of a vocab.txt, tokenizer.json or folder.
      output: folder to make.
      lowercase: for a trained tokenizer and a bare vocab.txt; a tokenizer.json knows its own.
      held_out_fraction: share of the documents, chosen by hash, that makes the held-out split;
        each source with two different documents gives at least one to either split.
      workers: processes that split sentences and tokenise; 0 does it in this one.
      shard_tokens: a shard is closed once it holds that many tokens.

    Raises UserError for bad settings, sources without text, a single document, a finished corpus
    with other settings in `output`, a disk that is full or cannot be written, a dead worker.
    """
    if not sources:
        raise errors.UserError('no source: name at least one, as in --source=docstrings')
    if not 0 < held_out_fraction < 1:
        raise errors.UserError(f'held_out_fraction is {held_out_fraction}, not between 0 and 1')
    if workers < 0:
        raise errors.UserError(f'workers is {workers}: it must be 0 or more')
    made_from = corpus.settings(sources, tokenizer, lowercase, held_out_fraction)
    output = pathlib.Path(output).expanduser().absolute()
    if (output / 'manifest.json').exists():
        existing = corpus.Corpus.open(output)
        existing.check_made_from(**made_from)
        print(f'{output} is already prepared with these settings')
        return existing
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise errors.UserError(f'{output} exists and is no corpus: name another folder')
        opened = [text_sources.open_source(spec) for spec in sources]
        with _partial_folder(output) as partial:
            _build(partial, opened, made_from, workers, shard_tokens)
            _sync(partial)
            os.rename(partial, output)
            _sync_folder(output.parent)
    except OSError as error:
        place = f'{error.filename}: ' if error.filename else ''
        raise errors.UserError(
            f'cannot prepare {output}: {place}{error.strerror or error}'
        ) from error
    print(f'prepared {output}')
    return corpus.Corpus.open(output)


def _build(
    folder: pathlib.Path,
    opened: list[text_sources.Source],
    made_from: dict,
    workers: int,
    shard_tokens: int,
):
    """Writes the whole corpus into an empty folder."""
    start = time.monotonic()
    tokenizer = _tokenizer(made_from['tokenizer'], opened, made_from['lowercase'])
    languages = [source.language for source in opened]
    with (
        contextlib.closing(corpus.Writer(folder, tokenizer, languages, shard_tokens)) as writer,
        _Workers(tokenizer, workers) as pool,
    ):
        _append_all(writer, opened, pool, made_from['held_out_fraction'])
        described = [
            {
                'spec': source.spec,
                'language': source.language,
                'licence': source.licence,
                'report': dict(source.report),
            }
            for source in opened
        ]
        manifest = writer.finish(made_from, described)
    for source in opened:
        print(f'{source.spec}: {source.summary()}')
    _print_summary(manifest, time.monotonic() - start)


def _tokenizer(
    spec: str, opened: list[text_sources.Source], lowercase: bool
) -> tokenizers.Tokenizer:
    """Loads the tokenizer, or trains it on all documents of all sources."""
    kind, _, trained = spec.partition(':')
    if kind != 'train':
        return tokenizers.load(spec, lowercase)
    with tqdm.tqdm(desc=f'vocabulary {trained}', unit=' documents') as bar:

        def texts():
            for source in opened:
                for document in source.documents():
                    bar.update()
                    yield document.text

        return tokenizers.train(trained, texts(), lowercase)


def _append_all(
    writer: corpus.Writer, opened: list[text_sources.Source], pool: '_Workers', fraction: float
):
    """Streams all sources through the workers into the writer, source after source."""
    alone = []  # (hash, source, its only document), of each source with no two different ones
    with tqdm.tqdm(desc='preparing', unit=' tokens', unit_scale=True) as bar:
        documents = characters = 0
        for index, source in enumerate(opened):
            dropped = collections.Counter()
            rule = HeldOutRule(fraction)
            for block in pool.encode(_blocks(source)):
                for split, chosen in rule.add(block.documents, block.hashes):
                    writer.append(split, index, chosen)
                dropped.update(block.dropped)
                documents += len(block.hashes)
                characters += block.characters
                bar.set_postfix_str(
                    f'{documents:,} documents, {characters / 1e6:.0f} M characters', refresh=False
                )
                bar.update(len(block.documents.tokens))
            for split, chosen in rule.finish():
                writer.append(split, index, chosen)
            if rule.undecided:
                alone.append((rule.undecided, index))
            source.report.update(dropped)
    _append_lone_documents(writer, alone, fraction)


def _append_lone_documents(writer: corpus.Writer, alone: list, fraction: float):
    """Places the sources that hold one document each, so that neither split stays empty."""
    hashes = sorted({aside.hash for aside, _ in alone})
    if writer.holds('held_out'):  # and 'train', by the rule of a source with more documents
        held_out = {value for value in hashes if value < _hash_limit(fraction)}
    elif len(hashes) > 1:
        held_out = {hashes[0]}
    else:
        raise errors.UserError(
            f'the sources hold {len(hashes) or "no"} document(s) with words, copies aside: '
            'a held-out split by document needs at least two'
        )
    for aside, source in alone:
        for _ in range(aside.copies):
            writer.append('held_out' if aside.hash in held_out else 'train', source, aside.document)


def _hash_limit(fraction: float) -> int:
    """Documents with a hash below it are held out."""
    return int(fraction * 2.0**64)


@dataclasses.dataclass
class _Aside:
    """A document put aside, and how many copies of it were met."""

    document: corpus.Documents
    hash: int
    copies: int


class HeldOutRule:
    """Which documents of one source are held out: those whose hash falls below the fraction.

    Neither split is left empty if there are two different documents: where the hashes of all
    fall on one side, the one closest to the other side goes there, with its copies. It takes one
    pass, and holds one document in memory until both sides have been met; only such a document
    may land behind its place in the order of the source.
    """

    def __init__(self, fraction: float):
        self._limit = np.uint64(_hash_limit(fraction))
        self._met: set[str] = set()
        self._aside: _Aside | None = None
        self._decided_any = False

    def add(
        self, documents: corpus.Documents, hashes: np.ndarray
    ) -> Iterator[tuple[str, corpus.Documents]]:
        """Yields (split, documents) for what is decided so far; hashes are uint64 [documents]."""
        below = hashes < self._limit
        sides = {'held_out': below, 'train': ~below}
        sides = {split: chosen for split, chosen in sides.items() if chosen.any()}
        if len(self._met.union(sides)) == 2:
            for split in self._met:
                yield from self._release(split)
            for split, chosen in sides.items():
                yield split, documents.select(chosen)
        else:
            for split in sides:
                yield from self._all_but_closest(split, documents, hashes)
        self._met.update(sides)

    def _all_but_closest(self, split: str, documents: corpus.Documents, hashes: np.ndarray):
        """Keeps aside the document closest to the side that has none; yields the others."""
        closest = int(hashes.min() if split == 'train' else hashes.max())
        if self._aside and (self._aside.hash < closest) == (split == 'train'):
            closest = self._aside.hash
        if self._aside and self._aside.hash != closest:
            self._decided_any = True
            yield from self._release(split)
        same = hashes == np.uint64(closest)
        if same.any():
            first = np.arange(len(hashes)) == same.argmax()
            self._aside = self._aside or _Aside(documents.select(first), closest, copies=0)
            self._aside.copies += int(same.sum())
        if not same.all():
            self._decided_any = True
            yield split, documents.select(~same)

    def _release(self, split: str):
        if self._aside:
            for _ in range(self._aside.copies):
                yield split, self._aside.document
        self._aside = None

    def finish(self) -> Iterator[tuple[str, corpus.Documents]]:
        """Yields the document still aside, for the split that would have stayed empty."""
        if self._aside and self._decided_any:
            yield from self._release('train' if 'held_out' in self._met else 'held_out')

    @property
    def undecided(self) -> _Aside | None:
        """The only document of the source, if it has no two different ones."""
        return self._aside


def _blocks(source: text_sources.Source) -> Iterator[list[str]]:
    """The texts of a source's documents, `BLOCK_CHARACTERS` or a little more at a time."""
    block, characters = [], 0
    for document in source.documents():
        block.append(document.text)
        characters += len(document.text)
        if characters >= BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


@dataclasses.dataclass(frozen=True)
class _Block:
    """An encoded block: `hashes` (uint64) are of the texts of its documents."""

    documents: corpus.Documents
    hashes: np.ndarray
    characters: int
    dropped: dict[str, int]


def _encode(texts: list[str], tokenizer: tokenizers.Tokenizer) -> _Block:
    """Splits texts into sentences and these into tokens; what has no token is counted."""
    split = [sentences.split_sentences(text) for text in texts]
    ids, lengths = tokenizer.encode_ids([sentence for document in split for sentence in document])
    document_of_sentence = np.repeat(np.arange(len(texts)), [len(document) for document in split])
    full = lengths > 0
    document_lengths = np.bincount(document_of_sentence[full], minlength=len(texts))
    kept = document_lengths > 0
    hashes = np.array([_hash(text) for text in texts], np.uint64)
    return _Block(
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


def _hash(text: str) -> int:
    """64 bits that depend on the text alone."""
    data = text.encode('utf-8', 'surrogatepass')
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), 'little')


class _Workers:
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

    def __enter__(self) -> '_Workers':
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
            [sys.executable, '-c', 'from bert_jax import prepare; prepare.serve()'],
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

    def encode(self, blocks: Iterator[list[str]]) -> Iterator[_Block]:
        """The encoded blocks, in order; at most two for each worker are under way."""
        if not self._number:
            yield from (_encode(block, self._tokenizer) for block in blocks)
            return
        under_way = collections.deque()
        for block in blocks:
            under_way.append(self._threads.submit(self._encode_in_worker, block))
            if len(under_way) >= 2 * self._number:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def _encode_in_worker(self, block: list[str]) -> _Block:
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
            block = _encode(pickle.load(sys.stdin.buffer), tokenizer)
            pickle.dump(block, answers, protocol=5)
            answers.flush()


@contextlib.contextmanager
def _partial_folder(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """An empty folder beside `output`, locked against other runs, removed if the work fails."""
    partial = output.with_name(output.name + '.partial')
    partial.mkdir(parents=True, exist_ok=True)
    lock = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.UserError(f'another run is preparing {output} right now') from None
        try:
            for left in partial.iterdir():  # by a killed run
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _sync(folder: pathlib.Path):
    """Makes sure that all files of a folder are on the disk."""
    for path in folder.rglob('*'):
        if path.is_dir():
            _sync_folder(path)
        else:
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: pathlib.Path):
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _print_summary(manifest: dict, seconds: float):
    """One line for each split and one for the whole."""
    tokens = 0
    for name, split in manifest['splits'].items():
        tokens += split['tokens']
        print(
            f'{name}: {split["documents"]:,} documents, {split["sentences"]:,} sentences, '
            f'{split["tokens"]:,} tokens, {split["unknown_tokens"] / split["tokens"]:.2%} unknown'
        )
    print(
        f'vocabulary of {manifest["tokenizer"]["vocab_size"]:,}; '
        f'{seconds:.1f} s, {tokens / seconds:,.0f} tokens/s'
    )


def _boolean(text: str) -> bool:
    if text.lower() not in ('true', 'false'):
        raise argparse.ArgumentTypeError(f'{text!r} is neither true nor false')
    return text.lower() == 'true'


@errors.exit_cleanly
def main():
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.prepare', description='Text → tokenised corpus on disk.'
    )
    add = parser.add_argument
    add('--source', action='append', required=True, help='docstrings, text:GLOB, …; repeatable')
    add('--tokenizer', default='train:wordpiece:8000', help='train:KIND:SIZE or a path')
    add('--output', required=True, help='folder to make')
    add('--workers', type=int, default=os.cpu_count(), help='processes; 0: none but this')
    add('--lowercase', type=_boolean, default=True, help='true or false')
    add('--held_out_fraction', type=float, default=0.01, help='share of the documents')
    flags = parser.parse_args()
    prepare(
        flags.source,
        flags.tokenizer,
        flags.output,
        lowercase=flags.lowercase,
        held_out_fraction=flags.held_out_fraction,
        workers=flags.workers,
    )


if __name__ == '__main__':
    main()
