"""How far rounding moves the outputs of a model: the tolerance when two programs are compared.

Programs, machines and instruction sets add the products of a float32 sum in other orders. The
result of any order is the exact sum of products that are changed a little: by at most n · 2⁻²⁴ of
themselves in a sum of n products, and by about √n · 2⁻²⁴ if rounding errors are random (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, sections 2.8 and 3.1). So another
correct program computes what this one computes with weights changed by that much, and outputs may
differ as far as such changes move them. That depends on the model: depth, saturated softmax and
large values multiply rounding errors, and multiply wrong numbers as much.
"""

import math
from collections.abc import Callable, Mapping

import jax
import numpy as np

from bert_jax.types import Array, Params

_DRAWS = 4  # of changed weights
_FACTOR = 4  # for what four draws do not show


def tolerances(
    compute: Callable[[Params], Mapping[str, Array]], params: Params, longest_sum: int
) -> dict[str, float]:
    """Output → the largest difference that rounding explains, in the units of the output.

    It is 4 times the largest change of the output for four random changes of all weights, each by
    √longest_sum · 2⁻²⁴ of itself, and at least 4 times that share of the largest output.

    Args:
        compute: Maps parameters to outputs of any shape, with NaN where nothing is compared.
        params: Nested float32 arrays.
        longest_sum: Number of products in the longest sums, such as the width of the model.
    """
    share = 2.0**-24 * math.sqrt(longest_sum)
    outputs = compute(params)
    allowed = {name: share * (_largest(array) or 1.0) for name, array in outputs.items()}
    for seed in range(_DRAWS):
        for name, array in compute(_changed(params, share, seed)).items():
            moved = np.asarray(array, np.float32) - np.asarray(outputs[name], np.float32)
            allowed[name] = max(allowed[name], _largest(moved))
    return {name: _FACTOR * change for name, change in allowed.items()}


def _largest(array: Array) -> float:
    return float(np.nanmax(np.abs(np.asarray(array, np.float32))))


def _changed(params: Params, share: float, seed: int) -> Params:
    """Change each weight by a normal random share of itself."""
    rng = np.random.default_rng(seed)

    def change(leaf: Array) -> np.ndarray:
        factor = 1 + np.float32(share) * rng.standard_normal(leaf.shape, np.float32)
        return np.asarray(leaf, np.float32) * factor

    changed: Params = jax.tree.map(change, params)
    return changed
