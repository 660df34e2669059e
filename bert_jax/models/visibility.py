"""What attention scores depend on besides the states, as every attention kernel reads it."""

import math
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

# Finite, so that a row of padding gives equal weights instead of NaN; large enough that adding any
# other score does not change it in fp32.
MASKED = -1e9
# Maximum positions of a row in the TPU kernel: more do not fit into on-chip memory.
MAX_ROW = 32768
MAX_ROW_WITH_DISTANCES = 4096
_MIN_BLOCK = 64  # queries; smaller products are inefficient


class Pattern(NamedTuple):
    """How attention differs from causal attention and from attention in both directions.

    Attributes:
        has_causal_rows: whether it is causal in some of the rows.
        has_prefix: whether causal positions also see the later positions of a prefix.
    """

    has_causal_rows: bool = False
    has_prefix: bool = False


@flax.struct.dataclass
class Visibility:
    """Which keys a query attends to, and the penalty on their distance.

    Attributes:
        attention_mask_BU: int, 1 for tokens and 0 for padding, which is not attended to. None: no
            padding.
        segment_ids_BT: int32; positions attend only to positions with the same segment id. None:
            one sequence per row.
        key_segment_ids_BU: segment ids of the keys; None: as segment_ids_BT.
        slopes_H: fp32, subtracted from scores per unit of distance (ALiBi). None: no penalty.
        window: the largest attended distance. None: unlimited.
        is_causal: positions do not attend to later positions, except to those of a prefix.
        causal_B: bool, rows whose positions do not attend to later positions, although is_causal is
            False. None: no row.
        is_prefix_BU: int, 1 for keys that earlier queries see too, although is_causal is True: a
            prompt that sees itself in both directions (a prefix language model). None: no key.
        first_key: position of the first key relative to the first query.
        query_positions_BT: int32, positions of the queries, for queries that continue the keys; the
            keys have the positions 0, 1, 2, …. None: 0, 1, 2, …, the first key as above.
        is_padding_checked: rows whose padding is not last are NaN already (kernels.check_padding).
    """

    attention_mask_BU: jax.Array | None
    segment_ids_BT: jax.Array | None = None
    key_segment_ids_BU: jax.Array | None = None
    slopes_H: jax.Array | np.ndarray | None = None
    window: int | None = flax.struct.field(pytree_node=False, default=None)
    is_causal: bool = flax.struct.field(pytree_node=False, default=False)
    first_key: int = flax.struct.field(pytree_node=False, default=0)
    query_positions_BT: jax.Array | None = None
    causal_B: jax.Array | None = None
    is_prefix_BU: jax.Array | None = None
    is_padding_checked: bool = flax.struct.field(pytree_node=False, default=False)

    @property
    def pattern(self) -> Pattern:
        """What differs from causal attention and from attention in both directions."""
        return Pattern(self.causal_B is not None, self.is_prefix_BU is not None)

    def is_local(self, length: int) -> bool:
        """Whether to compute in blocks: if a block has at most three quarters of the row's keys.

        With more keys, blocks are not faster (on CPU, window 64). False for a symbolic length, and
        with a prefix, which blocks do not support.
        """
        if self.window is None or self.is_prefix_BU is not None or is_symbolic_dim(length):
            return False
        return block_size(self.window) + 2 * self.window <= 0.75 * length

    def bias(self, num_queries: int, num_keys: int) -> jax.Array:
        """Return the bias to add to attention scores, fp32 [1 or B, 1 or H, 1 or T, U]."""
        query_XT = jnp.arange(num_queries)  # a constant would not allow symbolic lengths
        if self.query_positions_BT is not None:
            query_XT = self.query_positions_BT[:, None]  # an axis for the heads
        distance_XTU = query_XT[..., None] - (jnp.arange(num_keys) + self.first_key)
        is_visible = jnp.ones((1, 1, 1, num_keys), bool)
        if self.attention_mask_BU is not None:
            is_visible = self.attention_mask_BU[:, None, None, :] > 0
        if self.segment_ids_BT is not None:
            query_BT, key_BU = self.segment_ids_BT, self.key_segment_ids_BU
            key_BU = query_BT if key_BU is None else key_BU
            is_visible = is_visible & (query_BT[:, None, :, None] == key_BU[:, None, None, :])
        if self.is_causal:
            is_earlier = distance_XTU >= 0
            if self.is_prefix_BU is not None:
                is_earlier = is_earlier | (self.is_prefix_BU[:, None, None, :] > 0)
            is_visible = is_visible & is_earlier
        if self.causal_B is not None:
            sees_later_B = ~self.causal_B[:, None, None, None]
            is_visible = is_visible & (sees_later_B | (distance_XTU >= 0))
        if self.window is not None:
            is_visible = is_visible & (abs(distance_XTU) <= self.window)
        if self.slopes_H is None:
            return jnp.where(is_visible, 0.0, MASKED)
        penalty_XHTU = jnp.asarray(self.slopes_H)[:, None, None] * abs(distance_XTU)
        return jnp.where(is_visible, -penalty_XHTU, MASKED)

    def segments(self, num_queries: int) -> tuple[jax.Array, jax.Array] | None:
        """Return ids of queries and keys, int32 [B, T] and [B, U]: equal ids see each other.

        Padding has an id that no query has. None: neither segments nor padding.
        """
        query_BT, key_BU = self.segment_ids_BT, self.key_segment_ids_BU
        key_BU = query_BT if key_BU is None else key_BU
        if self.attention_mask_BU is None:
            return None if query_BT is None or key_BU is None else (query_BT, key_BU)
        if query_BT is None or key_BU is None:
            query_BT = jnp.zeros((len(self.attention_mask_BU), num_queries), jnp.int32)
            key_BU = jnp.int32(0)
        padding = jnp.iinfo(jnp.int32).max
        return query_BT, jnp.where(self.attention_mask_BU > 0, key_BU, padding)


def block_size(window: int) -> int:
    """Return the number of queries of a block of local attention (local_attention.py)."""
    return max(window, _MIN_BLOCK)


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Return the slopes of ALiBi, fp32 [H] (Press et al. 2022, arXiv 2108.12409).

    2^(−8 h / H) for h = 1 … H if H is a power of two; otherwise the slopes of the next smaller
    power of two and every second slope of the next larger (get_slopes of the ALiBi authors).
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[: num_heads - power], np.float32)


@flax.struct.dataclass
class Distances:
    """Terms of attention scores that depend on the distance of query and key.

    Scores are (q·k + q·k' + q'·k) · scale, with the key k' and the query q' of the distance.

    Attributes:
        key_BRHK: k' for key − query = −T … T − 1, R = 2 T. None: no such term.
        query_BRHK: q' for query − key = −T … T − 1. None: no such term.
        scale: factor of all scores.
    """

    key_BRHK: jax.Array | None
    query_BRHK: jax.Array | None
    scale: float = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class RelativeInputs:
    """What scores of relative attention depend on (relative_attention.py).

    Queries X are the T positions of a row and, after them, the P states of a query stream.

    Attributes:
        vectors_YRD: `distance_vectors`, with Y = B if dropout makes them differ, else Y = 1.
        differs_BXU: bool, whether query and key have different token types; None: none have.
        bias_BXU: float32, added to the scores: which keys a query sees; None: all.
        extra_BP: int32, the positions of the P queries after the T positions; None: P = 0.
    """

    vectors_YRD: jax.Array
    differs_BXU: jax.Array | None = None
    bias_BXU: jax.Array | None = None
    extra_BP: jax.Array | None = None
