"""Which token may come next, and which of them is sampled, as in `generate` of transformers.

Scores are logits or log probabilities; the score of a token that is ruled out is −∞. Letters: I
token ids; N beams.
"""

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.types import Array

_NEVER = -jnp.inf


@dataclasses.dataclass(frozen=True)
class Constraints:
    """What may be written after a prompt.

    Attributes:
        max_tokens: number of tokens at which a text ends.
        end_ids: tokens that end a text.
        min_tokens: number of tokens before one of end_ids.
        suppressed_ids: tokens that are never written.
        no_repeat_ngrams: no sequence of this many tokens occurs twice, the prompt included; 0: all
            may.
        forced_first, forced_last: the first token, and the token number `max_tokens`; their score
            is 0. None: any.
    """

    max_tokens: int
    end_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    suppressed_ids: tuple[int, ...] = ()
    no_repeat_ngrams: int = 0
    forced_first: int | None = None
    forced_last: int | None = None

    def apply(
        self, scores_BV: jax.Array, ids_BT: jax.Array, length_B: jax.Array, step: jax.Array
    ) -> jax.Array:
        """Rule out tokens.

        Args:
            scores_BV: of the next token.
            ids_BT: the texts so far, with their prompts; anything from `length_B` on.
            length_B: int32, their lengths.
            step: number of tokens written so far.
        """
        scores_BV = _without(scores_BV, self.suppressed_ids)
        if self.no_repeat_ngrams:
            scores_BV = _without_repeated(scores_BV, ids_BT, length_B, self.no_repeat_ngrams)
        if self.min_tokens and self.end_ids:
            is_early = step < self.min_tokens
            scores_BV = jnp.where(is_early, _without(scores_BV, self.end_ids), scores_BV)
        for token, place in ((self.forced_first, 0), (self.forced_last, self.max_tokens - 1)):
            if token is not None:
                forced_V = jnp.full(scores_BV.shape[1], _NEVER).at[token].set(0.0)
                scores_BV = jnp.where(step == place, forced_V, scores_BV)
        return scores_BV

    def ends(self, ids_X: Array, step: jax.Array) -> jax.Array:
        """bool: whether a text ends with its token number `step`, counted from 0."""
        is_end_X = jnp.isin(ids_X, jnp.array(self.end_ids, jnp.int32))
        return is_end_X | (step + 1 >= self.max_tokens)


def _without(scores_BV: jax.Array, ids_I: tuple[int, ...]) -> jax.Array:
    return scores_BV.at[:, list(ids_I)].set(_NEVER) if ids_I else scores_BV


def _without_repeated(
    scores_BV: jax.Array, ids_BT: jax.Array, length_B: jax.Array, size: int
) -> jax.Array:
    """Rule out the tokens that came after an earlier occurrence of the last `size` − 1 tokens."""
    num_rows, num_slots = ids_BT.shape
    first_T = jnp.arange(num_slots - size + 1)
    is_repeated_BT = first_T + size <= length_B[:, None]  # the whole n-gram has been written
    for offset in range(size - 1):
        last_B1 = (length_B - (size - 1) + offset)[:, None]
        suffix_B1 = jnp.take_along_axis(ids_BT, jnp.maximum(last_B1, 0), axis=1)
        is_repeated_BT &= ids_BT[:, offset : offset + len(first_T)] == suffix_B1
    banned_BT = jnp.where(is_repeated_BT, ids_BT[:, size - 1 :], scores_BV.shape[1])
    return scores_BV.at[jnp.arange(num_rows)[:, None], banned_BT].set(_NEVER, mode='drop')


@dataclasses.dataclass(frozen=True)
class Sampling:
    """What the next token is drawn from.

    Attributes:
        temperature: divides the scores.
        top_k: only the k most probable tokens; 0: all.
        top_p: only the most probable tokens that reach this probability together (nucleus sampling,
            Holtzman et al. 2020, arXiv 1904.09751).
        min_p: only tokens with this share of the probability of the most probable token (Nguyen et
            al. 2024, arXiv 2407.01082).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def warp(self, scores_BV: jax.Array) -> jax.Array:
        """Scale the scores and rule out improbable tokens, in the order of the attributes."""
        scores_BV = scores_BV / self.temperature
        if self.top_k:
            best_BK, _ = jax.lax.top_k(scores_BV, min(self.top_k, scores_BV.shape[1]))
            scores_BV = jnp.where(scores_BV < best_BK[:, -1:], _NEVER, scores_BV)
        if self.top_p < 1:
            scores_BV = _nucleus(scores_BV, self.top_p)
        if self.min_p:
            p_BV = jax.nn.softmax(scores_BV)
            is_improbable_BV = p_BV < self.min_p * p_BV.max(1, keepdims=True)
            scores_BV = jnp.where(is_improbable_BV, _NEVER, scores_BV)
        return scores_BV

    def draw(self, scores_BV: jax.Array, noise_BV: jax.Array) -> jax.Array:
        """int32 [B]: a token of each row, by the Gumbel-max trick from standard Gumbel noise."""
        return jnp.argmax(self.warp(scores_BV) + noise_BV, axis=1).astype(jnp.int32)


def _nucleus(scores_BV: jax.Array, top_p: float) -> jax.Array:
    """Rule out the least probable tokens, up to a probability of 1 − top_p together."""
    order_BV = jnp.argsort(scores_BV, axis=1)
    p_BV = jax.nn.softmax(jnp.take_along_axis(scores_BV, order_BV, axis=1))
    is_tail_BV = jnp.cumsum(p_BV, axis=1) <= 1 - top_p
    is_tail_BV = is_tail_BV.at[:, -1].set(False)
    rank_BV = jnp.argsort(order_BV, axis=1)
    return jnp.where(jnp.take_along_axis(is_tail_BV, rank_BV, axis=1), _NEVER, scores_BV)


def noise(keys_B: jax.Array, step: jax.Array, vocab_size: int) -> jax.Array:
    """Standard Gumbel noise, fp32 [B, V], that depends on the key of each row and the step alone.

    The fp32 uniform numbers behind the noise are drawn near 0 as finely as near 1; otherwise no
    noise is above 16.6, and improbable tokens are drawn too rarely (Zheng et al. 2025, arXiv
    2409.02908).
    """

    def draw(key: jax.Array) -> jax.Array:
        return jax.random.gumbel(jax.random.fold_in(key, step), (vocab_size,), mode='high')

    return jax.vmap(draw)(keys_B)
