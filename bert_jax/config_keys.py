"""Config keys, each declared once: default, meaning, range or choices, and when it has no effect.

    config.masking = section(
        'Which tokens are hidden, and by what.',
        rate=key(0.15, 'share of the tokens to choose', range='(0, 1)'),
    )

A ConfigDict keeps the declaration with the value. The checks of values, docs/configs.md, the
meanings in `--help`, "has no effect" and what may change on resume are derived from it.
"""

import ast
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from ml_collections import ConfigDict, FieldReference

from bert_jax.errors import UserError, unknown
from bert_jax.lazy_table import load

OnResume: TypeAlias = Literal['same', 'last stage', 'logged', 'free']
# (config of a run, key) → why the key has no effect there; '' if it has one.
Unused: TypeAlias = Callable[[ConfigDict, str], str]
NOT_NEGATIVE = '[0, inf)'  # the range of most numbers
_BOOLEANS = {'true': True, '1': True, 'false': False, '0': False}
_KINDS = {int: 'whole numbers', float: 'numbers', str: 'strings', tuple: 'tuples'}
_ONE = {
    bool: 'True or False',
    int: 'a whole number',
    float: 'a number',
    str: 'a string',
    tuple: 'a tuple',
}


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What is known about a config key, apart from its name.

    Attributes:
        default: Its value unless a recipe or the user sets it; None if unset.
        meaning: One or two sentences, with the unit.
        kind: Type of the values.
        optional: Whether the value may be None.
        elements: Type of the elements if values are tuples.
        range: Interval of the numbers, such as '[0, 1)'; '': NOT_NEGATIVE.
        choices: Allowed texts; (): any.
        must_be: What a text must be that may not be empty.
        unused: Whether the key has no effect, given the other keys; None: it always has one.
        on_resume: Whether a run may be resumed with another value: 'same': no; 'last stage': only
            that of the last stage; 'logged': yes, and the change is logged, because the rest of
            the run differs; 'free': yes, the results are the same.
        section: Meaning of the section that the key is in.
    """

    default: Any
    meaning: str
    kind: type
    optional: bool = False
    elements: type = str
    range: str = ''
    choices: Collection[str] | str = ()
    must_be: str = ''
    unused: Unused | str | None = None
    on_resume: OnResume = 'same'
    section: str = ''

    @property
    def one(self) -> str:
        """What a value is, with its article, such as 'a whole number'."""
        return _ONE.get(self.kind, f'a {self.kind.__name__}')

    def describe(self) -> str:
        """Return the meaning and the range, if it is not that of most numbers."""
        return f'{self.meaning.rstrip(".")}; in {self.range}' if self.range else self.meaning

    def why_unused(self, config: ConfigDict, name: str) -> str:
        """Return why the key has no effect in a config; '' if it has one."""
        unused = load(self.unused) if isinstance(self.unused, str) else self.unused
        return unused(config, name) if unused else ''

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that the key cannot have."""
        values = value if isinstance(value, tuple) else (value,)
        if value is None and not self.optional:
            raise UserError(f'{name} is None, but it is not optional; give {self.one}')
        if self.must_be and not value:
            raise UserError(f'{name} is {value!r}; it must be {self.must_be}')
        if isinstance(value, tuple) and not all(_is_of(one, self.elements) for one in values):
            expected = _KINDS[self.elements]
            raise UserError(f'{name} is {value!r}; all its values must be {expected}')
        allowed = self.range or NOT_NEGATIVE
        if not all(_is_in(number, allowed) for number in values if _is_of(number, float)):
            raise UserError(f'{name} is {value!r}; it must be in {allowed}')
        if self.choices and isinstance(value, str) and value != self.default:
            known = load(self.choices) if isinstance(self.choices, str) else self.choices
            if value not in known:
                raise unknown(name, value, known)

    def check_json(self, name: str, value: Any) -> None:
        """Check a value from JSON, which may also be of another type and has no tuples."""
        value = tuple(value) if isinstance(value, list) else value
        if value is not None and not _is_of(value, self.kind):
            raise UserError(f'{name} is {value!r:.60}, expected {self.one}')
        try:
            self.check(name, value)
        except UserError as error:  # which shows all of the value
            raise UserError(f'{error!s:.500}') from None


