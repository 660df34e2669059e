"""Deep biaffine attention: scores of heads and relations for dependency parsing."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models.dropout import head_dropout
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.feedforward import ACTIVATIONS
from bert_jax.models.heads import Head
from bert_jax.models.linear import TRUNCATED_STDDEV, product
from bert_jax.models.partitioning import constrain, param
from bert_jax.models.rows import Rows, gather_positions

IMPOSSIBLE = -1e9  # score of an arc to a position that cannot be a head
WORD = 3  # value of the label 'word' at the first position of each word


class ArcScores(NamedTuple):
    """Scores of arcs, and what the scores of relations are made from.

    Attributes:
        arcs_BTU: fp32, score of position u as head of position t; IMPOSSIBLE unless u is the first
            position of another word of the same sequence, or the first position of the sequence,
            which stands for the root.
        dependents_BTE, heads_BTE: states of positions as dependents and as heads, whose last
            feature is 1.
        relations_CEE: fp32, the weights between both, [C, E, E].
    """

    arcs_BTU: jax.Array
    dependents_BTE: jax.Array
    heads_BTE: jax.Array
    relations_CEE: jax.Array

    def relations_of(self, head_BT: jax.Array) -> jax.Array:
        """Return the scores of the relations to the heads at these positions, fp32 [B, T, C]."""
        head_BTE = gather_positions(self.heads_BTE, head_BT)
        float32 = jnp.dtype('float32')
        score_BTCE = product('BTE,CEF->BTCF', self.dependents_BTE, self.relations_CEE, float32)
        return product('BTCF,BTF->BTC', score_BTCE, head_BTE, float32)

    def best_relations(
        self, is_root_BTU: jax.Array, at_root_C: np.ndarray, elsewhere_C: np.ndarray
    ) -> tuple[jax.Array, jax.Array]:
        """Return the best relation of every arc, int32 [B, T, U], and its log probability.

        A loop over the relations, because the scores of all would be C times as large.

        Args:
            is_root_BTU: whether u is the root.
            at_root_C, elsewhere_C: which relations may be those of the root, and of other words.
        """

        def step(state: _Best, inputs: tuple[jax.Array, ...]) -> tuple[_Best, None]:
            best_BTU, number_BTU, total_BTU = state
            weight_EE, number, at_root, elsewhere = inputs
            float32 = jnp.dtype('float32')
            left_BTE = product('BTE,EF->BTF', self.dependents_BTE, weight_EE, float32)
            score_BTU = product('BTF,BUF->BTU', left_BTE, self.heads_BTE, float32)
            is_allowed_BTU = jnp.where(is_root_BTU, at_root, elsewhere)
            score_BTU = jnp.where(is_allowed_BTU, score_BTU, IMPOSSIBLE)
            is_better_BTU = score_BTU > best_BTU
            number_BTU = jnp.where(is_better_BTU, number, number_BTU)
            total_BTU = jnp.logaddexp(total_BTU, score_BTU)
            return _Best(jnp.maximum(best_BTU, score_BTU), number_BTU, total_BTU), None

        shape = self.arcs_BTU.shape
        lowest = jnp.full(shape, -jnp.inf)
        number_C = jnp.arange(len(at_root_C), dtype=jnp.int32)
        inputs: tuple[jax.Array, ...]
        inputs = (self.relations_CEE, number_C, jnp.asarray(at_root_C), jnp.asarray(elsewhere_C))
        initial = _Best(lowest, jnp.zeros(shape, jnp.int32), lowest)
        (best_BTU, number_BTU, total_BTU), _ = jax.lax.scan(step, initial, inputs)
        return number_BTU, best_BTU - total_BTU


class _Best(NamedTuple):
    """The best relation of every arc so far: score, number, and log Σ exp of all scores."""

    score_BTU: jax.Array
    number_BTU: jax.Array
    total_BTU: jax.Array


class BiaffineHead(Head):
    """Scores of heads and relations (Dozat & Manning 2017, arXiv 1611.01734, section 3).

    Four layers map a state to a dependent and to a head, for arcs and for relations. The score of
    an arc is d U h + u h; that of a relation is [d; 1] U_c [h; 1], which has their linear terms and
    the bias. The state of the first token of a word stands for the word, that of the first token
    of the sequence for the root.

    Attributes:
        num_labels: C, number of relations.
        arc_width, relation_width: sizes of the layers.
    """

    num_labels: int
    arc_width: int = 500
    relation_width: int = 100
    reads_head_states = True

    @nn.compact
    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> ArcScores:
        """Return the scores; `rows.labels['word']`, int32 [B, T], is WORD at the words."""
        drop = head_dropout(self.architecture, dropout_seeds_B)
        hidden_BTD = drop(constrain(states.hidden_BTD, ('batch', 'length', 'embed')), 0)
        layers = {
            name: drop(self._project(hidden_BTD, width, name), site)
            for site, (name, width) in enumerate(
                {
                    'arc_dependent': self.arc_width,
                    'arc_head': self.arc_width,
                    'relation_dependent': self.relation_width,
                    'relation_head': self.relation_width,
                }.items(),
                1,
            )
        }
        dtype, width = self.compute.activation_dtype, self.arc_width
        init = nn.initializers.normal(width**-0.5)
        arc_EE = param(self, 'arcs', init, (width + 1, width), (None, None))
        left_BTE = product('BTE,EF->BTF', _with_one(layers['arc_dependent']), arc_EE, dtype)
        arcs_BTU = product('BTF,BUF->BTU', left_BTE, layers['arc_head'], dtype)
        size = self.relation_width + 1
        shape = (self.num_labels, size, size)
        init = nn.initializers.normal(self.relation_width**-1.0)
        relations_CEE = param(self, 'relations', init, shape, ('labels', None, None))
        can_be_head_BTU = is_root(rows) | _is_other_word(rows)
        return ArcScores(
            jnp.where(can_be_head_BTU, arcs_BTU, IMPOSSIBLE),
            _with_one(layers['relation_dependent']),
            _with_one(layers['relation_head']),
            relations_CEE,
        )

    def _project(self, hidden_BTD: jax.Array, width: int, name: str) -> jax.Array:
        shape, names = (hidden_BTD.shape[-1], width), ('embed', None)
        options = dict(use_bias=True, init_range=shape[0] ** -0.5 / TRUNCATED_STDDEV, name=name)
        projected = self.make_dense('BTD,DE->BTE', shape, names, **options)(hidden_BTD)
        return ACTIVATIONS[self.architecture.hidden_act](projected)

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        size, arcs, relations = self.architecture.hidden_size, self.arc_width, self.relation_width
        layers = 4 * size * (arcs + relations) + 2 * arcs**2 + 2 * self.num_labels * relations**2
        return sequence_length * layers + 2 * sequence_length**2 * arcs


def is_root(rows: Rows) -> jax.Array:
    """bool [B, T, U]: whether u is the first position of t's sequence."""
    starts_BT = rows.starts()
    if starts_BT is None:
        starts_BT = jnp.broadcast_to(rows.is_token_BT.argmax(1)[:, None], rows.is_token_BT.shape)
    return starts_BT[:, :, None] == jnp.arange(starts_BT.shape[1])


def _is_other_word(rows: Rows) -> jax.Array:
    """bool [B, T, U]: whether u is the first position of another word of t's sequence."""
    is_word_BT = jnp.asarray(rows.labels['word']) == WORD
    t_T = jnp.arange(is_word_BT.shape[1])
    is_other_BTU = is_word_BT[:, None, :] & (t_T[:, None] != t_T)
    if rows.segment_ids_BT is not None:
        segment_ids_BT = jnp.asarray(rows.segment_ids_BT)
        is_other_BTU &= segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]
    return is_other_BTU


def _with_one(x_BTE: jax.Array) -> jax.Array:
    return jnp.concatenate([x_BTE, jnp.ones_like(x_BTE[..., :1])], axis=-1)
