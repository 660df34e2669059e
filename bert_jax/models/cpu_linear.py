"""Products arranged for XLA's CPU backend; other backends use jnp.einsum and +.

Measured with jax 0.10.2 (experiments/benchmarks/training_step.md): XLA's CPU compiler runs a
product of bf16 operands as written, so the order of its operands decides what is transposed, and
some orders compile but fail at run time.
"""

import itertools
import math
import re
from typing import Any

import jax
import jax.numpy as jnp

# Cost of transposing an element of the result, relative to an element of an operand.
_TRANSPOSED_RESULT = 8


def einsum(spec: str, a: jax.Array, b: jax.Array, **options: Any) -> jax.Array:
    """jnp.einsum of two operands, in the form that is fastest on CPU."""
    if a.dtype != jnp.float32:
        return _einsum_in_order(spec, a, b, **options)
    sizes, out = _sizes(spec, a, b), spec.split('->')[1]
    spec, merged = _merge_dimensions(spec, sizes)
    inputs = spec.split('->')[0].split(',')
    a, b = (
        x.reshape([merged[letter] for letter in letters])
        for x, letters in zip((a, b), inputs, strict=True)
    )
    multiply = jnp.einsum if a.ndim == b.ndim == 2 else _einsum_in_order
    return multiply(spec, a, b, **options).reshape([sizes[letter] for letter in out])


def _sizes(spec: str, a: jax.Array, b: jax.Array) -> dict[str, int]:
    letters = spec.split('->')[0].replace(',', '')
    return dict(zip(letters, a.shape + b.shape, strict=True))


def _merge_dimensions(spec: str, sizes: dict[str, int]) -> tuple[str, dict[str, int]]:
    """Merge dimensions that are side by side wherever they are, such as B and T in 'BTD,DE->BTE'.

    Most products then are of two matrices. XLA multiplies transposed matrices, but copies arrays of
    more dimensions if the contracted ones are not the last.
    """
    parts = re.split(',|->', spec)
    for first, second in itertools.chain(*map(itertools.pairwise, parts)):
        pair = first + second
        if all(pair in part or not {first, second} & set(part) for part in parts):
            merged = sizes | {first: sizes[first] * sizes[second]}
            return _merge_dimensions(spec.replace(pair, first), merged)
    return spec, sizes


def _einsum_in_order(spec: str, a: jax.Array, b: jax.Array, **options: Any) -> jax.Array:
    """jnp.einsum in the operand order that is fastest where XLA runs a product as written."""
    inputs, out = spec.split('->')
    spec_a, spec_b = inputs.split(',')
    only_a = [letter for letter in out if letter in spec_a and letter not in spec_b]
    only_b = [letter for letter in out if letter in spec_b and letter not in spec_a]
    product_out = out
    if spec_a[0] == spec_b[0] and spec_a[0] not in out:
        # The gradient of a weight, summed over the batch. The first operand is transposed, and so
        # is the result unless its order is `out`: take the cheaper operand order.
        shared = ''.join(letter for letter in out if letter not in (*only_a, *only_b))
        orders = [shared + ''.join(letters) for letters in (only_a + only_b, only_b + only_a)]
        sizes = _sizes(spec, a, b)
        result_cost = _TRANSPOSED_RESULT * math.prod(sizes[letter] for letter in out)
        cost_a, cost_b = (
            operand.size + result_cost * (order != out)
            for operand, order in zip((a, b), orders, strict=True)
        )
        swap = cost_b < cost_a
        product_out = orders[swap]
    else:
        # Nothing is transposed if unshared letters of the first operand come first in the result.
        swap = bool(only_a and only_b) and out.index(only_b[0]) < out.index(only_a[0])
    if swap:
        spec_a, spec_b, a, b = spec_b, spec_a, b, a
    result = jnp.einsum(f'{spec_a},{spec_b}->{product_out}', a, b, **options)
    if product_out == out:
        return result
    # Without the barrier XLA moves the transposition back into the product, which fails in bf16.
    return jnp.einsum(f'{product_out}->{out}', jax.lax.optimization_barrier(result))


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """x [..., features] + bias [features]; the gradient of the bias is a product with ones.

    XLA's sums over columns are many times slower on CPU.
    """
    return x + bias


def _add_bias_forward(x: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x + bias, bias


def _add_bias_backward(bias: jax.Array, grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows = grad.reshape(-1, *bias.shape)
    ones = jnp.ones(len(rows), grad.dtype)
    grad_bias = jnp.tensordot(ones, rows, axes=1, preferred_element_type=jnp.float32)
    return grad, grad_bias.astype(bias.dtype)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)
