"""Linear projections: inputs in the compute dtype, sums in fp32, forward and backward."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import cpu_linear
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.initial_values import normal, truncated_normal
from bert_jax.models.partitioning import param, platform
from bert_jax.models.tuning_method import ADDED

# Standard deviation of a standard normal distribution truncated at two standard deviations.
TRUNCATED_STDDEV = 0.8796
FLOAT32 = jnp.dtype(jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3, 4))
def product(
    spec: str, a: jax.Array, b: jax.Array, dtype: jnp.dtype, out: jnp.dtype = FLOAT32
) -> jax.Array:
    """einsum of two arrays cast to `dtype`, summed in fp32 and returned in `out`.

    Products of the backward pass cast to `dtype` and sum in fp32 as well; automatic differentiation
    would multiply fp32 gradients by bf16 operands. Every letter of an operand must occur in the
    other operand or in the result.
    """
    return _einsum(spec, a, b, dtype, out)


def _product_forward(
    spec: str, a: jax.Array, b: jax.Array, dtype: jnp.dtype, out: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _einsum(spec, a, b, dtype, out), (a, b)


def _product_backward(
    spec: str,
    dtype: jnp.dtype,
    out: jnp.dtype,
    operands: tuple[jax.Array, jax.Array],
    grad: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    a, b = operands
    inputs, result = spec.split('->')
    spec_a, spec_b = inputs.split(',')
    grad_a = _einsum(f'{result},{spec_b}->{spec_a}', grad, b, dtype, a.dtype)
    grad_b = _einsum(f'{result},{spec_a}->{spec_b}', grad, a, dtype, b.dtype)
    return grad_a, grad_b


product.defvjp(_product_forward, _product_backward)


def _einsum(spec: str, a: jax.Array, b: jax.Array, dtype: jnp.dtype, out: jnp.dtype) -> jax.Array:
    a, b = a.astype(dtype), b.astype(dtype)
    if platform() == 'cpu':
        sums = cpu_linear.einsum(spec, a, b, preferred_element_type=jnp.float32)
        return sums.astype(out)
    # A GPU's products are kernels of their own: sums in fp32 would be written to memory and read
    # again. TPUs convert within the product.
    stored = out if platform() == 'gpu' else FLOAT32
    product: jax.Array = jnp.einsum(
        spec, a, b, precision=precision_of(dtype), preferred_element_type=stored
    )
    return product.astype(out)


def precision_of(dtype: jnp.dtype) -> str | None:
    """Return the precision of products of operands in `dtype`: float32 is not rounded.

    By default, NVIDIA GPUs round float32 operands to 10 bits of mantissa (TF32), TPUs to 7 (bf16).
    """
    return 'highest' if dtype == jnp.float32 else None


def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """x [..., features] + bias [features], with any number of feature dimensions."""
    if platform() == 'cpu':
        return cpu_linear.add_bias(x, bias)
    return _add_rounded_bias(x, bias) if x.dtype != bias.dtype else x + bias


@jax.custom_vjp
def _add_rounded_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """`add_bias` in the dtype of x, which cuBLAS does within the product; sums rows in fp32."""
    return x + bias.astype(x.dtype)


def _rounded_bias_backward(bias: jax.Array, grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows = tuple(range(grad.ndim - bias.ndim))
    return grad, grad.astype(bias.dtype).sum(rows)


_add_rounded_bias.defvjp(lambda x, bias: (_add_rounded_bias(x, bias), bias), _rounded_bias_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def add_bias_of_heads(x: jax.Array, bias: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`add_bias` for projections to heads on TPU, whose gradients come from an attention kernel.

    XLA cannot fuse the sum of these gradients over rows with their computation. A product with
    eight rows of ones, which fill a register, takes 1/12 of the time by the compiler's estimate;
    with one row of ones the compiler turns the product back into a sum.
    """
    return x + bias


def _bias_of_heads_backward(
    dtype: jnp.dtype, bias: jax.Array, grad: jax.Array
) -> tuple[jax.Array, jax.Array]:
    rows = grad.reshape(-1, len(bias)).astype(dtype)
    ones, precision = jnp.ones((8, len(rows)), dtype), jax.lax.Precision.HIGHEST
    grad_bias = jnp.matmul(ones, rows, precision=precision, preferred_element_type=jnp.float32)[0]
    return grad, grad_bias.astype(bias.dtype)


