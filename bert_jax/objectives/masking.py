"""Masking: hides chosen tokens of a text.

Every function works on one example (arrays [T]) with its own PRNG key and is mapped over the batch.
The masks of an example therefore depend on (seed, step, index of the example) alone: not on the
mesh, the number of hosts or the number of micro-batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.masking_schemes import SCHEMES
from bert_jax.objectives.token_rows import TokenRow
from bert_jax.types import Batch, Key

REPLACEMENTS = ('uniform', 'unigram')


class Masked(NamedTuple):
    """A masked batch. Unused slots of the P predictions have weight 0.

    Attributes:
        input_ids: int32 [B, T], with the chosen tokens replaced.
        positions: int32 [B, P], distinct positions within a row.
        labels: int32 [B, P], the original ids at these positions.
        weights: float32 [B, P], 1 for a prediction, 0 for an unused slot.
    """

    input_ids: jax.Array
    positions: jax.Array
    labels: jax.Array
    weights: jax.Array

    def seen_rows(self, rows: Rows) -> Rows:
        """Return the rows with the masked ids."""
        return rows.replace(input_ids_BT=self.input_ids)

    def describe_row(self, row: int, vocab: Sequence[str]) -> dict[str, list]:
        """Return the predicted positions from left to right, and the tokens to predict."""
        slots = np.flatnonzero(self.weights[row])
        slots = slots[np.argsort(self.positions[row][slots])]
        return {
            'masked_positions': self.positions[row][slots].tolist(),
            'labels': [vocab[i] for i in self.labels[row][slots]],
        }


@dataclass(frozen=True, eq=False)
class Masking:
    """How tokens are chosen and replaced (BERT, section 3.1; create_pretraining_data.py).

    Of the chosen tokens a share `mask` becomes [MASK], a share `random` becomes a random token, and
    the rest is kept.

    Attributes:
        rate: Share of the tokens to choose; the scheme defines which tokens count.
        mask: Share of the chosen tokens that become [MASK].
        random: Share of the chosen tokens that become a random token.
        replacement: Distribution of random tokens: 'uniform' over the vocabulary (the original
            code) or 'unigram', by frequency in the corpus.
        mask_id: Id of [MASK].
        special_ids: Ids that are never chosen.
        unigram_counts: int64 [V], frequencies in the corpus.
        scheme: A name in SCHEMES (masking_schemes.py).
        span_p: Parameter p of the geometric distribution of span lengths.
        longest_span: Maximum length of a span in words.
        longest_ngram: Maximum length of an n-gram in words.
        per_sequence: Whether `rate` applies to each sequence of a packed row instead of the whole
            row; span schemes always apply it to the row.
        is_word_start: bool [V], whether a token starts a word; None if the vocabulary does not
            mark word starts.

    Raises:
        UserError: For values out of range, and for a scheme that needs words if the vocabulary does
            not mark them.
    """

    rate: float
    mask: float
    random: float
    replacement: str
    mask_id: int
    special_ids: tuple[int, ...]
    unigram_counts: np.ndarray
    scheme: str = 'tokens'
    span_p: float = 0.2
    longest_span: int = 10
    longest_ngram: int = 3
    is_word_start: np.ndarray | None = None
    per_sequence: bool = True

    def __post_init__(self) -> None:
        if self.mask + self.random > 1:
            raise UserError(
                f'masking.mask is {self.mask} and masking.random is {self.random}; their sum must '
                'be at most 1'
            )
        for name, known in (('replacement', REPLACEMENTS), ('scheme', SCHEMES)):
            if getattr(self, name) not in known:
                raise unknown(f'masking.{name}', getattr(self, name), known)
        if SCHEMES[self.scheme].needs_words and not np.any(self.is_word_start):
            raise UserError(
                f'masking.scheme {self.scheme!r} chooses words, but the vocabulary does not mark '
                "where words start; use masking.scheme='tokens' or another tokenizer"
            )


class MaskedText(Corruption):
    """The text with hidden tokens, which the masking scheme chooses."""

    label = 'masked'
    config_keys = 'masking.*'

    def __call__(self, keys_B: Key, batch: Batch) -> Masked:
        """Mask a batch."""
        return mask_batch(self.masking, keys_B, batch, self.num_predictions)


def mask_batch(
    masking: Masking, keys_B: Key, batch: Batch, num_predictions: Mapping[int, int]
) -> Masked:
    """Mask a batch; `num_predictions` maps a sequence length to the maximum per row."""
    ids_BT, segments_BT = batch['input_ids'], batch.get('segment_ids')
    number = num_predictions[ids_BT.shape[1]]
    return mask_tokens(masking, keys_B, ids_BT, batch['attention_mask'], number, segments_BT)


def mask_tokens(
    masking: Masking,
    keys_B: Key,
    input_ids_BT: jax.Array,
    attention_mask_BT: jax.Array,
    num_predictions: int,
    segment_ids_BT: jax.Array | None = None,
) -> Masked:
    """Choose at most `num_predictions` tokens per row and replace them.

    `segment_ids_BT` numbers the sequences of packed rows.
    """
    scheme = SCHEMES[masking.scheme]
    has_budgets = masking.per_sequence and segment_ids_BT is not None
    if segment_ids_BT is None:
        segment_ids_BT = jnp.zeros(input_ids_BT.shape, jnp.int32)

    def mask_row(key: Key, ids_T: jax.Array, mask_T: jax.Array, segments_T: jax.Array) -> Masked:
        choice_key, replace_key = jax.random.split(key)
        can_choose_T = (mask_T > 0) & ~is_special(ids_T, masking)
        budget_ids_T = segments_T if has_budgets else None
        row = TokenRow(ids_T, mask_T, can_choose_T, segments_T, budget_ids_T)
        positions_P, number = scheme.choose(choice_key, row, masking, num_predictions)
        weights_P = (jnp.arange(num_predictions) < number).astype(jnp.float32)
        return _replace_chosen(replace_key, ids_T, positions_P, weights_P, masking)

    return jax.vmap(mask_row)(keys_B, input_ids_BT, attention_mask_BT, segment_ids_BT)


def is_special(input_ids: jax.Array, masking: Masking) -> jax.Array:
    """Whether ids are special tokens that masking does not choose."""
    return jnp.isin(input_ids, jnp.array(masking.special_ids))


def _replace_chosen(
    key: Key, input_ids_T: jax.Array, positions_P: jax.Array, weights_P: jax.Array, masking: Masking
) -> Masked:
    """Put [MASK] or a random token at the chosen positions, or keep the token."""
    draw_key, id_key = jax.random.split(key)
    labels_P = input_ids_T[positions_P]
    draws_P = _replacement_draws(draw_key, len(input_ids_T), positions_P, weights_P, masking)
    random_P = random_ids(id_key, positions_P.shape, masking)
    new_P = jnp.where(
        draws_P < masking.mask,
        masking.mask_id,
        jnp.where(draws_P < masking.mask + masking.random, random_P, labels_P),
    )
    new_P = jnp.where(weights_P > 0, new_P, labels_P)
    return Masked(input_ids_T.at[positions_P].set(new_P), positions_P, labels_P, weights_P)


def _replacement_draws(
    key: Key, length: int, positions_P: jax.Array, weights_P: jax.Array, masking: Masking
) -> jax.Array:
    """Uniform draws [P], shared by adjacent chosen tokens if the scheme says so."""
    if not SCHEMES[masking.scheme].shares_draws:
        return jax.random.uniform(key, positions_P.shape)
    left_T, _ = outer_neighbors(chosen_tokens(positions_P, weights_P, length))
    return jax.random.uniform(key, (length,))[left_T[positions_P] + 1]


def chosen_tokens(positions_P: jax.Array, weights_P: jax.Array, length: int) -> jax.Array:
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


def random_ids(key: Key, shape: tuple[int, ...], masking: Masking) -> jax.Array:
    """Draw token ids from the distribution `masking.replacement`."""
    if masking.replacement == 'uniform':
        return jax.random.randint(key, shape, 0, len(masking.unigram_counts))
    cumulative_V = np.cumsum(masking.unigram_counts) / masking.unigram_counts.sum()
    draw = jax.random.uniform(key, shape)
    ids = jnp.searchsorted(jnp.asarray(cumulative_V, jnp.float32), draw, side='right')
    return ids.astype(jnp.int32)
