"""Reads prompts into a cache, then writes one token a step: greedy decoding and sampling.

`Predict` is all that a search knows of a model, so that a decoder beside an encoder can use the
searches: what it attends to besides the cache, such as the states of the encoder, belongs to
`fixed`.
"""

import dataclasses
import functools
from typing import Protocol

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.inference.decoding import Constraints, Sampling, noise
from bert_jax.models.cache import Cache, Memory
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.types import Array, Params, Tree

_READ_AT_ONCE = 512  # tokens of a prompt: attention scores have this length times the cache's


class Predict(Protocol):
    """Predicts the next token; hashable, because it is static in jitted functions."""

    def __call__(self, fixed: Tree, ids_BT: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Return the logits after the last token, fp32 [B, V], and the cache with these tokens.

        Args:
            fixed: arrays that do not change while texts are written, such as parameters.
            ids_BT: the next tokens of each text.
            cache: of the tokens before them.
        """


@dataclasses.dataclass(frozen=True)
class CausalPredict:
    """Predicts the next token with the head 'clm' of a model; `fixed` are its parameters."""

    model: Model

    def __call__(self, fixed: Params, ids_BT: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        rows = Rows(ids_BT, jnp.ones_like(ids_BT), cache=cache)
        output: Tree = self.model.apply({'params': fixed}, rows)
        logits_BTV: jax.Array = output.heads['clm']
        return logits_BTV[:, -1, : self.model.architecture.vocab_size], output.states.cache


@dataclasses.dataclass(frozen=True)
class TargetPredict:
    """Predicts the next token with the decoder and the head 'seq2seq' of a model.

    `fixed` are the parameters, and the memory of the sources. There may be several texts for each
    source, one after the other.
    """

    model: Model

    def __call__(
        self, fixed: tuple[Params, Memory], ids_BT: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        params, memory = fixed
        rows = Rows(ids_BT, jnp.ones_like(ids_BT), cache=cache)
        output: Tree = self.model.apply({'params': params}, rows, memory, method='decode')
        logits_BTV: jax.Array = output.heads['seq2seq']
        return logits_BTV[:, -1, : self.model.architecture.vocab_size], output.decoder.cache


class Texts(flax.struct.PyTreeNode):
    """Texts while they are written.

    Attributes:
        ids_BT: int32, each text with its prompt; anything from its length on.
        length_B: int32, length of each text.
        log_p_BN: fp32, log probability of each token after the prompt.
        done_B: bool, whether a text has ended.
        step: number of tokens written after each prompt that has not ended.
        cache: of all tokens but the last of each text.
    """

    ids_BT: jax.Array
    length_B: jax.Array
    log_p_BN: jax.Array
    done_B: jax.Array
    step: jax.Array
    cache: Cache

    @property
    def last_B1(self) -> jax.Array:
        """The last token of each text."""
        return jnp.take_along_axis(self.ids_BT, self.length_B[:, None] - 1, axis=1)


@functools.partial(jax.jit, static_argnums=(0, 5), donate_argnums=4)
def _read(
    model: Model, params: Params, ids_BT: Array, mask_BT: Array, cache: Cache, prefix_lm: bool
) -> Cache:
    rows = Rows(ids_BT, mask_BT, cache=cache, is_prefix_BT=mask_BT if prefix_lm else None)
    output: Tree = model.with_heads().apply({'params': params}, rows)
    read: Cache = output.states.cache
    return read


def read_prompts(
    model: Model,
    params: Params,
    ids_BT: Array,
    length_B: Array,
    num_tokens: int,
    prefix_lm: bool = False,
) -> Texts:
    """Read prompts into a cache with places for further tokens.

    Args:
        model: a causal model.
        params: its parameters.
        ids_BT: int32, the prompts, padded at the end.
        length_B: int32, their lengths, at least 1.
        num_tokens: number of tokens to write after each prompt.
        prefix_lm: whether all positions see the whole prompt, as the model was trained.

    Raises:
        UserError: the model cannot have a cache (models/cache.py).
    """
    num_rows, longest = ids_BT.shape
    num_slots = min(longest + num_tokens, model.architecture.max_length)
    cache = Cache.empty(model.architecture, model.compute, num_rows, num_slots)
    ids_BT, length_B = jnp.asarray(ids_BT), jnp.asarray(length_B)
    # The last token is read when the first token is written. With a prefix it is read before that
    # too, because the tokens before it see it; then all tokens are read at once.
    last_B1, at_once = length_B[:, None] - 1, longest if prefix_lm else _READ_AT_ONCE
    mask_BT = (jnp.arange(longest) < last_B1 + prefix_lm).astype(jnp.int32)
    for start in range(0, longest, at_once):
        part = slice(start, start + at_once)
        cache = _read(model, params, ids_BT[:, part], mask_BT[:, part], cache, prefix_lm)
    cache = cache.replace(length_B=length_B - 1)
    return Texts(
        jnp.pad(ids_BT, [(0, 0), (0, num_slots - longest)]),
        length_B,
        jnp.zeros((num_rows, num_tokens)),
        jnp.zeros(num_rows, bool),
        jnp.int32(0),
        cache,
    )


@functools.partial(jax.jit, static_argnums=0)
def _encode(model: Model, params: Params, sources: Rows) -> Memory:
    memory: Tree = model.apply({'params': params}, sources, method='memory')
    return memory  # type: ignore[no-any-return]


def start_targets(
    model: Model, params: Params, sources: Rows, start_B: Array, num_tokens: int
) -> tuple[Texts, tuple[Params, Memory]]:
    """Encode sources, and start a text for each with one token.

    Args:
        model: a model with a decoder.
        params: its parameters.
        sources: what the encoder reads.
        start_B: int32, the first token of each text.
        num_tokens: number of tokens to write after it.

    Returns:
        The texts, and `fixed` of `TargetPredict`.

    Raises:
        UserError: more tokens than the decoder has positions.
    """
    architecture, num_rows = model.architecture.of_decoder, len(start_B)
    cache = Cache.empty(architecture, model.compute, num_rows, 1 + num_tokens)
    texts = Texts(
        jnp.pad(jnp.asarray(start_B)[:, None], [(0, 0), (0, num_tokens)]),
        jnp.ones(num_rows, jnp.int32),
        jnp.zeros((num_rows, num_tokens)),
        jnp.zeros(num_rows, bool),
        jnp.int32(0),
        cache,
    )
    return texts, (params, _encode(model, params, sources))


@functools.partial(jax.jit, static_argnums=(0, 3, 4), donate_argnums=2)
def write_token(
    predict: Predict,
    fixed: Tree,
    texts: Texts,
    constraints: Constraints,
    sampling: Sampling | None,
    keys_B: jax.Array,
) -> Texts:
    """Write the next token of each text that has not ended.

    Args:
        predict: the model.
        fixed: see `Predict`.
        texts: the texts so far; its arrays are overwritten.
        constraints: what may be written.
        sampling: how tokens are drawn; None: the most probable is taken.
        keys_B: the randomness of each text.
    """
    logits_BV, cache = predict(fixed, texts.last_B1, texts.cache)
    scores_BV = constraints.apply(logits_BV, texts.ids_BT, texts.length_B, texts.step)
    if sampling is None:
        next_B = jnp.argmax(scores_BV, axis=1).astype(jnp.int32)
    else:
        next_B = sampling.draw(scores_BV, noise(keys_B, texts.step, scores_BV.shape[1]))
    row_B, is_open_B = jnp.arange(len(next_B)), ~texts.done_B
    log_p_B = jax.nn.log_softmax(logits_BV)[row_B, next_B]
    slot_B = jnp.where(is_open_B, texts.length_B, texts.ids_BT.shape[1])  # none if it has ended
    return Texts(
        texts.ids_BT.at[row_B, slot_B].set(next_B, mode='drop'),
        texts.length_B + is_open_B,
        texts.log_p_BN.at[:, texts.step].set(jnp.where(is_open_B, log_p_B, 0.0)),
        texts.done_B | constraints.ends(next_B, texts.step),
        texts.step + 1,
        cache,
    )
