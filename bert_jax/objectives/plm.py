"""Permutation language modeling: predict tokens in random order, from those before in the order.

Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding", arXiv
1906.08237, section 2; zihangdai/xlnet data_utils.py, _local_perm.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import jax
import jax.numpy as jnp

from bert_jax.averages import Terms
from bert_jax.models.model import HeadOptions, ModelOutput
from bert_jax.models.rows import Rows, Targets, chosen_tokens
from bert_jax.objectives import Objective
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.mlm import empty_rows, prediction_terms
from bert_jax.types import Config, Key


@dataclasses.dataclass(frozen=True, eq=False)
class PermutedText(MaskedText):
    """The clean text in random order, with the tokens that a masking scheme chooses as targets.

    The order of a row is drawn in blocks: each block of positions has the same random order, and
    the blocks follow each other. Targets and special tokens see what comes before them in the
    order; the other tokens are context, which all see, and which sees only context
    (`Rows.ranks_BT`). A target that would see nothing has the weight 0.

    Attributes:
        block_size: Positions of a block.
    """

    mask: float = 0.0
    random: float = 0.0
    block_size: int = 256

    masking_keys = ('unknown', 'scheme', 'end_rate', 'rate_change')
    hides_tokens = False
    allows_packing = False

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> Self:
        """Return the corruption with the scheme of `config.masking`, which replaces no token."""
        masked = super().build(config, vocabulary, num_predictions)
        return dataclasses.replace(masked, mask=0.0, random=0.0, block_size=config.plm.block_size)

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Choose the targets of each row, and draw its order."""
        pairs_B2 = jax.vmap(jax.random.split)(keys_B)
        permuted = super().__call__(pairs_B2[:, 0], rows)
        ids_BT = jnp.asarray(rows.input_ids_BT)
        order_BT = jax.vmap(lambda key: self._order(key, ids_BT.shape[1]))(pairs_B2[:, 1])
        ranks_BT, targets = jax.vmap(self._ranks)(
            order_BT, ids_BT, rows.is_token_BT, permuted.chosen
        )
        return permuted.replace(input_ids_BT=ids_BT, targets=targets, ranks_BT=ranks_BT)

    def _order(self, key: Key, length: int) -> jax.Array:
        """Return the place of each position in the order, int32 [T]; places may have gaps."""
        size = min(self.block_size, length)
        place_in_block = jax.random.permutation(key, size).astype(jnp.int32)
        position_T = jnp.arange(length)
        return position_T // size * size + place_in_block[position_T % size]

    def _ranks(
        self, order_T: jax.Array, ids_T: jax.Array, is_token_T: jax.Array, targets: Targets
    ) -> tuple[jax.Array, Targets]:
        """Return the ranks of a row, and its targets without those that see nothing."""
        positions_P, ids_P, weights_P = targets
        is_target_T = chosen_tokens(positions_P, weights_P, len(ids_T))
        is_ranked_T = is_target_T | self.vocabulary.is_special(ids_T)
        ranks_T = jnp.where(is_ranked_T & is_token_T, order_T, -1)
        first = jnp.min(jnp.where(is_token_T, ranks_T, len(ids_T)))
        weights_P = weights_P * (ranks_T[jnp.asarray(positions_P)] > first)
        return ranks_T, Targets(positions_P, ids_P, weights_P)

    def describe(self, rows: Rows, row: int, vocab: Sequence[str]) -> dict[str, list[object]]:
        """Return the targets of a row, and the ranks of its tokens (−1: context)."""
        assert rows.ranks_BT is not None
        ranks = rows.ranks_BT[row][rows.attention_mask_BT[row] > 0].tolist()
        described = super().describe(rows, row, vocab)
        return {'target_positions': described.pop('masked_positions'), **described, 'ranks': ranks}


@dataclasses.dataclass(frozen=True)
class PermutationLanguageModel(Objective):
    """Cross-entropy of the targets, given the tokens before them in a random order.

    Attributes:
        block_size: Positions whose order is drawn together, for `PermutedText`.
    """

    block_size: int

    corruptions = ('permuted',)
    predicts_tokens = True

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'plm': {}}

    def terms(self, output: ModelOutput, clean: Rows) -> Terms:
        """Return the terms `plm_loss` (nats per target), `plm_accuracy` and `plm_empty`."""
        _, ids_BP, weights_BP = output.rows.chosen
        terms = prediction_terms('plm', output.heads['plm'], ids_BP, weights_BP)
        return terms | empty_rows('plm', weights_BP, output.rows)
