"""Settings of a training, changed to answer or to read other files."""

from ml_collections import ConfigDict

from bert_jax import config_keys
from bert_jax.errors import UserError, unknown
from bert_jax.labels import data_keys
from bert_jax.types import JsonView


def data_config(trained: JsonView, changes: JsonView) -> ConfigDict:
    """The `data` config of the training, with changes by dotted key, to read other files."""
    data = data_keys.make_config()
    known = data.to_dict()
    settings = {key: value for key, value in trained.items() if key in known and key != 'columns'}
    columns = trained.get('columns', {})
    settings |= {f'columns.{key}': columns[key] for key in columns.keys() & known['columns'].keys()}
    for key, value in (settings | {'dataset': ''} | dict(changes)).items():
        section, _, name = key.rpartition('.')
        target = data[section] if section == 'columns' else data
        if section not in ('', 'columns') or name not in target:
            raise unknown('key of data', key, [*known, *(f'columns.{n}' for n in known['columns'])])
        if isinstance(target[name], str) and isinstance(value, int):
            value = str(value)  # the number of a column
        try:
            target[name] = fitted(value, target[name])
        except TypeError:
            kind = type(target[name]).__name__
            raise UserError(f'data.{key} is {value!r}, which is not of type {kind}') from None
    config_keys.check(ConfigDict({'data': data}))
    return data


def fitted(value: object, former: object) -> object:
    """Return a list, or a string for a key that holds a tuple, as a tuple."""
    if isinstance(former, tuple | list) and isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value
