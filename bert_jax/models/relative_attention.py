"""Relative attention of Transformer-XL and XLNet, for one stream of states or two.

Dai et al. 2019, arXiv 1901.02860, section 3.3; Yang et al. 2019, arXiv 1906.08237, sections 2.4 and
2.5.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from bert_jax.models.attention import Attention, Context
from bert_jax.models.linear import product, weight_init
from bert_jax.models.partitioning import param
from bert_jax.models.visibility import MASKED, RelativeInputs


class RelativeAttention(Attention):
    """Scores ((q + w)·k + (q + r)·d + (q + s)·e) / √K with learned biases w, r and s of each head.

    d is the projected vector of the distance from key to query, e one of two vectors, for equal and
    for different token types. Keys and values are those of the first T states.
    """

    def setup(self) -> None:
        super().setup()
        self.position = self.projection(use_bias=False)
        shape = (self.architecture.num_heads, self.architecture.head_size)
        names, init = ('heads', 'head_dim'), weight_init(self.architecture)
        self.content_bias_HK = param(self, 'content_bias', init, shape, names)
        self.position_bias_HK = param(self, 'position_bias', init, shape, names)
        self.type_bias_HK = param(self, 'type_bias', init, shape, names)
        self.type_vectors_2HK = param(self, 'type_vectors', init, (2, *shape), (None, *names))

    def source(self, x_BTD: jax.Array, context: Context) -> jax.Array:
        """Return the content stream, whose tokens both streams attend to."""
        extra_BP = _inputs(context).extra_BP
        return x_BTD if extra_BP is None else x_BTD[:, : x_BTD.shape[1] - extra_BP.shape[1]]

    def scores(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        context: Context,
        seeds_B: jax.Array | None,
    ) -> jax.Array:
        """Return fp32 [B, H, X, U], with −10⁹ added where a key is not visible."""
        dtype, relative = self.compute.activation_dtype, _inputs(context)
        query_BXHK, length = query_BTHK.astype(jnp.float32), key_BUHK.shape[1]
        scores_BHXU = product('BXHK,BUHK->BHXU', query_BXHK + self.content_bias_HK, key_BUHK, dtype)
        distance_YRHK = self.position(relative.vectors_YRD)
        scores_BHXU += self._position_scores(
            query_BXHK + self.position_bias_HK, distance_YRHK, relative.extra_BP, length
        )
        if relative.differs_BXU is not None:
            operands = (query_BXHK + self.type_bias_HK, self.type_vectors_2HK)
            scores_BHX2 = product('BXHK,CHK->BHXC', *operands, dtype)
            same_BHX1, other_BHX1 = jnp.split(scores_BHX2, 2, axis=-1)
            scores_BHXU += jnp.where(relative.differs_BXU[:, None], other_BHX1, same_BHX1)
        scores_BHXU *= self.score_scale
        return (
            scores_BHXU if relative.bias_BXU is None else scores_BHXU + relative.bias_BXU[:, None]
        )

    def _position_scores(
        self,
        query_BXHK: jax.Array,
        distance_YRHK: jax.Array,
        extra_BP: jax.Array | None,
        length: int,
    ) -> jax.Array:
        """Return the products of queries and distance vectors for each query and key."""
        dtype, operand = self.compute.activation_dtype, distance_YRHK
        spec = 'BXHK,BRHK->BHXR'
        if distance_YRHK.shape[0] == 1:
            spec, operand = 'BXHK,RHK->BHXR', distance_YRHK[0]
        scores_BHXR = product(spec, query_BXHK, operand, dtype)
        if extra_BP is None:
            return _shift(scores_BHXR, length)
        extra_BHPU = _windows(scores_BHXR[:, :, length:], length - extra_BP, length)
        return jnp.concatenate([_shift(scores_BHXR[:, :, :length], length), extra_BHPU], axis=2)


def _inputs(context: Context) -> RelativeInputs:
    assert context.relative is not None
    return context.relative


def distance_vectors(length: int, size: int) -> jax.Array:
    """Return sinusoids of the distances T, T − 1, …, 1 − T from key to query: float32 [2T, D].

    [sin(d ω), cos(d ω)] with ω = 10,000^(−2j / D) for j < D / 2.
    """
    frequency_J = 1 / 10_000 ** (np.arange(0, size, 2) / size)
    distance_R = (length - jnp.arange(2 * length)).astype(jnp.float32)
    angle_RJ = distance_R[:, None] * jnp.asarray(frequency_J, jnp.float32)
    return jnp.concatenate([jnp.sin(angle_RJ), jnp.cos(angle_RJ)], axis=-1)


def visibility_bias(ranks_BT: jax.Array, extra_BP: jax.Array | None) -> jax.Array:
    """Return the bias of the order in `Rows.ranks_BT`: float32 [B, T + P, T].

    A position of the content stream sees itself, too; one of the query stream does not.
    """
    length = ranks_BT.shape[1]
    rank_BT1 = jnp.maximum(ranks_BT, 0)[:, :, None]
    sees_BTT = (ranks_BT[:, None, :] < rank_BT1) | jnp.eye(length, dtype=bool)
    if extra_BP is not None:
        extra_BP1 = jnp.take_along_axis(rank_BT1[..., 0], extra_BP, axis=1)[:, :, None]
        sees_BTT = jnp.concatenate([sees_BTT, ranks_BT[:, None, :] < extra_BP1], axis=1)
    return jnp.where(sees_BTT, 0.0, MASKED)


def _shift(scores_BHTR: jax.Array, length: int) -> jax.Array:
    """[B, H, T, T]: entry [t, u] is the score of query t and distance t − u.

    Without the first T of 2 T² values, each query's scores start one value earlier in its row.
    """
    if is_symbolic_dim(length):  # ONNX has no squares of symbolic lengths
        t_T = jnp.arange(length)
        rows_TU = length - t_T[:, None] + t_T
        return jnp.take_along_axis(scores_BHTR, rows_TU[None, None], -1, mode='promise_in_bounds')
    leading = scores_BHTR.shape[:2]
    flat_BHX = scores_BHTR.reshape(*leading, 2 * length * length)[..., length:]
    return flat_BHX.reshape(*leading, length, 2 * length - 1)[..., :length]


def _windows(scores_BHPR: jax.Array, first_BP: jax.Array, length: int) -> jax.Array:
    """[B, H, P, T]: the scores of each query for T distances, which start at first_BP."""

    def window(scores_HR: jax.Array, first: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(scores_HR, first, length, axis=1)

    of_queries = jax.vmap(window, in_axes=(1, 0), out_axes=1)
    windows_BHPT: jax.Array = jax.vmap(of_queries)(scores_BHPR, first_BP)
    return windows_BHPT
