"""Text → tokenized corpus on disk.

    python -m bert_jax.prepare --source='text:books/*.txt;language=en;license=CC0' \\
        --tokenizer=train:wordpiece:8000 --output=corpora/books --workers=2

Imports neither JAX nor TensorFlow (unless a source is one of TensorFlow's datasets).
"""

import argparse
import collections
import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence

from bert_jax import errors, progress
from bert_jax.data import corpus, languages, tokenizers
from bert_jax.data import sources as text_sources
from bert_jax.data.beam import Beam, BeamWorkers
from bert_jax.data.held_out import HeldOutRule, hash_limit
from bert_jax.data.workers import Workers, blocks

BLOCK_CHARACTERS = 2**19  # documents go to the workers in blocks of at least this much text


def prepare(
    sources: Sequence[str],
    tokenizer: str,
    output: str | os.PathLike,
    *,
    lowercase: bool = True,
    held_out_fraction: float = 0.01,
    language_alpha: float = 1.0,
    workers: int = 2,
    shard_tokens: int = corpus.SHARD_TOKENS,
    beam: Beam | None = None,
) -> corpus.Corpus:
    """Makes the corpus of the sources in `output`, or opens it if it is there already.

    The files are the same whatever the number of workers. All work happens in `output`.partial,
    which is renamed at the very end; what a killed run left there is removed by the next one.

    Args:
      sources: see `data.sources.open_source`.
      tokenizer: 'train:KIND:SIZE' with wordpiece, bytebpe, unigram or sentencepiece-bpe, or the
        path of a tokenizer's file or folder (see `data.tokenizers.load`).
      output: folder to make.
      lowercase: for a trained tokenizer and a bare vocab.txt; a tokenizer.json knows its own.
      held_out_fraction: share of the documents, chosen by hash, that makes the held-out split;
        each source with two different documents gives at least one to either split.
      language_alpha: a tokenizer is trained on text in which languages have shares of the
        characters to this power: 1 as they come, 0 all alike, .3 as in XLM-R.
      workers: processes that split sentences and tokenize; 0 does it in this one; with Beam the
        parts the work is cut into.
      shard_tokens: a shard is closed once it holds that many tokens.
      beam: has that done by Apache Beam, see `data.beam`.

    Raises UserError for bad settings, sources without text, a single document, a finished corpus
    with other settings in `output`, a disk that is full or cannot be written, a dead worker.
    """
    if not sources:
        raise errors.UserError('no source: name at least one, as in --source=docstrings')
    if not 0 < held_out_fraction < 1:
        raise errors.UserError(f'held_out_fraction is {held_out_fraction}, not between 0 and 1')
    if workers < bool(beam):
        raise errors.UserError(f'workers is {workers}: it must be {int(bool(beam))} or more')
    languages.check_alpha(language_alpha)
    made_from = corpus.settings(sources, tokenizer, lowercase, held_out_fraction, language_alpha)
    output = pathlib.Path(output).expanduser().absolute()
    if (output / 'manifest.json').exists():
        existing = corpus.Corpus.open(output)
        existing.check_made_from(**made_from)
        print(f'{output} is already prepared with these settings')
        return existing
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise errors.UserError(f'{output} exists and is no corpus: name another folder')
        opened = [text_sources.open_source(spec) for spec in sources]
        with _partial_folder(output) as partial:
            _build(
                partial, opened, made_from, shard_tokens, functools.partial(_pool, workers, beam)
            )
            _sync(partial)
            os.rename(partial, output)
            _sync_folder(output.parent)
    except OSError as error:
        place = f'{error.filename}: ' if error.filename else ''
        raise errors.UserError(
            f'cannot prepare {output}: {place}{error.strerror or error}'
        ) from error
    print(f'prepared {output}')
    return corpus.Corpus.open(output)


def _build(
    folder: pathlib.Path,
    opened: list[text_sources.Source],
    made_from: dict,
    shard_tokens: int,
    pool_of: Callable,
):
    """Writes the whole corpus into an empty folder."""
    start = time.monotonic()
    tokenizer = _tokenizer(opened, made_from)
    spoken = [source.language for source in opened]
    with (
        contextlib.closing(corpus.Writer(folder, tokenizer, spoken, shard_tokens)) as writer,
        pool_of(tokenizer, opened) as pool,
    ):
        _append_all(writer, opened, pool, made_from['held_out_fraction'])
        described = [
            {
                'spec': source.spec,
                'language': source.language,
                'license': source.license,
                'report': dict(source.report),
            }
            for source in opened
        ]
        manifest = writer.finish(made_from, described)
    for source in opened:
        print(f'{source.spec}: {source.summary()}')
    _print_summary(manifest, time.monotonic() - start)


def _pool(workers: int, beam: Beam | None, tokenizer: tokenizers.Tokenizer, opened: list):
    if beam is None:
        return Workers(tokenizer, workers)
    specs = [source.spec for source in opened]
    work = {'specs': specs, 'characters': BLOCK_CHARACTERS}
    return BeamWorkers(beam, tokenizer, workers, work)


