"""Poolings: how the states of the tokens of a text become one vector, without parameters.

Heads and exported models pool the sequences of a batch (`Pooling.__call__`). Prediction pools texts
of any length, window by window (`of_window`, then `combine`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.rows import gather_positions, masked_max, masked_mean


@dataclasses.dataclass(frozen=True)
class Pooling:
    """A vector from the states of the tokens of a text, special tokens included.

    Attributes:
        tokens: which tokens it reads.
        is_max: whether it takes the maximum of each number; otherwise states are added up.
        power: the sum is divided by this power of the number of tokens.
    """

    tokens: Literal['all', 'first', 'last'] = 'all'
    is_max: bool = False
    power: float = 1.0

    def __call__(self, states_BTD: jax.Array, member_BST: jax.Array) -> jax.Array:
        """Pool sequences: [B, S, D], in the dtype of the states.

        Args:
            states_BTD: the states of each position.
            member_BST: bool, which positions belong to each sequence.
        """
        if self.tokens == 'first':
            return gather_positions(states_BTD, member_BST.argmax(-1))
        if self.tokens == 'last':
            positions_T = jnp.arange(member_BST.shape[2])
            return gather_positions(states_BTD, (member_BST * positions_T).max(2))
        if self.is_max:
            return masked_max(states_BTD, member_BST)
        mean_BSD = masked_mean(states_BTD, member_BST)
        if self.power == 1:
            return mean_BSD
        count_BS1 = member_BST.sum(2, keepdims=True).astype(mean_BSD.dtype)
        return mean_BSD * count_BS1 ** (1 - self.power)

    def of_window(self, states_BTX: jax.Array, chosen_BT: jax.Array) -> jax.Array:
        """Return the sum, or the maximum, of the chosen states of each row, float32 [B, …]."""
        if self.is_max:
            chosen_BTX = jnp.expand_dims(chosen_BT, tuple(range(2, states_BTX.ndim)))
            return jnp.where(chosen_BTX, states_BTX, -jnp.inf).max(1)
        weight_BT = chosen_BT.astype(jnp.float32)
        return jnp.einsum('BT...,BT->B...', states_BTX, weight_BT, precision='highest')

    def combine(self, windows: Sequence[np.ndarray], number: int) -> np.ndarray:
        """Return the vector of a text, float32, from `of_window` of its windows.

        Args:
            windows: for each window, its sum or maximum.
            number: how many states were chosen in all windows together.
        """
        if self.is_max:
            largest: np.ndarray = np.max(windows, axis=0)
            return largest
        total: np.ndarray = sum(windows, start=np.zeros((), np.float32))
        return total / np.float32(number**self.power)


# Name, as in sentence-transformers → pooling.
POOLINGS = {
    'mean': Pooling(),
    'mean_sqrt_len_tokens': Pooling(power=0.5),
    'cls': Pooling('first'),
    'lasttoken': Pooling('last'),
    'max': Pooling(is_max=True),
}
