"""Typed values from JSON that anybody may have written, checked where they are declared.

The declaration is a type: a dataclass or a NamedTuple whose fields have the types of the keys. What
does not fit is one UserError that names the file, the key, and what was expected.
"""

import collections.abc
import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from bert_jax.errors import UserError, join_first, unknown

Value = TypeVar('Value')

_EXACT = 2**53  # whole numbers up to this one are exact as a float
_NAMES = {bool: 'true or false', int: 'a whole number', float: 'a number', str: 'a text'}


class _Field(typing.NamedTuple):
    """A key of an object: the type of its value, and whether the key may be left out."""

    hint: Any
    is_optional: bool
    is_constant: bool


def read(kind: type[Value], value: object, source: object, *, partial: bool = False) -> Value:
    """Return the value of a type that an object of JSON describes.

    Args:
        kind: a dataclass or a NamedTuple. Fields of a dataclass with compare=False are no keys.
        value: the object: a key for each field, and no others.
        source: the file, for errors, or a key of it, such as 'FILE: key'.
        partial: whether keys whose fields have defaults may be left out; not of objects inside.

    Raises:
        UserError: a key is missing, unknown or has a wrong value; or `kind` refuses the values.
    """
    if not isinstance(value, Mapping):
        raise _wrong(source, value, 'an object')
    fields = _fields(typing.cast(Any, kind))  # for mypy, a class may lack a hash
    if others := [name for name in value if name not in fields]:
        raise UserError(f'{source}: {unknown("key", others[0], fields)}')
    needed = [name for name, field in fields.items() if not (partial and field.is_optional)]
    if missing := [name for name in needed if name not in value]:
        raise UserError(f'{source} lacks the key {join_first(missing)}')
    given = {name: convert(fields[name].hint, value[name], f'{source}: {name}') for name in value}
    values = {name: given[name] for name in given if not fields[name].is_constant}
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f'{source}: {error}') from None


def convert(hint: Any, value: Any, place: object) -> Any:
    """Return a value of a type from its JSON.

    Args:
        hint: bool, int, float, str, None, a Literal, a union, tuple[T, ...], Mapping[str, T] or
            dict[str, T], a dataclass, a NamedTuple, or Any. Of several dataclasses in a union, the
            key 'kind' chooses one. A class with `from_json(fields, place)` reads itself.
        value: as `json.loads` returns it.
        place: where it stands, for errors.

    Raises:
        UserError: the value is of another type.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_to_one(arguments, value, place)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise UserError(f'{place}: {unknown("value", _short(value), map(str, arguments))}')
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(place, value, _describe(hint))
        return tuple(convert(arguments[0], one, place) for one in value)
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(place, value, _describe(hint))
        return {
            name: convert(arguments[1], one, f'{place}: {_short(name)}')
            for name, one in value.items()
        }
    if hint in _NAMES:
        return _scalar(hint, value, place)
    return hint.from_json(value, place) if hasattr(hint, 'from_json') else read(hint, value, place)


def _convert_to_one(options: tuple[Any, ...], value: Any, place: object) -> Any:
    """Convert to the type of a union that a value is of, by its JSON type and its 'kind'."""
    if value is None and types.NoneType in options:
        return None
    parts = [one for one in options if dataclasses.is_dataclass(one)]
    if isinstance(value, Mapping) and parts:
        if len(parts) == 1:
            return convert(parts[0], value, place)
        kinds = {getattr(part, 'kind', ''): part for part in parts}
        kind = value.get('kind')
        if not isinstance(kind, str) or kind not in kinds:
            raise UserError(f'{place}: {unknown("kind", _short(kind), kinds)}')
        return convert(kinds[kind], value, place)
    others = [one for one in options if one is not types.NoneType and one not in parts]
    for option in others[:-1]:
        try:
            return convert(option, value, place)
        except UserError:
            continue
    if not others:
        raise _wrong(place, value, ' or '.join(map(_describe, options)))
    try:
        return convert(others[-1], value, place)
    except UserError:
        raise _wrong(place, value, ' or '.join(map(_describe, options))) from None


def _scalar(kind: type, value: Any, place: object) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number and (isinstance(value, float) or abs(value) <= _EXACT):
        return value
    if kind is int and is_number and isinstance(value, int) and abs(value) < 2**63:
        return value
    if kind in (bool, str) and isinstance(value, kind):
        return value
    raise _wrong(place, value, _NAMES[kind])


@functools.cache
def _fields(kind: Any) -> dict[str, _Field]:
    """Return the keys of a type."""
    hints = typing.get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        return {name: _Field(hints[name], name in kind._field_defaults, False) for name in hints}
    empty = dataclasses.MISSING
    return {
        field.name: _Field(
            hints[field.name],
            field.default is not empty or field.default_factory is not empty,
            not field.init,
        )
        for field in dataclasses.fields(kind)
        if field.compare
    }


def _describe(hint: Any) -> str:
    """Say what a value of a type is, with its article."""
    if hint is types.NoneType:
        return 'null'
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return 'a list'
    if origin is Literal:
        return ' or '.join(map(repr, arguments))
    if hint in _NAMES:
        return _NAMES[hint]
    return 'an object'


def _wrong(place: object, value: Any, expected: str) -> UserError:
    return UserError(f'{place} is {_short(value)}, expected {expected}')


def _short(value: Any) -> str:
    """The beginning of a value as JSON has it, without walking through all of it."""
    if isinstance(value, str):
        return f'{value[:40]!r}'
    if isinstance(value, Mapping):
        return 'an object'
    if isinstance(value, list | tuple):
        return f'a list of {len(value):,}'
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return 'a very large number'
    return {None: 'null', True: 'true', False: 'false'}.get(value, f'{value!r}')
