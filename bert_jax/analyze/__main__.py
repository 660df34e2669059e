"""Command line that analyzes a model: its states, attention, preferences and memorized text.

    python -m bert_jax.analyze isotropy --model=runs/tiny --input=texts.txt --output=isotropy

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. See docs/analysis.md.
"""

import argparse
import functools
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_jax import analyze, errors, files, progress
from bert_jax.flag_parser import FlagParser, positive
from bert_jax.interop import MODEL_HELP

if TYPE_CHECKING:
    from bert_jax.analyze.base import Analysis

_PROGRAM = 'python -m bert_jax.analyze'
_PLAN = 'all'  # runs the analyses of a plan; see plan.py
_DESCRIPTION = """\
Analyze a model. Each analysis writes a folder with results.json, a report (README.md) and figures.
Options of an analysis: python -m bert_jax.analyze ANALYSIS --help
"all" runs all analyses that a file lists, one per line."""


def _parse(arguments: Sequence[str]) -> tuple['Analysis', argparse.Namespace]:
    """Parse a command line; return the analysis and its options."""
    overview = FlagParser(_PROGRAM, description=_DESCRIPTION)
    overview.add_argument(
        'analysis', metavar='ANALYSIS', help=', '.join([*analyze.ANALYSES, _PLAN])
    )
    if not arguments or (arguments[0].startswith('-') and arguments[0] not in ('-h', '--help')):
        raise errors.UserError(
            'the first argument must be the name of an analysis: '
            f'{", ".join([*analyze.ANALYSES, _PLAN])}'
        )
    name = overview.parse(arguments[:1]).analysis
    analysis = analyze.find(name)
    parser = FlagParser(f'{_PROGRAM} {name}', description=f'{analysis.description}.')
    add = parser.add_argument
    add('--model', required=True, help=MODEL_HELP)
    add(
        '--input',
        required=not analysis.instead_of_input,
        action='append',
        help=f'{analysis.input_help}; file or glob, may be repeated',
    )
    add('--output', required=True, help='folder for the results; must not exist yet')
    add('--overwrite', action='store_true', help='replace the results of an earlier analysis')
    add(
        '--card',
        action='store_true',
        help='also add the first table to the model card, README.md in the folder of the model',
    )
    add(
        '--max_length',
        type=positive,
        help="tokens per window of a long text (default: the model's maximum)",
    )
    add(
        '--batch_tokens', type=positive, default=2048, help='padded tokens per batch (default 2048)'
    )
    add('--dtype', default='float32', help='float32 (default) or bfloat16')
    analysis.add_arguments(parser)
    flags = parser.parse(arguments[1:])
    if not flags.input and getattr(flags, analysis.instead_of_input) is None:
        raise errors.UserError(f'give --input or --{analysis.instead_of_input}')
    for option, needed in analysis.only_with.items():
        if getattr(flags, option) is not None and not getattr(flags, needed):
            raise errors.UserError(f'--{option} has no effect without --{needed}; leave it out')
    return analysis, flags


def run(arguments: Sequence[str]) -> pathlib.Path:
    """Run an analysis from its command line; return the folder with the results."""
    analysis, flags = _parse(arguments)
    import jax

    from bert_jax.analyze import card, report
    from bert_jax.analyze.base import AnalyzedModel
    from bert_jax.interop import loading
    from bert_jax.storage import paths
    from bert_jax.training import runtime

    output = paths.on_disk(flags.output)
    report.check_output(output, flags.overwrite)
    if flags.card:
        card.check(flags.model)
    runtime.configure(keep_memory=False)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
    pretrained = loading.load_any(flags.model, allow_missing=('^encoder/pooler/',))
    with progress.bar(unit=' windows') as bar:
        options = {
            'dtype': flags.dtype,
            'max_length': flags.max_length,
            'batch_tokens': flags.batch_tokens,
            'advance': bar.update,
        }
        stage = functools.partial(bar.set_description_str, refresh=False)
        model = AnalyzedModel(flags.model, pretrained, options, stage)
        results = analysis.run(flags, model)
    with files.new_folder(output, report.RESULTS, flags.overwrite) as folder:
        report.write(
            folder,
            name=arguments[0],
            analysis=analysis,
            model=flags.model,
            command=shlex.join([*_PROGRAM.split(), *arguments]),
            results=results,
        )
    if flags.card:
        card.add(flags.model, output / report.RESULTS)
    for event, number in model.predictor.counts.items():
        if number:
            errors.warn(f'{number:,} {event}')
    return output


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == [_PLAN]:
        from bert_jax.analyze import plan

        output = plan.run(arguments[1:], _parse, run)
    else:
        output = run(arguments)
    progress.say((output / 'README.md').read_text(encoding='utf-8'))
    progress.say(
        f'written to {output}: {", ".join(sorted(path.name for path in output.iterdir()))}'
    )


if __name__ == '__main__':
    main()
