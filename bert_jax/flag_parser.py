"""Command lines as frozen dataclasses: a field declares a flag.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Request:
        model: str = flag('folder of a run')
        input: tuple[str, ...] = flag('file or glob', form='repeated')
        size: int = flag('number of rows', 5, '[1, inf)', only=('format', ('csv',)))
        overwrite: bool = flag('replace the file', False)

    request = parse(Request, arguments, 'python -m bert_jax.export')

A field without a default is required; a field that `flag` does not declare is not a flag. A mistake
is an error of one line that names what was meant.
"""

import collections
import dataclasses
import os
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from ml_collections import ConfigDict

from bert_jax.config_keys import ConfigKey, Declaration, Unused, parse_value
from bert_jax.errors import UserError, similar

R = TypeVar('R')
# How a tuple or a mapping is given: --input=a --input=b, --answers a b, words without a flag,
# everything after --, or --data.KEY=VALUE.
Form: TypeAlias = Literal['', 'repeated', 'several', 'words', 'rest', 'section']
# Further names that may be meant, without dashes → whether the value may be a glob.
Names: TypeAlias = Callable[[], Mapping[str, bool]]

_FLAG = re.compile(r'--?[A-Za-z][\w.-]*')
_HELP = ('-h', '--help')


class _Flag(NamedTuple):
    """A flag of a request.

    Attributes:
        name: Name without dashes.
        declaration: Meaning, default, type, range and choices.
        is_required: Whether it must be given.
        form: How its values are given.
        only: The other flag and its values with which this one has an effect; None: all.
        needs: The other flag without which this one has no effect; '': none.
        prefix: What is before .KEY=VALUE of a section, if not the name.
    """

    name: str
    declaration: Declaration
    is_required: bool
    form: Form
    only: tuple[str, Collection[str]] | None
    needs: str
    prefix: str

    @property
    def is_switch(self) -> bool:
        return self.declaration.kind is bool and self.declaration.default is False

    @property
    def shown(self) -> str:
        return {'words': self.name, 'rest': f'-- {self.name}'}.get(self.form, f'--{self.name}')

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for."""
        name = f'--{self.name}'
        value = parse_value(name, text, self.declaration)
        self.declaration.check(name, value)
        return value

    def check_used(self, request: object) -> None:
        """Raise UserError if the flag has no effect in a request."""
        selector, values = self.only or ('', ())
        if hasattr(request, selector) and (selected := getattr(request, selector)) not in values:
            raise UserError(
                f'{self.shown} has no effect with --{selector}={selected}, only with '
                f'{" or ".join(values)}; leave it out'
            )
        if self.needs and not getattr(request, self.needs):
            raise UserError(f'{self.shown} has no effect without --{self.needs}; leave it out')
        if self.declaration.unused:  # as a key of `data`, see `flag_of`
            config = ConfigDict({'data': vars(request)})
            if reason := self.declaration.why_unused(config, f'data.{self.name}'):
                raise UserError(f'{self.shown} has no effect: {reason}; leave it out')

    def describe(self, names: Collection[str]) -> str:
        """Return the lines of the help; `names` are the flags of the command."""
        declared = self.declaration
        meaning = declared.describe()
        if self.only and self.only[0] in names and len(self.only[1]) <= 3:
            meaning = f'{", ".join(self.only[1])}: {meaning}'
        if declared.default is not False and declared.default not in (None, (), ''):
            meaning += f' (default {declared.default})'
        name = f'--{self.prefix or self.name}' if self.form == 'section' else self.shown
        values = {
            '': '=VALUE',
            'repeated': '=VALUE',
            'several': ' VALUE …',
            'section': '.KEY=VALUE',
        }
        value = '' if self.is_switch else values.get(self.form, ' …')
        return textwrap.fill(f'  {name}{value}: {meaning}', 100, subsequent_indent=' ' * 6)


def flag(
    meaning: str,
    default: Any = dataclasses.MISSING,
    range: str = '',
    *,
    choices: Collection[str] | str = (),
    form: Form = '',
    only: tuple[str, Collection[str]] | None = None,
    needs: str = '',
    prefix: str = '',
    unused: Unused | str | None = None,
) -> Any:
    """Declare a flag; see `_Flag` and `config_keys.Declaration`. A bool that is False is a switch.

    Returns:
        A field of a dataclass.
    """
    options = dict(meaning=meaning, range=range, choices=choices, unused=unused)
    metadata = dict(options=options, form=form, only=only, needs=needs, prefix=prefix)
    return dataclasses.field(default=default, metadata=metadata)


def flag_of(key: ConfigKey) -> Any:
    """Declare a flag that sets the same as a key of the config's `data`."""
    own = key.declaration
    return flag(own.meaning, own.default, own.range, choices=own.choices, unused=own.unused)


