"""Builds a corpus on many machines, byte for byte the same as `corpus_builder` on one.

    count characters of each unit                only if a tokenizer is trained
    draw lines of each unit ─▶ vocabulary        only if a tokenizer is trained
    encode each unit ─▶ parts
    assemble each shard from parts

This process divides the text by the sizes of files, trains the vocabulary, chooses the held-out
rule from a few hashes of each unit, plans the shards from the totals of the parts, and writes the
manifest.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import errors, tokenizers
from bert_jax.corpus import corpus_builder, parts, shard_plan, stages
from bert_jax.corpus.corpus import SPLITS
from bert_jax.corpus.engines import PreparationEngine
from bert_jax.corpus.manifest import versions, write_manifest
from bert_jax.corpus.parts import Part
from bert_jax.corpus.stages import Unit, Work
from bert_jax.corpus.unfinished import Unfinished
from bert_jax.corpus.workers import Amounts
from bert_jax.storage import paths
from bert_jax.storage.path import Path
from bert_jax.text.held_out import HeldOutRule, choose_rule
from bert_jax.text.held_out_share import HeldOutCandidates, corrected_rule
from bert_jax.text.sources import Source
from bert_jax.tokenizers import training_text
from bert_jax.types import JsonObject, JsonView


def build(
    unfinished: Unfinished,
    sources: list[Source],
    made_from: JsonObject,
    shard_tokens: int,
    amounts: Amounts,
    engine: PreparationEngine,
) -> JsonObject:
    """Write the corpus, or resume an interrupted run, and return the manifest.

    Records and parts are in the folder `parts` of the unfinished corpus.
    """
    work = Work(
        folder=str(unfinished.parts),
        output=str(unfinished.shared),
        specs=tuple(source.spec for source in sources),
        max_bad_share=max(source.max_bad_share for source in sources),
        held_out_fraction=made_from['held_out_fraction'],
        amounts=amounts,
        versions=versions(),
    )
    units = _units(sources, amounts.unit_bytes)
    tokenizer = _tokenizer(unfinished, sources, made_from, engine, work, units)
    records = stages.run(engine, work, parts.ENCODE, units)
    records_by_source = _merge_reports(sources, units, records)
    rule = _held_out_rule(sources, records_by_source, made_from)
    parts_and_rules = [
        (
            [Part(**part) for record in source_records for part in record['parts']],
            None if source.is_training_only else rule,
        )
        for source, source_records in zip(sources, records_by_source, strict=True)
    ]
    shards = shard_plan.plan(parts.ENCODE.folder(work), parts_and_rules, shard_tokens)
    for split in SPLITS:
        corpus_builder.check_split(split, any(shard.split == split for shard in shards))
        (unfinished.folder / split).mkdir(exist_ok=True)
    shard_records = stages.run(engine, work, shard_plan.ASSEMBLE, shards)
    entries: dict[str, list[JsonObject]] = {split: [] for split in SPLITS}
    unigram = {split: np.zeros(tokenizer.vocab_size, np.int64) for split in SPLITS}
    files: dict[str, JsonObject] = {}
    for shard, record in zip(shards, shard_records, strict=True):
        language = sources[shard.source].language
        entries[shard.split].append(record['entry'] | {'language': language})
        unigram[shard.split] += shard_plan.read_unigram(work, shard)
        files |= record['files']
    descriptions = [source.describe() for source in sources]
    return write_manifest(
        unfinished.folder, tokenizer, made_from, descriptions, entries, unigram, files
    )


def _units(sources: Sequence[Source], unit_bytes: int) -> list[Unit]:
    units: list[Unit] = []
    for index, source in enumerate(sources):
        for path in source.identities.values():
            if not paths.path(path).is_absolute():
                raise errors.UserError(
                    f'source {source.spec!r}: {path} is a relative path; with --runner, give '
                    'absolute paths'
                )
        for pieces in source.units(unit_bytes):
            units.append(Unit(len(units), index, pieces))
    return units


def _tokenizer(
    unfinished: Unfinished,
    sources: Sequence[Source],
    made_from: JsonObject,
    engine: PreparationEngine,
    work: Work,
    units: Sequence[Unit],
) -> tokenizers.Tokenizer:
    """Load the tokenizer, from an interrupted run if possible, or train it on all units."""
    spec = made_from['tokenizer']
    case = made_from['lowercase'], made_from['strip_accents']
    if unfinished.progress.get('tokenizer'):
        return corpus_builder.resumed_tokenizer(unfinished.folder, made_from)
    unfinished.save({'tokenizer': False})
    prefix, _, kind_and_size = spec.partition(':')
    if prefix == 'train':
        texts = _training_text(sources, made_from, engine, work, units)
        tokenizer = tokenizers.train(kind_and_size, texts, *case)
    else:
        tokenizer = tokenizers.load(spec, *case)
    tokenizer.save(unfinished.folder)
    unfinished.save({'tokenizer': True})
    return tokenizer


class Draw(NamedTuple):
    """A unit and the share of its text to draw."""

    unit: Unit
    share: training_text.LanguageShare

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def size(self) -> int:
        return self.unit.size


def _training_text(
    sources: Sequence[Source],
    made_from: JsonObject,
    engine: PreparationEngine,
    work: Work,
    units: Sequence[Unit],
) -> Iterator[str]:
    """Yield the text on which to train the tokenizer, the same as in `corpus_builder`."""
    counts = stages.run(engine, work, COUNT, units)
    characters: dict[str, np.ndarray] = {}
    languages = [sources[unit.source].language for unit in units]
    for language, record in zip(languages, counts, strict=True):
        characters[language] = characters.get(language, 0) + np.array(record['characters'])
    alpha, limit = made_from['language_alpha'], made_from['tokenizer_characters']
    shares = training_text.choose_shares(dict(sorted(characters.items())), alpha, limit)
    draws = [Draw(unit, shares[language]) for unit, language in zip(units, languages, strict=True)]
    records = stages.run(engine, work, DRAW, draws)
    if alpha == 1 or len(shares) == 1:
        return (text for record in records for text in record['texts'])
    return _by_language(shares, languages, records)


def _by_language(
    shares: Mapping[str, training_text.LanguageShare],
    languages: Sequence[str],
    records: Sequence[JsonView],
) -> Iterator[str]:
    """Yield the texts of records of `draw` language by language, repeated as `shares` says."""
    for language, share in shares.items():
        group = [
            record for name, record in zip(languages, records, strict=True) if name == language
        ]
        for key in ['whole'] * share.repeats + ['texts']:
            for record in group:
                yield from record[key]


def count(work: Work, unit: Unit, path: Path) -> JsonObject:
    """Count the characters of a unit by level of their lines; the function of COUNT."""
    record = stages.read_record(path)
    if record and 'characters' in record:
        return record
    return {'characters': training_text.count_characters(_texts(work, unit)).tolist()}


def draw(work: Work, item: Draw, path: Path) -> JsonObject:
    """Draw lines of a unit; the function of DRAW. The record has the texts."""
    record = stages.read_record(path)
    if record and record.get('share') == list(item.share):
        return record
    texts = list(training_text.draw_lines(_texts(work, item.unit), item.share.below))
    whole = list(_texts(work, item.unit)) if item.share.repeats else []
    return {'share': list(item.share), 'texts': texts, 'whole': whole}


COUNT = stages.PreparationStage('count', 'counting characters', count)
DRAW = stages.PreparationStage('draw', 'drawing lines', draw)


def _texts(work: Work, unit: Unit) -> Iterator[str]:
    source = work.open_source(unit.source)
    return (document.text for document in source.documents_of(unit.pieces))


def _merge_reports(
    sources: Sequence[Source], units: Sequence[Unit], records: Sequence[JsonObject]
) -> list[list[JsonObject]]:
    """Complete the reports of the sources; return the records of each source's accepted units."""
    records_by_source = []
    for index, source in enumerate(sources):
        source_units = [unit for unit in units if unit.source == index]
        source_records = [records[unit.number] for unit in source_units]
        is_accepted = source.merge(
            [unit.pieces for unit in source_units], [record['state'] for record in source_records]
        )
        accepted = list(itertools.compress(source_records, is_accepted))
        for record in accepted:
            source.report.update(record['counts'])
        records_by_source.append(accepted)
        corpus_builder.count_shared_files(source, sources)
    return records_by_source


def _held_out_rule(
    sources: Sequence[Source],
    records_by_source: Sequence[Sequence[JsonObject]],
    made_from: JsonObject,
) -> HeldOutRule:
    fraction = made_from['held_out_fraction']
    hashes: dict[str, list[int]] = {}
    candidates: dict[str, HeldOutCandidates] = {}
    for source, records in zip(sources, records_by_source, strict=True):
        if not source.is_training_only:
            extremes = [value for record in records for value in record['extremes']]
            hashes.setdefault(source.language, []).extend(extremes)
            own = candidates.setdefault(source.language, HeldOutCandidates(fraction))
            for record in records:
                own.merge(record['candidates'])
    rule = corrected_rule(choose_rule(hashes, fraction), fraction, candidates)
    corpus_builder.check_share(sources, rule, fraction, candidates)
    return rule
