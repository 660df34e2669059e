"""Rows of token ids, which may pack several sequences, and chosen positions in them."""

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.linear import product
from bert_jax.types import Array


class Targets(NamedTuple):
    """Tokens to predict in each row; unused slots of the P predictions have weight 0.

    Attributes:
        positions_BP: int32, distinct positions within a row.
        ids_BP: int32, the tokens to predict there.
        weights_BP: float32, 1 for a prediction, 0 for an unused slot.
    """

    positions_BP: Array
    ids_BP: Array
    weights_BP: Array

    @classmethod
    def at(cls, positions_BP: Array) -> 'Targets':
        """Positions of tokens that are not known."""
        return cls(positions_BP, jnp.zeros_like(positions_BP), jnp.zeros(positions_BP.shape))


class Rows(flax.struct.PyTreeNode):
    """What a model reads: token ids and what is known about their positions.

    Attributes:
        input_ids_BT: int32.
        attention_mask_BT: int32, 1 for tokens, 0 for padding.
        token_type_ids_BT: int32; None: type 0.
        segment_ids_BT: int32, for rows that pack several sequences: each sequence, and padding, is
            a run of one id. Positions do not attend to other segments, and position indices restart
            with each segment. None: one sequence per row.
        first_positions_BS: int32, the first position of each packed sequence, whose states are
            pooled; outputs of negative positions are finite and meaningless. None: one sequence
            per row, and outputs of sequences have no axis S.
        targets: tokens to predict, chosen by a corruption; None: none are chosen.
        labels: further arrays by name, such as the labels of sequences [B, …] or [B, S, …] and of
            positions [B, T, …].
    """

    input_ids_BT: Array
    attention_mask_BT: Array
    token_type_ids_BT: Array | None = None
    segment_ids_BT: Array | None = None
    first_positions_BS: Array | None = None
    targets: Targets | None = None
    labels: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Mapping[str, Array]) -> 'Rows':
        """Make rows from the named arrays of a source of examples."""
        labels = dict(batch)
        return cls(
            labels.pop('input_ids'),
            labels.pop('attention_mask'),
            labels.pop('token_type_ids', None),
            labels.pop('segment_ids', None),
            labels.pop('first_positions', None),
            labels=labels,
        )

    @property
    def is_token_BT(self) -> jax.Array:
        """bool, False for padding."""
        return jnp.asarray(self.attention_mask_BT) > 0

    @property
    def chosen(self) -> Targets:
        """The targets of rows from a corruption that chooses tokens to predict."""
        assert self.targets is not None
        return self.targets

    def at_targets(self, states_BTD: jax.Array) -> jax.Array:
        """[B, P, D]: the states at the positions of the targets; without targets, all states."""
        if self.targets is None:
            return states_BTD
        return gather_positions(states_BTD, self.targets.positions_BP)

    def starts(self) -> jax.Array | None:
        """int32 [B, T]: first position of each position's sequence; None: one sequence per row."""
        return None if self.segment_ids_BT is None else segment_starts(self.segment_ids_BT)

    def positions(self) -> jax.Array | None:
        """int32 [B, T]: index of each position in its sequence; None: one sequence per row."""
        if (starts_BT := self.starts()) is None:
            return None
        return jnp.arange(starts_BT.shape[1]) - starts_BT

    def members(self) -> jax.Array:
        """bool [B, S, T]: which tokens belong to each sequence; S = 1 for one sequence per row.

        No token belongs to a sequence whose first position is negative.
        """
        member_BST = self.is_token_BT[:, None]
        if self.segment_ids_BT is None or self.first_positions_BS is None:
            return member_BST
        return member_BST & sequence_members(self.segment_ids_BT, self.first_positions_BS)


def gather_positions(hidden_BTD: Array, positions_BP: Array) -> jax.Array:
    """[B, P, D]: hidden_BTD[b, positions_BP[b, p]]; positions are in [0, T)."""
    return jnp.take_along_axis(hidden_BTD, positions_BP[:, :, None], axis=1)


def segment_starts(segment_ids_BT: Array) -> jax.Array:
    """int32 [B, T]: the first position of each position's segment, a run of one segment id."""
    before_BT = jnp.pad(segment_ids_BT[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    t_T = jnp.arange(segment_ids_BT.shape[1])
    return jax.lax.cummax(jnp.where(segment_ids_BT != before_BT, t_T, 0), axis=1)


def sequence_members(segment_ids_BT: Array, first_positions_BS: Array) -> jax.Array:
    """bool [B, S, T]: whether a position belongs to the sequence with this first position.

    No position belongs to a sequence whose first position is negative.
    """
    ids_BS = jnp.take_along_axis(segment_ids_BT, jnp.maximum(first_positions_BS, 0), axis=1)
    same_BST = segment_ids_BT[:, None, :] == ids_BS[:, :, None]
    return same_BST & (first_positions_BS >= 0)[:, :, None]


def masked_mean(hidden_BTD: jax.Array, member_BST: Array) -> jax.Array:
    """[B, S, D]: mean state of each set of positions, summed in fp32; 0 for an empty set."""
    weight_BST = member_BST.astype(jnp.float32)
    sum_BSD = product('BST,BTD->BSD', weight_BST, hidden_BTD, jnp.dtype('float32'))
    count_BS1 = jnp.maximum(member_BST.sum(2, keepdims=True), 1)
    return (sum_BSD / count_BS1).astype(hidden_BTD.dtype)
