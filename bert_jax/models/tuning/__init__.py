"""Parameter-efficient tuning. To add a method, add a file here and a line to METHODS."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import unknown
from bert_jax.lazy_table import LazyTable
from bert_jax.models.tuning_method import ADDED, Tuning

__all__ = ['ADDED', 'METHODS', 'Tuning', 'build', 'settings']

# Name → 'module:Class'; the module is imported when the method is used.
METHODS: LazyTable[type[Tuning]] = LazyTable(
    {
        'lora': 'bert_jax.models.tuning.lora:Lora',
        'houlsby': 'bert_jax.models.tuning.houlsby:Houlsby',
        'pfeiffer': 'bert_jax.models.tuning.pfeiffer:Pfeiffer',
        'parallel': 'bert_jax.models.tuning.parallel:Parallel',
        'prefix': 'bert_jax.models.tuning.prefix:PrefixTuning',
        'prompt': 'bert_jax.models.tuning.prompt:PromptTuning',
        'bitfit': 'bert_jax.models.tuning.bitfit:BitFit',
        'ia3': 'bert_jax.models.tuning.ia3:IA3',
        'mam': 'bert_jax.models.tuning.mam:Mam',
    }
)
_NOT_SETTINGS = ('method', 'uses', 'use')


def settings(method: str) -> tuple[str, ...]:
    """Return the names of a method's settings.

    Raises:
        UserError: an unknown method.
    """
    if method not in METHODS:
        raise unknown('transfer.method', method, ['full', *METHODS])
    names = [field.name for field in dataclasses.fields(METHODS[method])]
    return tuple(name for name in names if name not in _NOT_SETTINGS)


def build(method: str, values: Mapping[str, Any]) -> Tuning:
    """Build a method with its settings among `values`; None: the default.

    Raises:
        UserError: an unknown method, or an invalid value.
    """
    known = {name: values.get(name) for name in settings(method)}
    return METHODS[method](**{name: value for name, value in known.items() if value is not None})
