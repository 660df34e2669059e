"""Multi-head self-attention (Vaswani et al. 2017, section 3.2) and its position encodings."""

import dataclasses
import functools
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture
from bert_jax.models.architecture_parts import Rotary
from bert_jax.models.dropout import weight_dropout
from bert_jax.models.linear import Dense, output_init_range, product
from bert_jax.models.module import Module
from bert_jax.models.partitioning import constrain
from bert_jax.models.visibility import Distances, RelativeInputs, Visibility, alibi_slopes

if TYPE_CHECKING:
    from bert_jax.models.cache import KeysValues, Memory


class Context(NamedTuple):
    """Inputs that all layers share.

    Attributes:
        visibility: which positions attend to which, without the layer's window.
        source_BTD: states from which keys and values are computed; None: the states of the queries.
        relative_RD: disentangled attention: vectors of distances.
        rows_TU: disentangled attention: int32, the row of relative_RD for each query and key.
        relative: relative attention: distances, token types and the query stream.
        memory: decoder: the encoder's output, to which all layers attend.
        bias_XHTU: attention with a relative bias: fp32, added to the scores, X is 1 or B.
    """

    visibility: Visibility
    source_BTD: jax.Array | None = None
    relative_RD: jax.Array | None = None
    rows_TU: jax.Array | None = None
    relative: RelativeInputs | None = None
    bias_XHTU: jax.Array | None = None
    memory: 'Memory | None' = None


class RelativeModule(Module):
    """Adds the values of relative positions that all layers share to their context."""

    def __call__(self, context: Context, num_queries: int, num_keys: int) -> Context:
        """Return the context of the layers for rows with this number of queries and keys."""
        raise NotImplementedError


class Prefix(NamedTuple):
    """Keys and values of prefix tuning, to which all queries attend.

    Attributes:
        scores_BHTL: fp32, the scaled dot products of queries and keys.
        values_LHK: the values.
    """

    scores_BHTL: jax.Array
    values_LHK: jax.Array


@flax.struct.dataclass
class LayerConstants:
    """Constants that differ between layers.

    Attributes:
        window: the largest attended distance; None: unlimited. Static: kernels depend on it.
    """

    window: int | None = flax.struct.field(pytree_node=False, default=None)


def layer_constants(architecture: Architecture) -> list[LayerConstants]:
    """The constants of each layer."""
    return list(map(LayerConstants, architecture.layer_windows))


