"""The commands that README, docs/ and experiments/ print, and a check of their flags."""

import argparse
import contextlib
import functools
import importlib
import pathlib
import re
import runpy
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from unittest import mock

import pytest
from ml_collections import ConfigDict

from bert_jax import config_keys, flag_parser, objectives
from bert_jax.cli import command_line
from bert_jax.tasks import is_sweep
from bert_jax.tasks.pretraining import stage_settings
from bert_jax.tasks.sweeps import sweep
from bert_jax.training import schedules

ROOT = pathlib.Path(__file__).parents[1]
# As README lists the pages; the first ones make what later ones use.
FIRST = ('README.md', 'docs/quickstart.md', 'docs/data.md', 'docs/labeled_data.md')
_STARTS = ('python ', 'echo ', 'printf ', 'MODEL=', 'OPTIONS=', 'MALLOC_', 'taskset ')
_OTHERS = ('pip ', 'dask ', 'bash ')  # installations, clusters and cloud machines


class Printed(NamedTuple):
    """A command and the page that prints it."""

    page: str
    text: str


def pages() -> list[pathlib.Path]:
    """Return README and the pages in docs/, first those that others build on."""
    first = [ROOT / name for name in FIRST]
    return [*first, *(page for page in sorted(ROOT.glob('docs/*.md')) if page not in first)]


def commands(
    of: Iterable[pathlib.Path] | None = None, *, with_others: bool = False
) -> list[Printed]:
    """Return the commands in code blocks and in tables; without those that `…` abbreviates.

    Args:
        of: the pages; by default `pages()`.
        with_others: also installations, clusters and cloud machines.
    """
    found = []
    for page in pages() if of is None else of:
        for text in _in_blocks(page.read_text(encoding='utf-8')):
            starts = _STARTS + (_OTHERS if with_others else ())
            for part in text.split(' && '):
                if part.startswith(starts) and '…' not in part:
                    found.append(Printed(str(page.relative_to(ROOT)), part))
    return found


def _in_blocks(page: str) -> list[str]:
    """Return the lines of indented blocks, with continuations joined, and code in table cells."""
    page = re.sub(r'^```.*?^```', '', page, flags=re.DOTALL | re.MULTILINE)
    lines = re.sub(r' *\\\n +', ' ', page).splitlines()
    found = []
    for line in lines:
        if line.startswith('    '):
            found.append(line.strip())
        elif line.startswith('|'):
            found += re.findall(r'`(python -m [^`]*)`', line.replace('\\|', '|'))
    return found


class Command(NamedTuple):
    """A command of Python: the module, or the path of a script, and its arguments."""

    program: str
    arguments: list[str]


def parse(text: str, variables: dict[str, str]) -> Command | None:
    """Return the command of the project in a printed line; None for other lines.

    Args:
        text: the line.
        variables: the shell's variables by name; a line `NAME=VALUE` adds one.
    """
    text = re.sub(r'\$(\w+)', lambda match: variables[match[1]], text)
    words = shlex.shlex(text, posix=True, punctuation_chars='|<>')
    words.whitespace_split = True
    words = list(words)
    if len(words) == 1 and '=' in words[0]:
        name, _, variables[name] = words[0].partition('=')
    if 'python' not in words:
        return None
    words = words[words.index('python') + 1 :]
    program, *arguments = words[1:] if words[0] == '-m' else words
    if not program.startswith(('bert_jax', 'experiments')):
        return None
    ends = [arguments.index(mark) for mark in ('|', '>') if mark in arguments]
    return Command(program, arguments[: min(ends, default=None)])


class Parsed(Exception):
    """The flags of a command were accepted."""


@contextlib.contextmanager
def only_parse():
    """End the command that this block runs once its flags are accepted."""
    parse_flags, parse_options = flag_parser.parse, argparse.ArgumentParser.parse_args

    def flags_and_end(request, *arguments, **options):
        found = parse_flags(request, *arguments, **options)
        if request is command_line.Request:
            return found
        raise Parsed

    def options_and_end(parser, arguments=None, namespace=None):
        parse_options(parser, arguments, namespace)
        raise Parsed

    with (
        mock.patch.object(flag_parser, 'parse', flags_and_end),
        mock.patch.object(argparse.ArgumentParser, 'parse_args', options_and_end),
        pytest.raises(Parsed),
    ):
        yield


def check(command: Command) -> None:
    """Check the flags of a command, without running it.

    Raises:
        UserError: the command would be refused.
        SystemExit: the same, after printing why.
    """
    program, arguments = command
    if program == 'bert_jax.completion':
        return  # takes no flags
    if program == 'bert_jax.main':
        check_training(arguments)
    elif program.startswith('bert_jax.'):
        path = ROOT / program.replace('.', '/')
        name = f'{program}.__main__' if path.is_dir() else program
        with only_parse():
            importlib.import_module(name).main(arguments)
    else:
        _check_experiment(command)


def check_training(arguments: Sequence[str]) -> ConfigDict:
    """Check a command of bert_jax.main as it does before it reads data; return its config."""
    line = command_line.parse(['main', *arguments], '')
    config = line.config
    config_keys.check(config)
    config_keys.check_used(config, line.user_keys)
    if is_sweep(config):
        sweep.check(config, user_keys=line.user_keys)
    steps = config.training.steps
    if config.task == 'pretraining':
        names = objectives.enabled(config.objectives)
        objectives.common_corruption(names, config.masking.scheme)
        parts = len(config.data.language_alphas) or 1
        steps = sum(stage.steps for stage in stage_settings.stage_settings(config.training, parts))
    if steps:  # else the number of steps depends on the data
        schedules.build(config.schedule, steps, config.schedule.learning_rate or 1.0)
    return config


def _check_experiment(command: Command) -> None:
    program, arguments = command
    is_script = program.endswith('.py')
    path = ROOT / (program if is_script else f'{program.replace(".", "/")}.py')
    if is_script:
        folders = [str(path.parent), *sys.path]
        run = functools.partial(runpy.run_path, str(path), run_name='__main__')
    else:
        module, folders = importlib.import_module(program), list(sys.path)
        if hasattr(module, 'parse'):  # also checks the values
            module.parse(arguments)
            return
        run = module.main
    # Otherwise the program would run.
    assert '.parse_args(' in path.read_text(encoding='utf-8'), f'{program} has no parser'
    with (
        mock.patch.object(sys, 'argv', [program, *arguments]),
        mock.patch.object(sys, 'path', folders),
        only_parse(),
    ):
        run()
