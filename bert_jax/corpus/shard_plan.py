"""Plans the shards of a corpus and assembles them from encoded parts.

As in `corpus_writer.CorpusWriter`, a shard has documents of one source, and ends after the document
that brings it to a given number of tokens.
"""

import hashlib
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus import parts, stages
from bert_jax.corpus.corpus import SPLITS, shard_files, token_dtype
from bert_jax.corpus.corpus_writer import ShardWriter
from bert_jax.corpus.manifest import describe_file
from bert_jax.corpus.parts import Part
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.text.held_out import HeldOutRule
from bert_jax.types import JsonObject


class Slice(NamedTuple):
    """Documents of a part: from index `first` to `end` among the documents of the shard's split."""

    part: Part
    first: int
    end: int


class PlannedShard(NamedTuple):
    """What a worker needs to know to assemble a shard.

    Attributes:
        split: 'train' or 'held_out'.
        number: Index among the shards of the split.
        source: Index of its source.
        slices: Its documents, in order.
        exceptions: `HeldOutRule.exceptions`; None if the source is for training only.
        size: Number of tokens.
    """

    split: str
    number: int
    source: int
    slices: tuple[Slice, ...]
    exceptions: Mapping[int, bool] | None
    size: int

    @property
    def name(self) -> str:
        return f'{self.split}-{self.number:05d}'


def plan(
    folder: Path,
    sources: Sequence[tuple[Sequence[Part], HeldOutRule | None]],
    shard_tokens: int,
) -> list[PlannedShard]:
    """Return the shards of a corpus, train first.

    The lengths of the documents of a part are only read if a shard ends in the part, or if the
    held-out rule has exceptions. Otherwise the totals of the part suffice.

    Args:
        folder: Folder of the parts.
        sources: For each source, its parts in order and the rule that chooses the held-out
            documents; None if the source is for training only.
        shard_tokens: A shard ends after the document that brings it to this many tokens.
    """
    shards: list[PlannedShard] = []
    for split in SPLITS:
        numbers = itertools.count()
        for source, (source_parts, rule) in enumerate(sources):
            exceptions = rule.exceptions if rule else None
            shards += [
                PlannedShard(split, next(numbers), source, tuple(slices), exceptions, size)
                for slices, size in _divide(folder, source_parts, rule, split, shard_tokens)
            ]
    return shards


def _divide(
    folder: Path,
    source_parts: Sequence[Part],
    rule: HeldOutRule | None,
    split: str,
    shard_tokens: int,
) -> Iterator[tuple[list[Slice], int]]:
    """Yield the slices of each shard of a source, and its number of tokens."""
    slices: list[Slice] = []
    size = 0
    for part in source_parts:
        documents, tokens = _totals(folder, part, rule, split)
        ends: np.ndarray | None = None
        first = before = 0
        while first < documents:
            end, after = documents, tokens
            if size + tokens - before >= shard_tokens:
                if ends is None:
                    ends = np.cumsum(parts.read_lengths(folder, part, rule, split))
                end = int(np.searchsorted(ends, shard_tokens - size + before)) + 1
                after = int(ends[end - 1])
            slices.append(Slice(part, first, end))
            size += after - before
            first, before = end, after
            if size >= shard_tokens:
                yield slices, size
                slices, size = [], 0
    if slices:
        yield slices, size


def _totals(folder: Path, part: Part, rule: HeldOutRule | None, split: str) -> tuple[int, int]:
    """The numbers of documents and tokens of a part that belong to a split."""
    if rule and not rule.exceptions:
        documents, tokens = part.totals[split]
        return documents, tokens
    lengths = parts.read_lengths(folder, part, rule, split)
    return len(lengths), int(lengths.sum())


def assemble(work: stages.Work, shard: PlannedShard, path: Path) -> JsonObject:
    """Write the files of a shard; the function of ASSEMBLE.

    Returns:
        The record: `plan`, a hash of the shard; `entry` and `files` as in the manifest of a corpus.
        The file read by `read_unigram` is next to the record.
    """
    digest = hashlib.sha256(repr(shard).encode()).hexdigest()
    output = paths.path(work.output)
    record = stages.read_record(path)
    if record and record.get('plan') == digest and _has_files(output, record['files']):
        return record
    rule = None
    if shard.exceptions is not None:
        rule = HeldOutRule(work.held_out_fraction, shard.exceptions)
    tokenizer = parts.load_tokenizer(work.output)
    unigram = np.zeros(tokenizer.vocab_size, np.int64)
    with stages.scratch_folder(work) as scratch:
        writer = ShardWriter(
            scratch, f'{shard.number:05d}', shard.source, token_dtype(tokenizer.vocab_size)
        )
        for part, first, end in shard.slices:
            documents = parts.read(parts.ENCODE.folder(work), part, rule, shard.split).slice(
                first, end
            )
            writer.append(documents)
            unigram += np.bincount(documents.tokens, minlength=len(unigram))
        entry = writer.close()
        files = {}
        for name in shard_files(shard.split, entry):
            file = scratch / pathlib.PurePath(name).name
            files[name] = describe_file(file)
            paths.publish(file, output / name)
    stages.write_array(path.with_suffix('.unigram.npy'), unigram)
    return {'plan': digest, 'entry': entry, 'files': files}


ASSEMBLE = stages.PreparationStage('assemble', 'writing shards', assemble)


def read_unigram(work: stages.Work, shard: PlannedShard) -> np.ndarray:
    """Return how often each token occurs in an assembled shard, int64 [V]."""
    path = ASSEMBLE.folder(work) / f'{shard.name}.unigram.npy'
    return stages.read_array(path.read_bytes())


def _has_files(folder: Path, files: Mapping[str, object]) -> bool:
    try:
        return all(describe_file(folder / name) == file for name, file in files.items())
    except OSError:
        return False
