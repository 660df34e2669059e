"""Beam search with the rules of transformers (generation/utils.py, `_beam_search`).

Scores are log probabilities; constraints are applied to them without a second normalization. A
text that ends has the score Σ log p / (number of tokens)^length_penalty. Each row is searched on
its own, so its result does not depend on the other rows. Letters: N beams; C candidates, 2 N, or
more with several end tokens; I tokens after the prompt.
"""

import dataclasses
import functools
from typing import Literal, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.inference.decoding import Constraints
from bert_jax.inference.next_tokens import Predict, Texts
from bert_jax.models.cache import Cache
from bert_jax.types import Tree

_WORST = -1e9
EarlyStopping: TypeAlias = bool | Literal['never']


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """How beams are compared.

    Attributes:
        num_beams: texts that are continued at the same time.
        length_penalty: exponent of the length that scores are divided by: above 0 favors long
            texts.
        early_stopping: True: stop when `num_beams` texts have ended; False: when no text of the
            current length can be better; 'never': when no longer text can be better.
    """

    num_beams: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False

    def score(self, log_p: jax.Array, length: jax.Array | int) -> jax.Array:
        """The score of texts of this length with the sum of their log probabilities."""
        return log_p / jnp.asarray(length, jnp.float32) ** self.length_penalty


class Candidates(flax.struct.PyTreeNode):
    """Texts with their scores.

    Attributes:
        ids_BCT: int32, texts with their prompts.
        log_p_BCI: fp32, log probability of each token after the prompt.
        scores_BC: fp32.
        length_BC: int32, tokens after the prompt.
    """

    ids_BCT: jax.Array
    log_p_BCI: jax.Array
    scores_BC: jax.Array
    length_BC: jax.Array

    def take(self, index_BN: jax.Array) -> 'Candidates':
        """Return some of the candidates of each row."""
        taken: Candidates = jax.tree.map(lambda leaf: _take(leaf, index_BN), self)
        return taken


class Beams(flax.struct.PyTreeNode):
    """The state of the search.

    Attributes:
        running: the texts that are continued, best first; their scores are sums.
        finished: the best texts that have ended, best first.
        is_finished_BN: whether an entry of `finished` is a text.
        improves_B: whether a running text may become better than the worst that has ended.
        prompt_length_B: int32.
        step: number of tokens after the prompts.
        cache: of the running texts, row · N + beam.
    """

    running: Candidates
    finished: Candidates
    is_finished_BN: jax.Array
    improves_B: jax.Array
    prompt_length_B: jax.Array
    step: jax.Array
    cache: Cache

    def done(self, constraints: Constraints, search: BeamSearch) -> jax.Array:
        """bool [B]: rows whose best texts are final."""
        is_full_B = self.is_finished_BN.all(1) & (search.early_stopping is True)
        return ~self.improves_B | is_full_B | (self.step >= constraints.max_tokens)


def start(texts: Texts, search: BeamSearch) -> Beams:
    """Start the search after prompts that have been read."""
    num_rows, num_beams = len(texts.length_B), search.num_beams

    def repeat(leaf_BX: jax.Array) -> jax.Array:
        return jnp.repeat(leaf_BX[:, None], num_beams, axis=1)

    # The first beam alone counts at first: all beams are equal.
    scores_BN = jnp.where(jnp.arange(num_beams) == 0, 0.0, jnp.full((num_rows, 1), _WORST))
    length_BN = jnp.zeros((num_rows, num_beams), jnp.int32)
    running = Candidates(repeat(texts.ids_BT), repeat(texts.log_p_BN), scores_BN, length_BN)
    finished = running.replace(scores_BC=jnp.full((num_rows, num_beams), _WORST))
    return Beams(
        running,
        jax.tree.map(jnp.copy, finished),  # both are donated
        jnp.zeros((num_rows, num_beams), bool),
        ~texts.done_B,
        texts.length_B,
        texts.step,
        texts.cache.take(jnp.repeat(jnp.arange(num_rows), num_beams)),
    )


