"""The jitted functions of inference: states, masked-token predictions, likelihoods."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.interop.pretrained import mlm_logits
from bert_jax.models.encoders.base import Encoder
from bert_jax.models.encoders.transformer import attention_probabilities
from bert_jax.models.packed_rows import gather_positions
from bert_jax.types import Batch, Params

LAST_FOUR = {
    'sum_last_4': lambda states_LBTD: states_LBTD.sum(0),
    'mean_last_4': lambda states_LBTD: states_LBTD.mean(0),
    'concat_last_4': lambda states_LBTD: jnp.concatenate(states_LBTD, axis=-1),
}


def _apply(encoder: Encoder, params: Params, batch: Batch, **options: Any) -> Any:
    ids = (batch['input_ids'], batch['attention_mask'], batch.get('token_type_ids'))
    return encoder.apply({'params': params['encoder']}, *ids, **options)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def states(
    encoder: Encoder, layer: int | str, causal: bool, params: Params, batch: Batch
) -> jax.Array:
    """States of a layer or of the last four, float32 [B, T, D]."""
    output = _apply(encoder, params, batch, all_hidden=layer != -1, causal=causal)
    if layer == -1:
        return output.hidden_BTD.astype(jnp.float32)
    states_LBTD = output.all_hidden_LBTD.astype(jnp.float32)
    return LAST_FOUR[layer](states_LBTD[-4:]) if isinstance(layer, str) else states_LBTD[layer]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def pooled(
    encoder: Encoder, layer: int | str, causal: bool, mode: str, params: Params, batch: Batch
) -> jax.Array:
    """Sum, or maximum if mode is 'max', of the states in the span of each row, float32 [B, D]."""
    states_BTD = states(encoder, layer, causal, params, batch)
    positions_T, (first_B, last_B) = jnp.arange(states_BTD.shape[1]), batch['span'].T
    chosen_BT = (positions_T >= first_B[:, None]) & (positions_T < last_B[:, None])
    if mode == 'max':
        return jnp.where(chosen_BT[:, :, None], states_BTD, -jnp.inf).max(1)
    return jnp.einsum('BTD,BT->BD', states_BTD, chosen_BT.astype(jnp.float32), precision='highest')


@functools.partial(jax.jit, static_argnums=(0, 1))
def attention(encoder: Encoder, causal: bool, params: Params, batch: Batch) -> jax.Array:
    """Attention probabilities of every layer and head, float32 [B, L, H, T, T]."""
    _, variables = _apply(encoder, params, batch, causal=causal, mutable='intermediates')
    intermediates = variables.get('intermediates', {})
    weights_LBHTU = attention_probabilities(encoder.architecture, intermediates)
    return weights_LBHTU.swapaxes(0, 1)


def _logits(encoder: Encoder, params: Params, batch: Batch) -> jax.Array:
    """Logits at the `positions` of each row, float32 [B, P, V]."""
    decoded_BTD = _apply(encoder, params, batch).decoded_BTD
    hidden_BPD = gather_positions(decoded_BTD, jnp.asarray(batch['positions']))
    return mlm_logits(encoder.architecture, encoder.compute, params, hidden_BPD)


# Programs of their own, shared by `guesses` and prompts: the last bits of a softmax depend on what
# XLA fuses it with.
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
    """'p' and 'log_p' of some tokens, float32 [B, P, A, K]; p_BPV is that of `probabilities`."""
    return {'p': p_BPV[:, :, ids_AK], 'log_p': jax.nn.log_softmax(logits_BPV)[:, :, ids_AK]}


@functools.partial(jax.jit, static_argnums=0)
def log_probability(encoder: Encoder, params: Params, batch: Batch) -> jax.Array:
    """Log probability of the target at the position of each row, float32 [B]."""
    log_BPV = jax.nn.log_softmax(_logits(encoder, params, batch))
    return jnp.take_along_axis(log_BPV, batch['targets'][:, :, None], axis=-1)[:, 0, 0]
