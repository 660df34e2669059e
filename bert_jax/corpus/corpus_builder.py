"""Builds a corpus on one machine; worker processes tokenize the text.

The tokenizer is loaded or trained, the held-out rule is chosen, then all sources are tokenized and
written.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from bert_jax import errors, progress, tokenizers
from bert_jax.corpus import corpus
from bert_jax.corpus.corpus_writer import CorpusWriter
from bert_jax.corpus.reading_bar import ReadingBar
from bert_jax.corpus.unfinished import Unfinished
from bert_jax.corpus.workers import Amounts, DocumentBlock, TextBlock, Workers, read_blocks
from bert_jax.storage import paths
from bert_jax.text.held_out import DIVIDE, HeldOutRule, choose_rule
from bert_jax.text.held_out_share import NEAR, HeldOutCandidates, corrected_rule, shares
from bert_jax.text.sources import Source
from bert_jax.tokenizers import training_text
from bert_jax.types import JsonObject

_TRAINABLE_TOKENS = 100_000  # shorter texts are for trying things out: a warning is enough


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
    made_from: JsonObject,
    shard_tokens: int,
    amounts: Amounts,
    workers: int,
) -> JsonObject:
    """Write the corpus, or resume an interrupted run, and return the manifest."""
    folder, saved = unfinished.folder, dict(unfinished.progress)
    if 'exceptions' in saved:
        rule = HeldOutRule(made_from['held_out_fraction'], dict(saved['exceptions']))
    else:
        rule = _held_out_rule(sources, made_from)
    if saved:
        tokenizer = resumed_tokenizer(folder, made_from)
    else:
        tokenizer = _load_or_train_tokenizer(sources, made_from)
        tokenizer.save(folder)
    with Workers(tokenizer, workers) as pool:
        writing = _Writing(unfinished, sources, made_from, shard_tokens, amounts, tokenizer, pool)
        manifest, corrected = writing.run(rule, saved)
        if manifest is None:
            progress.say(
                'the held-out share is far from the fraction: tokenizing again with another split'
            )
            manifest, _ = writing.run(corrected, writing.start_over(corrected))
        assert manifest
        return manifest


def resumed_tokenizer(folder: pathlib.Path, made_from: JsonObject) -> tokenizers.Tokenizer:
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


def _load_or_train_tokenizer(sources: list[Source], made_from: JsonObject) -> tokenizers.Tokenizer:
    """Load the tokenizer, or train it on the documents of all sources."""
    spec = made_from['tokenizer']
    case = made_from['lowercase'], made_from['strip_accents']
    characters = made_from['tokenizer_characters']
    prefix, _, kind_and_size = spec.partition(':')
    if prefix != 'train':
        return tokenizers.load(spec, *case)
    languages = sorted({source.language for source in sources})
    if made_from['language_alpha'] == 1 or len(languages) == 1:
        bar = ReadingBar(f'vocabulary {kind_and_size}', sources)
        texts = training_text.sample(bar.texts(sources), characters)
    else:
        texts, bar = _mixed_texts(sources, languages, made_from)
    with bar:
        return tokenizers.train(kind_and_size, bar.then_close(texts), *case)


def _mixed_texts(
    sources: list[Source], languages: list[str], made_from: JsonObject
) -> tuple[Iterator[str], ReadingBar]:
    """Return text of all languages to train a tokenizer on, and the bar of its reading."""
    own = {name: [source for source in sources if source.language == name] for name in languages}
    with ReadingBar('counting characters', sources) as bar:
        counts = {
            name: training_text.count_characters(bar.texts(group)) for name, group in own.items()
        }
    shares = training_text.choose_shares(
        counts, made_from['language_alpha'], made_from['tokenizer_characters']
    )
    passes = [source for name in languages for source in own[name] * shares[name].passes]
    bar = ReadingBar(f'vocabulary {made_from["tokenizer"].removeprefix("train:")}', passes)
    streams = {name: functools.partial(bar.texts, group) for name, group in own.items()}
    return training_text.mixture(streams, shares), bar


def _held_out_rule(sources: list[Source], made_from: JsonObject) -> HeldOutRule:
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


@dataclasses.dataclass(frozen=True)
class _Writing:
    """Writes a corpus whose tokenizer is known.

    Attributes:
        unfinished: Where the corpus and its progress are saved.
        sources: The sources.
        made_from: See `corpus.settings`.
        shard_tokens: See `CorpusWriter`.
        amounts: How much is tokenized at once.
        tokenizer: The tokenizer.
        pool: Tokenizes.
    """

    unfinished: Unfinished
    sources: list[Source]
    made_from: JsonObject
    shard_tokens: int
    amounts: Amounts
    tokenizer: tokenizers.Tokenizer
    pool: Workers

    def run(self, rule: HeldOutRule, saved: JsonObject) -> tuple[JsonObject | None, HeldOutRule]:
        """Write the corpus, unless the rule turns out to hold out too much.

        Args:
            rule: Chooses the held-out documents.
            saved: Progress of an interrupted run with this rule; with `exceptions`, the rule was
                corrected and is kept in any case.

        Returns:
            The manifest, or None if the corpus must be written again; the rule to use.
        """
        folder, fraction = self.unfinished.folder, self.made_from['held_out_fraction']
        languages = [source.language for source in self.sources]
        is_final = 'exceptions' in saved
        if is_final and 'writer' not in saved:
            self._remove_splits()
        candidates = {
            source.language: HeldOutCandidates(fraction)
            for source in self.sources
            if not source.is_training_only
        }
        for language, state in saved.get('candidates', {}).items():
            candidates[language].merge(state)
        writer = CorpusWriter(
            folder, self.tokenizer, languages, self.shard_tokens, saved.get('writer')
        )
        with contextlib.closing(writer):
            self._tokenize_sources(writer, rule, candidates, saved)
            corrected = rule if is_final else corrected_rule(rule, fraction, candidates)
            if corrected is not rule:
                return None, corrected
            check_share(self.sources, rule, fraction, candidates)
            for split in corpus.SPLITS:
                check_split(split, writer.has_documents(split))
            self._save(saved, writer, candidates)
            descriptions = [source.describe() for source in self.sources]
            return writer.finish(self.made_from, descriptions), rule

    def start_over(self, rule: HeldOutRule) -> JsonObject:
        """Return the progress of a run with another rule, which replaces what was written."""
        saved = {'exceptions': list(rule.exceptions.items())}
        self.unfinished.save(saved)
        return saved

    def _remove_splits(self) -> None:
        """Remove what was written with another rule."""
        for split in corpus.SPLITS:
            for folder in (self.unfinished.folder, self.unfinished.shared):
                paths.remove(folder / split)

    def _save(
        self,
        saved: JsonObject,
        writer: CorpusWriter,
        candidates: dict[str, HeldOutCandidates],
        **position: object,
    ) -> None:
        """Save the progress; for the arguments see `_tokenize_sources`."""
        counted = {language: own.state() for language, own in candidates.items()}
        state = {'done': saved['done'], 'writer': writer.state(), 'candidates': counted}
        exceptions = {key: saved[key] for key in ('exceptions',) if key in saved}
        self.unfinished.save(position | exceptions | state)

    def _tokenize_sources(
        self,
        writer: CorpusWriter,
        rule: HeldOutRule,
        candidates: dict[str, HeldOutCandidates],
        saved: JsonObject,
    ) -> None:
        """Stream all sources, one after the other, through the workers into the writer.

        Args:
            writer: Writes the documents.
            rule: Chooses the held-out documents.
            candidates: Language → counts its documents; updated.
            saved: See `run`; its `done`, the states of the finished sources, is extended.
        """
        sources = self.sources
        finished: list[JsonObject] = saved.setdefault('done', [])
        position = Position(**saved.get('position', {}))
        for source, state in zip(sources, finished, strict=False):
            source.restore(state)

        with ReadingBar('preparing', sources) as bar:
            for source in sources[: len(finished)]:
                bar.skip(source)
            for index, source in list(enumerate(sources))[len(finished) :]:
                size = self.amounts.block_characters
                blocks = read_blocks(source, source.documents(), size)
                _skip(blocks, position, source)
                bar.begin(source, is_resumed=position.blocks > 0)
                # A state may be saved after each block, so it is changed in the order in which a
                # resumed run needs it: the writer has the block before `position` counts it.
                for block in self.pool.tokenize(blocks):
                    num_closed = writer.num_closed
                    held_out = rule.is_held_out(block.hashes) & (not source.is_training_only)
                    writer.append('train', index, block.documents.select(~held_out))
                    writer.append('held_out', index, block.documents.select(held_out))
                    if not source.is_training_only:
                        lengths = block.documents.token_counts()
                        candidates[source.language].add(block.hashes, lengths)
                    position.add(block)
                    bar.move(block.position, len(block.hashes), f'{writer.num_tokens:,} tokens')
                    if writer.num_closed > num_closed or self.unfinished.is_due():
                        place = {'position': dataclasses.asdict(position)}
                        self._save(saved, writer, candidates, **place)
                source.report.update(position.counts)
                count_shared_files(source, sources)
                finished.append(source.state())
                position = Position()


def check_split(split: str, has_documents: bool) -> None:
    """Raise UserError if a split has no documents."""
    if not has_documents:
        raise errors.UserError(
            f'no document of the {split} split has tokens: add text, {DIVIDE}, or change '
            'held_out_fraction'
        )


def check_share(
    sources: Sequence[Source],
    rule: HeldOutRule,
    fraction: float,
    candidates: Mapping[str, HeldOutCandidates],
) -> None:
    """Raise UserError if a text of some length has far more held-out tokens than asked for.

    Sources whose files are held out as a whole may have any share.
    """
    if any(source.settings.get('held_out_by') == 'file' for source in sources):
        return
    for share, tokens in shares(rule, fraction, candidates):
        if tokens >= _TRAINABLE_TOKENS and share > NEAR * fraction:
            raise errors.UserError(
                f'{share:.1%} of the tokens would be held out instead of {fraction:.1%} '
                f'(held_out_fraction), because the documents are few and long: {DIVIDE}, or set '
                f'held_out_fraction={math.ceil(100 * share) / 100:g}'
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