def parse(
    request: type[R],
    arguments: Sequence[str] | None,
    program: str,
    description: str = '',
    epilog: str = '',
    more_names: Names = dict,
    elsewhere: Callable[[str], str] = lambda name: '',
) -> R:
    """Parse a command line.

    Args:
        request: A dataclass of flags.
        arguments: sys.argv[1:] if None.
        program: The command, for the help.
        description: Printed above the flags by --help.
        epilog: Printed below the flags by --help.
        more_names: Further names to suggest for a mistyped flag.
        elsewhere: Name of an unknown flag → why it is refused, if another request has it, else ''.

    Raises:
        UserError: A flag is unknown, missing, without effect or has a value of a wrong type.
        SystemExit: With status 0, after printing the help.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    flags = flags_of(request)
    before_rest = given[: given.index('--')] if '--' in given else given
    if set(_HELP) & set(before_rest):
        print_help(request, program, description, epilog)
        sys.exit(0)
    values = _Reader(flags, given, more_names, elsewhere).read()
    missing = [one.shown for name, one in flags.items() if one.is_required and name not in values]
    if missing:
        are, them = ('are', 'them') if missing[1:] else ('is', 'it')
        raise UserError(f'{", ".join(missing)} {are} missing; --help describes {them}')
    parsed = request(**values)
    for name in values:
        flags[name].check_used(parsed)
    return parsed


def print_help(request: type, program: str, description: str = '', epilog: str = '') -> None:
    """Print the flags of a command with their meanings."""
    known = flags_of(request)
    in_order = sorted(known.values(), key=lambda one: one.only is not None)
    flags = [one.describe(known) for one in in_order]
    parts = [f'{program} [flags]', description.strip(), '\n'.join(['flags:', *flags]), epilog]
    print('\n\n'.join(filter(None, parts)))


def flags_of(request: type) -> dict[str, _Flag]:
    """Return the flags of a dataclass by name."""
    hints = typing.get_type_hints(request)
    flags = {}
    for field in dataclasses.fields(request):
        if not field.metadata:
            continue
        hint, metadata = hints[field.name], dict(field.metadata)
        union = isinstance(hint, types.UnionType)
        kinds = [one for one in typing.get_args(hint) if one is not types.NoneType] or [hint]
        kind = kinds[-1] if union else hint
        is_required = field.default is dataclasses.MISSING
        declaration = Declaration(
            default=None if is_required else field.default,
            kind=typing.get_origin(kind) or kind,
            optional=union and types.NoneType in typing.get_args(hint),
            elements=kinds[0] if typing.get_origin(hint) is tuple else str,
            **metadata.pop('options'),
        )
        flags[field.name] = _Flag(field.name, declaration, is_required, **metadata)
    return flags


def words_of(request: type) -> list[str]:
    """Return the flags as they are typed, with '=' if they take a value."""
    return [
        f'--{name}{"" if one.is_switch else "="}'
        for name, one in sorted(flags_of(request).items())
        if one.form in ('', 'repeated', 'several')
    ]


def last_value(name: str, arguments: Sequence[str]) -> str | None:
    """Return the last value of a flag, before it is known which others there are; None without."""
    found = None
    for argument, following in zip(arguments, [*arguments, ''][1:], strict=True):
        given, equals, value = argument.partition('=')
        if given in (f'--{name}', f'-{name}'):
            found = value if equals else following
    return found


class _Reader:
    """Reads the values of flags from arguments."""

    def __init__(
        self,
        flags: Mapping[str, _Flag],
        given: Sequence[str],
        more_names: Names,
        elsewhere: Callable[[str], str],
    ):
        self._elsewhere = elsewhere
        self._flags, self._left, self._more_names = flags, collections.deque(given), more_names
        self._by_form = {one.form: name for name, one in flags.items()}
        self._sections = {
            one.prefix or name: name for name, one in flags.items() if one.form == 'section'
        }

    def read(self) -> dict[str, Any]:
        """Return the value of each flag that is given."""
        values: dict[str, Any] = {}
        last, rest, words = '', self._by_form.get('rest'), self._by_form.get('words')
        while self._left:
            argument = self._left.popleft()
            name, equals, text = argument.partition('=')
            if argument == '--' and rest:
                values[rest] = tuple(self._left)
                break
            if _FLAG.fullmatch(name):
                last = name.lstrip('-')
                self._read_flag(last, text if equals else None, values)
            elif words:
                values[words] = (*values.get(words, ()), argument)
            else:
                self._refuse_word(argument, last)
        return values

    def _read_flag(self, name: str, text: str | None, values: dict[str, Any]) -> None:
        """Read the value of a flag; `text` is what follows '='."""
        prefix, dot, key = name.partition('.')
        if dot and (section := self._sections.get(prefix)):
            text = self._next() if text is None else text
            values[section] = (*values.get(section, ()), (key, text))
            return
        one = self._flags.get(name)
        if one is None or one.form in ('section', 'words', 'rest'):
            self._refuse_flag(name)
        if one.is_switch and text is None:
            values[name] = True
            return
        if text is None and (text := self._next()) is None:
            raise UserError(f'--{name} has no value; write --{name}=VALUE')
        value = one.parse(text)
        while one.form == 'several' and (text := self._next()) is not None:
            value += one.parse(text)
        values[name] = values.get(name, ()) + value if one.form == 'repeated' else value

    def _next(self) -> str | None:
        """Remove and return the next argument, unless it is a flag."""
        is_value = self._left and not _FLAG.match(self._left[0]) and self._left[0] != '--'
        return self._left.popleft() if is_value else None

    def _names(self) -> dict[str, bool]:
        """Return each name that may be meant → whether its value may be a glob."""
        flags = self._flags.values()
        own = {one.name: one.form == 'repeated' for one in flags if one.form != 'section'}
        return own | dict(self._more_names())

    def _refuse_flag(self, name: str) -> NoReturn:
        if reason := self._elsewhere(name):
            raise UserError(reason)
        close = ' or '.join(f'--{one}' for one in similar(name, self._names()))
        advice = f'did you mean {close}?' if close else '--help lists the flags'
        raise UserError(f'unknown flag --{name}; {advice}')

    def _refuse_word(self, word: str, last: str) -> NoReturn:
        """Raise the UserError for an argument that belongs to no flag, after the flag `last`."""
        names = self._names()
        name, equals, value = word.partition('=')
        meant = [f'--{other}={value}' for other in names if f'.{other}'.endswith(f'.{name}')]
        if not last and 'config' in names and word.partition(':')[0].endswith('.py'):
            equals, meant = '=', [f'--config={value or word}']
        if equals and meant:
            advice = f'did you mean {" or ".join(meant)}?'
        elif last and os.path.exists(word):
            glob = os.path.join(os.path.dirname(word), f'*{os.path.splitext(word)[1]}')
            advice = 'the shell replaces a glob by the names of its files; '
            advice += (
                f"quote it: --{last}='{glob}'" if names.get(last) else f'--{last} takes one name'
            )
        elif last:
            advice = f'--{last} takes one value: quote a value with spaces'
        else:
            advice = 'write --NAME=VALUE'
        raise UserError(f'{word!r} is not a flag; {advice}')
