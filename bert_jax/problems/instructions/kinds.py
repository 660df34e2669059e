"""How causal models and models of masked diffusion learn the answers in their rows."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import fold_in
from bert_jax.models.rows import Rows, Targets, segment_starts
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Array


class Kind(Protocol):
    """A kind of model that answers."""

    @property
    def head(self) -> str:
        """The head that predicts tokens."""

    def corrupt(self, tokenizer: Tokenizer, rows: Rows, seeds_R: jax.Array | None) -> Rows:
        """Return the rows that the model reads, with targets.

        Their weights are those of the loss. Label `is_answer` is 1 at answers and their first end.

        Args:
            tokenizer: of the model.
            rows: packed rows with the fields of `InstructionEncoding`.
            seeds_R: uint32, one for each row; None for evaluation, which always hides the same.
        """

    def counted(self, rows: Rows) -> jax.Array:
        """fp32 [R, P]: 1 for targets that are tokens of an answer or its first end."""


class Causal(NamedTuple):
    """Every token of an answer, and its end, is predicted from the tokens before it.

    Attributes:
        prefix_lm: whether all positions see the whole prompt (Dong et al. 2019, UniLM, arXiv
            1905.03197, section 2.3).
    """

    prefix_lm: bool = False
    head: str = 'clm'

    def corrupt(self, tokenizer: Tokenizer, rows: Rows, seeds_R: jax.Array | None) -> Rows:
        is_answer_RT = jnp.asarray(rows.labels['is_answer'])
        rows = rows.replace(targets=Targets.of_next(rows.input_ids_BT, is_answer_RT))
        return rows.replace(is_prefix_BT=1 - is_answer_RT) if self.prefix_lm else rows

    def counted(self, rows: Rows) -> jax.Array:
        return jnp.asarray(rows.chosen.weights_BP)


class Diffusion(NamedTuple):
    """Exactly k of the n tokens in the place of an answer are hidden; their weight is n / k.

    The place of an answer has end tokens after it, which are hidden and learned as well, so that
    the model knows where to stop (Nie et al. 2025, LLaDA, arXiv 2502.09992, section 2.3). The
    prompt is always seen. k is uniform on 1, …, n (objectives/diffusion.py).
    """

    head: str = 'mlm'

    def corrupt(self, tokenizer: Tokenizer, rows: Rows, seeds_R: jax.Array | None) -> Rows:
        weights_RT = hidden_weights(rows, seeds_R)
        ids_RT = jnp.asarray(rows.input_ids_BT)
        hidden_RT = jnp.where(weights_RT > 0, tokenizer.mask_id, ids_RT)
        return rows.replace(input_ids_BT=hidden_RT, targets=Targets.of_first(ids_RT, weights_RT))

    def counted(self, rows: Rows) -> jax.Array:
        return jnp.asarray(rows.labels['is_answer']).astype(jnp.float32)


def hidden_weights(rows: Rows, seeds_R: jax.Array | None) -> jax.Array:
    """fp32 [R, T]: n / k for the k tokens of each place that are hidden, else 0."""
    size_RT = jnp.asarray(rows.labels['size'])
    draw_RT, level_RT = (_bits(rows.labels[name], seeds_R) for name in ('draw', 'level'))
    # (level · n) / 2³², in 16 bits so that the product does not overflow.
    below_RT = ((level_RT >> 16) * size_RT.astype(jnp.uint32)) >> 16
    number_RT = below_RT.astype(jnp.int32) + 1
    is_hidden_RT = _rank(draw_RT, size_RT > 0, rows.segment_ids_BT) < number_RT
    return jnp.where((size_RT > 0) & is_hidden_RT, size_RT / number_RT, 0.0)


def _bits(field_RT: Array, seeds_R: jax.Array | None) -> jax.Array:
    """uint32 [R, T]: random bits of each entry of a field, others for other seeds."""
    bits_RT = jnp.asarray(field_RT).astype(jnp.uint32)
    seeds_R1 = jnp.uint32(0) if seeds_R is None else seeds_R[:, None]
    return fold_in(bits_RT ^ fold_in(jnp.asarray(seeds_R1), 0), 1)


def _rank(draw_RT: jax.Array, is_inside_RT: jax.Array, segment_RT: Array | None) -> jax.Array:
    """int32 [R, T]: how many tokens in the same place have a smaller draw."""
    if segment_RT is None:
        segment_RT = jnp.zeros_like(is_inside_RT, jnp.int32)
    place_RT = jnp.where(is_inside_RT, jnp.asarray(segment_RT), -1)
    order_RT = jnp.lexsort((draw_RT, place_RT), axis=1)
    start_RT = segment_starts(jnp.take_along_axis(place_RT, order_RT, axis=1))
    rank_RT = jnp.arange(order_RT.shape[1]) - start_RT
    return jnp.take_along_axis(rank_RT, jnp.argsort(order_RT, axis=1), axis=1)
