"""Parses the command line of training: its flags, and the config values that it overrides."""

import re
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

from absl import flags
from ml_collections import config_flags

from bert_jax import recipes
from bert_jax.config_keys import declarations, entries, flatten
from bert_jax.errors import UserError, nearest
from bert_jax.flag_parser import flag_before, join_values, stray_word
from bert_jax.types import Config

_FILE, _PREFIX = '--config=', '--config.'
_HELP = """\
  --config=FILE: Config file, such as configs/tiny.py; docs/configs.md documents all keys.
  --config.KEY=VALUE: Changes a value of the config; None unsets a key without a default.
  --help: Print this text, with the keys and values of --config, and exit."""
_SWITCHES = {
    'print_config': 'Print all keys with their values and meanings, and exit.',
    'dry_run': 'Read the data, build the model and compile it, but train and write nothing.',
    'overwrite': 'Delete the run or sweep in workdir, if there is one, and start again.',
    'distributed': 'This is one of several processes, started by a TPU pod, Slurm or MPI.',
}
_NUMBERS = {
    'num_processes': 'Number of processes (default: from the environment).',
    'process_id': 'Number of this process, from 0 (default: from the environment).',
}
_EXPECTED = {  # part of a message of absl → what the flag takes
    'invalid literal for int()': 'a whole number',
    'could not convert string to float': 'a number',
    'Non-boolean argument': 'True or False',
}
_COORDINATOR = 'This is one of several processes; HOST:PORT of process 0.'


_FLAGS = ('config', 'coordinator', *_SWITCHES, *_NUMBERS)


class CommandLine(NamedTuple):
    """A parsed command line.

    Attributes:
        config: the config file with the values of the command line.
        user_keys: keys that the user set, on the command line or in a config file outside configs/.
        processes: the arguments of `multihost.joined` if this is one of several processes, else
            None.
        print_config: only print the config.
        dry_run: stop before the first step.
        overwrite: delete the run in workdir first.
    """

    config: Config
    user_keys: frozenset[str]
    processes: tuple[Any, ...] | None
    print_config: bool
    dry_run: bool
    overwrite: bool


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
    argv = join_values([re.sub('^-(?=[a-z_]{2})', '--', text) for text in argv], ['--config'])
    files = [text.removeprefix(_FILE) for text in argv if text.startswith(_FILE)]
    if {'-h', '--help', '--helpshort', '--helpfull'} & set(argv[1:]):
        switches = _SWITCHES | {'coordinator': _COORDINATOR} | _NUMBERS
        file = files[-1] if files else 'configs/base.py'
        flag_lines = [
            f'  --{key}{"=VALUE" * (key not in _SWITCHES)}: {switches[key]}' for key in switches
        ]
        print('\n'.join([usage, '', _HELP, *flag_lines, '', f'The keys of {file}:']))
        print('\n'.join(describe_keys(recipes.load(recipes.locate(file)))))
        sys.exit(0)
    overrides = [argument for argument in argv if argument.startswith(_PREFIX)]
    if not files:
        _read_flags(recipes.base().unlock(), [text for text in argv if text not in overrides])
        raise UserError('no config given; for example: --config=configs/tiny.py')
    file = recipes.locate(files[-1])
    config = recipes.load(file)
    for override in overrides:
        _check_key(override.removeprefix(_PREFIX).partition('=')[0], config, file)
    unset = [override for override in overrides if override.endswith('=None')]
    user_keys = recipes.own_keys(config, file) | {_unset(config, override) for override in unset}
    others = [text for text in argv if text not in unset and not text.startswith(_FILE)]
    values = _read_flags(config, [_plain_string(text, config) for text in others])
    processes = values.coordinator, values.num_processes, values.process_id
    return CommandLine(
        config,
        frozenset(user_keys.union(config_flags.get_override_values(values['config']))),
        processes if values.distributed or processes != (None, None, None) else None,
        values.print_config,
        values.dry_run,
        values.overwrite,
    )


def describe_keys(config: Config) -> list[str]:
    """Return a line for each key of a config: its value, and its meaning as a comment."""
    lines = []
    for name, value, declaration in entries(config):
        line, meaning = f'{name} = {value!r}', declaration.describe()
        lines.append(f'{line:<48}  # {meaning}' if meaning else line)
    return lines


