"""Limits and input types of the TPU attention kernel, importable without Pallas."""

import flax.struct
import jax

# Maximum positions of a row: the accumulators of longer rows do not fit into on-chip memory.
MAX_ROW = 32768
MAX_ROW_WITH_DISTANCES = 4096


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
