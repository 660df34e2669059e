"""Parser of the flags of a command: a mistake is an error of one line that names what was meant."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from bert_jax.errors import UserError, nearest, unknown

_FLAG = re.compile(r'--?[A-Za-z][\w.-]*')
_MESSAGES = {  # of argparse → ours
    'the following arguments are required: (.*, .*)': r'\1 are missing; --help describes them',
    'the following arguments are required: (.*)': r'\1 is missing; --help describes it',
    r'one of the arguments (--\S+) (--\S+) is required': r'give \1 or \2; --help describes them',
    'argument (.*): expected .*arguments?': r'\1 has no value; write \1=VALUE',
    'argument (.*): ignored explicit argument .*': r'\1 takes no value',
    'argument (.*): invalid int value: (.*)': r'\1: \2 is not a whole number',
    'argument (.*): invalid float value: (.*)': r'\1: \2 is not a number',
    'argument (.*)': r'\1',
}


class FlagParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError instead of printing its usage.

    Use `parse`, which also finds flags that do not exist, before it misses others.
    """

    def __init__(self, prog: str, *, sections: Sequence[str] = (), **options: Any):
        """Create the parser.

        Args:
            prog: the command.
            sections: NAME of each kind of flag --NAME.KEY=VALUE. `parse` returns their KEY=VALUE
                as a list by this name.
            options: further arguments of ArgumentParser.
        """
        super().__init__(prog, **options)
        self._sections = sections

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the values of all flags; `arguments` is sys.argv[1:] by default."""
        given = sys.argv[1:] if arguments is None else arguments
        arguments = join_values(given, [f'--{section}.' for section in self._sections])
        for name in _flags(arguments):
            self._check_flag(name)
        flags, rest = self.parse_known_args(arguments)
        for section in self._sections:
            prefix = f'--{section}.'
            found = [text.removeprefix(prefix) for text in rest if text.startswith(prefix)]
            setattr(flags, section, found)
        words = [text for text in rest if not _FLAG.match(text)]
        if words:
            self.refuse_word(words[0], arguments)
        return flags

    def refuse_word(self, word: str, arguments: Sequence[str]) -> NoReturn:
        """Raise the UserError for an argument that belongs to no flag."""
        flag = flag_before(word, arguments)
        action = self._option_string_actions.get(flag)
        takes_glob = isinstance(action, argparse._AppendAction)
        raise stray_word(word, flag, takes_glob, self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Raise the UserError for a message of argparse."""
        for pattern, ours in _MESSAGES.items():
            if match := re.fullmatch(pattern, message):
                raise UserError(match.expand(ours))
        raise UserError(message)

    def _check_flag(self, name: str) -> None:
        """Raise UserError unless the flag exists; argparse accepts the beginning of a name."""
        section, dot, key = name.removeprefix('--').removeprefix('config.').partition('.')
        if name.startswith(tuple(f'--{known}.' for known in self._sections)):
            return
        if dot and (close := nearest(section, self._sections)):
            raise UserError(f'unknown flag {name}; did you mean --{close}.{key}?')
        if not any(known.startswith(name) for known in self._option_string_actions):
            raise unknown_flag(name, self._option_string_actions)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise UserError if a flag does not have this value."""
        if action.choices is not None and value not in action.choices:
            raise unknown('/'.join(action.option_strings), value, map(str, action.choices))


def positive(text: str) -> int:
    """Return the value of a flag that takes a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text} is not a whole number of at least 1')
    return int(text)


def join_values(arguments: Sequence[str], prefixes: Iterable[str]) -> list[str]:
    """Return the arguments with `FLAG VALUE` as `FLAG=VALUE` for flags with these prefixes."""
    joined: list[str] = []
    for argument in arguments:
        before = joined[-1] if joined else ''
        is_flag = before.startswith(tuple(prefixes)) and '=' not in before
        if is_flag and not argument.startswith('--'):
            joined[-1] = f'{before}={argument}'
        else:
            joined.append(argument)
    return joined


def unknown_flag(name: str, known: Iterable[str]) -> UserError:
    """Return the error for a flag that does not exist; `known` are the flags with their dashes."""
    close = nearest(name.lstrip('-'), [flag.removeprefix('--') for flag in known])
    advice = f'did you mean --{close}?' if close else '--help lists the flags'
    return UserError(f'unknown flag {name}; {advice}')


def stray_word(word: str, flag: str, takes_glob: bool, known: Iterable[str]) -> UserError:
    """Return the error for an argument that belongs to no flag.

    Args:
        word: the argument.
        flag: the flag before it; '' if there is none.
        takes_glob: whether the value of this flag may be a glob.
        known: the flags that exist, with their dashes.
    """
    name, equals, value = word.partition('=')
    meant = [f'{other}={value}' for other in known if other.endswith((f'--{name}', f'.{name}'))]
    if equals and meant:
        advice = f'did you mean {" or ".join(meant)}?'
    elif flag and os.path.exists(word):
        glob = os.path.join(os.path.dirname(word), f'*{os.path.splitext(word)[1]}')
        advice = 'the shell replaces a glob by the names of its files; '
        advice += f"quote it: {flag}='{glob}'" if takes_glob else f'{flag} takes one name'
    elif flag:
        advice = f'{flag} takes one value: quote a value with spaces'
    else:
        advice = 'write --NAME=VALUE'
    return UserError(f'{word!r} is not a flag; {advice}')


def flag_before(word: str, arguments: Sequence[str]) -> str:
    """Return the last flag before an argument, with its dashes; '' if there is none."""
    before = arguments[: list(arguments).index(word)]
    return next(iter(reversed(list(_flags(before)))), '')


def _flags(arguments: Iterable[str]) -> Iterable[str]:
    """Yield the names of the flags, with their dashes."""
    for argument in itertools.takewhile(lambda text: text != '--', arguments):
        if _FLAG.fullmatch(name := argument.partition('=')[0]):
            yield name
