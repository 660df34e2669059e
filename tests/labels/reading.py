"""Helpers of the tests of labeled data: writing small files and reading them."""

import json
import pathlib
import types
import typing

from ml_collections import ConfigDict

from bert_jax import config_keys, problems
from bert_jax.labels.data_keys import make_config
from bert_jax.labels.examples import Example
from bert_jax.labels.loader import Splits


def write_lines(path: pathlib.Path, *lines: str, encoding: str = 'utf-8') -> tuple[str]:
    """Write a file and return the value for `data.train`."""
    path.write_bytes('\n'.join(lines).encode(encoding))
    return (str(path),)


def write_json_lines(path: pathlib.Path, *records: dict) -> tuple[str]:
    return write_lines(path, *(json.dumps(record) for record in records))


def config(columns: dict | None = None, **settings) -> ConfigDict:
    """The default `data` of a config with some keys set; an unknown key is an error."""
    data = make_config().lock()
    data.update(settings)
    data.columns.update(columns or {})
    config_keys.check(ConfigDict({'data': data}))
    return data


def read(kind: str, columns: dict | None = None, **settings) -> Splits:
    return problems.read(config(columns, **settings), kind)


def read_all(kind: str, columns: dict | None = None, **settings) -> list[Example]:
    """The examples of all train files, sorted."""
    return sorted(read(kind, columns, dev=settings['train'], **settings).train)


def example_types(kind: str) -> tuple[type, ...]:
    """The types of examples that the readers of a kind of problem build."""
    results = {
        typing.get_type_hints(reader)['return'] for reader in problems.find(kind).readers.values()
    }
    lists = [
        one
        for result in results
        for one in (typing.get_args(result) if isinstance(result, types.UnionType) else [result])
    ]
    return tuple({typing.get_args(one)[0] for one in lists})
