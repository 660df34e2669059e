"""Parses the command line of training: its flags, and the config values that it overrides."""

import dataclasses
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

from bert_jax import flag_parser, recipes
from bert_jax.config_keys import declarations, entries, parse_value
from bert_jax.errors import UserError, similar
from bert_jax.flag_parser import flag
from bert_jax.types import Config

# Config key → the flag that sets it too, named as in the other commands.
_FLAGS = {
    'init_from': 'model',
    'data.train': 'input',
    'data.corpus': 'input',
    'workdir': 'output',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The flags of training."""

    config: str = flag(
        'Config file, such as configs/tiny.py; docs/configs.md documents all keys.', ''
    )
    model: str | None = flag('Where to start, as --config.init_from.', None)
    input: tuple[str, ...] = flag(
        'Labeled training files, as --config.data.train; for pretraining the corpus, as '
        '--config.data.corpus.',
        (),
        form='repeated',
    )
    output: str | None = flag('Folder of the run, as --config.workdir.', None)
    values: tuple[tuple[str, str | None], ...] = flag(
        'Changes a value of the config; None unsets a key without a default.',
        (),
        form='section',
        prefix='config',
    )
    print_config: bool = flag('Print all keys with their values and meanings, and exit.', False)
    dry_run: bool = flag(
        'Read the data, build the model and compile it, but train and write nothing.', False
    )
    overwrite: bool = flag(
        'Delete the run or sweep in workdir, if there is one, and start again.', False
    )
    distributed: bool = flag(
        'This is one of several processes, started by a TPU pod, Slurm or MPI.', False
    )
    coordinator: str | None = flag('One of several processes; HOST:PORT of process 0.', None)
    num_processes: int | None = flag('Number of processes (default: from the environment).', None)
    process_id: int | None = flag(
        'Number of this process, from 0 (default: from the environment).', None
    )

    def values_of_flags(self, known: Collection[str]) -> dict[str, Any]:
        """Return the config values of --model, --input and --output.

        Args:
            known: keys of the config.

        Raises:
            UserError: a flag and its key are both given, or there are several corpora.
        """
        given: dict[str, Any] = {'init_from': self.model, 'workdir': self.output}
        if 'data.train' in known:
            given['data.train'] = self.input
        elif self.input[1:]:
            raise UserError(f'--input is given {len(self.input)} times, but a run has one corpus')
        else:
            given['data.corpus'] = ''.join(self.input)
        given = {key: value for key, value in given.items() if value}
        if both := given.keys() & {key for key, _ in self.values}:
            key = min(both)
            raise UserError(
                f'--config.{key} and --{_FLAGS[key]} set the same; leave one of them out'
            )
        return given

    @property
    def processes(self) -> tuple[str | None, int | None, int | None] | None:
        """The arguments of `multihost.joined` if this is one of several processes, else None."""
        given = self.coordinator, self.num_processes, self.process_id
        return given if self.distributed or given != (None, None, None) else None


class CommandLine(NamedTuple):
    """A parsed command line.

    Attributes:
        flags: its flags.
        config: the config file with the values of the command line.
        user_keys: keys that the user set, on the command line or in a config file outside configs/.
    """

    flags: Request
    config: Config
    user_keys: frozenset[str]


def parse(argv: list[str], usage: str) -> CommandLine:
    """Parse a command line.

    Args:
        argv: the name of the command and its arguments.
        usage: printed above the flags if `--help` is among the arguments.

    Raises:
        UserError: unknown flag or config key, value of a wrong type, or a config file that cannot
            be read.
        SystemExit: with status 0, after printing the help.
    """
    program, arguments = 'python -m bert_jax.main', argv[1:]
    if wants_help := {'-h', '--help'} & set(arguments):
        arguments = [text for text in arguments if text.startswith('--config')]
    request = flag_parser.parse(Request, arguments, program, more_names=names)
    file = recipes.locate(request.config or 'configs/base.py')
    if wants_help:
        flag_parser.print_help(Request, program, usage)
        print('\n'.join(['', f'The keys of {file}:', *describe_keys(recipes.load(file))]))
        sys.exit(0)
    if not request.config:
        raise UserError('no config given; for example: --config=configs/tiny.py')
    config = recipes.load(file)
    user_keys = recipes.own_keys(config, file)
    keys = declarations(config)
    for key, text in request.values:
        if key not in keys:
            raise unknown_key(key, keys, config.task, file)
        if text is None and keys[key].kind is not bool:
            raise UserError(f'--config.{key} has no value; write --config.{key}=VALUE')
        value = True if text is None else parse_value(f'--config.{key}', text, keys[key])
        if value is None:
            keys[key].check(key, None)  # whether it may be unset
        config.update_from_flattened_dict({key: value})
        user_keys.add(key)
    for key, value in request.values_of_flags(keys).items():
        config.update_from_flattened_dict({key: value})
        user_keys.add(key)
    return CommandLine(request, config, frozenset(user_keys))


def describe_keys(config: Config) -> list[str]:
    """Return a line for each key of a config: its value, and its meaning as a comment."""
    lines = []
    for name, value, declaration in entries(config):
        line, meaning = f'{name} = {value!r}', declaration.describe()
        lines.append(f'{line:<48}  # {meaning}' if meaning else line)
    return lines


def names() -> dict[str, bool]:
    """Return config.KEY of every recipe → whether the key holds several texts, for suggestions."""
    return {
        f'config.{name}': declared.kind is tuple and declared.elements is str
        for config in recipes.all_configs()
        for name, declared in declarations(config).items()
    }


def unknown_key(key: str, known: Collection[str], task: str, file: str) -> UserError:
    """Return the error for a key that the config of a file does not have."""
    close = ' or '.join(similar(key, known))
    advice = f'did you mean {close}?' if close else 'docs/configs.md documents all keys'
    kind = 'pretraining' if task == 'pretraining' else f'fine-tuning, {task}'
    return UserError(f'unknown config key {key} in --config={file} ({kind}); {advice}')
