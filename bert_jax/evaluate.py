"""Scores a fine-tuned model on labeled files, with the report and predictions of a training run.

    python -m bert_jax.evaluate --model=runs/reviews --gold=new.tsv --output=runs/reviews/new
    … --gold=new.csv --data.format=csv --data.columns.label=stars
    … --template='{text} It was [MASK].' --answers 0=bad 1=good   (any masked language model)

The files are read with the `data` settings of the training run; --data.KEY=VALUE changes one
(docs/configs.md). --problem.KEY=VALUE changes a setting of the problem that a trained model may
change, such as --problem.no_answer=True for a published model of SQuAD 2.0.
"""

import argparse
import ast
from collections.abc import Sequence
from typing import Any

from bert_jax import errors, progress
from bert_jax.cli import prompt_flags
from bert_jax.flag_parser import FlagParser
from bert_jax.storage import outputs, paths

_FIGURES = ('confusion.*', 'scatter.*', 'candidates.tsv')


def parse_changes(arguments: Sequence[str], section: str = 'data') -> dict[str, Any]:
    """Map KEY to VALUE for each KEY=VALUE: a Python literal if it is one, else a string."""
    changes = {}
    for argument in arguments:
        key, equals, text = argument.partition('=')
        if not equals:
            raise errors.UserError(f'--{section}.{key} has no value; write --{section}.{key}=VALUE')
        try:
            changes[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            changes[key] = text
    return changes


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    parser = FlagParser(
        'python -m bert_jax.evaluate',
        description=__doc__,
        sections=('data', 'problem'),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--model', required=True, help='folder of a fine-tuned run, or a Hugging Face folder')
    add('--gold', required=True, action='append', help='labeled file or glob; may be repeated')
    add('--output', required=True, help='folder for metrics.json, report.md, predictions.jsonl')
    add('--overwrite', action='store_true', help=outputs.HELP)
    add('--batch_tokens', type=int, default=1024, help='padded tokens of a batch (default 1024)')
    add('--dtype', default='float32', help='float32 (default) or bfloat16')
    prompt_flags.add(parser)
    flags = parser.parse(argv)
    changes, settings = parse_changes(flags.data), parse_changes(flags.problem, 'problem')
    outputs.check_folder(flags.output, flags.overwrite, ['predictions.jsonl'])
    from bert_jax.training import runtime

    runtime.configure()
    import bert_jax
    from bert_jax.reports import tables

    with progress.bar(unit=' windows') as bar:
        model = bert_jax.load(
            flags.model, dtype=flags.dtype, batch_tokens=flags.batch_tokens, advance=bar.update
        )
        model = prompt_flags.apply(model, flags)
        model = model.with_settings(**settings) if settings else model
        evaluation = model.evaluate(flags.gold, changes)
    records, scores, intervals = evaluation.records, evaluation.scores, evaluation.intervals
    folder = paths.local(flags.output)
    with errors.writing(f'--output={flags.output}'):
        for path in (path for pattern in _FIGURES for path in folder.glob(pattern)):
            path.unlink()  # of earlier results, which may have had other figures
        tables.save_predictions(records, folder)
        if evaluation.candidate_labels:
            tables.save_candidates(records, evaluation.candidate_labels, folder)
        title = f'{flags.model} on {", ".join(flags.gold)}'
        tables.save_scores(scores, folder, title, intervals, evaluation.warnings)
        paths.push(flags.output)
    for line in evaluation.lines:
        errors.report(line)
    counts = (f'{number:,} {what}' for what, number in model.counts.items() if number)
    for warning in [*counts, *evaluation.warnings]:
        errors.warn(warning)
    names = ', '.join(sorted(path.name for path in folder.iterdir()))
    progress.say(f'{len(records):,} examples\n')
    progress.say(tables.metrics_markdown(scores.metrics, intervals))
    progress.say(f'\nwritten to {flags.output}: {names}')


if __name__ == '__main__':
    main()