def _tokenizer(opened: list[text_sources.Source], made_from: dict) -> tokenizers.Tokenizer:
    """Loads the tokenizer, or trains it on the documents of all sources."""
    spec, lowercase = made_from['tokenizer'], made_from['lowercase']
    kind, _, trained = spec.partition(':')
    if kind != 'train':
        return tokenizers.load(spec, lowercase)
    with progress.bar(desc=f'vocabulary {trained}', unit=' documents') as bar:

        def texts(language: str | None = None):
            for source in opened:
                if language in (None, source.language):
                    for document in source.documents():
                        bar.update()
                        yield document.text

        spoken = {source.language for source in opened}
        if made_from['language_alpha'] == 1 or len(spoken) == 1:
            return tokenizers.train(trained, texts(), lowercase)
        streams = {name: functools.partial(texts, name) for name in sorted(spoken)}
        mixed = tokenizers.mixture(streams, made_from['language_alpha'])
        return tokenizers.train(trained, mixed, lowercase)


def _append_all(
    writer: corpus.Writer, opened: list[text_sources.Source], pool: 'Workers', fraction: float
):
    """Streams all sources through the workers into the writer, source after source."""
    alone = []  # (hash, source, its only document), of each source with no two different ones
    with progress.bar(desc='preparing', unit=' tokens', unit_scale=True) as bar:
        documents = characters = 0
        for index, source in enumerate(opened):
            dropped = collections.Counter()
            rule = HeldOutRule(fraction)
            for block in pool.encode(blocks(source, BLOCK_CHARACTERS)):
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
                alone.append((rule.undecided, index))
            source.report.update(dropped)
    _append_lone_documents(writer, alone, fraction)


def _append_lone_documents(writer: corpus.Writer, alone: list, fraction: float):
    """Places the sources that hold one document each, so that neither split stays empty."""
    hashes = sorted({aside.hash for aside, _ in alone})
    if writer.holds('held_out'):  # and 'train', by the rule of a source with more documents
        held_out = {value for value in hashes if value < hash_limit(fraction)}
    elif len(hashes) > 1:
        held_out = {hashes[0]}
    else:
        raise errors.UserError(
            f'the sources hold {len(hashes) or "no"} document(s) with words, copies aside: '
            'a held-out split by document needs at least two'
        )
    for aside, source in alone:
        for _ in range(aside.copies):
            writer.append('held_out' if aside.hash in held_out else 'train', source, aside.document)


@contextlib.contextmanager
def _partial_folder(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """An empty folder beside `output`, locked against other runs, removed if the work fails."""
    partial = output.with_name(output.name + '.partial')
    partial.mkdir(parents=True, exist_ok=True)
    lock = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.UserError(f'another run is preparing {output} right now') from None
        try:
            for left in partial.iterdir():  # by a killed run
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _sync(folder: pathlib.Path):
    """Makes sure that all files of a folder are on the disk."""
    for path in folder.rglob('*'):
        if path.is_dir():
            _sync_folder(path)
        else:
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: pathlib.Path):
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _print_summary(manifest: dict, seconds: float):
    """One line for each split and one for the whole."""
    tokens = 0
    for name, split in manifest['splits'].items():
        tokens += split['tokens']
        print(
            f'{name}: {split["documents"]:,} documents, {split["sentences"]:,} sentences, '
            f'{split["tokens"]:,} tokens, {split["unknown_tokens"] / split["tokens"]:.2%} unknown'
        )
    print(
        f'vocabulary of {manifest["tokenizer"]["vocab_size"]:,}; '
        f'{seconds:.1f} s, {tokens / seconds:,.0f} tokens/s'
    )


def _boolean(text: str) -> bool:
    if text.lower() not in ('true', 'false'):
        raise argparse.ArgumentTypeError(f'{text!r} is neither true nor false')
    return text.lower() == 'true'


@errors.exit_cleanly
def main():
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.prepare', description='Text → tokenized corpus on disk.'
    )
    add = parser.add_argument
    add('--source', action='append', default=[], help='docstrings, text:GLOB, …; repeatable')
    add('--tokenizer', default='train:wordpiece:8000', help='train:KIND:SIZE or a path')
    add('--output', required=True, help='folder to make, or to verify')
    add('--verify', action='store_true', help='only compare its files with their hashes')
    add('--workers', type=int, default=os.cpu_count(), help='processes; 0: none but this')
    add('--lowercase', type=_boolean, default=True, help='true or false')
    add('--language_alpha', type=float, default=1.0, help='of the text to train a tokenizer on')
    add('--held_out_fraction', type=float, default=0.01, help='share of the documents')
    add('--runner', choices=('local', 'beam'), default='local', help='what the workers run on')
    add('--beam_folder', help='for encoded blocks, seen by all of its workers: OUTPUT.blocks')
    add('beam_options', nargs='*', metavar='-- BEAM_OPTION', help='--runner=FlinkRunner, …')
    flags = parser.parse_args()
    if flags.beam_options and flags.runner != 'beam':
        raise errors.UserError(f'{flags.beam_options[0]!r} is only for --runner=beam')
    if flags.verify:
        found = corpus.Corpus.open(flags.output)
        found.verify()
        print(f'{flags.output}: {len(found.manifest["files"])} files are as they were written')
        return
    folder = flags.beam_folder or f'{os.path.abspath(flags.output)}.blocks'
    prepare(
        flags.source,
        flags.tokenizer,
        flags.output,
        lowercase=flags.lowercase,
        held_out_fraction=flags.held_out_fraction,
        language_alpha=flags.language_alpha,
        workers=flags.workers,
        beam=Beam(tuple(flags.beam_options), folder) if flags.runner == 'beam' else None,
    )


if __name__ == '__main__':
    main()
