"""Runs several analyses of a model, one a line of a file, and summarizes them on a page."""

import argparse
import pathlib
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax import files
from bert_jax.analyze import report
from bert_jax.analyze.base import read_lines
from bert_jax.errors import UserError
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.tables import markdown_table

_SUMMARY = 'README.md'
Parse = Callable[[Sequence[str]], object]
Run = Callable[[Sequence[str]], pathlib.Path]


class Step(NamedTuple):
    """An analysis of a plan: the name of its folder, and its command line."""

    name: str
    arguments: list[str]


def run(arguments: Sequence[str], parse: Parse, run_one: Run) -> pathlib.Path:
    """Run a plan; analyses whose results are there already are not repeated.

    Args:
        arguments: --model, --input, --output and --overwrite.
        parse: checks the command line of an analysis.
        run_one: runs one.

    Returns:
        The folder with a folder for each analysis, and README.md.
    """
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.analyze all', description='Run the analyses of a file.'
    )
    add = parser.add_argument
    add('--model', required=True, help='as for every analysis')
    add(
        '--input',
        required=True,
        help='file of analyses, one a line: NAME --input=… and other options, as on the command '
        'line; # starts a comment',
    )
    add('--output', required=True, help='folder for a folder of results for each line')
    add('--overwrite', action='store_true', help='repeat analyses whose results are there')
    flags = parser.parse_args(arguments)
    output = pathlib.Path(flags.output)
    steps = _read(flags.input, flags.model, output)
    for step in steps:
        parse(step.arguments)
    for step in steps:
        folder = output / step.name
        if flags.overwrite or not _is_done(folder, step.arguments):
            run_one([*step.arguments, '--overwrite'] if folder.exists() else step.arguments)
    (output / _SUMMARY).write_text(_summary(flags.model, output, steps), encoding='utf-8')
    return output


def _read(path: str, model: str, output: pathlib.Path) -> list[Step]:
    """The analyses of a file; the second one of a name has the folder NAME_2."""
    steps, counts = [], Counter[str]()
    for place, line in read_lines([path]):
        try:
            name, *options = shlex.split(line, comments=True) or ['']
        except ValueError as error:
            raise UserError(f'{place}: {error}') from None
        if not name:
            continue
        counts[name] += 1
        folder = name if counts[name] == 1 else f'{name}_{counts[name]}'
        steps.append(
            Step(folder, [name, f'--model={model}', *options, f'--output={output / folder}'])
        )
    if not steps:
        raise UserError(f'{path} names no analysis')
    return steps


def _is_done(folder: pathlib.Path, arguments: Sequence[str]) -> bool:
    """Whether a folder has the results of this command."""
    if not (folder / report.RESULTS).is_file():
        return False
    command = shlex.split(files.read_json(folder / report.RESULTS)['command'])
    return [own for own in command[3:] if own != '--overwrite'] == list(arguments)


def _summary(model: str, output: pathlib.Path, steps: Sequence[Step]) -> str:
    """The first table of each analysis, with links."""
    sections = [f'# Analyses of {pathlib.Path(model).name}']
    for step in steps:
        content = files.read_json(output / step.name / report.RESULTS)
        title, table = next(iter(content['tables'].items()))
        sections += [
            f'## [{step.name}]({step.name}/{_SUMMARY}): {title}',
            markdown_table(Table(tuple(table['columns']), table['rows'])),
            *(f'![{name}]({step.name}/{name})' for name in content['figures']),
        ]
    return '\n\n'.join(sections) + '\n'
