"""Linear-chain conditional random fields (Lafferty et al. 2001, section 3).

A chain consists of links, the positions of a row that have a tag; positions between links are
skipped. A row may hold several independent chains. The score of tags y_1 … y_n of a chain is

    start[y_1] + Σ_i emission_i[y_i] + Σ_i transition[y_i−1, y_i] + end[y_n]

Everything is computed in fp32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.rows import segment_starts
from bert_jax.types import Array

DISALLOWED = -1e9  # in fp32 exp(DISALLOWED) is 0, and a sum of thousands of these is finite
_OPEN = ('B', 'I')  # prefixes of tags that I and E of the same label may follow


class TransitionScores(NamedTuple):
    """Scores that do not depend on the text; transition_CC[i, j] is for tag j after tag i."""

    transition_CC: Array
    start_C: Array
    end_C: Array


class Chains(NamedTuple):
    """The chains of a batch of rows, bool [B, T].

    Attributes:
        is_link_BT: the position has a tag.
        is_first_BT: the link is the first of its chain.
        starts_BT: the link's tag gets a start score: the link is the first of its text, not only of
            a window of a longer text.
        ends_BT: the link's tag gets an end score.
    """

    is_link_BT: Array
    is_first_BT: Array
    starts_BT: Array
    ends_BT: Array


def find_chains(
    is_link_BT: Array,
    segment_ids_BT: Array,
    starts_BT: Array | bool = True,
    ends_BT: Array | bool = True,
) -> Chains:
    """Make one chain from the links in each run of one segment id.

    Args:
        is_link_BT: bool, the position has a tag.
        segment_ids_BT: int32.
        starts_BT: bool, whether the first link of a chain is the first of its text.
        ends_BT: bool, whether the last link of a chain is the last of its text.
    """
    is_first_BT = _first_links(is_link_BT, segment_ids_BT)
    is_last_BT = _first_links(is_link_BT[:, ::-1], segment_ids_BT[:, ::-1])[:, ::-1]
    return Chains(is_link_BT, is_first_BT, is_first_BT & starts_BT, is_last_BT & ends_BT)


def _first_links(is_link_BT: Array, segment_ids_BT: Array) -> Array:
    start_BT = segment_starts(segment_ids_BT)
    before_BT = jnp.cumsum(is_link_BT, axis=1) - is_link_BT
    return is_link_BT & (before_BT == jnp.take_along_axis(before_BT, start_BT, axis=1))


def log_likelihood(
    scores: TransitionScores, emissions_BTC: Array, tags_BT: Array, chains: Chains
) -> jax.Array:
    """fp32 [B]: log p(tags | emissions), summed over the chains of a row.

    tags_BT: int32 in [0, C); only tags of links matter.
    """
    tag_score_B = tag_scores(scores, emissions_BTC, tags_BT, chains)
    return tag_score_B - log_partition(scores, emissions_BTC, chains)


def tag_scores(
    scores: TransitionScores, emissions_BTC: Array, tags_BT: Array, chains: Chains
) -> jax.Array:
    """fp32 [B]: the score of the tags, summed over the chains of a row."""
    unary_BTC = _unary_scores(scores, emissions_BTC, chains)
    unary_BT = jnp.take_along_axis(unary_BTC, tags_BT[:, :, None], axis=2)[:, :, 0]
    before_BT = jnp.take_along_axis(tags_BT, _previous_link(chains.is_link_BT), axis=1)
    pair_BT = scores.transition_CC[before_BT, tags_BT]
    pair_BT = jnp.where(chains.is_first_BT, 0, pair_BT)
    return jnp.where(chains.is_link_BT, unary_BT + pair_BT, 0).sum(1)


def log_partition(scores: TransitionScores, emissions_BTC: Array, chains: Chains) -> jax.Array:
    """fp32 [B]: log Σ exp score over all tag sequences, summed over the chains of a row."""

    def step(log_BC: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        unary_BC, is_link_B, is_first_B = inputs
        follow_BC = jax.nn.logsumexp(log_BC[:, :, None] + scores.transition_CC, axis=1)
        new_BC = unary_BC + jnp.where(is_first_B[:, None], 0.0, follow_BC)
        norm_B = jax.nn.logsumexp(new_BC, axis=1)  # subtracted at each link, to keep fp32 exact
        new_BC = jnp.where(is_link_B[:, None], new_BC - norm_B[:, None], log_BC)
        return new_BC, jnp.where(is_link_B, norm_B, 0.0)

    unary_BTC = _unary_scores(scores, emissions_BTC, chains)
    inputs = _by_position(unary_BTC, chains.is_link_BT, chains.is_first_BT)
    return jax.lax.scan(step, jnp.zeros_like(unary_BTC[:, 0]), inputs)[1].sum(0)


def marginals(scores: TransitionScores, emissions_BTC: Array, chains: Chains) -> jax.Array:
    """fp32 [B, T, C]: p(tag | emissions) at each link, 0 elsewhere.

    The gradient of the log partition with respect to the emissions (Eisner 2016, section 3).
    """
    gradient = jax.grad(lambda emissions_BTC: log_partition(scores, emissions_BTC, chains).sum())
    gradient_BTC: jax.Array = gradient(emissions_BTC.astype(jnp.float32))
    return gradient_BTC


def viterbi(scores: TransitionScores, emissions_BTC: Array, chains: Chains) -> jax.Array:
    """int32 [B, T]: the best-scoring tags of each chain at its links, 0 elsewhere."""
    unary_BTC = _unary_scores(scores, emissions_BTC, chains)
    same_C = jnp.arange(unary_BTC.shape[2])

    def forward(best_BC: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        unary_BC, is_link_B, is_first_B = inputs
        # The first tag of a chain does not depend on the chain before it.
        pair_BCC = jnp.where(is_first_B[:, None, None], 0.0, scores.transition_CC)
        follow_BCC = best_BC[:, :, None] + pair_BCC
        new_BC = unary_BC + follow_BCC.max(1)
        new_BC -= new_BC.max(1, keepdims=True)
        pointer_BC = jnp.where(is_link_B[:, None], follow_BCC.argmax(1), same_C)
        return jnp.where(is_link_B[:, None], new_BC, best_BC), pointer_BC

    def backward(tag_B: jax.Array, pointer_BC: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.take_along_axis(pointer_BC, tag_B[:, None], axis=1)[:, 0], tag_B

    inputs = _by_position(unary_BTC, chains.is_link_BT, chains.is_first_BT)
    best_BC, pointer_TBC = jax.lax.scan(forward, jnp.zeros_like(unary_BTC[:, 0]), inputs)
    _, tag_TB = jax.lax.scan(backward, best_BC.argmax(1), pointer_TBC, reverse=True)
    return jnp.where(jnp.asarray(chains.is_link_BT), jnp.asarray(tag_TB, jnp.int32).T, 0)


def _unary_scores(scores: TransitionScores, emissions_BTC: Array, chains: Chains) -> jax.Array:
    """Emissions plus start and end scores."""
    return (
        jnp.asarray(emissions_BTC, jnp.float32)
        + jnp.where(chains.starts_BT[:, :, None], scores.start_C, 0.0)
        + jnp.where(chains.ends_BT[:, :, None], scores.end_C, 0.0)
    )


def _by_position(*arrays: Array) -> tuple[jax.Array, ...]:
    """[B, T, …] → [T, B, …]."""
    return tuple(jnp.swapaxes(array, 0, 1) for array in arrays)


def _previous_link(is_link_BT: Array) -> jax.Array:
    """int32 [B, T]: the last link before each position, 0 if there is none."""
    at_BT = jnp.where(is_link_BT, jnp.arange(is_link_BT.shape[1]), 0)
    return jnp.pad(jax.lax.cummax(at_BT, axis=1)[:, :-1], ((0, 0), (1, 0)))


class AllowedTags(NamedTuple):
    """Which tags may follow each other, start a text and end it, NumPy bool."""

    transition_CC: np.ndarray
    start_C: np.ndarray
    end_C: np.ndarray


def allowed_tags(labels: Sequence[str]) -> AllowedTags:
    """Derive from the names of tags which sequences their scheme allows.

    BIO: I-x only follows B-x or I-x, if there is a tag B-x. BIOES, recognized by any tag E- or S-:
    E-x, too, only follows B-x or I-x, and B-x or I-x must be followed by I-x or E-x. L- and U- of
    BILOU are E- and S-. Tags without such a prefix (O, parts of speech) may stand anywhere.
    """
    pairs = [_split(label) for label in labels]
    begun = {name for prefix, name in pairs if prefix == 'B'}
    is_bioes = any(prefix in ('E', 'S') for prefix, _ in pairs)
    names = {name: number for number, (_, name) in enumerate(pairs)}
    name_C = np.array([names[name] for _, name in pairs])
    is_open_C = np.array([prefix in _OPEN for prefix, _ in pairs])
    continues_C = np.array(  # must follow a tag of the same name
        [prefix == 'E' or (prefix == 'I' and (is_bioes or name in begun)) for prefix, name in pairs]
    )
    may_continue_C = np.array([prefix in ('I', 'E') for prefix, _ in pairs])
    same_CC = (name_C[:, None] == name_C) & is_open_C[:, None] & may_continue_C
    ends_C = ~is_open_C if is_bioes else np.ones_like(is_open_C)
    return AllowedTags(same_CC | (ends_C[:, None] & ~continues_C), ~continues_C, ends_C)


def _split(label: str) -> tuple[str, str]:
    """'B-x' → ('B', 'x'); a tag of another form has the prefix ''."""
    prefix, dash, name = label.partition('-')
    prefix = {'L': 'E', 'U': 'S'}.get(prefix, prefix)
    return (prefix, name) if dash and prefix in ('B', 'I', 'E', 'S') else ('', label)
