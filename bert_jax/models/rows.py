"""Rows of token ids, which may pack several sequences; positions and tuned prompts in them."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.models.linear import product
from bert_jax.models.partitioning import platform
from bert_jax.types import Array

if TYPE_CHECKING:
    from bert_jax.models.cache import Cache


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

    @classmethod
    def of_first(cls, ids_BP: Array, weights_BP: Array) -> 'Targets':
        """Tokens to predict at the positions 0, …, P − 1 of each row."""
        return cls(jnp.broadcast_to(jnp.arange(ids_BP.shape[1]), ids_BP.shape), ids_BP, weights_BP)

    @classmethod
    def of_next(cls, ids_BT: Array, weights_BT: Array) -> 'Targets':
        """The next token of each position but the last, with the weight of that token."""
        return cls.of_first(jnp.asarray(ids_BT)[:, 1:], jnp.asarray(weights_BT, jnp.float32)[:, 1:])


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
        ranks_BT: int32, the order of a permutation language model: a position with a rank from 0 on
            is visible to positions of higher rank only; positions with rank −1, which are context,
            are visible to all and see only each other. None: every position sees every other.
        causal_B: bool, the rows with causal attention in a model that otherwise attends in both
            directions. None: no such rows.
        labels: further arrays by name, such as the labels of sequences [B, …] or [B, S, …] and of
            positions [B, T, …].
        target: the decoder's rows, which are written while it attends to these rows: their ids
            start with the token before the target, and their `targets` are the tokens to predict.
            None: only the encoder reads.
        cache: keys and values of the positions before these rows, which continue them: the first
            token of a row has the position `cache.length_B`. Padding must be last. None: the rows
            are complete.
        is_prefix_BT: int32, 1 for tokens that all positions of their sequence see in a causal
            model, also earlier ones. None: no token.
    """

    input_ids_BT: Array
    attention_mask_BT: Array
    token_type_ids_BT: Array | None = None
    segment_ids_BT: Array | None = None
    first_positions_BS: Array | None = None
    targets: Targets | None = None
    ranks_BT: Array | None = None
    causal_B: Array | None = None
    labels: Mapping[str, Array] = field(default_factory=dict)
    cache: 'Cache | None' = None
    target: 'Rows | None' = None
    is_prefix_BT: Array | None = None

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

    def before_targets(self, states_BTD: jax.Array) -> jax.Array:
        """As `at_targets`, but the states of the positions before; the first has its own."""
        before_BTD = jnp.concatenate([states_BTD[:, :1], states_BTD[:, :-1]], axis=1)
        return self.at_targets(before_BTD)

    def first_states(self, states_BTD: jax.Array) -> jax.Array:
        """[B, D]: the state of the first position; [B, S, D], of each sequence, in packed rows."""
        if self.first_positions_BS is None:
            return states_BTD[:, 0]
        return gather_positions(states_BTD, jnp.maximum(self.first_positions_BS, 0))

    def starts(self) -> jax.Array | None:
        """int32 [B, T]: first position of each position's sequence; None: one sequence per row."""
        return None if self.segment_ids_BT is None else segment_starts(self.segment_ids_BT)

    def positions(self) -> jax.Array | None:
        """int32 [B, T]: index of each position in its sequence; None: one complete sequence."""
        if self.cache is not None:
            return self.cache.positions(self.input_ids_BT.shape[1])
        if (starts_BT := self.starts()) is None:
            return None
        return jnp.arange(starts_BT.shape[1]) - starts_BT

    def last_token_first(self) -> 'Rows':
        """Move the last token of each sequence to its front, and all others one position on.

        So BART's decoder reads a text to classify it: </s> <s> a b for <s> a b </s>
        (`shift_tokens_right` in transformers, modeling_bart.py). Padding must be last.
        """
        ids_BT, starts_BT = jnp.asarray(self.input_ids_BT), self.starts()
        t_T = jnp.arange(ids_BT.shape[1])
        if starts_BT is None:
            starts_BT = jnp.zeros_like(ids_BT)
            last_BT = self.is_token_BT.sum(1, keepdims=True) - 1
        else:
            ends_BT = jnp.pad(starts_BT[:, 1:] == t_T[1:], [(0, 0), (0, 1)], constant_values=True)
            last_BT = jax.lax.cummin(jnp.where(ends_BT, t_T, len(t_T)), axis=1, reverse=True)
        before_BT = jnp.pad(ids_BT[:, :-1], [(0, 0), (1, 0)])
        last_ids_BT = jnp.take_along_axis(ids_BT, jnp.maximum(last_BT, 0), axis=1)
        return self.replace(input_ids_BT=jnp.where(starts_BT == t_T, last_ids_BT, before_BT))

    def members(self) -> jax.Array:
        """bool [B, S, T]: which tokens belong to each sequence; S = 1 for one sequence per row.

        No token belongs to a sequence whose first position is negative.
        """
        member_BST = self.is_token_BT[:, None]
        if self.segment_ids_BT is None or self.first_positions_BS is None:
            return member_BST
        return member_BST & sequence_members(self.segment_ids_BT, self.first_positions_BS)


def gather_positions(hidden_BTD: Array, positions_BP: Array) -> jax.Array:
    """[B, P, D]: hidden_BTD[b, positions_BP[b, p]]; positions are in [0, T).

    On GPUs and TPUs it is a product with one-hot vectors, so a state that is not finite spreads to
    its row. The gradient of an indexed read is a scatter, for which XLA's GPU compiler (jaxlib
    0.11.2) transposes the states of all layers.
    """
    if platform() == 'cpu':
        return jnp.take_along_axis(hidden_BTD, positions_BP[:, :, None], axis=1)
    dtype = hidden_BTD.dtype
    is_there_BPT = jax.nn.one_hot(positions_BP, hidden_BTD.shape[1], dtype=dtype)
    return product('BPT,BTD->BPD', is_there_BPT, hidden_BTD, dtype).astype(dtype)


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


