"""The jitted functions of inference: states, predicted tokens, likelihoods.

The parameters may have more heads than the model.
"""

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from bert_jax.models import head_states
from bert_jax.models.encoders.transformer import attention_probabilities
from bert_jax.models.head_states import COMBINATIONS
from bert_jax.models.model import Model
from bert_jax.models.pooling import Pooling
from bert_jax.models.rows import Rows, Targets
from bert_jax.models.sparse_pooling import SparsePooling
from bert_jax.types import Batch, Params, Tree

# What `vectors.layers` returns: the number of a layer, a name in COMBINATIONS, 'lstm_1' to
# 'lstm_N', or a tuple of these, whose states are stacked.
Layers: TypeAlias = int | str | tuple[int | str, ...]


def _apply(model: Model, params: Params, batch: Batch, **options: Any) -> Tree:
    return model.with_heads().apply({'params': params}, Rows.of(batch), **options)


@functools.partial(jax.jit, static_argnums=(0, 1))
def states(model: Model, layer: Layers, params: Params, batch: Batch) -> jax.Array:
    """States of a layer or a combination, float32 [B, T, D]; of K layers, float32 [B, T, K, D]."""
    is_last = layer == model.architecture.num_layers
    output = _apply(model, params, batch, all_hidden=not is_last).states
    if is_last:
        hidden_BTD: jax.Array = output.hidden_BTD.astype(jnp.float32)
        return hidden_BTD

    def read(name: int | str) -> jax.Array:
        states_LBTD = output.all_hidden_LBTD
        if isinstance(name, int):
            own_BTD: jax.Array = states_LBTD[name].astype(jnp.float32)
            return own_BTD
        if name in COMBINATIONS:
            return COMBINATIONS[name](states_LBTD.astype(jnp.float32))
        settings = (model.architecture, model.compute, int(name.removeprefix('lstm_')))
        own = head_states.with_lstm(params)
        return head_states.lstm_layer(*settings, own, output, Rows.of(batch))

    return jnp.stack([*map(read, layer)], axis=2) if isinstance(layer, tuple) else read(layer)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def pooled(
    model: Model, layer: Layers, pooling: Pooling, params: Params, batch: Batch
) -> jax.Array:
    """Return the sum or the maximum of the states in the span of each row, float32 [B, …]."""
    states_BTX = states(model, layer, params, batch)
    positions_T, (first_B, last_B) = jnp.arange(states_BTX.shape[1]), batch['span'].T
    chosen_BT = (positions_T >= first_B[:, None]) & (positions_T < last_B[:, None])
    return pooling.of_window(states_BTX, chosen_BT)


@functools.partial(jax.jit, static_argnums=0)
def attention(model: Model, params: Params, batch: Batch) -> jax.Array:
    """Attention probabilities of every layer and head, float32 [B, L, H, T, T]."""
    _, variables = _apply(model, params, batch, mutable='intermediates')
    intermediates = variables.get('intermediates', {}).get('encoder', {})
    weights_LBHTU = attention_probabilities(model.architecture, intermediates)
    return weights_LBHTU.swapaxes(0, 1)


def _logits(model: Model, params: Params, batch: Batch) -> jax.Array:
    """Logits of the model's only head at the `positions` of each row, float32 [B, P, V]."""
    targets = Targets.at(jnp.asarray(batch['positions']))
    output: Tree = model.apply({'params': params}, Rows.of(batch).replace(targets=targets))
    heads: list[jax.Array] = [*output.heads.values()]
    (logits_BPV,) = heads
    return logits_BPV


# Compiled separately, and shared by `guesses` and prompts: the last bits of a softmax depend on the
# operations that XLA fuses it with.
logits = jax.jit(_logits, static_argnums=0)
probabilities = jax.jit(jax.nn.softmax)
_top_k = jax.jit(jax.lax.top_k, static_argnums=1)


@functools.partial(jax.jit, static_argnums=0)
def late(model: Model, params: Params, batch: Batch) -> jax.Array:
    """States of all positions, float32 [B, T, D], of rows whose first `attended` are attended to.

    The other tokens, which pad queries, have states too.
    """
    number_T = jnp.arange(batch['input_ids'].shape[1])
    is_attended_BT = number_T < batch['attended'][:, :1]
    is_empty_B1 = batch['attended'][:, :1] == 0
    mask_BT = jnp.where(is_empty_B1, batch['attention_mask'], is_attended_BT.astype(jnp.int32))
    output = _apply(model, params, {**batch, 'attention_mask': mask_BT}).states
    states_BTD: jax.Array = output.hidden_BTD.astype(jnp.float32)
    return states_BTD


@functools.partial(jax.jit, static_argnums=(0, 1))
def sparse(model: Model, pooling: SparsePooling, params: Params, batch: Batch) -> jax.Array:
    """Weights of the tokens of the vocabulary in each row, float32 [B, V]."""
    rows = Rows.of(batch)
    output: Tree = model.apply({'params': params}, rows)
    (logits_BTV,) = output.heads.values()
    return pooling.pool(logits_BTV, rows)[:, 0, : model.architecture.vocab_size]


def guesses(model: Model, top_k: int, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Probabilities and ids of the most probable tokens, [B, P, top_k] each."""
    best: tuple[jax.Array, jax.Array] = _top_k(probabilities(logits(model, params, batch)), top_k)
    return best


@jax.jit
def pick(logits_BPV: jax.Array, p_BPV: jax.Array, ids_AK: jax.Array) -> dict[str, jax.Array]:
    """'p' and 'log_p' of the tokens ids_AK, float32 [B, P, A, K]; p_BPV from `probabilities`."""
    return {'p': p_BPV[:, :, ids_AK], 'log_p': jax.nn.log_softmax(logits_BPV)[:, :, ids_AK]}


@functools.partial(jax.jit, static_argnums=0)
def log_probabilities(model: Model, params: Params, batch: Batch) -> jax.Array:
    """Log probabilities of the `targets` at the `positions` of each row, float32 [B, P]."""
    from bert_jax.objectives.mlm import cross_entropy  # only likelihoods need objectives

    return -cross_entropy(_logits(model, params, batch), batch['targets'])
