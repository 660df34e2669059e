"""Linear-chain conditional random fields over chosen positions of rows (Lafferty et al. 2001,
section 3).

A chain is a run of links: positions that have a tag. Positions between them are passed over, and a
row may hold several chains, one after the other, that know nothing of each other. The score of tags
y_1 … y_n of a chain is

    start[y_1] + Σ_i emission_i[y_i] + Σ_i transition[y_i−1, y_i] + end[y_n]

and everything is fp32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models.packed_rows import segment_starts

ILLEGAL = -1e9  # fp32: exp(ILLEGAL) is 0, and a few thousand of them are still finite
_OPEN = ('B', 'I')  # kinds of tags after which I and E of the same label may stand


class Scores(NamedTuple):
    """What does not depend on the text. transition_CC[i, j]: of j following i."""

    transition_CC: jax.Array
    start_C: jax.Array
    end_C: jax.Array


class Chains(NamedTuple):
    """Bool [B, T]: where there is a link; where a link is the first of its chain; where start
    scores and where end scores count (at the ends of a text, not where a window was cut)."""

    is_link_BT: jax.Array
    is_first_BT: jax.Array
    starts_BT: jax.Array
    ends_BT: jax.Array


def chains(is_link_BT, segment_ids_BT, starts_BT=True, ends_BT=True) -> Chains:
    """A chain for every run of one segment id, of the links in it.

    starts_BT, ends_BT: bool, whether the first and the last link of a chain are the first and the
    last of the text.
    """
    start_BT = segment_starts(segment_ids_BT)
    before_BT = jnp.cumsum(is_link_BT, axis=1) - is_link_BT
    is_first_BT = is_link_BT & (before_BT == jnp.take_along_axis(before_BT, start_BT, axis=1))
    flipped_BT = is_link_BT[:, ::-1]
    start_BT = segment_starts(segment_ids_BT[:, ::-1])
    after_BT = jnp.cumsum(flipped_BT, axis=1) - flipped_BT
    is_last_BT = flipped_BT & (after_BT == jnp.take_along_axis(after_BT, start_BT, axis=1))
    return Chains(is_link_BT, is_first_BT, is_first_BT & starts_BT, is_last_BT[:, ::-1] & ends_BT)


def log_likelihood(scores: Scores, emissions_BTC, tags_BT, chains: Chains) -> jax.Array:
    """fp32 [B]: log p(tags | emissions), summed over the chains of a row.

    tags_BT: int32 in [0, C), read at links alone.
    """
    return tag_scores(scores, emissions_BTC, tags_BT, chains) - log_partition(
        scores, emissions_BTC, chains
    )


def tag_scores(scores: Scores, emissions_BTC, tags_BT, chains: Chains) -> jax.Array:
    """fp32 [B]: the score of tags, summed over the chains of a row."""
    unary_BTC = _unary(scores, emissions_BTC, chains)
    unary_BT = jnp.take_along_axis(unary_BTC, tags_BT[:, :, None], axis=2)[:, :, 0]
    before_BT = jnp.take_along_axis(tags_BT, _previous_link(chains.is_link_BT), axis=1)
    pair_BT = scores.transition_CC[before_BT, tags_BT]
    pair_BT = jnp.where(chains.is_first_BT, 0, pair_BT)
    return jnp.where(chains.is_link_BT, unary_BT + pair_BT, 0).sum(1)


def log_partition(scores: Scores, emissions_BTC, chains: Chains) -> jax.Array:
    """fp32 [B]: log Σ exp score over all tags, summed over the chains of a row."""

    def step(log_BC, inputs):
        unary_BC, is_link_B, is_first_B = inputs
        follow_BC = jax.nn.logsumexp(log_BC[:, :, None] + scores.transition_CC, axis=1)
        new_BC = unary_BC + jnp.where(is_first_B[:, None], 0.0, follow_BC)
        norm_B = jax.nn.logsumexp(new_BC, axis=1)  # taken out at each link, to keep fp32 exact
        new_BC = jnp.where(is_link_B[:, None], new_BC - norm_B[:, None], log_BC)
        return new_BC, jnp.where(is_link_B, norm_B, 0.0)

    unary_BTC = _unary(scores, emissions_BTC, chains)
    inputs = _by_position(unary_BTC, chains.is_link_BT, chains.is_first_BT)
    return jax.lax.scan(step, jnp.zeros_like(unary_BTC[:, 0]), inputs)[1].sum(0)


def marginals(scores: Scores, emissions_BTC, chains: Chains) -> jax.Array:
    """fp32 [B, T, C]: p(tag | emissions) of each link, 0 elsewhere: the gradient of the log
    partition by the emissions (Eisner 2016, section 3)."""
    emissions_BTC = emissions_BTC.astype(jnp.float32)
    return jax.grad(lambda x_BTC: log_partition(scores, x_BTC, chains).sum())(emissions_BTC)


def viterbi(scores: Scores, emissions_BTC, chains: Chains) -> jax.Array:
    """int32 [B, T]: the tags of the best score of each chain, at its links; 0 elsewhere."""
    unary_BTC = _unary(scores, emissions_BTC, chains)
    same_C = jnp.arange(unary_BTC.shape[2])

    def forward(best_BC, inputs):
        unary_BC, is_link_B, is_first_B = inputs
        # Between chains nothing depends on what went before: the best end of the one before.
        pair_BCC = jnp.where(is_first_B[:, None, None], 0.0, scores.transition_CC)
        follow_BCC = best_BC[:, :, None] + pair_BCC
        new_BC = unary_BC + follow_BCC.max(1)
        new_BC -= new_BC.max(1, keepdims=True)
        pointer_BC = jnp.where(is_link_B[:, None], follow_BCC.argmax(1), same_C)
        return jnp.where(is_link_B[:, None], new_BC, best_BC), pointer_BC

    def backward(tag_B, pointer_BC):
        return jnp.take_along_axis(pointer_BC, tag_B[:, None], axis=1)[:, 0], tag_B

    inputs = _by_position(unary_BTC, chains.is_link_BT, chains.is_first_BT)
    best_BC, pointer_TBC = jax.lax.scan(forward, jnp.zeros_like(unary_BTC[:, 0]), inputs)
    _, tag_TB = jax.lax.scan(backward, best_BC.argmax(1), pointer_TBC, reverse=True)
    return jnp.where(chains.is_link_BT, tag_TB.T, 0).astype(jnp.int32)


def _unary(scores: Scores, emissions_BTC, chains: Chains) -> jax.Array:
    """Emissions with the scores of start and end."""
    return (
        emissions_BTC.astype(jnp.float32)
        + jnp.where(chains.starts_BT[:, :, None], scores.start_C, 0.0)
        + jnp.where(chains.ends_BT[:, :, None], scores.end_C, 0.0)
    )


def _by_position(*arrays):
    return tuple(jnp.swapaxes(array, 0, 1) for array in arrays)


def _previous_link(is_link_BT) -> jax.Array:
    """int32 [B, T]: the last link before each position, 0 if there is none."""
    at_BT = jnp.where(is_link_BT, jnp.arange(is_link_BT.shape[1]), 0)
    return jnp.pad(jax.lax.cummax(at_BT, axis=1)[:, :-1], ((0, 0), (1, 0)))


class Legal(NamedTuple):
    """Which tags may follow which [C, C], start [C] and end [C] a text, NumPy bool."""

    transition_CC: np.ndarray
    start_C: np.ndarray
    end_C: np.ndarray


def legal(labels: Sequence[str]) -> Legal:
    """What the names of tags allow: of BIO, that I-x follows B-x or I-x; of BIOES (if any starts
    with E- or S-), also that E-x does and that B-x and I-x are followed by I-x or E-x.

    Tags without such a prefix (O, parts of speech) may stand anywhere.
    """
    pairs = [_split(label) for label in labels]
    closed = any(kind in ('E', 'S') for kind, _ in pairs)

    def allowed(left, right):
        if left[0] in _OPEN and right[0] in ('I', 'E') and left[1] == right[1]:
            return True
        return right[0] not in ('I', 'E') and not (closed and left[0] in _OPEN)

    nothing = ('', '')
    return Legal(
        np.array([[allowed(left, right) for right in pairs] for left in pairs]),
        np.array([allowed(nothing, right) for right in pairs]),
        np.array([allowed(left, nothing) for left in pairs]),
    )


def _split(label: str) -> tuple[str, str]:
    """'B-x' → ('B', 'x'); a tag of another form has no kind."""
    kind, dash, name = label.partition('-')
    return (kind, name) if dash and kind in ('B', 'I', 'E', 'S') else ('', label)


class LinearChain(nn.Module):
    """() → Scores: learned, from 0, but ILLEGAL where the labels do not allow it.

    rate: the scores are so many times the parameters; an optimizer whose steps do not depend on
        the size of gradients (Adam) then moves them so many times as fast. At the rates that are
        right for an encoder they would hardly leave 0.
    """

    labels: tuple[str, ...]
    rate: float = 1.0
    constrained: bool = True

    @nn.compact
    def __call__(self) -> Scores:
        size = len(self.labels)
        scores = Scores(
            self._param('transitions', (size, size)),
            self._param('start', (size,)),
            self._param('end', (size,)),
        )
        if not self.constrained:
            return scores
        return Scores(
            *(
                jnp.where(is_legal, score, ILLEGAL)
                for score, is_legal in zip(scores, legal(self.labels), strict=True)
            )
        )

    def _param(self, name: str, shape: tuple[int, ...]) -> jax.Array:
        names = ('labels', None)[: len(shape)]
        make = nn.with_logical_partitioning(nn.initializers.zeros, names)
        return self.rate * self.param(name, make, shape, jnp.float32)