def masked_max(hidden_BTD: jax.Array, member_BST: jax.Array) -> jax.Array:
    """[B, S, D]: maximum of each feature over each set of positions; 0 for an empty set."""
    lowest = jnp.finfo(hidden_BTD.dtype).min

    def over_set(member_BT: jax.Array) -> jax.Array:
        return jnp.where(member_BT[:, :, None], hidden_BTD, lowest).max(1)

    if member_BST.shape[1] == 1:  # without a loop, which export formats may lack
        max_SBD = over_set(member_BST[:, 0])[None]
    else:
        max_SBD = jax.lax.map(over_set, member_BST.swapaxes(0, 1))
    return jnp.where(member_BST.any(2)[:, :, None], max_SBD.swapaxes(0, 1), 0)


class PromptRows(NamedTuple):
    """Longer rows in which the vectors of a tuned prompt follow the first token of each sequence.

    T tokens and S prompts of length L make rows of X = T + S · L.

    Attributes:
        order_BX: int32, the index of each position among the T tokens and S · L prompt vectors.
        place_BT: int32, the position of each token.
        first_BS: int32, the first token of each sequence, before prompts were inserted; T for
            absent sequences, whose prompts are padding at the end of the row.
        length: L.
    """

    order_BX: jax.Array
    place_BT: jax.Array
    first_BS: jax.Array
    length: int

    def insert(self, text_BTX: Array, prompt_BSX: jax.Array) -> jax.Array:
        """Merge the values of tokens and of each sequence's prompt vectors, [B, X, …].

        Args:
            text_BTX: [B, T, …].
            prompt_BSX: [B, S, L, …].
        """
        prompt_BPX = prompt_BSX.reshape(text_BTX.shape[0], -1, *text_BTX.shape[2:])
        both_BX = jnp.concatenate([text_BTX, prompt_BPX], axis=1)
        order = self.order_BX.reshape(*self.order_BX.shape, *[1] * (both_BX.ndim - 2))
        return jnp.take_along_axis(both_BX, order, axis=1)

    def insert_first_values(self, text_BT: Array, absent: int) -> jax.Array:
        """`insert` for values that a prompt shares with the first token of its sequence.

        absent: the value for prompts of absent sequences.
        """
        padded_BT = jnp.pad(text_BT, [(0, 0), (0, 1)], constant_values=absent)
        first_values_BS = jnp.take_along_axis(padded_BT, self.first_BS, axis=1)
        shape = (*first_values_BS.shape, self.length)
        return self.insert(text_BT, jnp.broadcast_to(first_values_BS[:, :, None], shape))

    def text(self, x_BXD: jax.Array) -> jax.Array:
        """Return the states of the tokens, [B, T, D]."""
        return gather_positions(x_BXD, self.place_BT)


def prompt_rows(rows: Rows, length: int) -> PromptRows:
    """Place prompts of this length in rows of one sequence or, with segment ids, of several.

    Raises:
        UserError: packed rows without first positions, so the number of sequences is unknown.
    """
    is_token_BT, segment_ids_BT = rows.is_token_BT, rows.segment_ids_BT
    num_tokens = is_token_BT.shape[1]
    if segment_ids_BT is None:
        is_first_BT, num_sequences = is_token_BT & (jnp.cumsum(is_token_BT, axis=1) == 1), 1
    else:
        if rows.first_positions_BS is None:
            raise UserError('a tuned prompt in packed rows needs first_positions_BS')
        before_BT = jnp.pad(segment_ids_BT[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        is_first_BT = is_token_BT & (segment_ids_BT != before_BT)
        num_sequences = rows.first_positions_BS.shape[1]
    t_T = jnp.arange(num_tokens)
    num_before_BT = jnp.cumsum(is_first_BT, axis=1) - is_first_BT
    place_BT = t_T + length * num_before_BT
    first_BS = jnp.sort(jnp.where(is_first_BT, t_T, num_tokens), axis=1)[:, :num_sequences]
    end_BT = jnp.pad(
        place_BT, [(0, 0), (0, 1)], constant_values=num_tokens + length * num_sequences
    )
    prompt_BSL = jnp.take_along_axis(end_BT, first_BS, axis=1)[:, :, None] + 1 + jnp.arange(length)
    keys_BX = jnp.concatenate([place_BT, prompt_BSL.reshape(place_BT.shape[0], -1)], axis=1)
    return PromptRows(jnp.argsort(keys_BX, axis=1), place_BT, first_BS, length)


def chosen_tokens(positions_P: Array, weights_P: Array, length: int) -> jax.Array:
    """Which tokens are predicted, bool [T]."""
    return jnp.zeros(length, bool).at[positions_P].max(weights_P > 0)


def outer_neighbors(chosen_T: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The nearest positions before and after each position that are not chosen, int32 [T] each.

    Inside a run of chosen tokens these are the two boundaries of the run. −1 and T where there is
    no such position.
    """
    length = len(chosen_T)
    t_T = jnp.arange(length)
    left_T = jax.lax.cummax(jnp.where(chosen_T, -1, t_T))
    right_T = jax.lax.cummin(jnp.where(chosen_T, length, t_T), reverse=True)
    return left_T, right_T
