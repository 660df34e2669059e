"""Matrix products and biases: low-precision inputs, fp32 sums, forward and backward."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.architecture import Architecture, Compute

# What transposing an entry of a product costs, one of an operand being 1.
TRANSPOSED_PRODUCT = 8


def _einsum(spec, a, b, dtype):
    """One product, its operands in the order that XLA's CPU compiler (jax 0.10.2) does best."""
    inputs, out = spec.split('->')
    spec_a, spec_b = inputs.split(',')
    own_a, own_b = (
        [letter for letter in out if letter in this and letter not in other]
        for this, other in ((spec_a, spec_b), (spec_b, spec_a))
    )
    shared = ''.join(letter for letter in out if letter not in (*own_a, *own_b))
    if _is_weight_gradient(spec_a, spec_b, out):
        # The first operand is transposed, with whatever elementwise work is fused into it, and the
        # product afterwards, if it does not come out as wanted: whatever is the least.
        orders = [shared + ''.join(own) for own in (own_a + own_b, own_b + own_a)]
        sizes = dict(zip(spec_a + spec_b, a.shape + b.shape, strict=True))
        size = TRANSPOSED_PRODUCT * math.prod(sizes[letter] for letter in out)
        costs = [
            operand.size + size * (order != out)
            for operand, order in zip((a, b), orders, strict=True)
        ]
        swap = costs[1] < costs[0]
        product_out = orders[swap]
    else:
        # The result's first own letter in the first operand: no transposition. In the other order
        # some bf16 products of attention compile and then fail when run.
        swap = bool(own_a and own_b) and out.index(own_b[0]) < out.index(own_a[0])
        product_out = out
    if swap:
        spec_a, spec_b, a, b = spec_b, spec_a, b, a
    result = jnp.einsum(
        f'{spec_a},{spec_b}->{product_out}',
        a.astype(dtype),
        b.astype(dtype),
        preferred_element_type=jnp.float32,
    )
    if product_out == out:
        return result
    # Were the transposition moved back into the product, bf16 would compile and then fail when run.
    return jnp.einsum(f'{product_out}->{out}', jax.lax.optimization_barrier(result))


def _is_weight_gradient(spec_a, spec_b, out):
    """Whether the product sums over the leading dimensions of both operands, the batch."""
    return spec_a[0] == spec_b[0] and spec_a[0] not in out


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def product(spec: str, a: jax.Array, b: jax.Array, dtype) -> jax.Array:
    """einsum of two arrays cast to `dtype`, summed and returned in fp32.

    Every letter of an operand must occur in the other one or in the result. The gradient products
    too take `dtype` inputs and give fp32, which automatic differentiation of a mixed product
    would not do, and on which bf16 depends for its speed on CPUs.
    """
    return _einsum(spec, a, b, dtype)


def _product_forward(spec, a, b, dtype):
    return _einsum(spec, a, b, dtype), (a, b)


def _product_backward(spec, dtype, operands, grad):
    a, b = operands
    inputs, out = spec.split('->')
    spec_a, spec_b = inputs.split(',')
    grad_a = _einsum(f'{out},{spec_b}->{spec_a}', grad, b, dtype)
    grad_b = _einsum(f'{out},{spec_a}->{spec_b}', grad, a, dtype)
    return grad_a.astype(a.dtype), grad_b.astype(b.dtype)


product.defvjp(_product_forward, _product_backward)


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """x [..., features] + bias [features], any number of feature dimensions.

    The gradient of the bias is a product of ones and the gradient of x: XLA's column sums are
    many times slower on CPUs.
    """
    return x + bias


def _add_bias_backward(bias, grad):
    rows = grad.reshape(-1, *bias.shape)
    ones = jnp.ones(len(rows), grad.dtype)
    grad_bias = jnp.tensordot(ones, rows, axes=1, preferred_element_type=jnp.float32)
    return grad, grad_bias.astype(bias.dtype)


add_bias.defvjp(lambda x, bias: (x + bias, bias), _add_bias_backward)


class Dense(nn.Module):
    """A learned product, written as an einsum: Dense('BTD,DHK->BTHK', (D, H, K), names).

    names are the logical axes of the kernel, for sharding. Returns the compute dtype.

    use_bias: None means as the architecture has it.
    init_range: deviation of the initial kernel; None means the architecture's.
    """

    spec: str
    shape: tuple[int, ...]
    names: tuple[str | None, ...]
    architecture: Architecture
    compute: Compute
    use_bias: bool | None = None
    init_range: float | None = None

    @nn.compact
    def __call__(self, x):
        kernel = self.param(
            'kernel',
            nn.with_logical_partitioning(
                weight_init(self.architecture, self.init_range), self.names
            ),
            self.shape,
        )
        dtype = self.compute.activation_dtype
        x = product(self.spec, x, kernel, dtype)
        use_bias = self.architecture.biases if self.use_bias is None else self.use_bias
        if use_bias:
            x = add_bias(x, self._bias())
        return x.astype(dtype)

    def _bias(self):
        inputs, out = self.spec.split('->')
        kernel_letters = inputs.split(',')[1]
        features = [kernel_letters.index(letter) for letter in out if letter in kernel_letters]
        return self.param(
            'bias',
            nn.with_logical_partitioning(
                nn.initializers.zeros, tuple(self.names[i] for i in features)
            ),
            tuple(self.shape[i] for i in features),
        )


CUT = 0.8796  # the deviation of a normal distribution of deviation 1 cut at two deviations


def weight_init(architecture: Architecture, deviation: float | None = None):
    """Normal of deviation initializer_range (or the one given) cut at two deviations and, as in the
    original code (tf.truncated_normal_initializer in modeling.py), not rescaled after the cut."""
    return nn.initializers.truncated_normal(deviation or architecture.initializer_range)


def output_init_range(architecture: Architecture) -> float:
    """The deviation of the kernels whose products are added to the residual stream."""
    if not architecture.scaled_output_init:
        return architecture.initializer_range
    return architecture.initializer_range / (2 * architecture.num_layers) ** 0.5
