"""Command line that analyzes a model: its states, attention, preferences and memorized text.

    python -m bert_jax.analyze isotropy --model=runs/tiny --input=texts.txt --output=isotropy

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. See docs/analysis.md.
"""

import functools
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_jax import analyze, errors, files, flag_parser, progress

if TYPE_CHECKING:
    from bert_jax.analyze.base import Analysis

_PROGRAM = 'python -m bert_jax.analyze'
_PLAN = 'all'  # runs the analyses of a plan; see plan.py
_DESCRIPTION = """\
Analyze a model. Each analysis writes a folder with results.json, a report (README.md) and figures.
Options of an analysis: python -m bert_jax.analyze ANALYSIS --help
"all" runs all analyses that a file lists, one per line."""


def _parse(arguments: Sequence[str]) -> 'Analysis':
    """Return the analysis of a command line, with its analysis."""
    names = [*analyze.ANALYSES, _PLAN]
    if arguments[:1] in (['-h'], ['--help']):
        progress.say(
            f'{_PROGRAM} ANALYSIS [flags]\n\n{_DESCRIPTION}\n\nanalyses: {", ".join(names)}'
        )
        sys.exit(0)
    if not arguments or arguments[0].startswith('-'):
        raise errors.UserError(
            f'the first argument must be the name of an analysis: {", ".join(names)}'
        )
    name, *rest = arguments
    kind = errors.look_up('analysis', name, analyze.ANALYSES)
    analysis = flag_parser.parse(kind, rest, f'{_PROGRAM} {name}', f'{kind.description}.')
    analysis.check()
    return analysis


def run(arguments: Sequence[str]) -> pathlib.Path:
    """Run an analysis from its command line; return the folder with the results."""
    analysis = _parse(arguments)
    import jax

    from bert_jax.analyze import card, report
    from bert_jax.analyze.base import AnalyzedModel
    from bert_jax.interop import loading
    from bert_jax.storage import paths
    from bert_jax.training import runtime

    output = paths.on_disk(analysis.output)
    report.check_output(output, analysis.overwrite)
    if analysis.card:
        card.check(analysis.model)
    runtime.configure(keep_memory=False)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
    pretrained = loading.load_any(analysis.model, allow_missing=('^encoder/pooler/',))
    with progress.bar(unit=' windows') as bar:
        options = {
            'dtype': analysis.dtype,
            'max_length': analysis.max_length,
            'batch_tokens': analysis.batch_tokens,
            'advance': bar.update,
        }
        stage = functools.partial(bar.set_description_str, refresh=False)
        model = AnalyzedModel(analysis.model, pretrained, options, stage)
        results = analysis.run(model)
    with files.new_folder(output, report.RESULTS, analysis.overwrite) as folder:
        report.write(
            folder,
            name=arguments[0],
            analysis=analysis,
            model=analysis.model,
            command=shlex.join([*_PROGRAM.split(), *arguments]),
            results=results,
        )
    if analysis.card:
        card.add(analysis.model, output / report.RESULTS)
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
