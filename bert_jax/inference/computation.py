"""The jitted functions of inference: states, masked-token predictions, likelihoods."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.interop.pretrained import mlm_logits
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.encoders.transformer import attention_probabilities
from bert_jax.models.packed_rows import gather_positions
from bert_jax.types import Batch, Params

LAST_FOUR = {
    'sum_last_4': lambda states_LBTD: states_LBTD.sum(0),
    'mean_last_4': lambda states_LBTD: states_LBTD.mean(0),
    'concat_last_4': lambda states_LBTD: jnp.concatenate(states_LBTD, axis=-1),
}


def _apply_encoder(
    architecture: Architecture, compute: Compute, params: Params, batch: Batch, **options: Any
) -> Any:
    return build_encoder(architecture, compute).apply(
        {'params': params['encoder']}, batch['input_ids'], batch['attention_mask'], **options
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def states(
    architecture: Architecture,
    compute: Compute,
    layer: int | str,
    causal: bool,
    params: Params,
    batch: Batch,
) -> jax.Array:
    """States of a layer or of the last four, float32 [B, T, D]."""
    all_hidden = layer != -1
    output = _apply_encoder(
        architecture, compute, params, batch, all_hidden=all_hidden, causal=causal
    )
    if not all_hidden:
        return output.hidden_BTD.astype(jnp.float32)
    states_LBTD = output.all_hidden_LBTD.astype(jnp.float32)
    return LAST_FOUR[layer](states_LBTD[-4:]) if isinstance(layer, str) else states_LBTD[layer]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def sums(
    architecture: Architecture,
    compute: Compute,
    layer: int | str,
    causal: bool,
    params: Params,
    batch: Batch,
) -> jax.Array:
    """States summed over the span of each row, float32 [B, D]."""
    states_BTD = states(architecture, compute, layer, causal, params, batch)
    positions_T, (first_B, last_B) = jnp.arange(states_BTD.shape[1]), batch['span'].T
    chosen_BT = (positions_T >= first_B[:, None]) & (positions_T < last_B[:, None])
    return jnp.einsum('BTD,BT->BD', states_BTD, chosen_BT.astype(jnp.float32), precision='highest')


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def attention(
    architecture: Architecture, compute: Compute, causal: bool, params: Params, batch: Batch
) -> jax.Array:
    """Attention probabilities of every layer and head, float32 [B, L, H, T, T]."""
    _, variables = _apply_encoder(
        architecture, compute, params, batch, causal=causal, mutable='intermediates'
    )
    weights_LBHTU = attention_probabilities(architecture, variables.get('intermediates', {}))
    return weights_LBHTU.swapaxes(0, 1)


def _logits(
    architecture: Architecture, compute: Compute, params: Params, batch: Batch
) -> jax.Array:
    """Logits at the `positions` of each row, float32 [B, P, V]."""
    decoded_BTD = _apply_encoder(architecture, compute, params, batch).decoded_BTD
    hidden_BPD = gather_positions(decoded_BTD, jnp.asarray(batch['positions']))
    return mlm_logits(architecture, compute, params, hidden_BPD)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def guesses(
    architecture: Architecture, compute: Compute, top_k: int, params: Params, batch: Batch
) -> tuple[jax.Array, jax.Array]:
    """Probabilities and ids of the most probable tokens, [B, P, top_k] each."""
    logits_BPV = _logits(architecture, compute, params, batch)
    probabilities, ids = jax.lax.top_k(jax.nn.softmax(logits_BPV), top_k)
    return probabilities, ids


@functools.partial(jax.jit, static_argnums=(0, 1))
def log_probability(
    architecture: Architecture, compute: Compute, params: Params, batch: Batch
) -> jax.Array:
    """Log probability of the target at the position of each row, float32 [B]."""
    logits_BPV = _logits(architecture, compute, params, batch)
    log_BPV = jax.nn.log_softmax(logits_BPV)
    return jnp.take_along_axis(log_BPV, batch['targets'][:, :, None], axis=-1)[:, 0, 0]