def _similar_keys(name: str, known: Collection[str]) -> list[str]:
    """Return the keys that end in a name, such as schedule.learning_rate; else the most similar."""
    ends = [key for key in known if key.rpartition('.')[2] == name]
    return ends or list(filter(None, [nearest(name, known)]))


def _check_key(key: str, config: Config, file: str) -> None:
    """Raise UserError if the config of a file does not have a key."""
    known = flatten(config)
    if key in known:
        return
    if close := _similar_keys(key, known):
        advice = f'did you mean {" or ".join(close)}?'
    else:
        advice = 'docs/configs.md documents all keys'
    kind = 'pretraining' if config.task == 'pretraining' else f'fine-tuning, {config.task}'
    raise UserError(f'unknown config key {key} in --config={file} ({kind}); {advice}')


def _plain_string(argument: str, config: Config) -> str:
    """Return `--config.KEY=TEXT` as a tuple of this text if the key holds a tuple of strings."""
    key, equals, text = argument.removeprefix(_PREFIX).partition('=')
    is_key = argument.startswith(_PREFIX) and equals and _holds_strings(key, config)
    if not is_key or text.startswith(('(', '[', '"', "'")):
        return argument
    return f'{_PREFIX}{key}={(text,) if text else ()!r}'


def _holds_strings(key: str, config: Config) -> bool:
    """Whether a key of the config holds a tuple of strings."""
    declared = declarations(config).get(key)
    return declared is not None and declared.kind is tuple and declared.elements is str


def _unset(config: Config, override: str) -> str:
    """Set the key of `--config.KEY=None` to None, or 'None' for a string key; return the key."""
    key = override.removeprefix(_PREFIX).removesuffix('=None')
    declared = declarations(config)[key]
    is_text = not declared.optional and declared.kind is str
    declared.check(key, value := 'None' if is_text else None)
    config.update_from_flattened_dict({key: value})
    return key


def _read_flags(config: Config, argv: list[str]) -> flags.FlagValues:
    """Parse all flags but --config, and set the values of `config`."""
    values = flags.FlagValues()
    values.set_gnu_getopt()  # also reads the flags after an argument that is not a flag
    config_flags.DEFINE_config_dict('config', config, flag_values=values, sys_argv=argv)
    for name, meaning in _SWITCHES.items():
        flags.DEFINE_bool(name, False, meaning, values)
    for name, meaning in _NUMBERS.items():
        flags.DEFINE_integer(name, None, meaning, flag_values=values)
    flags.DEFINE_string('coordinator', None, _COORDINATOR, values)
    try:
        rest = values(argv)
    except (flags.Error, TypeError, ValueError) as error:
        raise UserError(_describe(error, config)) from error
    if rest[1:]:
        raise _stray_word(rest[1], argv, config)
    return values


def _stray_word(word: str, argv: list[str], config: Config) -> UserError:
    """Return the error for an argument that belongs to no flag."""
    is_file = '=' not in word and word.partition(':')[0].endswith('.py')
    if is_file and not any(text.startswith(_FILE) for text in argv):
        return UserError(f'{word!r} is not a flag; did you mean --config={word}?')
    flag = flag_before(word, argv)
    takes_glob = _holds_strings(flag.removeprefix(_PREFIX), config)
    known = [*(f'{_PREFIX}{key}' for key in flatten(config)), *(f'--{name}' for name in _FLAGS)]
    return stray_word(word, flag, takes_glob, known)


def _describe(error: Exception, config: Config) -> str:
    """Return the message of an error in a flag in one line, without Python's terms for types."""
    message = ' '.join(str(error).split())
    if isinstance(error, flags.UnrecognizedFlagError):
        return f'unknown flag --{error.flagname}; {_flag_advice(error.flagname, config)}'
    flag = message.partition(': ')[0]
    for reason, expected in _EXPECTED.items():
        if reason in message:
            return f'{flag}: the value must be {expected}'
    return message


def _flag_advice(name: str, config: Config) -> str:
    """Say what an unknown flag may have meant: a key of the config, or another flag."""
    similar = _similar_keys(name, [*_FLAGS, *flatten(config)])
    meant = ' or '.join(f'{"--" if key in _FLAGS else _PREFIX}{key}' for key in similar)
    return f'did you mean {meant}?' if meant else '--help lists the flags'