add_bias_of_heads.defvjp(lambda x, bias, dtype: (x + bias, bias), _bias_of_heads_backward)


class Dense(nn.Module):
    """A learned projection, written as an einsum: Dense('BTD,DHK->BTHK', (D, H, K), names, …).

    Returns the compute dtype.

    Attributes:
        spec: einsum of input and kernel.
        shape: of the kernel.
        names: logical axes of the kernel, for sharding (partitioning.py).
        use_bias: None: as the architecture's `biases.others`.
        init_range: standard deviation of the initial kernel before truncation; None: the
            architecture's initializer_range, or with fan_in_init 1/√inputs (T5, without
            truncation).
    """

    spec: str
    shape: tuple[int, ...]
    names: tuple[str | None, ...]
    architecture: Architecture
    compute: Compute
    use_bias: bool | None = None
    init_range: float | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = self.compute.activation_dtype
        inputs, out = self.spec.split('->')
        x_letters, kernel_letters = inputs.split(',')
        num_inputs = sum(letter in x_letters for letter in kernel_letters)
        init = self._init(math.prod(self.shape[:num_inputs]))
        kernel = param(self, 'kernel', init, self.shape, self.names)
        is_to_heads = out.endswith('HK')
        # Merge heads and features: as separate axes, TPUs pad each head to a register and copy.
        spec = self.spec.replace('HK', 'F')
        use_bias = self.architecture.biases.others if self.use_bias is None else self.use_bias
        bias = self._bias(kernel_letters, out) if use_bias else None

        def project(x: jax.Array) -> jax.Array:
            operands = (_merge_heads(x_letters, x), _merge_heads(kernel_letters, kernel))
            # On GPUs, sums are rounded before the bias is added: the kernel writes fewer bytes.
            x = product(spec, *operands, dtype, dtype if platform() == 'gpu' else FLOAT32)
            if bias is None:
                return x
            if not is_to_heads:
                return add_bias(x, bias)
            if platform() == 'tpu':
                return add_bias_of_heads(x, bias.reshape(-1), dtype)
            return add_bias(x, bias.reshape(-1))

        tuning = self._tuning(num_inputs)
        x = (project(x) if tuning is None else tuning(project, x)).astype(dtype)
        return x.reshape(*x.shape[:-1], *self.shape[-2:]) if is_to_heads else x

    def _init(self, inputs: int) -> Callable[..., jax.Array]:
        if self.architecture.fan_in_init:
            return normal(self.init_range or inputs**-0.5)
        return weight_init(self.architecture, self.init_range)

    def _tuning(self, num_inputs: int) -> nn.Module | None:
        """The tuning module; `num_inputs` dimensions of the kernel are inputs."""
        method = self.architecture.tuning
        module = None if method is None else method.dense_module('/'.join(self.path[-2:]))
        if module is None:
            return None
        settings = (self.architecture, self.compute, self.shape, self.names, num_inputs)
        return module(*settings, name=ADDED)

    def _bias(self, kernel_letters: str, out: str) -> jax.Array:
        features = [kernel_letters.index(letter) for letter in out if letter in kernel_letters]
        shape = tuple(self.shape[i] for i in features)
        names = tuple(self.names[i] for i in features)
        return param(self, 'bias', nn.initializers.zeros, shape, names)


def _merge_heads(letters: str, x: jax.Array) -> jax.Array:
    """[…, H, K, …] → […, H · K, …]; other arrays unchanged."""
    axis = letters.find('HK')
    return x if axis < 0 else x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])


def weight_init(
    architecture: Architecture, stddev: float | None = None
) -> Callable[..., jax.Array]:
    """Truncated normal initializer; `stddev` defaults to the architecture's initializer_range.

    With fan_in_init it is for embeddings only, whose standard deviation is 1.
    """
    if architecture.fan_in_init:
        return normal(1.0 if stddev is None else stddev)
    return truncated_normal(architecture.initializer_range if stddev is None else stddev)


def output_init_range(architecture: Architecture) -> float | None:
    """Return the init_range of kernels that write to the residual stream."""
    if architecture.fan_in_init:
        return None
    if architecture.zero_output_init:
        return 0.0
    if not architecture.scaled_output_init:
        return architecture.initializer_range
    return float(architecture.initializer_range / (2 * architecture.num_layers) ** 0.5)
