"""Prepares a corpus: reads text, trains or loads a tokenizer, and writes the token ids."""

import contextlib
import os
import time
from collections.abc import Sequence

from bert_jax import errors, progress, tokenizers
from bert_jax.corpus import corpus, corpus_builder, corpus_warnings, distributed, source_files
from bert_jax.corpus.corpus_writer import SHARD_TOKENS
from bert_jax.corpus.engines import PreparationEngine
from bert_jax.corpus.manifest import versions
from bert_jax.corpus.preparation_keys import KEYS
from bert_jax.corpus.unfinished import is_owned, open_unfinished
from bert_jax.corpus.workers import AMOUNTS, Amounts, usable_cores
from bert_jax.storage import drafts, hub, paths
from bert_jax.storage.locks import Lock
from bert_jax.storage.path import Path
from bert_jax.text.division import divide_long_files
from bert_jax.text.sources import Source, open_source
from bert_jax.types import JsonObject

_SHOWN_BAD_FILES = 20  # of each source; the datasheet lists all


def prepare(
    sources: Sequence[str],
    tokenizer: str,
    output: str | os.PathLike[str],
    *,
    lowercase: bool = KEYS['lowercase'].get(),
    strip_accents: bool | None = KEYS['strip_accents'].get(),
    held_out_fraction: float = KEYS['held_out_fraction'].get(),
    language_alpha: float = KEYS['tokenizer_language_alpha'].get(),
    tokenizer_characters: int = KEYS['tokenizer_characters'].get(),
    max_bad_share: float = KEYS['max_bad_share'].get(),
    workers: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    engine: PreparationEngine | None = None,
    canaries: int = 0,
    overwrite: bool = False,
    amounts: Amounts = AMOUNTS,
) -> corpus.Corpus:
    """Prepare a corpus in `output`, or open the corpus if it is already prepared.

    The files do not depend on the number of workers. They are written to `output`.partial, which
    is renamed at the very end. Repeating an interrupted call resumes it and makes the same files.
    If another process, on any host, is preparing this output, the call waits for that process.

    Args:
        sources: Specs of the sources; see `text.sources.open_source`.
        tokenizer: 'train:KIND:SIZE' with the kind wordpiece, bytebpe, unigram or
            sentencepiece-bpe, or the path of a tokenizer (see `tokenizers.load`).
        output: Folder of the corpus.
        lowercase: Whether a trained tokenizer or a bare vocab.txt lowercases; a tokenizer.json
            has its own setting.
        strip_accents: Whether a trained WordPiece or a bare vocab.txt strips accents and vowel
            signs; None: if it lowercases, as in BERT.
        held_out_fraction: Share of the documents that are held out, chosen by a hash of the text;
            every language has documents in each split, see `text.held_out.choose_rule`. Documents
            that are too large or copied too often stay in training, see `text.held_out_share`.
        language_alpha: Languages are sampled for training a tokenizer in proportion to
            (their characters)^language_alpha: 1 as they are, 0 in equal amounts, 0.3 in XLM-R.
        tokenizer_characters: A tokenizer is trained on at most this many characters of text, in
            random lines if there are more.
        max_bad_share: Largest share of a source's files, and of the lines of a file, that may be
            unusable. They are counted, listed and left out; a larger share is an error.
        workers: Processes that tokenize; 0 to tokenize in this process. Default: `usable_cores`.
        shard_tokens: A shard ends after the document in which it reaches this many tokens.
        engine: Reads, tokenizes and writes on other machines; see `corpus.distributed`.
        canaries: Number of invented secrets to plant 1, 10 and 100 times each (`text.canaries`), in
            the language of the first source.
        overwrite: prepare the corpus anew, even if `output` holds a finished corpus.
        amounts: How much is done at once.

    Raises:
        UserError: A setting is invalid, there are fewer than two documents, `output` holds
            something else, the disk is full or not writable, too many files are bad, or a worker
            died.
    """
    if not sources:
        raise errors.UserError(
            "no source given; name at least one, such as 'sample' or 'text:/my/*.txt'"
        )
    KEYS['held_out_fraction'].declaration.check('held_out_fraction', held_out_fraction)
    KEYS['tokenizer_language_alpha'].declaration.check('language_alpha', language_alpha)
    KEYS['tokenizer_characters'].declaration.check('tokenizer_characters', tokenizer_characters)
    KEYS['max_bad_share'].declaration.check('max_bad_share', max_bad_share)
    if canaries:
        sources = [*sources, f'canaries:{canaries};language={open_source(sources[0]).language}']
    workers = usable_cores() if workers is None else workers
    if workers < 0:
        raise errors.UserError(f'workers is {workers}, but must be at least 0')
    made_from = corpus.settings(
        sources,
        tokenizer,
        lowercase,
        held_out_fraction,
        language_alpha,
        tokenizer_characters,
        strip_accents,
    )
    hub.check_not_written(output, 'the folder of the corpus')
    given, output = output, paths.path(output).absolute()
    replaces = overwrite and (output / 'manifest.json').exists()
    if not replaces and (existing := _open_existing(output, made_from)):
        return existing
    _check_tokenizer(tokenizer, lowercase, strip_accents)
    start = time.monotonic()
    try:
        # Another process may have finished the corpus a moment ago.
        is_ours = output.is_dir() and (
            is_owned(output) or not any(output.iterdir()) or (output / 'manifest.json').exists()
        )
        if output.exists() and not replaces and not is_ours:
            raise errors.UserError(f'{output} exists but is not a corpus: name another folder')
        opened = divide_long_files([open_source(spec) for spec in sources], held_out_fraction)
        for source in opened:
            source.max_bad_share = max_bad_share
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(output.with_name(f'.{output.name}.lock'))
        with lock.waited_for(lambda: _size(output)):
            if replaces:
                paths.retract(output, 'manifest.json')
            elif existing := _open_existing(output, made_from):
                return existing
            settings = made_from | {
                'runner': 'an engine' if engine else 'local',
                'shard_tokens': shard_tokens,
                'block_characters': amounts.block_characters,
                'unit_bytes': amounts.unit_bytes,
                'versions': versions(),
            }
            stamps = [source_files.stamps(source) for source in opened]
            with open_unfinished(output, settings, stamps) as unfinished:
                if engine:
                    manifest = distributed.build(
                        unfinished, opened, made_from, shard_tokens, amounts, engine
                    )
                else:
                    manifest = corpus_builder.build(
                        unfinished, opened, made_from, shard_tokens, amounts, workers
                    )
    except OSError as error:
        place = f'{error.filename}: ' if error.filename else ''
        raise errors.UserError(
            f'cannot prepare {output}: {place}{error.strerror or error}'
        ) from error
    _print_summary(manifest, opened, unfinished.progress, time.monotonic() - start)
    progress.say(f'prepared {given}')
    return corpus.Corpus.open(output)


