"""Prepares a corpus: reads text, trains or loads a tokenizer, and writes the token ids.

    python -m bert_jax.prepare --input='text:books/*.txt;language=en;license=CC0' \\
        --tokenizer=train:wordpiece:8000 --output=corpora/books --workers=2

Imports neither JAX nor, unless a source needs it, TensorFlow.
"""

import dataclasses
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

from bert_jax import errors, flag_parser, given_data, progress
from bert_jax.corpus import corpus, datasheet, preparation
from bert_jax.corpus.engines import ENGINES
from bert_jax.corpus.preparation_keys import KEYS
from bert_jax.flag_parser import flag, flag_of
from bert_jax.given_data import Texts
from bert_jax.storage import paths
from bert_jax.text.sources import describe_sources

_DESCRIPTION = """\
Prepares a corpus: reads text, trains or loads a tokenizer, and writes the token ids to a folder.
Training reads this folder."""
_EPILOG = """\
sources (values after = are taken literally, spaces included):
{sources}

The program prints a summary. The folder also has a datasheet, DATASHEET.md, with the counts of
everything that was replaced or left out.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparationRequest:
    """The flags of this command."""

    input: tuple[str, ...] = flag(
        'text to read, as NAME:LOCATION;option=value (sources are listed below); repeat the flag '
        'for several sources',
        (),
        form='repeated',
    )
    tokenizer: str = flag_of(KEYS['tokenizer'])
    output: str = flag('folder to write the corpus to')
    overwrite: bool = flag('replace a finished corpus, whatever its settings', False)
    verify: bool = flag('only check the files in --output against their hashes', False)
    workers: int | None = flag(
        'processes that tokenize; 0 tokenizes in the main process (default: one per core that this '
        'process may use)',
        None,
        only=('runner', ('local',)),
    )
    lowercase: bool = flag_of(KEYS['lowercase'])
    strip_accents: bool | None = flag_of(KEYS['strip_accents'])
    language_alpha: float = flag_of(KEYS['tokenizer_language_alpha'])
    tokenizer_characters: int = flag_of(KEYS['tokenizer_characters'])
    held_out_fraction: float = flag_of(KEYS['held_out_fraction'])
    max_bad_share: float = flag_of(KEYS['max_bad_share'])
    canaries: int = flag(
        'plant this many invented secrets once, 10 and 100 times each, to measure what a model '
        'memorizes (python -m bert_jax.analyze harms)',
        0,
    )
    answers: str | None = flag(
        'Markdown file with answers to the questions of a datasheet, each after a heading: '
        f'{", ".join(datasheet.QUESTIONS)}; also adds them to the datasheet of a finished corpus',
        None,
    )
    runner: str = flag(
        'local: on this machine; beam or dask: on many with Apache Beam or Dask, which must all '
        'see the files of the sources and the folder of --output',
        'local',
        choices=('local', *ENGINES),
    )
    options: tuple[str, ...] = flag(
        'for Beam: pipeline options, such as --runner=FlinkRunner; for Dask: --scheduler=ADDRESS',
        (),
        form='rest',
        only=('runner', tuple(ENGINES)),
    )


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    request = flag_parser.parse(
        PreparationRequest,
        argv,
        'python -m bert_jax.prepare',
        _DESCRIPTION,
        _EPILOG.format(sources=describe_sources()),
    )
    if request.verify:
        opened = corpus.Corpus.open(request.output)
        opened.verify()
        num_files = len(opened.manifest['files'])
        progress.say(f'{request.output}: all {num_files} files match their hashes')
        return
    answers = datasheet.read_answers(request.answers) if request.answers else None
    prepared = preparation.prepare(
        request.input,
        request.tokenizer,
        request.output,
        lowercase=request.lowercase,
        strip_accents=request.strip_accents,
        held_out_fraction=request.held_out_fraction,
        language_alpha=request.language_alpha,
        tokenizer_characters=request.tokenizer_characters,
        max_bad_share=request.max_bad_share,
        workers=request.workers,
        canaries=request.canaries,
        overwrite=request.overwrite,
        engine=None if request.runner == 'local' else ENGINES[request.runner](request.options),
    )
    if answers is not None:
        datasheet.add_answers(prepared.directory, answers)


def prepare_texts(
    text: Texts,
    output: str | os.PathLike[str],
    tokenizer: str = KEYS['tokenizer'].get(),
    *,
    column: str = 'text',
    answers: str | os.PathLike[str] | None = None,
    **options: Any,
) -> corpus.Corpus:
    """Prepare a corpus from Python: `bert_jax.prepare`.

    Args:
        text: see `bert_jax.pretrain`; documents are kept in the folder OUTPUT.data.
        output: folder of the corpus, for `bert_jax.pretrain(data={'corpus': output})`.
        tokenizer: see `corpus.preparation.prepare`.
        column: column of a table that holds the documents.
        answers: file of answers for the datasheet; see `datasheet.read_answers`.
        options: see `corpus.preparation.prepare`.

    Raises:
        UserError: the text or an option cannot be used.
    """
    sources = given_data.text_sources(text, paths.path(f'{os.fspath(output)}.data'), column)
    given = None if answers is None else datasheet.read_answers(answers)
    prepared = preparation.prepare(sources, tokenizer, output, **options)
    if given is not None:
        datasheet.add_answers(prepared.directory, given)
    return prepared


class _CallableModule(types.ModuleType):
    """This module, which is also the function that `bert_jax.prepare` names."""

    def __call__(self, *args: Any, **options: Any) -> corpus.Corpus:
        return prepare_texts(*args, **options)


if __name__ == '__main__':
    main()
else:
    sys.modules[__name__].__class__ = _CallableModule
