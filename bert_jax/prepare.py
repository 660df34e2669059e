"""Prepares a corpus: reads text, trains or loads a tokenizer, and writes the token ids.

    python -m bert_jax.prepare --source='text:books/*.txt;language=en;license=CC0' \\
        --tokenizer=train:wordpiece:8000 --output=corpora/books --workers=2

Imports neither JAX nor, unless a source needs it, TensorFlow.
"""

import argparse
import collections
import contextlib
import functools
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from bert_jax import errors, progress
from bert_jax.data import corpus, languages, tokenizers
from bert_jax.data.beam import Beam, BeamWorkers, Work
from bert_jax.data.corpus_writer import SHARD_TOKENS, CorpusWriter, new_folder
from bert_jax.data.held_out import DeferredDocument, HeldOutRule, assign_single_documents
from bert_jax.data.sources import Source, describe_sources, open_source
from bert_jax.data.workers import Workers, read_blocks

BLOCK_CHARACTERS = 2**19  # least amount of text that is sent to a worker at once

Pool: TypeAlias = Workers | BeamWorkers


def prepare(
    sources: Sequence[str],
    tokenizer: str,
    output: str | os.PathLike[str],
    *,
    lowercase: bool = True,
    held_out_fraction: float = 0.01,
    language_alpha: float = 1.0,
    workers: int = 2,
    shard_tokens: int = SHARD_TOKENS,
    beam: Beam | None = None,
) -> corpus.Corpus:
    """Prepare the corpus of the sources in `output`, or open it if it is already there.

    The files do not depend on the number of workers. They are written to `output`.partial, which
    is renamed at the very end; the next run removes what a killed run left behind.

    Args:
        sources: Specs of the sources; see `data.sources.open_source`.
        tokenizer: 'train:KIND:SIZE' with the kind wordpiece, bytebpe, unigram or
            sentencepiece-bpe, or the path of a tokenizer (see `data.tokenizers.load`).
        output: Folder of the corpus.
        lowercase: Whether a trained tokenizer or a bare vocab.txt lowercases; a tokenizer.json
            has its own setting.
        held_out_fraction: Share of the documents that are held out, chosen by hash. Every source
            with two different documents has at least one in each split.
        language_alpha: The training text of a tokenizer contains languages in proportion to
            (their characters)^language_alpha: 1 as they are, 0 in equal amounts, 0.3 in XLM-R.
        workers: Processes that tokenize; 0 to tokenize in this process. With Beam, the number of
            parts the work is divided into.
        shard_tokens: A shard is closed once it holds this many tokens.
        beam: Tokenizes on Apache Beam if given; see `data.beam`.

    Returns:
        The corpus.

    Raises:
        UserError: A setting is invalid, there are fewer than two documents, `output` holds
            something else, the disk is full or not writable, or a worker died.
    """
    if not sources:
        raise errors.UserError('no source given: name at least one, as in --source=docstrings')
    if not 0 < held_out_fraction < 1:
        raise errors.UserError(f'held_out_fraction is {held_out_fraction}, not between 0 and 1')
    if workers < bool(beam):
        raise errors.UserError(f'workers is {workers}, but must be at least {int(bool(beam))}')
    languages.check_alpha(language_alpha)
    made_from = corpus.settings(sources, tokenizer, lowercase, held_out_fraction, language_alpha)
    output = pathlib.Path(output).expanduser().absolute()
    if (output / 'manifest.json').exists():
        existing = corpus.Corpus.open(output)
        existing.check_settings(**made_from)
        print(f'{output} is already prepared with these settings')
        return existing
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise errors.UserError(f'{output} exists but is not a corpus: name another folder')
        opened = [open_source(spec) for spec in sources]
        with new_folder(output) as partial:
            _build(partial, opened, made_from, shard_tokens, workers, beam)
    except OSError as error:
        place = f'{error.filename}: ' if error.filename else ''
        raise errors.UserError(
            f'cannot prepare {output}: {place}{error.strerror or error}'
        ) from error
    print(f'prepared {output}')
    return corpus.Corpus.open(output)


def _build(
    folder: pathlib.Path,
    sources: list[Source],
    made_from: dict[str, Any],
    shard_tokens: int,
    workers: int,
    beam: Beam | None,
) -> None:
    """Write the whole corpus into an empty folder."""
    start = time.monotonic()
    tokenizer = _load_or_train_tokenizer(sources, made_from)
    pool: Pool
    if beam:
        specs = [source.spec for source in sources]
        work = Work(beam.folder, specs, BLOCK_CHARACTERS, tokenizer, workers)
        pool = BeamWorkers(beam.options, work)
    else:
        pool = Workers(tokenizer, workers)
    languages_of_sources = [source.language for source in sources]
    writer = CorpusWriter(folder, tokenizer, languages_of_sources, shard_tokens)
    with contextlib.closing(writer), pool:
        _tokenize_sources(writer, sources, pool, made_from['held_out_fraction'])
        manifest = writer.finish(made_from, [source.describe() for source in sources])
    for source in sources:
        print(f'{source.spec}: {source.summary()}')
    _print_summary(manifest, time.monotonic() - start)


