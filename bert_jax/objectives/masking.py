"""Masking: hides chosen tokens of a text.

Every function works on one example (arrays [T]) with its own PRNG key and is mapped over the batch.
The masks of an example therefore depend on (seed, step, index of the example) alone: not on the
mesh, the number of hosts or the number of micro-batches.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bert_jax.errors import UserError, unknown
from bert_jax.models.rows import Rows, Targets, chosen_tokens, outer_neighbors
from bert_jax.objectives.corruption import REPLACEMENTS, Corruption, Vocabulary
from bert_jax.objectives.masking_schemes import SCHEMES, Scheme, TokenRow, find_scheme
from bert_jax.types import Config, Key, Tree

# masking.rate_change → the remaining share of the change of the rate, from the share of the run.
RATE_CHANGES: dict[str, Callable[[jax.Array], jax.Array]] = {
    'linear': lambda progress: 1 - progress,
    'cosine': lambda progress: 0.5 + 0.5 * jnp.cos(jnp.pi * progress),
    'step': lambda progress: jnp.float32(progress < 0.5),
}


def rate_at(start: float | jax.Array, end: float, change: str, progress: ArrayLike) -> jax.Array:
    """Return a masking rate after a share of the run, a float32 scalar.

    It falls (or rises) from `start` to `end`: linearly, along half a cosine, or in a step at half
    the run (Ankner et al. 2023, arXiv 2305.15096; mosaicml/examples mlm_scheduling.py).
    """
    rate: jax.Array = end + (start - end) * RATE_CHANGES[change](jnp.float32(progress))
    return rate


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedText(Corruption):
    """The text with hidden tokens (BERT, section 3.1; create_pretraining_data.py).

    Of the chosen tokens a share `mask` becomes [MASK], a share `random` becomes a random token, and
    the rest is kept.

    Attributes:
        scheme: Chooses the tokens.
        num_predictions: Sequence length → maximum number of chosen tokens per row.
        mask: Share of the chosen tokens that become [MASK].
        random: Share of the chosen tokens that become a random token.
        replacement: Distribution of random tokens: 'uniform' over the vocabulary (the original
            code) or 'unigram', by frequency in the corpus.
        end_rate: The rate of the scheme at the end of the run; None: it does not change.
        rate_change: How it changes, in RATE_CHANGES.

    Raises:
        UserError: For values out of range, and for a scheme that needs words if the vocabulary does
            not mark them.
    """

    scheme: Scheme
    num_predictions: Mapping[int, int]
    mask: float = 0.8
    random: float = 0.1
    replacement: str = 'uniform'
    end_rate: float | None = None
    rate_change: str = 'linear'

    masking_keys: ClassVar[tuple[str, ...]] = (
        *('unknown', 'scheme', 'mask', 'random', 'replacement'),
        *('end_rate', 'rate_change'),
    )

    def __post_init__(self) -> None:
        if self.mask + self.random > 1:
            raise UserError(
                f'masking.mask is {self.mask} and masking.random is {self.random}; their sum must '
                'be at most 1'
            )
        if self.replacement not in REPLACEMENTS:
            raise unknown('masking.replacement', self.replacement, REPLACEMENTS)
        if self.scheme.needs_words and not np.any(self.vocabulary.is_word_start_V):
            names = (name for name, kind in SCHEMES.items() if type(self.scheme) is kind)
            name = next(names, type(self.scheme).__name__)
            raise UserError(
                f'masking.scheme {name!r} chooses words, but the vocabulary does not mark where '
                "words start; use masking.scheme='tokens' or another tokenizer"
            )

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> Self:
        """Return the corruption with the settings `config.masking`."""
        masking = config.masking
        kind = find_scheme(masking.scheme)
        if missing := [name for name in kind.options() if name not in masking]:
            raise UserError(
                f'masking.scheme {masking.scheme!r} has the option {missing[0]!r}, but the config '
                f'has no key masking.{missing[0]}; declare it in the recipe'
            )
        scheme = kind(**{name: masking[name] for name in kind.options()})
        shares = (masking.mask, masking.random, masking.replacement)
        change = (masking.end_rate, masking.rate_change)
        return cls(vocabulary, scheme, num_predictions, *shares, *change)

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Choose tokens of each row and replace them."""
        arrays: Tree = (rows.input_ids_BT, rows.attention_mask_BT, rows.segment_ids_BT)
        ids_BT, targets = jax.vmap(self._mask_row)(keys_B, *arrays)
        return rows.replace(input_ids_BT=ids_BT, targets=targets)

    def at(self, progress: ArrayLike) -> Self:
        """Return the corruption with the masking rate after a share of the run."""
        if self.end_rate is None:
            return self
        rate = rate_at(self.scheme.rate, self.end_rate, self.rate_change, progress)
        return dataclasses.replace(self, scheme=dataclasses.replace(self.scheme, rate=rate))

    def _mask_row(
        self, key: Key, ids_T: jax.Array, mask_T: jax.Array, segment_ids_T: jax.Array | None
    ) -> tuple[jax.Array, Targets]:
        choice_key, replace_key = jax.random.split(key)
        vocabulary, number = self.vocabulary, self.num_predictions[len(ids_T)]
        can_choose_T = (mask_T > 0) & ~vocabulary.is_special(ids_T)
        starts_V = vocabulary.is_word_start_V
        starts_T = None if starts_V is None else jnp.asarray(starts_V)[ids_T]
        row = TokenRow(ids_T, mask_T, can_choose_T, segment_ids_T, starts_T)
        positions_P, number_chosen = self.scheme.choose(choice_key, row, number)
        weights_P = (jnp.arange(number) < number_chosen).astype(jnp.float32)
        targets = Targets(positions_P, ids_T[positions_P], weights_P)
        return self._replace(replace_key, ids_T, targets), targets

    def _replace(self, key: Key, ids_T: jax.Array, targets: Targets) -> jax.Array:
        """Put [MASK] or a random token at the chosen positions, or keep the token."""
        draw_key, id_key = jax.random.split(key)
        positions_P, original_P, weights_P = targets
        draws_P = self._replacement_draws(draw_key, len(ids_T), targets)
        random_P = self.vocabulary.random_ids(id_key, original_P.shape, self.replacement)
        new_P = jnp.where(
            draws_P < self.mask,
            self.vocabulary.mask_id,
            jnp.where(draws_P < self.mask + self.random, random_P, original_P),
        )
        return ids_T.at[positions_P].set(jnp.where(weights_P > 0, new_P, original_P))

    def _replacement_draws(self, key: Key, length: int, targets: Targets) -> jax.Array:
        """Uniform draws [P], shared by adjacent chosen tokens if the scheme says so."""
        positions_P, _, weights_P = targets
        if not self.scheme.shares_draws:
            return jax.random.uniform(key, positions_P.shape)
        left_T, _ = outer_neighbors(chosen_tokens(positions_P, weights_P, length))
        return jax.random.uniform(key, (length,))[left_T[positions_P] + 1]
