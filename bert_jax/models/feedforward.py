"""Activation functions and the position-wise feed-forward part of a block."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.dropout import dropout
from bert_jax.models.linear import output_init_range
from bert_jax.models.module import Module
from bert_jax.models.partitioning import constrain, platform


def gelu(x: jax.Array) -> jax.Array:
    """Exact GELU, x·Φ(x) (Hendrycks & Gimpel 2016), in fp32; the backward pass keeps one array."""
    return gelu_keeping_input(x) if platform() == 'cpu' else gelu_keeping_derivative(x)


@jax.checkpoint
def gelu_keeping_input(x: jax.Array) -> jax.Array:
    """GELU for CPUs; erf is cheaper there than jax.nn's erfc."""
    x32 = x.astype(jnp.float32)
    return (0.5 * x32 * (1 + jax.lax.erf(x32 * 0.5**0.5))).astype(x.dtype)


@jax.custom_vjp
def gelu_keeping_derivative(x: jax.Array) -> jax.Array:
    """GELU for accelerators, where the forward pass computes the derivative too.

    If erf and exp were computed in the backward pass, XLA would fuse them into matrix products and
    recompute them for each block: on TPU a layer of a base model would take 1.1 times as long by
    the compiler's estimate.
    """
    return _gelu_and_derivative(x)[0]


def _gelu_and_derivative(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """x·Φ(x) and Φ(x) + x·φ(x), in the dtype of x."""
    x32 = x.astype(jnp.float32)
    cumulative = 0.5 * (1 + jax.lax.erf(x32 * 0.5**0.5))
    density = jnp.exp(-0.5 * x32**2) * (2 * jnp.pi) ** -0.5
    return (x32 * cumulative).astype(x.dtype), (cumulative + x32 * density).astype(x.dtype)


gelu_keeping_derivative.defvjp(_gelu_and_derivative, lambda derivative, grad: (grad * derivative,))


def gelu_tanh(x: jax.Array) -> jax.Array:
    """The tanh approximation of GELU, as in google-research/bert, in fp32."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def silu(x: jax.Array) -> jax.Array:
    """x·σ(x) (Elfwing et al. 2018), also called swish, in fp32."""
    return jax.nn.silu(x.astype(jnp.float32)).astype(x.dtype)


# erf(x) / x as a ratio of polynomials in x², constant terms first: a minimax fit on [0, 3.9], where
# erf reaches 1 in fp32. The largest error of erf is 3.5e-7 in fp32.
_ERF_NUMERATOR = (
    1.12837899,
    0.191924393,
    0.0529647619,
    0.00383617333,
    0.000287442789,
    2.05053107e-06,
)
_ERF_DENOMINATOR = (1, 0.503420353, 0.114751369, 0.0151077984, 0.00118156651, 3.82314829e-05)
_ERF_LIMIT = 3.9


def gelu_rational(x: jax.Array) -> jax.Array:
    """`gelu` from sums, products and a division, for export formats without erf."""
    x32 = x.astype(jnp.float32)
    z = jnp.clip(x32 * 0.5**0.5, -_ERF_LIMIT, _ERF_LIMIT)
    numerator, denominator = (
        jnp.polyval(jnp.array(terms[::-1], jnp.float32), z * z, unroll=len(terms))
        for terms in (_ERF_NUMERATOR, _ERF_DENOMINATOR)
    )
    return (0.5 * x32 * (1 + z * numerator / denominator)).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    'gelu': gelu,
    'gelu_rational': gelu_rational,
    'gelu_tanh': gelu_tanh,
    'relu': jax.nn.relu,
    'relu_squared': lambda x: jnp.square(jax.nn.relu(x)),  # So et al. 2021, arXiv 2109.08668
    'silu': silu,
    'tanh': jnp.tanh,
}


class FeedForward(Module):
    """activation(x W₁ + b₁) W₂ + b₂ (Vaswani et al. 2017, section 3.3)."""

    @nn.compact
    def __call__(self, x_BTD: jax.Array, seeds_B: jax.Array | None = None) -> jax.Array:
        architecture = self.architecture
        output = self.make_dense(
            'BTF,FD->BTD',
            (architecture.intermediate_size, architecture.hidden_size),
            ('mlp', 'embed'),
            use_bias=architecture.biases.feed_forward != 'none',
            init_range=output_init_range(architecture),
            name='output',
        )
        inner_BTF = dropout(self.inner(x_BTD), architecture.feedforward_dropout, seeds_B)
        return output(constrain(inner_BTF, ('batch', 'length', 'mlp')))

    def inner(self, x_BTD: jax.Array) -> jax.Array:
        """Return the input of the second projection, [B, T, F]."""
        architecture = self.architecture
        shape = (architecture.hidden_size, architecture.intermediate_size)
        options = dict(use_bias=architecture.biases.feed_forward == 'all', name='input')
        dense = self.make_dense('BTD,DF->BTF', shape, ('embed', 'mlp'), **options)
        return ACTIVATIONS[architecture.hidden_act](dense(x_BTD))


@jax.custom_vjp
def split_gate(x_BTGF: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the gate and the value, [B, T, F] each; their gradients are stacked in one step.

    XLA would pad each of the two gradients with zeros and add them.
    """
    return x_BTGF[:, :, 0], x_BTGF[:, :, 1]


split_gate.defvjp(
    lambda x_BTGF: (split_gate(x_BTGF), None),
    lambda _, gradients: (jnp.stack(gradients, axis=2),),
)


class GatedFeedForward(FeedForward):
    """(activation(x W₁) · x V) W₂ + b₂ (Shazeer 2020, arXiv 2002.05202).

    W₁ and V are one kernel [D, 2, F], in this order.
    """

    def inner(self, x_BTD: jax.Array) -> jax.Array:
        architecture = self.architecture
        shape = (architecture.hidden_size, 2, architecture.intermediate_size)
        options = dict(use_bias=architecture.biases.feed_forward == 'all', name='input')
        x_BTGF = self.make_dense('BTD,DGF->BTGF', shape, ('embed', None, 'mlp'), **options)(x_BTD)
        gate_BTF, value_BTF = split_gate(x_BTGF)
        return ACTIVATIONS[architecture.hidden_act](gate_BTF) * value_BTF


FEEDFORWARDS: dict[str, type[FeedForward]] = {'dense': FeedForward, 'gated': GatedFeedForward}
