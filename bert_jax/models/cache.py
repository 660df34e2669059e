"""Keys and values of earlier positions, so that a new token needs one step of each layer.

A decoder also reads a `Memory`, the encoder's output, which does not change while it writes.

The cache of a row has a slot for each position, and slot u holds position u. A query at position p
attends to the slots 0 … p. Therefore slots from `length` on may hold anything: a position is
written before a query can see it. Rows of different lengths share a batch without padding between
their tokens.
"""

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.types import Array


class KeysValues(flax.struct.PyTreeNode):
    """Keys, with their positions encoded, and values of a layer, in the compute dtype."""

    key_BUHK: jax.Array
    value_BUHK: jax.Array

    def write(self, key_BTHK: jax.Array, value_BTHK: jax.Array, slot_BT: Array) -> 'KeysValues':
        """Return a copy with other keys and values in some slots; slots that do not exist drop."""
        row_B1 = jnp.arange(len(slot_BT))[:, None]

        def put(x_BUHK: jax.Array, new_BTHK: jax.Array) -> jax.Array:
            return x_BUHK.at[row_B1, slot_BT].set(new_BTHK.astype(x_BUHK.dtype), mode='drop')

        return KeysValues(put(self.key_BUHK, key_BTHK), put(self.value_BUHK, value_BTHK))


class Cache(flax.struct.PyTreeNode):
    """The keys and values of all layers for the first positions of each row.

    Attributes:
        layers: of each layer.
        length_B: int32, number of positions in use; the next token of a row has this position.
    """

    layers: tuple[KeysValues, ...]
    length_B: jax.Array

    @classmethod
    def empty(
        cls, architecture: Architecture, compute: Compute, num_rows: int, num_slots: int
    ) -> 'Cache':
        """Return a cache for rows of up to `num_slots` positions.

        Raises:
            UserError: more positions than the model has.
        """
        if num_slots > architecture.max_length:
            raise UserError(
                f'{num_slots} tokens exceed the {architecture.max_length} positions of the model '
                '(max_position_embeddings)'
            )
        shape = (num_rows, num_slots, architecture.num_kv_heads, architecture.head_size)
        zeros = jnp.zeros(shape, compute.activation_dtype)
        layers = (KeysValues(zeros, zeros),) * architecture.num_layers
        return cls(jax.tree.map(jnp.copy, layers), jnp.zeros(num_rows, jnp.int32))

    @property
    def num_slots(self) -> int:
        """The number of positions that fit."""
        return self.layers[0].key_BUHK.shape[1]

    def positions(self, num_tokens: int) -> jax.Array:
        """int32 [B, T]: the positions of the next tokens of each row."""
        return self.length_B[:, None] + jnp.arange(num_tokens)

    def slots_of(self, values_BT: Array) -> jax.Array:
        """[B, U]: values of the next tokens of each row at their slots, 0 elsewhere."""
        num_rows, num_tokens = values_BT.shape
        slots = jnp.zeros((num_rows, self.num_slots), values_BT.dtype)
        row_B1 = jnp.arange(num_rows)[:, None]
        return slots.at[row_B1, self.positions(num_tokens)].set(values_BT, mode='drop')

    def take(self, row_B: Array) -> 'Cache':
        """Return the cache of some of the rows, which may repeat: beams that continue others."""
        taken: Cache = jax.tree.map(lambda leaf: leaf[row_B], self)
        return taken


class Memory(flax.struct.PyTreeNode):
    """The encoder's output, as a decoder reads it.

    Attributes:
        states_BUD: the encoder's states.
        attention_mask_BU: int32, 1 for tokens and 0 for padding.
        segment_ids_BU: int32, for rows that pack several sequences: a position of the decoder
            attends to the positions with its segment id. None: one sequence per row.
        layers: keys and values of the states in each layer of the decoder; None: not computed yet.
    """

    states_BUD: jax.Array
    attention_mask_BU: jax.Array
    segment_ids_BU: jax.Array | None = None
    layers: tuple[KeysValues, ...] | None = None
