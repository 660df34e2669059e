"""Which tokens are hidden, and what stands in their place: inside the jitted step, one example at a
time.

Every function here sees one example ([T] arrays) and its own key, and is mapped over the batch, so
that an example's masks depend on nothing but (seed, step, its index): not on the mesh, the hosts or
the micro-batch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError, unknown

REPLACEMENTS = ('uniform', 'unigram')


class Masked(NamedTuple):
    """A corrupted batch. Fillers in the P prediction slots have weight 0."""

    input_ids: jax.Array  # int32 [B, T] with the chosen tokens replaced
    positions: jax.Array  # int32 [B, P] distinct positions in a row
    labels: jax.Array  # int32 [B, P] the original ids at these positions
    weights: jax.Array  # float32 [B, P] 1 = predicted, 0 = filler


@dataclass(frozen=True, eq=False)
class Masking:
    """How tokens are chosen and replaced (BERT, section 3.1; create_pretraining_data.py).

    Of the chosen tokens a share `mask` becomes [MASK], a share `random` a random id, the rest
    stays. The random id is drawn uniformly from the whole vocabulary (the original code) or by its
    frequency in the corpus (the textbook).
    """

    rate: float
    mask: float
    random: float
    replacement: str  # one of REPLACEMENTS
    mask_id: int
    special_ids: tuple[int, ...]
    unigram_counts: np.ndarray  # int64 [V]

    def __post_init__(self):
        if not 0 < self.rate < 1:
            raise UserError(f'masking.rate is {self.rate}; it must lie between 0 and 1')
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1:
            raise UserError(
                f'masking.mask {self.mask} and masking.random {self.random} must be at least 0 '
                'and together at most 1'
            )
        if self.replacement not in REPLACEMENTS:
            raise unknown('masking.replacement', self.replacement, REPLACEMENTS)


def mask_tokens(
    masking: Masking, keys_B, input_ids_BT, attention_mask_BT, num_predictions: int
) -> Masked:
    """Chooses, hides and remembers `num_predictions` slots of single tokens in every example."""

    def one(key, input_ids_T, attention_mask_T):
        choice_key, replace_key = jax.random.split(key)
        positions_P, weights_P = choose_tokens(
            choice_key, input_ids_T, attention_mask_T, masking, num_predictions
        )
        return replace(replace_key, input_ids_T, positions_P, weights_P, masking)

    return Masked(*jax.vmap(one)(keys_B, input_ids_BT, attention_mask_BT))


def num_to_choose(attention_mask_T, rate: float, num_predictions: int):
    """n = min(num_predictions, max(1, round(rate · length))), [CLS] and [SEP] counted in the
    length.

    Source: google-research/bert create_pretraining_data.py, create_masked_lm_predictions.
    """
    length = jnp.sum(attention_mask_T)
    return jnp.clip(jnp.round(rate * length), 1, num_predictions).astype(jnp.int32)


def choose_tokens(key, input_ids_T, attention_mask_T, masking: Masking, num_predictions: int):
    """(positions int32 [P], weights float32 [P]): n tokens uniformly without replacement, never
    special or padding.
    """
    is_special_T = jnp.isin(input_ids_T, jnp.array(masking.special_ids))
    can_choose_T = (attention_mask_T > 0) & ~is_special_T
    score_T = jnp.where(can_choose_T, jax.random.uniform(key, input_ids_T.shape), -1.0)
    score_P, positions_P = jax.lax.top_k(score_T, num_predictions)
    n = num_to_choose(attention_mask_T, masking.rate, num_predictions)
    chosen_P = (jnp.arange(num_predictions) < n) & (score_P >= 0)
    return positions_P, chosen_P.astype(jnp.float32)


def replace(key, input_ids_T, positions_P, weights_P, masking: Masking):
    """(corrupted ids [T], positions [P], labels [P], weights [P])."""
    fate_key, id_key = jax.random.split(key)
    labels_P = input_ids_T[positions_P]
    fate_P = jax.random.uniform(fate_key, positions_P.shape)
    random_P = random_ids(id_key, positions_P.shape, masking)
    new_P = jnp.where(
        fate_P < masking.mask,
        masking.mask_id,
        jnp.where(fate_P < masking.mask + masking.random, random_P, labels_P),
    )
    new_P = jnp.where(weights_P > 0, new_P, labels_P)
    return input_ids_T.at[positions_P].set(new_P), positions_P, labels_P, weights_P


def random_ids(key, shape, masking: Masking):
    """Ids drawn uniformly over the vocabulary, or by inversion of the cumulative unigram
    frequencies.
    """
    if masking.replacement == 'uniform':
        return jax.random.randint(key, shape, 0, len(masking.unigram_counts))
    cumulative_V = np.cumsum(masking.unigram_counts) / masking.unigram_counts.sum()
    draw = jax.random.uniform(key, shape)
    return jnp.searchsorted(jnp.asarray(cumulative_V, jnp.float32), draw, side='right').astype(
        jnp.int32
    )
