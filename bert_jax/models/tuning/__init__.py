"""Parameter-efficient tuning. To add a method, add a file here and a line to METHODS."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import unknown
from bert_jax.models.tuning.bitfit import BitFit
from bert_jax.models.tuning.houlsby import Houlsby
from bert_jax.models.tuning.ia3 import IA3
from bert_jax.models.tuning.lora import Lora
from bert_jax.models.tuning.mam import Mam
from bert_jax.models.tuning.parallel import Parallel
from bert_jax.models.tuning.pfeiffer import Pfeiffer
from bert_jax.models.tuning.prefix import PrefixTuning
from bert_jax.models.tuning.prompt import PromptTuning
from bert_jax.models.tuning_method import ADDED, Tuning

__all__ = ['ADDED', 'METHODS', 'Tuning', 'build', 'from_json', 'settings']

METHODS: dict[str, type[Tuning]] = {
    'lora': Lora,
    'houlsby': Houlsby,
    'pfeiffer': Pfeiffer,
    'parallel': Parallel,
    'prefix': PrefixTuning,
    'prompt': PromptTuning,
    'bitfit': BitFit,
    'ia3': IA3,
    'mam': Mam,
}
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


def from_json(fields: Mapping[str, Any]) -> Tuning:
    """Rebuild a method from checkpoint metadata."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value  # JSON has no tuples
        for name, value in fields.items()
    }
    return METHODS[values['method']](**values)