def _check_tokenizer(spec: str, lowercase: bool, strip_accents: bool | None) -> None:
    """Raise UserError, before any text is read, for a tokenizer that no text can give."""
    prefix, _, kind_and_size = spec.partition(':')
    if prefix == 'train':
        tokenizers.check_trainable(kind_and_size, lowercase, strip_accents)
    else:
        tokenizers.load(spec, lowercase, strip_accents)


def _open_existing(output: Path, made_from: JsonObject) -> corpus.Corpus | None:
    """Open a finished corpus if there is one. Raises UserError if its settings differ."""
    if not (output / 'manifest.json').exists():
        return None
    existing = corpus.Corpus.open(output)
    existing.check_settings(**made_from)
    source_files.report_changes(output)
    progress.say(f'{output} is already prepared with these settings')
    return existing


def _size(output: Path) -> str:
    """Describe the current size of the unfinished folder of a corpus."""
    folder = drafts.of(output).shared
    with contextlib.suppress(OSError):  # the folder may be renamed at any time
        return f'{folder} has {paths.total_bytes(folder) / 1e6:,.1f} MB'
    return f'{folder} is finished'


def _print_summary(
    manifest: JsonObject, sources: list[Source], resumed: JsonObject, seconds: float
) -> None:
    """Print a line for each source, each split and the corpus."""
    for source in sources:
        progress.say(f'{source.spec}: {source.summary()}')
        if fields := source.unread_fields():
            progress.say(f'  fields that are not read: {", ".join(fields)}')
        for bad in source.bad_files[:_SHOWN_BAD_FILES]:
            progress.say(f'  bad file: {bad}')
    tokens = sum(split['tokens'] for split in manifest['splits'].values())
    for name, split in manifest['splits'].items():
        progress.say(
            f'{name}: {split["documents"]:,} documents, {split["sentences"]:,} sentences, '
            f'{split["tokens"]:,} tokens, {split["unknown_tokens"] / split["tokens"]:.2%} unknown'
        )
    for line in corpus_warnings.find(manifest, sources):
        errors.warn(line)
    speed = '' if resumed else f', {tokens / seconds:,.0f} tokens/s'
    progress.say(f'vocabulary of {manifest["tokenizer"]["vocab_size"]:,}; {seconds:.1f} s{speed}')
