"""Writes the last files of a corpus: manifest.json, DATASHEET.md and the token counts."""

import datetime
import importlib.metadata
import pathlib
import platform
from collections.abc import Mapping

import numpy as np

from bert_jax import tokenizers
from bert_jax.corpus import datasheet
from bert_jax.corpus.corpus import COUNTS, FORMAT, SPLITS
from bert_jax.files import sha256, write_json
from bert_jax.storage.path import Path
from bert_jax.types import JsonObject

PACKAGES = ('numpy', 'tokenizers', 'sentencepiece')  # their versions are in the manifest


def versions() -> dict[str, str]:
    """Return the versions of Python and the packages that a corpus may depend on."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {'python': platform.python_version()} | packages


def write_manifest(
    directory: pathlib.Path,
    tokenizer: tokenizers.Tokenizer,
    made_from: JsonObject,
    sources: list[JsonObject],
    shards: Mapping[str, list[JsonObject]],
    unigram: Mapping[str, np.ndarray],
    files: Mapping[str, JsonObject],
) -> JsonObject:
    """Complete a corpus whose shards are written, and return its manifest.

    Args:
        directory: Folder of the corpus.
        tokenizer: Tokenizer of the corpus.
        made_from: See `corpus.settings`.
        sources: See `Source.describe`.
        shards: Split → manifest entries of its shards.
        unigram: Split → how often each token occurs, int64 [V].
        files: File of a shard → its manifest entry; see `describe_file`.
    """
    for split in SPLITS:
        np.save(directory / split / 'unigram.npy', unigram[split])
    tokenizer.save(directory)
    is_unknown_V = tokenizer.is_unknown(np.arange(tokenizer.vocab_size))
    names = ['tokenizer.json', *(f'{split}/unigram.npy' for split in SPLITS)]
    files = {**files, **{name: describe_file(directory / name) for name in names}}
    manifest = {
        'format': FORMAT,
        'created': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
        'made_from': made_from,
        'tokenizer': {
            'kind': tokenizer.kind,
            'spec': made_from['tokenizer'],
            'fingerprint': tokenizer.fingerprint,
            'vocab_size': tokenizer.vocab_size,
            'lowercase': tokenizer.lowercase,
            'strip_accents': tokenizer.strip_accents,
        },
        'sources': sources,
        'splits': {
            name: {key: sum(entry[key] for entry in entries) for key in COUNTS}
            | {'unknown_tokens': int(unigram[name][is_unknown_V].sum())}
            | {'shards': entries}
            for name, entries in shards.items()
        },
        'versions': versions(),
        'files': dict(sorted(files.items())),
    }
    text = datasheet.render(manifest, tokenizer)
    # File names may have undecodable bytes, which are surrogates.
    (directory / 'DATASHEET.md').write_text(text, encoding='utf-8', errors='backslashreplace')
    write_json(directory / 'manifest.json', manifest, indent=1)
    return manifest


def describe_file(path: Path) -> JsonObject:
    """Return the manifest entry of a finished file: its size and hash."""
    return {'bytes': path.stat().st_size, 'sha256': sha256(path)}
