"""The jitted functions of inference: states, masked-token predictions, likelihoods."""

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from bert_jax.interop.pretrained import token_logits
from bert_jax.models.encoders.base import Encoder
from bert_jax.models.encoders.transformer import attention_probabilities
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.objectives.mlm import cross_entropy
from bert_jax.types import Batch, Params

# A layer number, a name in COMBINATIONS, or a tuple of these, whose states are stacked.
Layers: TypeAlias = int | str | tuple[int | str, ...]
# Name → function of the states of all layers, [L + 1, B, T, D].
COMBINATIONS = {
    'sum_last_4': lambda states_LBTD: states_LBTD[-4:].sum(0),
    'mean_last_4': lambda states_LBTD: states_LBTD[-4:].mean(0),
    'concat_last_4': lambda states_LBTD: jnp.concatenate(states_LBTD[-4:], axis=-1),
    'all': lambda states_LBTD: jnp.moveaxis(states_LBTD, 0, 2),
}


def _apply(encoder: Encoder, params: Params, batch: Batch, **options: Any) -> Any:
    return encoder.apply({'params': params['encoder']}, Rows.of(batch), **options)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def states(
    encoder: Encoder, layer: Layers, causal: bool, params: Params, batch: Batch
) -> jax.Array:
    """States of a layer or a combination, float32 [B, T, D]; of K layers, float32 [B, T, K, D]."""
    output = _apply(encoder, params, batch, all_hidden=layer != -1, causal=causal)
    if layer == -1:
        return output.hidden_BTD.astype(jnp.float32)
    states_LBTD = output.all_hidden_LBTD.astype(jnp.float32)
    if isinstance(layer, tuple):
        return jnp.stack([_combine(states_LBTD, single) for single in layer], axis=2)
    return _combine(states_LBTD, layer)


def _combine(states_LBTD: jax.Array, layer: int | str) -> jax.Array:
    return COMBINATIONS[layer](states_LBTD) if isinstance(layer, str) else states_LBTD[layer]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def pooled(
    encoder: Encoder, layer: Layers, causal: bool, mode: str, params: Params, batch: Batch
) -> jax.Array:
    """Sum, or maximum if mode is 'max', of the states in the span of each row, float32 [B, …]."""
    states_BTX = states(encoder, layer, causal, params, batch)
    positions_T, (first_B, last_B) = jnp.arange(states_BTX.shape[1]), batch['span'].T
    chosen_BT = (positions_T >= first_B[:, None]) & (positions_T < last_B[:, None])
    if mode == 'max':
        chosen_BTX = jnp.expand_dims(chosen_BT, tuple(range(2, states_BTX.ndim)))
        return jnp.where(chosen_BTX, states_BTX, -jnp.inf).max(1)
    chosen_BT = chosen_BT.astype(jnp.float32)
    return jnp.einsum('BT...,BT->B...', states_BTX, chosen_BT, precision='highest')


@functools.partial(jax.jit, static_argnums=(0, 1))
def attention(encoder: Encoder, causal: bool, params: Params, batch: Batch) -> jax.Array:
    """Attention probabilities of every layer and head, float32 [B, L, H, T, T]."""
    _, variables = _apply(encoder, params, batch, causal=causal, mutable='intermediates')
    intermediates = variables.get('intermediates', {})
    weights_LBHTU = attention_probabilities(encoder.architecture, intermediates)
    return weights_LBHTU.swapaxes(0, 1)


def _logits(encoder: Encoder, params: Params, batch: Batch, causal: bool = False) -> jax.Array:
    """Logits at the `positions` of each row, float32 [B, P, V]."""
    output = _apply(encoder, params, batch, causal=causal)
    name, states_BTD = ('clm', output.hidden_BTD) if causal else ('mlm', output.decoded_BTD)
    hidden_BPD = gather_positions(states_BTD, jnp.asarray(batch['positions']))
    return token_logits(encoder.architecture, encoder.compute, params, hidden_BPD, name)


# Compiled separately, and shared by `guesses` and prompts: the last bits of a softmax depend on the
# operations that XLA fuses it with.
logits = jax.jit(_logits, static_argnums=0)
probabilities = jax.jit(jax.nn.softmax)
_top_k = jax.jit(jax.lax.top_k, static_argnums=1)


def guesses(
    encoder: Encoder, top_k: int, params: Params, batch: Batch
) -> tuple[jax.Array, jax.Array]:
    """Probabilities and ids of the most probable tokens, [B, P, top_k] each."""
    return _top_k(probabilities(logits(encoder, params, batch)), top_k)


@jax.jit
def pick(logits_BPV: jax.Array, p_BPV: jax.Array, ids_AK: jax.Array) -> dict[str, jax.Array]:
    """'p' and 'log_p' of the tokens ids_AK, float32 [B, P, A, K]; p_BPV from `probabilities`."""
    return {'p': p_BPV[:, :, ids_AK], 'log_p': jax.nn.log_softmax(logits_BPV)[:, :, ids_AK]}


@functools.partial(jax.jit, static_argnums=(0, 1))
def log_probabilities(encoder: Encoder, causal: bool, params: Params, batch: Batch) -> jax.Array:
    """Log probabilities of the `targets` at the `positions` of each row, float32 [B, P]."""
    return -cross_entropy(_logits(encoder, params, batch, causal), batch['targets'])
