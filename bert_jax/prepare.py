"""Prepares a corpus: reads text, trains or loads a tokenizer, and writes the token ids.

    python -m bert_jax.prepare --source='text:books/*.txt;language=en;license=CC0' \\
        --tokenizer=train:wordpiece:8000 --output=corpora/books --workers=2

Imports neither JAX nor, unless a source needs it, TensorFlow.
"""

import argparse
import sys
from collections.abc import Sequence

from bert_jax import errors, progress, recipes
from bert_jax.corpus import corpus, preparation
from bert_jax.corpus.engines import ENGINES
from bert_jax.flag_parser import FlagParser
from bert_jax.text.sources import describe_sources

_DEFAULTS = recipes.base().data  # the defaults of training

_EPILOG = """\
sources (values after = are taken literally, spaces included):
{sources}

The program prints a summary. The folder also has a datasheet, DATASHEET.md, with the counts of
everything that was replaced or left out.
"""


def _parser() -> FlagParser:
    parser = FlagParser(
        'python -m bert_jax.prepare',
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
        default=_DEFAULTS.tokenizer,
        help='train:KIND:SIZE trains a vocabulary; KIND is wordpiece, bytebpe, unigram or '
        'sentencepiece-bpe. Or the path of a tokenizer: a tokenizer.json, a vocab.txt, a '
        'SentencePiece .model, or a folder with one of them (default: %(default)s)',
    )
    add('--output', required=True, help='folder to write the corpus to')
    add('--overwrite', action='store_true', help='replace a finished corpus, whatever its settings')
    add(
        '--verify',
        action='store_true',
        help='only check the files in --output against their hashes',
    )
    add(
        '--workers',
        type=int,
        help='processes that tokenize; 0 tokenizes in the main process (default: one per core that '
        'this process may use)',
    )
    add(
        '--lowercase',
        type=str.lower,
        choices=('true', 'false'),
        default=str(_DEFAULTS.lowercase).lower(),
        help='whether a trained tokenizer or a vocab.txt lowercases (default: %(default)s)',
    )
    add(
        '--strip_accents',
        type=str.lower,
        choices=('true', 'false'),
        help='whether a trained WordPiece or a vocab.txt strips accents and vowel signs (default: '
        'if it lowercases, as in BERT)',
    )
    add(
        '--language_alpha',
        type=float,
        default=_DEFAULTS.tokenizer_language_alpha,
        help='exponent, 0 to 1, that raises the share of small languages in the text a tokenizer '
        'is trained on: 1 leaves the shares as they are, 0 makes them equal (default: %(default)s)',
    )
    add(
        '--tokenizer_characters',
        type=int,
        default=_DEFAULTS.tokenizer_characters,
        help='a tokenizer is trained on at most this many characters of text, in random lines if '
        'there are more (default: %(default)s)',
    )
    add(
        '--held_out_fraction',
        type=float,
        default=_DEFAULTS.held_out_fraction,
        help='share of the documents to hold out for evaluation (default: %(default)s)',
    )
    add(
        '--max_bad_share',
        type=float,
        default=_DEFAULTS.max_bad_share,
        help='largest share of the files of a source, and of the lines of a file, that may be '
        'unusable; they are listed and left out (default: %(default)s)',
    )
    add(
        '--canaries',
        type=int,
        default=0,
        metavar='NUMBER',
        help='plant NUMBER invented secrets once, 10 and 100 times each, to measure what a model '
        'memorizes (python -m bert_jax.analyze harms)',
    )
    add(
        '--runner',
        choices=('local', *ENGINES),
        default='local',
        help='work on this machine, or on many with Apache Beam or Dask, which must all see the '
        'files of the sources and the folder of --output (default: local)',
    )
    add(
        'options',
        nargs='*',
        metavar='-- OPTION',
        help='for Beam: pipeline options, such as --runner=FlinkRunner; for Dask: '
        '--scheduler=ADDRESS',
    )
    return parser


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    parser, arguments = _parser(), sys.argv[1:] if argv is None else argv
    flags = parser.parse(arguments)
    if flags.options and '--' not in arguments:
        parser.refuse_word(flags.options[0], arguments)
    if flags.options and flags.runner == 'local':
        raise errors.UserError(f'{flags.options[0]!r} needs --runner=beam or --runner=dask')
    if flags.workers is not None and flags.runner != 'local':
        raise errors.UserError(
            f'--workers is for --runner=local; {flags.runner} sets its own number of workers'
        )
    if flags.verify:
        opened = corpus.Corpus.open(flags.output)
        opened.verify()
        num_files = len(opened.manifest['files'])
        progress.say(f'{flags.output}: all {num_files} files match their hashes')
        return
    preparation.prepare(
        flags.source,
        flags.tokenizer,
        flags.output,
        lowercase=flags.lowercase == 'true',
        strip_accents=flags.strip_accents and flags.strip_accents == 'true',
        held_out_fraction=flags.held_out_fraction,
        language_alpha=flags.language_alpha,
        tokenizer_characters=flags.tokenizer_characters,
        max_bad_share=flags.max_bad_share,
        workers=flags.workers,
        canaries=flags.canaries,
        overwrite=flags.overwrite,
        engine=None if flags.runner == 'local' else ENGINES[flags.runner](flags.options),
    )


if __name__ == '__main__':
    main()
