"""Runs a trained model on texts: one text or example a row in, one record a row out.

    python -m bert_jax.predict --model=runs/tiny --task=fill_mask --input=texts.txt --output=-
    … --task=embed --pooling=mean --input=sentences.txt --output=vectors.npz
    python -m bert_jax.predict --model=runs/sst2 --task=classify --input=reviews.txt --output=-

--help lists the tasks; --task=TASK --help describes one. The Python equivalent is `bert_jax.load`.
"""

import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_jax import answers, errors, flag_parser, progress

if TYPE_CHECKING:
    from bert_jax.answers.base import Question

_PROGRAM = 'python -m bert_jax.predict'
_DESCRIPTION = f"""\
Run a trained model on texts: one text or example a row in, one JSON object a row out.
Flags, input and output of a task: {_PROGRAM} --task=TASK --help"""
_FORMATS = """\
A .csv, .tsv, .parquet or .json file is a table: its rows are the examples, and its columns have
the names of these fields or those of data.columns in training. For tasks that read only texts, a
.jsonl file is a table too. Other files have an example a line. A line that starts with { must be a
JSON object, unless --input_format=text or the task reads only texts; its "id" is kept. Line N gets
the id "input N" if it has none. Examples that are too long are counted at the end.

To score a model on labeled data: python -m bert_jax.evaluate --help."""


def parse(arguments: Sequence[str]) -> 'Question':
    """Return the task of a command line with its flags.

    Raises:
        UserError: the task or a flag is unknown, or a flag is missing or has a wrong value.
        SystemExit: with status 0, after printing the help.
    """
    task = flag_parser.last_value('task', arguments)
    if task is None:
        if {'-h', '--help'} & {*arguments}:
            progress.say(_help())
            sys.exit(0)
        raise errors.UserError('--task is missing; --help lists the tasks')
    kind = answers.find(task)
    parts = (f'{kind.summary}.', f'input: {kind.reads}', f'output: {kind.writes}')
    return flag_parser.parse(
        kind,
        arguments,
        f'{_PROGRAM} --task={task}',
        '\n\n'.join(_wrap(part, 4) for part in parts),
        _FORMATS,
        elsewhere=lambda name: _why_refused(name, task),
    )


def _help() -> str:
    """Describe all tasks."""
    kinds = answers.ANSWERS.items()
    lines = [_wrap(f'  {task:17}  {kind.summary}', 21) for task, kind in kinds]
    return '\n'.join([f'{_PROGRAM} --task=TASK [flags]', '', _DESCRIPTION, '', 'tasks:', *lines])


def _wrap(text: str, indent: int) -> str:
    return textwrap.fill(text, 100, subsequent_indent=' ' * indent, break_on_hyphens=False)


def _why_refused(name: str, task: str) -> str:
    """Return why a task refuses a flag of other tasks; '' for a flag that no task has."""
    kinds = answers.ANSWERS.items()
    others = [other for other, kind in kinds if name in flag_parser.flags_of(kind)]
    if not others:
        return ''
    known = errors.join_first(others)
    return f'--{name} has no effect with --task={task}, only with {known}; leave it out'


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    question = parse(sys.argv[1:] if argv is None else argv)
    question.check()  # before the slow imports
    from bert_jax.training import runtime

    runtime.configure()
    import jax

    import bert_jax
    from bert_jax.answers import writing

    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
    with progress.bar(unit=' windows') as bar:
        advance = bar.update if question.shows_progress else None
        options = question.loading() | {'advance': advance}
        models = {
            name: question.prepare(bert_jax.load(name, **options)) for name in question.models
        }
        for model in models.values():
            model.require(question.method or question.task)
        writing.write(question, models, bar)
    counts: Counter[str] = sum((model.counts for model in models.values()), Counter())
    for what, number in counts.items():
        if number:
            errors.warn(f'{number:,} {what}')


if __name__ == '__main__':
    main()
