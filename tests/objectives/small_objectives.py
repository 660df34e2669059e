"""Objectives with small values of their options."""

import dataclasses

from bert_jax.objectives import OBJECTIVES, Objective

_VALUES = {int: 4, float: 0.5, bool: False, str: ''}
_OPTIONS = {
    'diffusion': {'weight': 'bound'},
    'rtd': {'sharing': 'tied', 'temperature': 1.0},
    'sbo': {'position_size': 12},
}


def build(name: str) -> Objective:
    """An objective; options that are not given above are small numbers."""
    kind = OBJECTIVES[name]
    required = [one for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING]
    return kind(**{one.name: _VALUES[one.type] for one in required} | _OPTIONS.get(name, {}))