class ConfigKey(FieldReference):
    """A value of a ConfigDict with its declaration; assigning another ConfigKey redeclares it."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        super().__init__(declaration.default, declaration.kind)

    def set(self, value: Any, type_safe: bool = True) -> None:
        if isinstance(value, ConfigKey):
            self.declaration, self._field_type = value.declaration, value.get_type()
            value = value.get()
        super().set(value, type_safe)

    def __setstate__(self, state: dict[str, Any]) -> None:  # for copies
        super().__setstate__(state)
        self.declaration = state['declaration']


def key(
    default: Any,
    meaning: str,
    range: str = '',
    *,
    kind: type | None = None,
    of: type | None = None,
    **options: Any,
) -> ConfigKey:
    """Declare a config key.

    Args:
        default: The default; None with a `kind` for a key that is unset.
        meaning: See `Declaration`.
        range: See `Declaration`.
        kind: Type of the values of a key that may be unset.
        of: Type of the elements of tuples, if the default is () and they are not strings.
        options: Further attributes of `Declaration`.
    """
    elements = of or (type(default[0]) if isinstance(default, tuple) and default else str)
    declared = Declaration(default, meaning, kind or type(default), kind is not None, elements)
    return ConfigKey(dataclasses.replace(declared, range=range, **options))


def section(
    meaning: str = '',
    *,
    range: str = '',
    unused: Unused | str | None = None,
    on_resume: OnResume = 'same',
    **keys: Any,
) -> ConfigDict:
    """Return a section of keys; keys without `range`, `unused`, `on_resume` have these."""

    def complete(own: Declaration) -> Declaration:
        holds_numbers = bool({int, float} & {own.kind, own.elements})
        return dataclasses.replace(
            own,
            section=meaning,
            range=own.range or (range if holds_numbers else ''),
            unused=own.unused or unused,
            on_resume=on_resume if own.on_resume == 'same' else own.on_resume,
        )

    config = ConfigDict(sort_keys=False)
    for name, entry in keys.items():
        is_key = isinstance(entry, ConfigKey)
        config[name] = ConfigKey(complete(entry.declaration)) if is_key else entry
    return config


class Entry(NamedTuple):
    """A key of a config: its name with dots, its value and its declaration."""

    name: str
    value: Any
    declaration: Declaration


def entries(config: ConfigDict, prefix: str = '') -> Iterator[Entry]:
    """Yield the keys of a config; a key that a recipe adds without `key` has no meaning."""
    for name, field in config.items(preserve_field_references=True):
        value = config[name]
        if isinstance(field, ConfigDict):
            yield from entries(field, f'{prefix}{name}.')
        elif isinstance(field, ConfigKey):
            yield Entry(f'{prefix}{name}', value, field.declaration)
        else:
            yield Entry(f'{prefix}{name}', value, key(value, '', kind=type(value)).declaration)


def flatten(config: ConfigDict) -> dict[str, Any]:
    """Return the values of a config by key, with the names of sections joined by dots."""
    return {entry.name: entry.value for entry in entries(config)}


def declarations(config: ConfigDict) -> dict[str, Declaration]:
    """Return the declarations of the keys of a config."""
    return {entry.name: entry.declaration for entry in entries(config)}


def check(config: ConfigDict) -> None:
    """Check the values of a config, each by itself.

    Raises:
        UserError: A number is out of range, a tuple has an element of a wrong type, or a text is
            not one of the choices.
    """
    for name, value, declaration in entries(config):
        declaration.check(name, value)


def check_used(config: ConfigDict, user_keys: Collection[str]) -> None:
    """Check that the keys that the user set have an effect.

    Other keys, which have the values of a recipe, may be without effect.

    Raises:
        UserError: A key without effect, with the reason.
    """
    for name, value, declaration in entries(config):
        reason = name in user_keys and _is_on(value) and declaration.why_unused(config, name)
        if reason:
            raise UserError(f'{name} is {value!r}, but {reason}; leave {name} out')


def parse_value(name: str, text: str, declared: Declaration) -> Any:
    """Return the value of a key that a text on a command line stands for.

    Raises:
        UserError: The text is not a value of the type of the key.
    """
    if text == 'None' and (declared.optional or declared.kind is not str):
        return None
    is_plain = not text.startswith(('(', '[', '"', "'"))
    if declared.kind is tuple and declared.elements is str and is_plain:
        return (text,) if text else ()
    try:
        if declared.kind is bool:
            return _BOOLEANS[text.lower()]
        if declared.kind is not tuple:
            return declared.kind(text)
        value = ast.literal_eval(text)
        return tuple(value) if isinstance(value, tuple | list) else (value,)
    except (KeyError, ValueError, SyntaxError, MemoryError, RecursionError):
        raise UserError(f'{name}={text}: the value must be {declared.one}') from None


def option_of(selector: str, table: str) -> Unused:
    """Return the condition that a key is an option only of some entries of a table.

    Args:
        selector: The key that names the entry in use.
        table: 'module:TABLE' of entries with the names of their keys, `options`.
    """

    def why(config: ConfigDict, name: str) -> str:
        entries, selected = load(table), find(config, selector)
        with_options = [entry for entry, value in entries.items() if name in value.options]
        is_used = not with_options or selected in with_options or selected not in entries
        return '' if is_used else f'{selector} is {selected!r}'

    return why


def needs(*others: str) -> Unused:
    """Return the condition that a key has no effect if all of the other keys are off."""

    def why(config: ConfigDict, name: str) -> str:
        values = {other: find(config, other) for other in others}
        return '' if any(map(_is_on, values.values())) else _show(values)

    return why


def unless(selector: str, *values: str) -> Unused:
    """Return the condition that a key has no effect if another key has one of these values."""

    def why(config: ConfigDict, name: str) -> str:
        selected = find(config, selector)
        return f'{selector} is {selected!r}' if selected in values else ''

    return why


def only_with(selector: str, *values: str) -> Unused:
    """Return the condition that a key has no effect unless another key has one of these values."""

    def why(config: ConfigDict, name: str) -> str:
        selected = find(config, selector)
        return '' if selected in values else f'{selector} is {selected!r}'

    return why


def overridden_by(*others: str) -> Unused:
    """Return the condition that a key has no effect if one of the other keys is set."""

    def why(config: ConfigDict, name: str) -> str:
        keys = declarations(config)
        values = {other: find(config, other) for other in others if other in keys}
        are_set = {
            other: value
            for other, value in values.items()
            if (value is not None if keys[other].optional else _is_on(value))
        }
        return _show(are_set)

    return why


def find(config: ConfigDict | Mapping[str, Any], name: str) -> Any:
    """Return the value of a key with dots; None if the config does not have the key."""
    found: Any = config
    for part in name.split('.'):
        found = found.get(part) if found is not None else None
    return found


def _show(values: Mapping[str, Any]) -> str:
    """Return 'KEY is VALUE' for each key."""
    shown = {
        name: f'{value:g}'
        if _is_of(value, float)
        else 'empty'
        if value in ('', ())
        else repr(value)
        for name, value in values.items()
    }
    return ' and '.join(f'{name} is {text}' for name, text in shown.items())


def _is_on(value: Any) -> bool:
    """Whether a value asks for something, so that a key without effect would mislead."""
    return bool(value) and value != 'none'


def _is_of(value: Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)


def _is_in(number: float, interval: str) -> bool:
    low, high = map(float, interval[1:-1].split(', '))
    above = low <= number if interval[0] == '[' else low < number
    return above and (number <= high if interval[-1] == ']' else number < high)
