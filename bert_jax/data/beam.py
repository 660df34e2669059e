"""Tokenizing on Apache Beam: on one machine, or on a cluster with Dataflow, Flink or Spark.

The work is divided into parts. Every part reads all sources from the start, which is cheap next to
tokenizing, and tokenizes its own blocks. The blocks are those of a local run, so the corpus is the
same byte for byte. Beam is optional and imported on first use.
"""

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax import errors
from bert_jax.data import tokenizers
from bert_jax.data.sources import Document, open_source
from bert_jax.data.workers import DocumentBlock, TextBlock, read_blocks, tokenize_block


class Beam(NamedTuple):
    """How to run Beam.

    Attributes:
        options: Pipeline options, such as --runner=FlinkRunner.
        folder: Path or gs://… URL for the tokenized blocks, writable by all workers.
    """

    options: tuple[str, ...]
    folder: str


class Work(NamedTuple):
    """What a Beam worker needs to know.

    Attributes:
        folder: Folder for the tokenized blocks.
        specs: Specs of the sources.
        characters: Least number of characters in a block.
        tokenizer: The tokenizer.
        parts: Number of parts the work is divided into.
        first: Source and block with which an interrupted preparation resumes.
    """

    folder: str
    specs: list[str]
    characters: int
    tokenizer: tokenizers.Tokenizer
    parts: int
    first: tuple[int, int] = (0, 0)


class BeamWorkers:
    """Replaces `workers.Workers`; tokenizes everything when it is entered."""

    def __init__(self, options: Sequence[str], work: Work):
        """Create the pool; `tokenize` starts with the block `work.first`."""
        self._options, self._work = options, work
        self._next_source, self._first_block = work.first

    def __enter__(self) -> 'BeamWorkers':
        beam = _beam()
        self._remove_blocks()
        beam.io.filesystems.FileSystems.mkdirs(self._work.folder)
        try:
            pipeline = beam.Pipeline(argv=[*self._options])
            numbers = pipeline | beam.Create(range(self._work.parts)) | beam.Reshuffle()
            numbers | beam.Map(tokenize_part, self._work)
            pipeline.run().wait_until_finish()
        except Exception as error:  # Beam raises many kinds
            self._remove_blocks()
            reason = str(error).strip().splitlines() or [repr(error)]
            raise errors.UserError(f'Beam failed: {reason[0]}') from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove_blocks()

    def tokenize(self, blocks: Iterable[TextBlock]) -> Iterator[DocumentBlock]:
        """Yield the tokenized blocks in order; call it once per source, in their order.

        Raises:
            UserError: The Beam workers read a different text than this machine.
        """
        source, self._next_source = self._next_source, self._next_source + 1
        first, self._first_block = self._first_block, 0
        files = _beam().io.filesystems.FileSystems
        for number, own in enumerate(blocks, first):
            path = _block_path(self._work.folder, source, number)
            digest = block = None
            if files.exists(path):
                with files.open(path) as file:
                    digest, block = pickle.load(file)
            if block is None or digest != _digest(own.documents):
                raise errors.UserError(
                    f'block {number} of {self._work.specs[source]} differs from what the Beam '
                    'workers read: all machines must see the same files'
                )
            yield block

    def _remove_blocks(self) -> None:
        files = _beam().io.filesystems.FileSystems
        if files.exists(self._work.folder):
            files.delete([self._work.folder])


def tokenize_part(part: int, work: Work) -> None:
    """Write the tokenized blocks of one part, each with a digest of its text; run on a worker."""
    files = _beam().io.filesystems.FileSystems
    for source in range(work.first[0], len(work.specs)):
        opened = open_source(work.specs[source])
        opened.max_bad_share = 1.0  # this machine leaves the decision to the one that writes
        for number, own in enumerate(read_blocks(opened, work.characters)):
            if number % work.parts == part and (source, number) >= work.first:
                with files.create(_block_path(work.folder, source, number)) as file:
                    block = tokenize_block(own, work.tokenizer)
                    pickle.dump((_digest(own.documents), block), file, protocol=5)


def _block_path(folder: str, source: int, number: int) -> str:
    return f'{folder}/{source}-{number:06d}'


def _digest(documents: list[Document]) -> bytes:
    text = '\0'.join(document.text for document in documents)
    return hashlib.blake2b(text.encode('utf-8', 'surrogatepass')).digest()


def _beam() -> Any:
    try:
        import apache_beam
        import apache_beam.io.filesystems
    except ImportError as error:
        raise errors.UserError(
            '--runner=beam needs Apache Beam: pip install apache-beam, with [gcp] for Dataflow'
        ) from error
    return apache_beam
