"""Reads lists and objects that other programs write as text into cells of tables."""

import ast
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from bert_jax.labels.records import InvalidRecord, Record, Remark, Row
from bert_jax.types import JsonObject

_FIRST_ROWS = 100  # rows that show whether a column has lists
_OPENINGS = ('[', '{', '(', 'array(', 'set(', 'frozenset(')
_CLOSINGS = (']', '}', ')')
_CONTAINERS = ('array', 'list', 'set', 'frozenset', 'tuple')
_MISSING = ('nan', 'NaN', 'null', 'NA')
_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# An item of a NumPy array, as `str` writes it, before another item.
_ITEM = re.compile(rf"""({_STRING}|[-+.\w]+)(\s+(?=['"\w.+-]))?""")


def read_list(text: str) -> list[Any] | JsonObject | None:
    """Return the list or object that a text is, None if it is another text.

    Read are JSON, lists, tuples, sets and dictionaries as Python writes them, NumPy arrays, and
    {"choices": [...]} of Label Studio, which is the list of choices.
    """
    if not text.lstrip().startswith(_OPENINGS) or not text.rstrip().endswith(_CLOSINGS):
        return None
    text = text.strip()
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        value = _read_python(text)
    value = without_choices(value)
    return value if isinstance(value, list | dict) else None


def without_choices(value: Any) -> Any:
    """Return the list of {"choices": [...]}, as of Label Studio; other values as they are."""
    is_choices = isinstance(value, dict) and value.keys() == {'choices'}
    return value['choices'] if is_choices else value


def without_flags(value: Any) -> Any:
    """Return the names with 1 of {"a": 1.0, "b": 0.0}, as of spaCy; other values as they are."""
    is_flags = (
        isinstance(value, dict) and len(value) > 0 and all(v in (0, 1) for v in value.values())
    )
    return [name for name, flag in value.items() if flag] if is_flags else value


def with_one_class(row: Row, column: str) -> Row:
    """Return a row with the class of a column of flags (see `without_flags`) instead of them.

    Raises:
        InvalidRecord: another number of flags than one is 1.
    """
    value = row.values.get(column)
    if not isinstance(value, dict):
        return row
    names = without_flags(value)
    if not isinstance(names, list):
        return row
    if len(names) != 1:
        raise InvalidRecord(
            f'column {column!r} has {len(names)} classes of 1; multi_label reads any number'
        )
    return row.with_values({column: names[0]})


def has_texts(value: list[Any] | JsonObject | None) -> bool:
    """Whether a result of `read_list` has a text: lists of numbers are often meant as texts."""
    return bool(value) and (isinstance(value, dict) or any(isinstance(v, str) for v in value or ()))


def with_lists(path: str, records: Iterator[Record]) -> Iterator[Record]:
    """Return the records of a table with lists and objects instead of the texts that write them.

    A column has lists if all its cells in the first rows are lists or blank. Its later cells that
    are not lists stay texts.
    """
    first = list(itertools.islice(records, _FIRST_ROWS))
    columns = _columns_with_lists(one.content.values for one in first if type(one.content) is Row)
    records = itertools.chain(first, records)
    if not columns:
        return records
    remark = Record(f'{path}: {", ".join(columns)}', '', Remark('columns_read_as_lists'))
    return itertools.chain([remark], (_decoded(record, columns) for record in records))


def _columns_with_lists(rows: Iterable[JsonObject]) -> list[str]:
    columns: dict[str, bool] = {}
    for values in rows:
        for name, text in values.items():
            if text.strip() and columns.get(name, True):
                columns[name] = read_list(text) is not None
    return [name for name, has_lists in columns.items() if has_lists]


def _decoded(record: Record, columns: list[str]) -> Record:
    if type(record.content) is Row:
        values = record.content.values
        for name in columns:
            value = read_list(values[name])
            values[name] = values[name] if value is None else value
    return record


def _read_python(text: str) -> Any:
    """Return the value of a literal of Python, None if the text is not one."""
    separated = _ITEM.sub(lambda match: match[1] + ', ' * (match[2] is not None), text)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # about escapes such as \d
        try:
            return _value(ast.parse(separated, mode='eval').body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _value(node: ast.expr) -> Any:
    """Return a literal as JSON has it; ValueError for other expressions."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=name) if name in _MISSING:
            return None
        case ast.Name(id='true' | 'false' as name):
            return name == 'true'
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return list(map(_value, items))
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {str(_value(k)): _value(v) for k, v in zip(keys, values, strict=True) if k}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Call(func=ast.Name(id=name), args=[]) if name in _CONTAINERS:
            return []
        case ast.Call(func=ast.Name(id=name), args=[first]) if name in _CONTAINERS:
            return _value(first)
        case ast.Call(func=ast.Attribute(value=ast.Name(id='np')), args=[first]):
            return _value(first)  # np.float64(1.5), np.str_('a')
    raise ValueError(ast.dump(node)[:40])
