"""Rotary positions in a config.json: base wavelength and scaling factor."""

import math
from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.architecture_parts import Rotary
from bert_jax.types import JsonObject, JsonView

# Config keys that `read` reads; their types for `Family.read_by_complete`.
READ: JsonObject = {'rope_parameters': dict, 'rope_scaling': dict, 'rope_theta': int | float}


def read(config: JsonView, theta: float, head_size: int, layer_type: str = '') -> Rotary:
    """Read how queries and keys are rotated.

    transformers 5 writes `rope_parameters`, for some models by type of layer; earlier versions
    wrote `rope_theta` and `rope_scaling`.

    Args:
        theta: the default of the family.
        head_size: features of a head.
        layer_type: key of rope_parameters, if it has one entry for each type of layer.

    Raises:
        UserError: another kind of scaling than `linear` and `ntk`, or a value of another type.
    """
    given = config.get('rope_parameters') or {}
    if layer_type:
        given = given.get(layer_type) or {}
    given = given or config.get('rope_scaling') or {}
    if not isinstance(given, dict):
        raise UserError(f'rope_parameters is {given!r}, expected an object')
    kind = given.get('rope_type') or given.get('type') or 'default'
    base: Any = given.get('rope_theta', config.get('rope_theta', theta))
    factor: Any = given.get('factor', 1.0) if kind != 'default' else 1.0
    known = {'rope_type', 'type', 'rope_theta', 'factor'}
    if kind not in ('default', 'linear', 'ntk') or given.keys() - known:
        raise UserError(
            f'rope_parameters is {given!r:.80}; only the types default, linear and ntk with '
            'rope_theta and factor are supported'
        )
    for number in (base, factor):
        if not isinstance(number, int | float) or not 0 < number < math.inf:
            raise UserError(f'rope_theta is {base!r} and factor {factor!r}, must be above 0')
    base, factor = float(base), float(factor)
    if kind == 'ntk':  # fixed NTK of the published GTE models, kexue.fm/archives/9706, equation 6
        return Rotary(base * factor, factor=factor ** (2 / head_size))
    return Rotary(base, factor=factor)


def write(attention: Rotary) -> JsonObject:
    """Return the `rope_parameters` that `read` reads."""
    if attention.factor == 1:
        return {'rope_type': 'default', 'rope_theta': attention.theta}
    return {'rope_type': 'linear', 'rope_theta': attention.theta, 'factor': attention.factor}