class Attention(Module):
    """softmax(Q Kᵀ / √K + bias) V, per head, and an output projection.

    With `mutable='intermediates'`, stores the fp32 probabilities before dropout as `attention_BHTU`
    (encoders.transformer.attention_probabilities), which rules out the kernels of kernels.py.

    Attributes:
        relative_positions: module of the values that all layers share, if there are any.
        has_cache: whether keys do not depend on later positions, so that they can be kept.
    """

    relative_positions: ClassVar[type[RelativeModule] | None] = None
    has_cache: ClassVar[bool] = True

    def setup(self) -> None:
        architecture = self.architecture
        query_range = None
        if architecture.fan_in_init:  # T5: the scale of scores is in the initial queries
            query_range = float((architecture.hidden_size * architecture.head_size) ** -0.5)
        self.query = self.projection(init_range=query_range)
        self.value = self.projection(heads=self.architecture.num_kv_heads)
        self.key = self.key_projection()
        self.output = self.make_dense(
            'BTHK,HKD->BTD',
            (architecture.num_heads, architecture.head_size, architecture.hidden_size),
            ('heads', 'head_dim', 'embed'),
            use_bias=architecture.biases.attention != 'none',
            init_range=output_init_range(architecture),
        )
        if self._has_qk_norm:
            self.query_norm, self.key_norm = self.make_norm(), self.make_norm()
        self.tuning = self.make_tuning('attention')

    @property
    def _has_qk_norm(self) -> bool:
        attention = self.architecture.attention
        return attention.kind in ('standard', 'rotary') and attention.qk_norm

    def key_projection(self) -> Dense:
        """A learned projection from states to keys."""
        has_bias = self.architecture.biases.attention == 'all'
        return self.projection(has_bias, heads=self.architecture.num_kv_heads)

    def projection(
        self,
        use_bias: bool | None = None,
        init_range: float | None = None,
        heads: int | None = None,
    ) -> Dense:
        """A learned projection from states to `heads` heads, by default those of queries."""
        architecture = self.architecture
        heads = heads or architecture.num_heads
        shape = (architecture.hidden_size, heads, architecture.head_size)
        names = ('embed', self._heads_axis(heads), 'head_dim')
        if use_bias is None:
            use_bias = architecture.biases.attention != 'none'
        options = dict(use_bias=use_bias, init_range=init_range)
        return self.make_dense('BTD,DHK->BTHK', shape, names, **options)

    def __call__(
        self,
        x_BTD: jax.Array,
        constants: LayerConstants,
        context: Context,
        seeds_B: jax.Array | None,
        past: 'KeysValues | None' = None,
    ) -> 'tuple[jax.Array, KeysValues | None]':
        """Attend.

        Args:
            x_BTD: states.
            constants: of this layer.
            context: shared by all layers.
            seeds_B: uint32 dropout seeds; None for evaluation.
            past: keys and values of earlier positions, which are attended to as well. Positions of
                the queries are in the visibility.

        Returns:
            [B, T, D], and `past` with the keys and values of the queries' positions.
        """
        source_BTD = self.source(x_BTD, context)
        projected = (self.query(x_BTD), self.key(source_BTD), self.value(source_BTD))
        query_BTHK, key_BUHK, value_BUHK = (
            constrain(x_BTHK, ('batch', 'length', self._heads_axis(x_BTHK.shape[2]), 'head_dim'))
            for x_BTHK in projected
        )
        if self._has_qk_norm:
            query_BTHK, key_BUHK = self.query_norm(query_BTHK), self.key_norm(key_BUHK)
        prefix = self._prefix(query_BTHK)
        positions_BT = context.visibility.query_positions_BT
        query_BTHK, key_BUHK = self.encode_positions(query_BTHK, key_BUHK, constants, positions_BT)
        if past is not None:
            assert positions_BT is not None
            past = past.write(key_BUHK, value_BUHK, positions_BT)
            key_BUHK, value_BUHK = past.key_BUHK, past.value_BUHK
        key_BUHK, value_BUHK = self._for_queries(key_BUHK), self._for_queries(value_BUHK)
        window, length = constants.window, key_BUHK.shape[1]
        if window is not None and not is_symbolic_dim(length) and window >= length - 1:
            window = None
        visibility = dataclasses.replace(context.visibility, window=window, slopes_H=self.slopes())
        states = (query_BTHK, key_BUHK, value_BUHK)
        return self.output(self.attend(*states, visibility, prefix, context, seeds_B)), past

    def _heads_axis(self, heads: int) -> str:
        """The logical axis of some heads; shared ones may be too few to be sharded."""
        return 'heads' if heads == self.architecture.num_heads else 'kv_heads'

    def _for_queries(self, x_BUGK: jax.Array) -> jax.Array:
        """[B, U, H, K]: the keys or values that each head of queries reads."""
        repeats = self.architecture.num_heads // x_BUGK.shape[2]
        if repeats == 1:
            return x_BUGK
        axes = ('batch', 'length', 'heads', 'head_dim')
        return constrain(jnp.repeat(x_BUGK, repeats, axis=2), axes)

    def attend(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        value_BUHK: jax.Array,
        visibility: Visibility,
        prefix: Prefix | None,
        context: Context,
        seeds_B: jax.Array | None,
    ) -> jax.Array:
        """[B, T, H, K]: weighted sums of the values, computed by the best available kernel."""
        length, num_keys = query_BTHK.shape[1], key_BUHK.shape[1]
        rate = self.architecture.attention_dropout
        states, dtype = (query_BTHK, key_BUHK, value_BUHK), self.compute.activation_dtype
        is_training = seeds_B is not None
        kernel = self.kernel(length, is_training, visibility)
        has_past = visibility.query_positions_BT is not None
        is_recorded = self.is_mutable_collection('intermediates')
        if prefix is None and not has_past and not is_recorded:
            if kernel != 'xla':
                distances = self.distances(query_BTHK, context, seeds_B)
                return kernels.attend(kernel, *states, visibility, rate, seeds_B, distances)
            has_relative = context.relative_RD is not None or context.bias_XHTU is not None
            if visibility.is_local(length) and not has_relative:
                from bert_jax.models import local_attention  # few encoders have windows

                return local_attention.attend(*states, visibility, rate, seeds_B)
        scores_BHTU = self.scores(query_BTHK, key_BUHK, context, seeds_B)
        scores_BHTU += visibility.bias(length, num_keys)
        if prefix is not None:
            scores_BHTU = jnp.concatenate([scores_BHTU, prefix.scores_BHTL], axis=-1)
        weights_BHTU = jax.nn.softmax(scores_BHTU)
        self.sow('intermediates', 'attention_BHTU', weights_BHTU[..., :num_keys])
        weights_BHTU = weight_dropout(weights_BHTU, rate, seeds_B)
        output_BTHK = product('BHTU,BUHK->BTHK', weights_BHTU[..., :num_keys], value_BUHK, dtype)
        if prefix is not None:
            weights_BHTL = weights_BHTU[..., num_keys:]
            output_BTHK += product('BHTL,LHK->BTHK', weights_BHTL, prefix.values_LHK, dtype)
        return output_BTHK.astype(dtype)

    def source(self, x_BTD: jax.Array, context: Context) -> jax.Array:
        """Return the states from which keys and values are computed."""
        return x_BTD if context.source_BTD is None else context.source_BTD

    def kernel(self, length: int, is_training: bool, visibility: Visibility) -> str:
        """The kernel for rows of this length, 'xla' or an argument of `kernels.attend`."""
        settings = (self.architecture, self.compute, length, is_training)
        return kernels.choose(*settings, visibility.pattern)

    def _prefix(self, query_BTHK: jax.Array) -> Prefix | None:
        """The tuned prefix of this layer, if any; its scores do not depend on positions."""
        if self.tuning is None:
            return None
        keys_LHK, values_LHK = self.tuning()
        dtype = self.compute.activation_dtype
        scores_BHTL = product('BTHK,LHK->BHTL', query_BTHK, keys_LHK, dtype)
        return Prefix(scores_BHTL * self.score_scale, values_LHK)

    def scores(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        context: Context,
        seeds_B: jax.Array | None,
    ) -> jax.Array:
        """fp32 [B, H, T, U]: scaled dot products of queries and keys."""
        dtype = self.compute.activation_dtype
        scores_BHTU = product('BTHK,BUHK->BHTU', query_BTHK, key_BUHK, dtype)
        return scores_BHTU * self.score_scale

    @property
    def score_scale(self) -> float:
        """The factor of dot products of queries and keys."""
        return float(self.architecture.head_size**-0.5)

    def encode_positions(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        constants: LayerConstants,
        positions_BT: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Encode positions in queries and keys; standard attention returns them unchanged.

        Args:
            query_BTHK: queries.
            key_BUHK: keys, of the same positions.
            constants: of this layer.
            positions_BT: int32; None: 0, 1, 2, ….
        """
        return query_BTHK, key_BUHK

    def distances(
        self, query_BTHK: jax.Array, context: Context, seeds_B: jax.Array | None
    ) -> Distances | None:
        """The distance terms of `scores`, in the form that kernels take; None: no such terms."""
        return None

    def slopes(self) -> np.ndarray | None:
        """fp32 [H]: the penalty on scores per unit of distance; None: no penalty."""
        return None


@functools.lru_cache(maxsize=16)  # the same arrays for all layers: a program has them once
def known_rotations(length: int, rotary: Rotary, num_features: int) -> kernels.Rotations:
    """The rotations of positions 0, 1, 2, …, as constants.

    If they were computed in the program, XLA would repeat their sines for every head and row on
    CPU.
    """
    positions_T = np.arange(length, dtype=np.float32)
    angles_TJ = positions_T[:, None] * rotation_frequencies(rotary, num_features)
    return kernels.Rotations(np.cos(angles_TJ), np.sin(angles_TJ))


def rotation_frequencies(rotary: Rotary, num_features: int) -> np.ndarray:
    """fp32 [J]: θ^(-2j/K) / factor, the angle per position of each pair of a head's K features."""
    exponents_J = np.arange(0, num_features, 2) / num_features
    frequencies_J = 1 / rotary.theta**exponents_J / rotary.factor
    return frequencies_J.astype(rotary.precision).astype(np.float32)


class RotaryAttention(Attention):
    """Rotates queries and keys by angles proportional to their positions.

    RoFormer (Su et al. 2021, arXiv 2104.09864); features k and k + K/2 form a pair.
    """

    def encode_positions(
        self,
        query_BTHK: jax.Array,
        key_BUHK: jax.Array,
        constants: LayerConstants,
        positions_BT: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        attention, num_features = self.architecture.attention, self.architecture.head_size
        assert isinstance(attention, Rotary)
        rotary = attention if constants.window is None else attention.local
        length = query_BTHK.shape[1]
        if positions_BT is None and not is_symbolic_dim(length):
            rotations = known_rotations(length, rotary, num_features)
        else:
            positions_XT = jnp.arange(length) if positions_BT is None else positions_BT
            frequencies_J = rotation_frequencies(rotary, num_features)
            angles_XTJ = positions_XT[..., None] * frequencies_J
            rotations = kernels.Rotations(jnp.cos(angles_XTJ), jnp.sin(angles_XTJ))
        return kernels.rotate(query_BTHK, rotations), kernels.rotate(key_BUHK, rotations)


class AlibiAttention(Attention):
    """Scores fall linearly with the distance in both directions, at a fixed rate per head.

    ALiBi (Press et al. 2022, arXiv 2108.12409).
    """

    def slopes(self) -> np.ndarray | None:
        return alibi_slopes(self.architecture.num_heads)