def _load_or_train_tokenizer(
    sources: list[Source], made_from: dict[str, Any]
) -> tokenizers.Tokenizer:
    """Load the tokenizer, or train it on the documents of all sources."""
    spec, lowercase = made_from['tokenizer'], made_from['lowercase']
    prefix, _, kind_and_size = spec.partition(':')
    if prefix != 'train':
        return tokenizers.load(spec, lowercase)
    with progress.bar(desc=f'vocabulary {kind_and_size}', unit=' documents') as bar:

        def texts(language: str | None = None) -> Iterator[str]:
            for source in sources:
                if language in (None, source.language):
                    for document in source.documents():
                        bar.update()
                        yield document.text

        spoken = {source.language for source in sources}
        if made_from['language_alpha'] == 1 or len(spoken) == 1:
            return tokenizers.train(kind_and_size, texts(), lowercase)
        streams = {name: functools.partial(texts, name) for name in sorted(spoken)}
        mixed = tokenizers.mixture(streams, made_from['language_alpha'])
        return tokenizers.train(kind_and_size, mixed, lowercase)


def _tokenize_sources(
    writer: CorpusWriter, sources: list[Source], pool: Pool, held_out_fraction: float
) -> None:
    """Stream all sources, one after the other, through the workers into the writer."""
    undecided: list[tuple[int, DeferredDocument]] = []  # of the sources with a single document
    with progress.bar(desc='preparing', unit=' tokens', unit_scale=True) as bar:
        documents = characters = 0
        for index, source in enumerate(sources):
            dropped: collections.Counter[str] = collections.Counter()
            rule = HeldOutRule(held_out_fraction)
            for block in pool.tokenize(read_blocks(source, BLOCK_CHARACTERS)):
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
                undecided.append((index, rule.undecided))
            source.report.update(dropped)
    splits = assign_single_documents(
        [deferred.hash for _, deferred in undecided],
        held_out_fraction,
        has_held_out=writer.has_documents('held_out'),
    )
    for (index, deferred), split in zip(undecided, splits, strict=True):
        for _ in range(deferred.copies):
            writer.append(split, index, deferred.document)


def _print_summary(manifest: dict[str, Any], seconds: float) -> None:
    """Print one line for each split and one for the corpus."""
    tokens = sum(split['tokens'] for split in manifest['splits'].values())
    for name, split in manifest['splits'].items():
        print(
            f'{name}: {split["documents"]:,} documents, {split["sentences"]:,} sentences, '
            f'{split["tokens"]:,} tokens, {split["unknown_tokens"] / split["tokens"]:.2%} unknown'
        )
    print(
        f'vocabulary of {manifest["tokenizer"]["vocab_size"]:,}; '
        f'{seconds:.1f} s, {tokens / seconds:,.0f} tokens/s'
    )


_EPILOG = """\
sources (values after = are taken literally, spaces included):
{sources}

The program prints a summary. The folder also has a datasheet, DATASHEET.md, with the counts of
everything that was replaced or left out.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.prepare',
        description='Prepares a corpus: reads text, trains or loads a tokenizer, and writes the '
        'token ids to a folder. Training reads this folder.',
        epilog=_EPILOG.format(sources=describe_sources()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        '--source',
        action='append',
        default=[],
        help='text to read, as NAME:LOCATION;option=value (sources are listed below); repeat the '
        'flag for several sources',
    )
    add(
        '--tokenizer',
        default='train:wordpiece:8000',
        help='train:KIND:SIZE trains a vocabulary; KIND is wordpiece, bytebpe, unigram or '
        'sentencepiece-bpe. Or the path of a tokenizer: a tokenizer.json, a vocab.txt, a '
        'SentencePiece .model, or a folder with one of them (default: %(default)s)',
    )
    add('--output', required=True, help='folder to write the corpus to')
    add(
        '--verify',
        action='store_true',
        help='only check the files in --output against their hashes',
    )
    add(
        '--workers',
        type=int,
        default=os.cpu_count(),
        help='processes that tokenize; 0 tokenizes in the main process (default: one per core)',
    )
    add(
        '--lowercase',
        type=str.lower,
        choices=('true', 'false'),
        default='true',
        help='whether a trained tokenizer or a vocab.txt lowercases (default: true)',
    )
    add(
        '--language_alpha',
        type=float,
        default=1.0,
        help='exponent, 0 to 1, that raises the share of small languages in the text a tokenizer '
        'is trained on: 1 leaves the shares as they are, 0 makes them equal (default: 1)',
    )
    add(
        '--held_out_fraction',
        type=float,
        default=0.01,
        help='share of the documents to hold out for evaluation (default: 0.01)',
    )
    add(
        '--runner',
        choices=('local', 'beam'),
        default='local',
        help='tokenize on this machine or on Apache Beam (default: local)',
    )
    add(
        '--beam_folder',
        help='temporary folder that all Beam workers can write (default: OUTPUT.blocks)',
    )
    add(
        'beam_options',
        nargs='*',
        metavar='-- BEAM_OPTION',
        help='pipeline options for Beam, such as --runner=FlinkRunner',
    )
    return parser


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    flags = _parser().parse_args(argv)
    if flags.beam_options and flags.runner != 'beam':
        raise errors.UserError(f'{flags.beam_options[0]!r} needs --runner=beam')
    if flags.verify:
        found = corpus.Corpus.open(flags.output)
        found.verify()
        print(f'{flags.output}: all {len(found.manifest["files"])} files match their hashes')
        return
    folder = flags.beam_folder or f'{os.path.abspath(flags.output)}.blocks'
    prepare(
        flags.source,
        flags.tokenizer,
        flags.output,
        lowercase=flags.lowercase == 'true',
        held_out_fraction=flags.held_out_fraction,
        language_alpha=flags.language_alpha,
        workers=flags.workers,
        beam=Beam(tuple(flags.beam_options), folder) if flags.runner == 'beam' else None,
    )


if __name__ == '__main__':
    main()
