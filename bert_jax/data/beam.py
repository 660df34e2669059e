"""Encoding on Apache Beam: on one machine, or beyond it on Dataflow, Flink or Spark.

The work is cut into parts. Each reads all sources from their beginning, which costs little beside
splitting and tokenizing, and encodes the blocks that are its own; so the blocks are those of a
local run, and the corpus is the same byte for byte. Imports Beam, which is optional, on first use.
"""

import pickle
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax import errors
from bert_jax.data import sources, tokenizers
from bert_jax.data.workers import Block, blocks, encode, text_hash


class Beam(NamedTuple):
    """How to run: options of Beam, such as --runner=FlinkRunner, and the folder for the encoded
    blocks, which all workers must be able to write (a path or gs://…).
    """

    options: tuple[str, ...]
    folder: str


class BeamWorkers:
    """Does what `workers.Workers` does, all at once when it is entered."""

    def __init__(self, beam: Beam, tokenizer: tokenizers.Tokenizer, parts: int, work: dict):
        """work: `specs` of the sources and `characters` of a block."""
        self._beam, self._parts = beam, parts
        self._work = work | {
            'tokenizer': tokenizer.to_json(),
            'folder': beam.folder,
            'parts': parts,
        }
        self._next_source = 0

    def __enter__(self) -> 'BeamWorkers':
        beam = _beam()
        self._remove_blocks()
        beam.io.filesystems.FileSystems.mkdirs(self._beam.folder)
        try:
            pipeline = beam.Pipeline(argv=[*self._beam.options])
            numbers = pipeline | beam.Create(range(self._parts)) | beam.Reshuffle()
            numbers | beam.Map(encode_part, self._work)
            pipeline.run().wait_until_finish()
        except Exception as error:
            self._remove_blocks()
            said = str(error).strip().splitlines() or [repr(error)]
            raise errors.UserError(f'Beam failed: {said[0]}') from error
        return self

    def __exit__(self, kind, error, traceback):
        self._remove_blocks()

    def encode(self, texts: Iterator[list[str]]) -> Iterator[Block]:
        """The encoded blocks, in order; called once for each source, in theirs.

        Raises UserError if the workers read another text than this machine.
        """
        source, self._next_source = self._next_source, self._next_source + 1
        files = _beam().io.filesystems.FileSystems
        for number, block in enumerate(texts):
            path = _path(self._beam.folder, source, number)
            if files.exists(path):
                with files.open(path) as file:
                    digest, encoded = pickle.load(file)
            if not files.exists(path) or digest != _digest(block):
                raise errors.UserError(
                    f'block {number} of {self._work["specs"][source]} is not what the workers of '
                    'Beam read: all machines must see the same files'
                )
            yield encoded

    def _remove_blocks(self):
        files = _beam().io.filesystems.FileSystems
        if files.exists(self._beam.folder):
            files.delete([self._beam.folder])


def encode_part(part: int, work: dict):
    """Writes the encoded blocks of one part, each with the digest of its text. Runs on a worker."""
    files = _beam().io.filesystems.FileSystems
    tokenizer = tokenizers.Tokenizer.from_json(work['tokenizer'])
    for source, spec in enumerate(work['specs']):
        for number, block in enumerate(blocks(sources.open_source(spec), work['characters'])):
            if number % work['parts'] == part:
                with files.create(_path(work['folder'], source, number)) as file:
                    pickle.dump((_digest(block), encode(block, tokenizer)), file, protocol=5)


def _path(folder: str, source: int, number: int) -> str:
    return f'{folder}/{source}-{number:06d}'


def _digest(block: list[str]) -> int:
    return text_hash('\0'.join(block))


def _beam():
    try:
        import apache_beam
        import apache_beam.io.filesystems
    except ImportError as error:
        raise errors.UserError(
            '--runner=beam needs Apache Beam: pip install apache-beam, with [gcp] for Dataflow'
        ) from error
    return apache_beam
