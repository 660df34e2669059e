"""Encoded text that machines exchange: each unit of text becomes parts of bounded size.

A part consists of five .npy files: the arrays of `TokenizedDocuments` and the hash of each
document. Their SHA-256 are in the record of the unit and are checked whenever a part is read.
"""

import collections
import dataclasses
import hashlib
import itertools
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax import errors, tokenizers
from bert_jax.corpus import stages
from bert_jax.corpus.corpus import SPLITS
from bert_jax.corpus.corpus_writer import TokenizedDocuments
from bert_jax.corpus.workers import DocumentBlock, read_blocks, tokenize_block
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.text import held_out
from bert_jax.text.held_out_share import HeldOutCandidates
from bert_jax.types import JsonObject, JsonView

_thread_cache = threading.local()  # the last tokenizer; its cache of words is not thread-safe
_ARRAYS = ('tokens', 'sentence_lengths', 'document_lengths', 'byte_lengths', 'hashes')


@dataclasses.dataclass(frozen=True)
class Part:
    """A part, as described in the record of its unit.

    Attributes:
        name: Common prefix of the names of its files.
        digests: SHA-256 of each array's file.
        totals: Split → numbers of documents and tokens, before exceptions of the held-out rule.
    """

    name: str
    digests: Mapping[str, str]
    totals: Mapping[str, Sequence[int]]


def encode(work: stages.Work, unit: stages.Unit, path: Path) -> JsonObject:
    """Read a unit, tokenize it and write its parts; the function of ENCODE.

    Returns:
        The record: the `state` of the source after the unit; `counts` as in `DocumentBlock`;
        `extremes`, the hashes that the held-out rule may depend on; `candidates`, see
        `HeldOutCandidates.state`; `parts`.
    """
    record = stages.read_record(path)
    if record and _is_valid(work, record, path.parent):
        return record
    tokenizer = load_tokenizer(work.output)
    source = work.open_source(unit.source)
    rule = held_out.HeldOutRule(work.held_out_fraction)
    counts: collections.Counter[str] = collections.Counter()
    extremes: list[int] = []
    candidates = HeldOutCandidates(work.held_out_fraction)
    parts: list[Part] = []
    blocks: list[DocumentBlock] = []
    size = work.amounts.block_characters
    for text in read_blocks(source, source.documents_of(unit.pieces), size):
        block = tokenize_block(text, tokenizer)
        blocks.append(block)
        counts.update(block.counts)
        hashes = itertools.chain(extremes, block.hashes.tolist(), block.empty_hashes.tolist())
        extremes = held_out.extremes(hashes, work.held_out_fraction)
        candidates.add(block.hashes, block.documents.token_counts())
        if sum(len(block.documents.tokens) for block in blocks) >= work.amounts.part_tokens:
            parts.append(_write(path.parent / f'{unit.name}-{len(parts):03d}', blocks, rule))
            blocks.clear()
    if any(len(block.hashes) for block in blocks):
        parts.append(_write(path.parent / f'{unit.name}-{len(parts):03d}', blocks, rule))
    return {
        'state': source.state(),
        'counts': counts,
        'extremes': extremes,
        'candidates': candidates.state(),
        'parts': [dataclasses.asdict(part) for part in parts],
        'max_bad_share': work.max_bad_share,
    }


ENCODE = stages.PreparationStage('encode', 'encoding', encode)


def read(
    folder: Path, part: Part, rule: held_out.HeldOutRule | None, split: str
) -> TokenizedDocuments:
    """Return the documents of a part that belong to a split.

    Args:
        folder: Folder of the part.
        part: The part.
        rule: Chooses the held-out documents; None if all are for training.
        split: 'train' or 'held_out'.

    Raises:
        UserError: The part is damaged.
    """
    *arrays, hashes = (_read_array(folder, part, name) for name in _ARRAYS)
    return TokenizedDocuments(*arrays).select(_is_in_split(hashes, rule, split))


def read_lengths(
    folder: Path, part: Part, rule: held_out.HeldOutRule | None, split: str
) -> np.ndarray:
    """Return the tokens of each document of a part that belongs to a split, int64 [documents]."""
    *arrays, hashes = (_read_array(folder, part, name) for name in _ARRAYS[1:])
    lengths = TokenizedDocuments(np.empty(0), *arrays).token_counts()
    return np.asarray(lengths[_is_in_split(hashes, rule, split)])


def _is_in_split(hashes: np.ndarray, rule: held_out.HeldOutRule | None, split: str) -> np.ndarray:
    is_held_out = rule.is_held_out(hashes) if rule else np.zeros(len(hashes), bool)
    return is_held_out if split == 'held_out' else ~is_held_out


def load_tokenizer(folder: str) -> tokenizers.Tokenizer:
    """Return the tokenizer of an unfinished corpus; each thread caches the last one."""
    path = paths.path(folder) / 'tokenizer.json'
    content = path.read_bytes()
    if getattr(_thread_cache, 'content', None) != content:
        _thread_cache.content, _thread_cache.tokenizer = content, tokenizers.load(str(path))
    tokenizer: tokenizers.Tokenizer = _thread_cache.tokenizer
    return tokenizer


def _is_valid(work: stages.Work, record: JsonView, folder: Path) -> bool:
    """Whether the record is of an encoded unit whose parts are undamaged and up to date."""
    if 'parts' not in record:
        return False
    # `max_bad_share` decides whether a file with malformed lines is left out.
    has_malformed_lines = record['state']['report'].get('malformed_lines')
    if has_malformed_lines and record['max_bad_share'] != work.max_bad_share:
        return False
    try:
        for part in record['parts']:
            for name in _ARRAYS:
                _read_array(folder, Part(**part), name)
    except (OSError, errors.UserError):
        return False
    return True


def _write(path: Path, blocks: Sequence[DocumentBlock], rule: held_out.HeldOutRule) -> Part:
    """Write the files of a part."""
    arrays = {
        name: np.concatenate([getattr(block.documents, name) for block in blocks])
        for name in _ARRAYS[:-1]
    }
    hashes = np.concatenate([block.hashes for block in blocks])
    lengths = TokenizedDocuments(**arrays).token_counts()
    totals = {}
    for split in SPLITS:
        is_in_split = _is_in_split(hashes, rule, split)
        totals[split] = [int(is_in_split.sum()), int(lengths[is_in_split].sum())]
    digests = {
        name: stages.write_array(path.with_name(f'{path.name}.{name}.npy'), array)
        for name, array in {**arrays, 'hashes': hashes}.items()
    }
    return Part(path.name, digests, totals)


def _read_array(folder: Path, part: Part, name: str) -> np.ndarray:
    path = folder / f'{part.name}.{name}.npy'
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != part.digests[name]:
        raise errors.UserError(f'{path} is damaged: rerun the same command to write it again')
    return stages.read_array(content)