@functools.partial(jax.jit, static_argnums=(0, 3, 4), donate_argnums=2)
def advance(
    predict: Predict, fixed: Tree, beams: Beams, constraints: Constraints, search: BeamSearch
) -> Beams:
    """Write the next token of every beam; the arrays of `beams` are overwritten."""
    num_rows, num_beams = beams.running.scores_BC.shape
    candidates, parent_BC, cache = _candidates(predict, fixed, beams, constraints, search)
    length = beams.step + 1
    slot_B = beams.prompt_length_B + beams.step
    last_BC = jnp.take_along_axis(candidates.ids_BCT, slot_B[:, None, None], axis=2)[:, :, 0]
    ends_BC = constraints.ends(last_BC, beams.step)

    running_scores_BC = candidates.scores_BC + ends_BC * _WORST
    running_scores_BN, chosen_BN = jax.lax.top_k(running_scores_BC, num_beams)
    running = candidates.take(chosen_BN).replace(scores_BC=running_scores_BN)
    parent_BN = jnp.take_along_axis(parent_BC, chosen_BN, axis=1)
    row_B = jnp.arange(num_rows)[:, None] * num_beams + parent_BN

    # Candidates after the first N are only there to be continued.
    is_new_BC = ends_BC & (jnp.arange(ends_BC.shape[1]) < num_beams)
    is_closed_B = beams.done(constraints, search)
    scores_BC = search.score(candidates.scores_BC, length)
    scores_BC += (~is_new_BC | is_closed_B[:, None]) * _WORST
    finished, is_finished_BN = _best(
        beams.finished, candidates.replace(scores_BC=scores_BC), beams.is_finished_BN, is_new_BC
    )

    is_open_ended = search.early_stopping == 'never' and search.length_penalty > 0
    possible_length = constraints.max_tokens if is_open_ended else length
    possible_B1 = search.score(running_scores_BN[:, :1], possible_length)
    worst_B1 = finished.scores_BC.min(1, keepdims=True)
    worst_BN = jnp.where(is_finished_BN, worst_B1, _WORST)
    return Beams(
        running,
        finished,
        is_finished_BN,
        beams.improves_B & (possible_B1 > worst_BN).any(1),
        beams.prompt_length_B,
        length,
        cache.take(row_B.reshape(-1)),
    )


def _candidates(
    predict: Predict, fixed: Tree, beams: Beams, constraints: Constraints, search: BeamSearch
) -> tuple[Candidates, jax.Array, Cache]:
    """The best continuations by one token, best first, the beam of each, and the cache."""
    running, num_beams = beams.running, search.num_beams
    num_rows = len(running.ids_BCT)
    ids_XT = running.ids_BCT.reshape(num_rows * num_beams, -1)
    length_X = jnp.repeat(beams.prompt_length_B + beams.step, num_beams)
    last_X1 = jnp.take_along_axis(ids_XT, length_X[:, None] - 1, axis=1)
    logits_XV, cache = predict(fixed, last_X1, beams.cache)
    log_p_XV = jax.nn.log_softmax(logits_XV)
    scores_XV = constraints.apply(log_p_XV, ids_XT, length_X, beams.step)

    vocab_size = scores_XV.shape[1]
    sums_BX = scores_XV.reshape(num_rows, num_beams, -1) + running.scores_BC[:, :, None]
    num_candidates = num_beams * max(2, 1 + len(constraints.end_ids))
    num_candidates = min(num_candidates, num_beams * vocab_size)
    scores_BC, index_BC = jax.lax.top_k(sums_BX.reshape(num_rows, -1), num_candidates)
    parent_BC, token_BC = index_BC // vocab_size, (index_BC % vocab_size).astype(jnp.int32)
    token_log_p_BC = jnp.take_along_axis(log_p_XV.reshape(num_rows, -1), index_BC, axis=1)

    taken, row_B1 = running.take(parent_BC), jnp.arange(num_rows)[:, None]
    slot_B1 = (beams.prompt_length_B + beams.step)[:, None]
    candidate_C = jnp.arange(num_candidates)
    candidates = Candidates(
        taken.ids_BCT.at[row_B1, candidate_C, slot_B1].set(token_BC),
        taken.log_p_BCI.at[:, :, beams.step].set(token_log_p_BC),
        scores_BC,
        taken.length_BC + 1,
    )
    return candidates, parent_BC, cache


def _best(
    finished: Candidates, new: Candidates, is_finished_BN: jax.Array, is_new_BC: jax.Array
) -> tuple[Candidates, jax.Array]:
    """The N best of the texts that have ended before and now, and whether they have ended."""
    num_beams = finished.scores_BC.shape[1]
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), finished, new)
    is_text_BX = jnp.concatenate([is_finished_BN, is_new_BC], axis=1)
    _, index_BN = jax.lax.top_k(both.scores_BC, num_beams)
    return both.take(index_BN), _take(is_text_BX, index_BN)


def _take(leaf_BCX: jax.Array, index_BN: jax.Array) -> jax.Array:
    index = index_BN.reshape(*index_BN.shape, *[1] * (leaf_BCX.ndim - 2))
    return jnp.take_along_axis(leaf_BCX, index, axis=1)
