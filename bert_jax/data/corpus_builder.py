"""Builds a corpus on one machine; worker processes tokenize the text.

The tokenizer is loaded or trained, the held-out rule is chosen, then all sources are tokenized and
written.
"""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_jax import errors, progress
from bert_jax.data import corpus, tokenizers
from bert_jax.data.corpus_writer import CorpusWriter
from bert_jax.data.held_out import HeldOutRule, choose_rule
from bert_jax.data.sources import Source
from bert_jax.data.tokenizers import training_text
from bert_jax.data.unfinished import Unfinished
from bert_jax.data.workers import (
    BLOCK_CHARACTERS,
    DocumentBlock,
    TextBlock,
    Workers,
    read_blocks,
)
from bert_jax.storage import paths


@dataclasses.dataclass
class Position:
    """How much of a source has been written."""

    blocks: int = 0
    documents: int = 0
    characters: int = 0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)  # see DocumentBlock

    def add(self, block: DocumentBlock) -> None:
        self.blocks += 1
        self.documents += len(block.hashes)
        self.characters += block.characters
        for kind, number in block.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + number


def build(
    unfinished: Unfinished,
    sources: list[Source],
    made_from: dict[str, Any],
    shard_tokens: int,
    workers: int,
) -> dict[str, Any]:
    """Write the corpus, or resume an interrupted run, and return the manifest."""
    folder, saved = unfinished.folder, unfinished.progress
    if saved:
        tokenizer = resumed_tokenizer(folder, made_from)
    else:
        tokenizer = _load_or_train_tokenizer(sources, made_from)
        tokenizer.save(folder)
    finished: list[dict[str, Any]] = saved.get('done', [])
    position = Position(**saved.get('position', {}))
    languages = [source.language for source in sources]
    writer = CorpusWriter(folder, tokenizer, languages, shard_tokens, saved.get('writer'))
    with contextlib.closing(writer), Workers(tokenizer, workers) as pool:
        rule = _held_out_rule(sources, made_from)
        for source, state in zip(sources, finished, strict=False):
            source.restore(state)
        _tokenize_sources(writer, sources, pool, rule, unfinished, finished, position)
        return writer.finish(made_from, [source.describe() for source in sources])


def resumed_tokenizer(folder: pathlib.Path, made_from: dict[str, Any]) -> tokenizers.Tokenizer:
    """Load the tokenizer of an interrupted run; UserError if its file has changed since."""
    tokenizer = tokenizers.load(str(folder / 'tokenizer.json'))
    spec = made_from['tokenizer']
    if not spec.startswith('train:'):
        current = tokenizers.load(spec, made_from['lowercase'], made_from['strip_accents'])
        if current.fingerprint != tokenizer.fingerprint:
            raise errors.UserError(
                f'{paths.name_of(folder)} holds an interrupted preparation, but the tokenizer '
                f'{spec!r} has changed: remove the folder to start over'
            )
    return tokenizer


def _load_or_train_tokenizer(
    sources: list[Source], made_from: dict[str, Any]
) -> tokenizers.Tokenizer:
    """Load the tokenizer, or train it on the documents of all sources."""
    spec = made_from['tokenizer']
    case = made_from['lowercase'], made_from['strip_accents']
    characters = made_from['tokenizer_characters']
    prefix, _, kind_and_size = spec.partition(':')
    if prefix != 'train':
        return tokenizers.load(spec, *case)
    with progress.bar(desc=f'vocabulary {kind_and_size}', unit=' documents') as bar:

        def texts(language: str | None = None) -> Iterator[str]:
            for source in sources:
                if language in (None, source.language):
                    for document in source.documents():
                        bar.update()
                        yield document.text

        languages = {source.language for source in sources}
        training_texts: Iterable[str]
        if made_from['language_alpha'] == 1 or len(languages) == 1:
            training_texts = training_text.sample(texts(), characters)
        else:
            streams = {name: functools.partial(texts, name) for name in sorted(languages)}
            training_texts = training_text.mixture(streams, made_from['language_alpha'], characters)
        return tokenizers.train(kind_and_size, training_texts, *case)


def _held_out_rule(sources: list[Source], made_from: dict[str, Any]) -> HeldOutRule:
    """Choose the held-out rule from the first documents of each language."""
    by_language: dict[str, list[Source]] = {}
    for source in sources:
        if not source.is_training_only:
            by_language.setdefault(source.language, []).append(source)
    hashes = {
        language: (document.hash() for source in group for document in source.documents())
        for language, group in by_language.items()
    }
    return choose_rule(hashes, made_from['held_out_fraction'])


def _tokenize_sources(
    writer: CorpusWriter,
    sources: list[Source],
    pool: Workers,
    rule: HeldOutRule,
    unfinished: Unfinished,
    finished: list[dict[str, Any]],
    position: Position,
) -> None:
    """Stream all sources, one after the other, through the workers into the writer.

    Args:
        writer: Writes the documents.
        sources: The sources.
        pool: Tokenizes.
        rule: Chooses the held-out documents.
        unfinished: Where progress is saved.
        finished: `Source.state` of each source that is already written; extended in place.
        position: How much of the next source is already written.
    """
    with progress.bar(desc='preparing', unit=' tokens', unit_scale=True) as bar:
        bar.update(writer.num_tokens)
        for index, source in list(enumerate(sources))[len(finished) :]:
            blocks = read_blocks(source, source.documents(), BLOCK_CHARACTERS)
            _skip(blocks, position, source)
            for block in pool.tokenize(blocks):
                num_closed = writer.num_closed
                held_out = rule.is_held_out(block.hashes) & (not source.is_training_only)
                writer.append('train', index, block.documents.select(~held_out))
                writer.append('held_out', index, block.documents.select(held_out))
                position.add(block)
                bar.set_postfix_str(
                    f'{position.documents:,} documents, {position.characters / 1e6:.0f} M '
                    'characters of this source',
                    refresh=False,
                )
                bar.update(len(block.documents.tokens))
                if writer.num_closed > num_closed or unfinished.is_due():
                    saved_position = {'position': dataclasses.asdict(position)}
                    unfinished.save(saved_position | {'done': finished, 'writer': writer.state()})
            source.report.update(position.counts)
            count_shared_files(source, sources)
            finished.append(source.state())
            position = Position()
    for split in corpus.SPLITS:
        check_split(split, writer.has_documents(split))
    unfinished.save({'done': finished, 'writer': writer.state()})


def check_split(split: str, has_documents: bool) -> None:
    """Raise UserError if a split has no documents."""
    if not has_documents:
        raise errors.UserError(
            f'no document of the {split} split has tokens: add text, or change held_out_fraction'
        )


def _skip(blocks: Iterator[TextBlock], position: Position, source: Source) -> None:
    """Skip the blocks that an interrupted run has written; UserError if their text has changed."""
    skipped = itertools.islice(blocks, position.blocks)
    characters = sum(len(document.text) for block in skipped for document in block.documents)
    if characters != position.characters:
        raise errors.UserError(
            f'the text of {source.spec!r} has changed since its preparation was interrupted: '
            'remove OUTPUT.partial to start over'
        )


def count_shared_files(source: Source, sources: Sequence[Source]) -> None:
    """Count the files of a source that other sources read as well."""
    others = [other.identities for other in sources if other is not source]
    if shared := source.identities.keys() & set().union(*others):
        place = min(source.identities[identity] for identity in shared)
        source.count('files_also_in_another_source', place, len(shared))
