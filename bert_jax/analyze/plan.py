"""Runs the analyses of a plan, a file with a command line per line, and summarizes them."""

import dataclasses
import pathlib
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax import files, flag_parser
from bert_jax.analyze import report
from bert_jax.analyze.base import read_lines
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP

_SUMMARY = 'README.md'


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalysisPlan:
    """The flags of the command `all`."""

    model: str = flag(MODEL_HELP)
    input: str = flag(
        'file with an analysis per line: NAME --input=… and other options, as on the command line; '
        '# starts a comment'
    )
    output: str = flag('folder for the results, with a subfolder for each line')
    overwrite: bool = flag('also run analyses that already have results', False)


class PlannedAnalysis(NamedTuple):
    """An analysis of a plan: the name of its folder, its command line, and its place in a file."""

    name: str
    arguments: list[str]
    place: str


def run(
    arguments: Sequence[str],
    parse: Callable[[Sequence[str]], object],
    run_analysis: Callable[[Sequence[str]], pathlib.Path],
) -> pathlib.Path:
    """Run the analyses of a plan that do not have results yet; return the output folder.

    Args:
        arguments: --model, --input, --output and --overwrite.
        parse: checks the command line of an analysis.
        run_analysis: runs the command line of an analysis.
    """
    plan = flag_parser.parse(
        AnalysisPlan,
        arguments,
        'python -m bert_jax.analyze all',
        'Run all analyses that a file lists.',
    )
    output = pathlib.Path(plan.output)
    steps = _read(plan.input, plan.model, output)
    for step in steps:
        try:
            parse(step.arguments)
        except UserError as error:
            raise UserError(f'{step.place}: {error}') from None
    for step in steps:
        folder = output / step.name
        if plan.overwrite or not _is_done(folder, step.arguments):
            replaces = plan.overwrite and folder.exists()
            try:
                run_analysis([*step.arguments, '--overwrite'] if replaces else step.arguments)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f'{output} keeps the finished analyses; rerun the command without --overwrite '
                    'to resume'
                ) from None
    (output / _SUMMARY).write_text(_summary(plan.model, output, steps), encoding='utf-8')
    return output


def _read(path: str, model: str, output: pathlib.Path) -> list[PlannedAnalysis]:
    """Read a plan; the folder of the second analysis with the same name is NAME_2."""
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
        line_arguments = [name, f'--model={model}', *options, f'--output={output / folder}']
        steps.append(PlannedAnalysis(folder, line_arguments, place))
    if not steps:
        raise UserError(f'{path} lists no analysis')
    return steps


def _is_done(folder: pathlib.Path, arguments: Sequence[str]) -> bool:
    """Whether a folder has the results of this command line."""
    if not (folder / report.RESULTS).is_file():
        return False
    command = shlex.split(files.read_json(folder / report.RESULTS)['command'])
    return [flag for flag in command[3:] if flag != '--overwrite'] == list(arguments)


def _summary(model: str, output: pathlib.Path, steps: Sequence[PlannedAnalysis]) -> str:
    """A page with the first table and the figures of each analysis."""
    sections = [f'# Analyses of {pathlib.Path(model).name}']
    for step in steps:
        content = files.read_json(output / step.name / report.RESULTS)
        title, table = report.first_table(content)
        sections += [
            f'## [{step.name}]({step.name}/{_SUMMARY}): {title}',
            table,
            *(f'![{name}]({step.name}/{name})' for name in content['figures']),
        ]
    return '\n\n'.join(sections) + '\n'
