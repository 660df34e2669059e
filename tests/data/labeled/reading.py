"""What the tests of labeled data share: a config's `data` with some keys set, and reading it."""

import copy
import typing

from ml_collections import ConfigDict

from bert_jax.data.labeled.loader import DEFAULTS
from bert_jax.tasks import problems


def config(columns=None, **settings) -> ConfigDict:
    """The defaults with these keys set; a key that does not exist is an error."""
    data = ConfigDict(copy.deepcopy(DEFAULTS)).lock()
    data.update(settings)
    data.columns.update(columns or {})
    return data


def read(kind: str, columns=None, **settings):
    return problems.read(config(columns, **settings), kind)


def example_type(kind: str) -> type:
    """What the readers of a kind of problem return a list of."""
    types = {
        typing.get_args(typing.get_type_hints(reader)['return'])[0]
        for reader in problems.find(kind).readers.values()
    }
    (only,) = types
    return only


def everything(kind: str, columns=None, **settings) -> list:
    """All examples of `train`, none set aside but one for dev."""
    settings = {'dev_fraction': 0.5} | settings
    splits = read(kind, columns, **settings)
    return sorted(splits.train + splits.dev)
