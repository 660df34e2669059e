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
from bert_jax.objectives.masking_schemes import SCHEMES, Row

REPLACEMENTS = ('uniform', 'unigram')
LAST_SPANS = ('cut', 'whole')


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
    frequency in the corpus (the textbook). Raises UserError for values out of range, and for words
    in a vocabulary that does not mark them.
    """

    rate: float
    mask: float
    random: float
    replacement: str  # one of REPLACEMENTS
    mask_id: int
    special_ids: tuple[int, ...]
    unigram_counts: np.ndarray  # int64 [V]
    scheme: str = 'tokens'  # one of SCHEMES
    span_p: float = 0.2  # of the geometric distribution of span lengths
    longest_span: int = 10  # words
    last_span: str = 'cut'  # one of LAST_SPANS, see schemes.choose_spans
    longest_ngram: int = 3  # words
    is_word_start: np.ndarray | None = None  # bool [V]

    def __post_init__(self):
        for name in ('rate', 'span_p'):
            if not 0 < getattr(self, name) < 1:
                raise UserError(
                    f'masking.{name} is {getattr(self, name)}; it must lie between 0 and 1'
                )
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1:
            raise UserError(
                f'masking.mask {self.mask} and masking.random {self.random} must be at least 0 '
                'and together at most 1'
            )
        for name in ('longest_span', 'longest_ngram'):
            if getattr(self, name) < 1:
                raise UserError(f'masking.{name} is {getattr(self, name)}; it must be at least 1')
        for name, known in (
            ('replacement', REPLACEMENTS),
            ('scheme', SCHEMES),
            ('last_span', LAST_SPANS),
        ):
            if getattr(self, name) not in known:
                raise unknown(f'masking.{name}', getattr(self, name), known)
        if SCHEMES[self.scheme].by_words and not np.any(self.is_word_start):
            raise UserError(
                f'masking.scheme {self.scheme!r} goes by words, but the vocabulary does not mark '
                'where they start'
            )


def mask_tokens(
    masking: Masking, keys_B, input_ids_BT, attention_mask_BT, num_predictions: int
) -> Masked:
    """Chooses by the scheme, hides and remembers at most `num_predictions` tokens an example."""
    scheme = SCHEMES[masking.scheme]

    def one(key, input_ids_T, attention_mask_T):
        choice_key, replace_key = jax.random.split(key)
        can_choose_T = (attention_mask_T > 0) & ~is_special(input_ids_T, masking)
        row = Row(input_ids_T, attention_mask_T, can_choose_T)
        positions_P, count = scheme.choose(choice_key, row, masking, num_predictions)
        weights_P = (jnp.arange(num_predictions) < count).astype(jnp.float32)
        return replace(replace_key, input_ids_T, positions_P, weights_P, masking)

    return Masked(*jax.vmap(one)(keys_B, input_ids_BT, attention_mask_BT))


def is_special(input_ids, masking: Masking):
    """Whether ids are special tokens, [UNK] and [PAD] among them."""
    return jnp.isin(input_ids, jnp.array(masking.special_ids))


def replace(key, input_ids_T, positions_P, weights_P, masking: Masking):
    """(corrupted ids [T], positions [P], labels [P], weights [P])."""
    fate_key, id_key = jax.random.split(key)
    labels_P = input_ids_T[positions_P]
    fate_P = replacement_draws(fate_key, len(input_ids_T), positions_P, weights_P, masking)
    random_P = random_ids(id_key, positions_P.shape, masking)
    new_P = jnp.where(
        fate_P < masking.mask,
        masking.mask_id,
        jnp.where(fate_P < masking.mask + masking.random, random_P, labels_P),
    )
    new_P = jnp.where(weights_P > 0, new_P, labels_P)
    return input_ids_T.at[positions_P].set(new_P), positions_P, labels_P, weights_P


def replacement_draws(key, length: int, positions_P, weights_P, masking: Masking):
    """Uniform draws [P]; the same one for adjacent chosen tokens if the scheme says so."""
    if not SCHEMES[masking.scheme].one_fate:
        return jax.random.uniform(key, positions_P.shape)
    left_T, _ = outer_neighbors(chosen(positions_P, weights_P, length))
    return jax.random.uniform(key, (length,))[left_T[positions_P] + 1]


def chosen(positions_P, weights_P, length: int):
    """bool [T]: which tokens are predicted."""
    return jnp.zeros(length, bool).at[positions_P].max(weights_P > 0)


def outer_neighbors(chosen_T):
    """int32 [T], [T]: the nearest token before, and after, that is not chosen (−1 and T where there
    is none). Inside a run of chosen tokens these are the run's two outer boundaries.
    """
    length = len(chosen_T)
    t_T = jnp.arange(length)
    left_T = jax.lax.cummax(jnp.where(chosen_T, -1, t_T))
    right_T = jax.lax.cummin(jnp.where(chosen_T, length, t_T), reverse=True)
    return left_T, right_T


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
