"""Analyzes what the states of a model contain.

    python -m bert_jax.analyze isotropy --model=runs/tiny --input=texts.txt --output=isotropy

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. See docs/analysis.md.
"""

import argparse
import pathlib
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_jax import analyze, errors, progress
from bert_jax.interop import MODEL_HELP

if TYPE_CHECKING:
    from bert_jax.analyze.base import Analysis

_PROGRAM = 'python -m bert_jax.analyze'
_PLAN = 'all'  # the name that is none of an analysis
_DESCRIPTION = """\
Analyze what the states of a model contain. Each analysis writes a folder with results.json, a
report (README.md) and figures. For its options: python -m bert_jax.analyze ANALYSIS --help
"all" runs the analyses of a file, one a line."""


def _parse(arguments: Sequence[str]) -> tuple['Analysis', argparse.Namespace]:
    """The analysis and its options."""
    overview = argparse.ArgumentParser(prog=_PROGRAM, description=_DESCRIPTION)
    overview.add_argument(
        'analysis', metavar='ANALYSIS', help=', '.join([*analyze.ANALYSES, _PLAN])
    )
    name = overview.parse_args(arguments[:1]).analysis
    analysis = analyze.find(name)
    parser = argparse.ArgumentParser(
        prog=f'{_PROGRAM} {name}', description=f'{analysis.description}.'
    )
    add = parser.add_argument
    add(
        '--model',
        required=True,
        help=MODEL_HELP,
    )
    add(
        '--input',
        required=True,
        action='append',
        help=f'{analysis.input_help}; file or glob, may be repeated',
    )
    add('--output', required=True, help='folder for the results; must not exist yet')
    add('--overwrite', action='store_true', help='replace the results of an earlier analysis')
    add(
        '--card',
        action='store_true',
        help='also put the first table into the model card, README.md in the folder of the model',
    )
    add('--max_length', type=int, help='tokens of a window of a long text (default: the limit)')
    add('--batch_tokens', type=int, default=2048, help='padded tokens of a batch (default 2048)')
    add('--dtype', default='float32', help='float32 (default) or bfloat16')
    analysis.add_arguments(parser)
    return analysis, parser.parse_args(arguments[1:])


def run(arguments: Sequence[str]) -> pathlib.Path:
    """Run the analysis of a command line, and return the folder of its results."""
    analysis, flags = _parse(arguments)
    import jax

    from bert_jax.analyze import card, report
    from bert_jax.analyze.base import Model
    from bert_jax.interop import loading
    from bert_jax.storage import paths
    from bert_jax.training import runtime

    if flags.batch_tokens < 1:
        raise errors.UserError(f'--batch_tokens is {flags.batch_tokens}, must be at least 1')
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
        model = Model(flags.model, pretrained, options, bar.set_description_str)
        results = analysis.run(flags, model)
    with report.new_folder(output) as folder:
        report.write(
            folder,
            analysis=arguments[0],
            description=analysis.description,
            model=flags.model,
            command=shlex.join([*_PROGRAM.split(), *arguments]),
            limits=analysis.limits,
            results=results,
        )
    if flags.card:
        card.add(flags.model, output / report.RESULTS)
    _print_counts(model.predictor.counts)
    return output


def _print_counts(counts: Counter[str]) -> None:
    for what, number in counts.items():
        if number:
            print(f'{number:,} {what}', file=sys.stderr)


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
