"""What the tests of labeled data share: a config's `data` with some keys set, and reading it."""

import copy

from ml_collections import ConfigDict

from bert_jax.data import labeled
from bert_jax.data.labeled import catalog


def config(columns=None, **settings) -> ConfigDict:
    """The defaults with these keys set; a key that does not exist is an error."""
    data = ConfigDict(copy.deepcopy(catalog.DATA)).lock()
    data.update(settings)
    data.columns.update(columns or {})
    return data


def read(kind: str, columns=None, **settings):
    return labeled.read(config(columns, **settings), kind)


def everything(kind: str, columns=None, **settings) -> list:
    """All examples of `train`, none set aside but one for dev."""
    settings = {'dev_fraction': 0.5} | settings
    splits = read(kind, columns, **settings)
    return sorted(splits.train + splits.dev)
