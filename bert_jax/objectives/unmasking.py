"""The reverse of masked diffusion: hidden tokens are written, a few in each step.

Every step predicts all tokens that are still hidden and keeps some of them. Sources: MaskGIT (Chang
et al. 2022, arXiv 2202.04200), section 3.2, for the order by confidence; LLaDA (Nie et al. 2025,
arXiv 2502.09992), section 2.4, for equal numbers per step and blocks; ReMDM (Wang et al. 2025,
arXiv 2503.00307), section 4.1, for hiding tokens of low confidence again.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows, Targets
from bert_jax.types import Array, Batch, Key, Params, Tree

ORDERS = ('confidence', 'random', 'left_to_right')


class Schedule(NamedTuple):
    """What happens in each of the S steps of a text.

    Attributes:
        block_S: int32, the block that is filled.
        reveal_S: int32, number of tokens that are kept.
        hide_S: int32, number of tokens of the block that are hidden again afterwards.
    """

    block_S: np.ndarray
    reveal_S: np.ndarray
    hide_S: np.ndarray

    @classmethod
    def of(
        cls,
        number: int,
        steps: int | None = None,
        block: int | None = None,
        remask: float = 0.0,
    ) -> 'Schedule':
        """Divide the hidden tokens of a text over steps, as evenly as possible.

        Args:
            number: how many tokens are hidden.
            steps: number of steps, at most one per token; None: one per token.
            block: tokens of a block; None: all.
            remask: share of the tokens of a block that are hidden again after each of its steps
                but the last.

        Raises:
            UserError: there are fewer steps than blocks.
        """
        size = min(block or number, number)
        sizes = [min(size, number - first) for first in range(0, number, size)]
        steps = min(steps or number, number)
        if steps < len(sizes):
            raise UserError(
                f'steps is {steps}, but {number} hidden tokens have {len(sizes)} blocks of {size}; '
                f'set steps to {len(sizes)} or more, or block to a larger number'
            )
        blocks, reveal, hide = [], [], []
        for index, (total, share) in enumerate(zip(sizes, _divide(steps, len(sizes)), strict=True)):
            kept = np.array(_divide(total, min(share, total)))
            hidden = np.floor(remask * np.cumsum(kept)).astype(int)
            hidden[-1] = 0
            blocks += [index] * len(kept)
            reveal += (kept + np.append(0, hidden[:-1])).tolist()
            hide += hidden.tolist()
        return cls(*(np.array(values, np.int32) for values in (blocks, reveal, hide)))


def _divide(total: int, parts: int) -> list[int]:
    """Divide a number into parts that differ by at most 1, the larger first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


class _Written(NamedTuple):
    """The hidden positions of rows after some steps.

    Attributes:
        ids_BP: int32, the tokens; [MASK] while they are hidden.
        is_hidden_BP: bool.
        log_p_BP: float32, log probability of each token when it was written.
        step_BP: int32, the step in which it was written.
    """

    ids_BP: jax.Array
    is_hidden_BP: jax.Array
    log_p_BP: jax.Array
    step_BP: jax.Array


@functools.partial(jax.jit, static_argnums=(0, 1))
def unmask(
    model: Model,
    order: str,
    temperature: float | None,
    banned_V: Array,
    params: Params,
    batch: Batch,
) -> dict[str, jax.Array]:
    """Fill the hidden positions of rows.

    Args:
        model: a model with the head that predicts tokens.
        order: one of ORDERS.
        temperature: above 0; None takes the most probable tokens.
        banned_V: bool, ids that are never written.
        params: the parameters of the model.
        batch: `input_ids`, `attention_mask`; `positions` int32 [B, P] of the hidden tokens from
            left to right, 0 if unused, and the `block` of each; `seed` int32 [B, 1]; and the
            schedule `block_of_step`, `reveal` and `hide`, int32 [B, S], see `Schedule`.

    Returns:
        'ids' and 'steps' int32 [B, P], 'log_p' float32 [B, P]; see `Generated`.
    """
    given = {name: jnp.asarray(array) for name, array in batch.items()}
    input_ids_BT, positions_BP = given['input_ids'], given['positions']
    is_used_BP = positions_BP > 0  # position 0 is [CLS]
    masks_BP = jnp.take_along_axis(input_ids_BT, positions_BP, axis=1)
    places_BP = jnp.where(is_used_BP, positions_BP, input_ids_BT.shape[1])  # outside: dropped
    row_B1 = jnp.arange(len(input_ids_BT))[:, None]
    keys_B = jax.vmap(functools.partial(jax.random.key, impl='threefry2x32'))(given['seed'][:, 0])

    def step(number: jax.Array, written: _Written) -> _Written:
        ids_BT = input_ids_BT.at[row_B1, places_BP].set(written.ids_BP, mode='drop')
        logits_BPV = _logits(model, params, ids_BT, given)
        logits_BPV = jnp.where(banned_V, -jnp.inf, logits_BPV)
        keys_BP = _keys(keys_B, number, positions_BP)
        ids_BP, log_p_BP = _choose(logits_BPV, keys_BP, temperature)
        is_current_BP = is_used_BP & (given['block'] == given['block_of_step'][:, number, None])
        preference_BP = _preference(order, log_p_BP, keys_BP)
        can_reveal_BP = written.is_hidden_BP & is_current_BP
        reveal_BP = _first(preference_BP, can_reveal_BP, given['reveal'][:, number])
        written = _Written(
            jnp.where(reveal_BP, ids_BP, written.ids_BP),
            written.is_hidden_BP & ~reveal_BP,
            jnp.where(reveal_BP, log_p_BP, written.log_p_BP),
            jnp.where(reveal_BP, number, written.step_BP),
        )
        can_hide_BP = is_current_BP & ~written.is_hidden_BP
        hide_BP = _first(-written.log_p_BP, can_hide_BP, given['hide'][:, number])
        return written._replace(
            ids_BP=jnp.where(hide_BP, masks_BP, written.ids_BP),
            is_hidden_BP=written.is_hidden_BP | hide_BP,
        )

    start = _Written(
        masks_BP, is_used_BP, jnp.zeros(masks_BP.shape), jnp.zeros(masks_BP.shape, jnp.int32)
    )
    num_steps = jnp.max(jnp.sum(given['reveal'] > 0, axis=1))
    written = jax.lax.fori_loop(0, num_steps, step, start)
    return {'ids': written.ids_BP, 'steps': written.step_BP, 'log_p': written.log_p_BP}


def _logits(model: Model, params: Params, ids_BT: jax.Array, batch: Batch) -> jax.Array:
    """Logits of the model's only head at the hidden positions, float32 [B, P, V]."""
    targets = Targets.at(jnp.asarray(batch['positions']))
    rows = Rows(ids_BT, batch['attention_mask'], targets=targets)
    output: Tree = model.apply({'params': params}, rows)
    (logits_BPV,) = output.heads.values()
    return jnp.asarray(logits_BPV)


def _keys(keys_B: Key, step: jax.Array, positions_BP: jax.Array) -> Key:
    """Return a key for each position of a step; it does not depend on the padding of the batch."""

    def of_row(key: Key, positions_P: jax.Array) -> Key:
        return jax.vmap(functools.partial(jax.random.fold_in, jax.random.fold_in(key, step)))(
            positions_P
        )

    return jax.vmap(of_row)(keys_B, positions_BP)


def _choose(
    logits_BPV: jax.Array, keys_BP: Key, temperature: float | None
) -> tuple[jax.Array, jax.Array]:
    """Return a token for each position, and its log probability at temperature 1.

    Sampling adds Gumbel noise to the logits. Ordinary float32 noise comes from uniform numbers in
    steps of 2⁻²³: its largest values are missing, and rare tokens are drawn too rarely (Zheng et
    al. 2024, arXiv 2409.02908, section 5). With mode='high' the steps are 2⁻⁴⁶, so that float32 is
    as good as float64.
    """
    scores_BPV = logits_BPV
    if temperature is not None:
        draw = functools.partial(jax.random.gumbel, shape=logits_BPV.shape[2:], mode='high')
        scores_BPV = logits_BPV / temperature + jax.vmap(jax.vmap(draw))(keys_BP)
    ids_BP = jnp.argmax(scores_BPV, axis=-1).astype(jnp.int32)
    log_p_BPV = jax.nn.log_softmax(logits_BPV)
    return ids_BP, jnp.take_along_axis(log_p_BPV, ids_BP[..., None], axis=-1)[..., 0]


def _preference(order: str, log_p_BP: jax.Array, keys_BP: Key) -> jax.Array:
    """Return a number for each position; those with the highest numbers are kept first."""
    if order == 'confidence':
        return log_p_BP
    if order == 'left_to_right':
        return jnp.broadcast_to(-jnp.arange(log_p_BP.shape[1]), log_p_BP.shape)
    other_keys_BP = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, 1)))(keys_BP)
    preference_BP: jax.Array = jax.vmap(jax.vmap(jax.random.uniform))(other_keys_BP)
    return preference_BP


def _first(score_BP: jax.Array, is_candidate_BP: jax.Array, number_B: jax.Array) -> jax.Array:
    """Whether each position is among the n candidates with the highest scores, bool [B, P]."""
    order_BP = jnp.lexsort((-score_BP, ~is_candidate_BP), axis=1)
    rank_BP = jnp.argsort(order_BP, axis=1)
    return is_candidate_BP & (rank_BP < number_B[:, None])
