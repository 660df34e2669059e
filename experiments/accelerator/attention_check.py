"""Checks the attention kernel of this device, and that its float32 is not rounded.

    python -m experiments.accelerator.attention_check [--length=512] [--layers=2]

Each case is an encoder with random weights and rows that end in padding. Its states and the
gradients of its parameters are computed by the kernel of the device and by XLA with materialized
scores, in the dtype that the kernel takes; both are compared with XLA in float32. The kernel passes
if its error is at most twice that of XLA in the same dtype, plus 0.001. One more case compares
float32 with the CPU. Prints JSON.
"""

import argparse
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import architectures, kernels
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows

VOCABULARY, ROWS, WIDTH = 1000, 4, 256
# Name of a case → the architecture, the changes to it, whether it is causal, and whether rows pack
# several sequences.
CASES: dict[str, tuple[str, dict[str, Any], bool, bool]] = {
    'bert': ('bert', {}, False, False),
    'packed': ('bert', {}, False, True),
    'causal': ('bert', {}, True, False),
    'windows': ('modernbert', {}, False, True),
    'deberta': ('deberta_v3_base', {}, False, False),
    'dropout': ('bert', {'attention_dropout': 0.1}, False, False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--length', type=int, default=512)
    parser.add_argument('--layers', type=int, default=2)
    options = parser.parse_args()
    records = [check(name, options.length, options.layers) for name in CASES]
    print(json.dumps([*records, check_float32(options.length, options.layers)]))


def check(name: str, length: int, num_layers: int) -> dict[str, Any]:
    """Compare the kernel of the device with XLA in one case.

    Returns:
        'kernel': the kernel's name; 'xla' if the device has none for this case, with 'reason'.
        'error', 'error_of_xla': largest difference from float32, relative to the largest value, of
        states and gradients. 'passes': whether the kernel is as exact as XLA.
    """
    family, changes, is_causal, is_packed = CASES[name]
    architecture = build(family, num_layers, changes)
    compute = Compute('bfloat16')
    kernel = kernels.choose(architecture, compute, length, is_training=True)
    record = {'case': name, 'kernel': kernel}
    if kernel == 'xla':
        return record | {'reason': kernels.describe(architecture, compute, length)}
    rows = make_rows(length, is_packed)
    seeds_B = np.arange(ROWS, dtype=np.uint32) if architecture.attention_dropout else None
    exact = run(architecture, Compute('float32', attention_kernel='xla'), rows, seeds_B, is_causal)
    errors = {
        key: largest_error(run(architecture, chosen, rows, seeds_B, is_causal), exact)
        for key, chosen in (
            ('error', compute),
            ('error_of_xla', Compute('bfloat16', attention_kernel='xla')),
        )
    }
    return record | errors | {'passes': errors['error'] <= 2 * errors['error_of_xla'] + 1e-3}


def check_float32(length: int, num_layers: int) -> dict[str, Any]:
    """Compare float32 on this device with the CPU; an error above 1e-4 means rounded operands."""
    arguments = build('bert', num_layers, {}), Compute('float32', attention_kernel='xla')
    arguments += make_rows(length, is_packed=False), None, False
    with jax.default_device(jax.devices('cpu')[0]):
        exact = run(*arguments)
    error = largest_error(run(*arguments), exact)
    return {'case': 'float32', 'kernel': 'xla', 'error': error, 'passes': error <= 1e-4}


def build(family: str, num_layers: int, changes: dict[str, Any]) -> Architecture:
    """Return a small encoder without dropout, except for `changes`."""
    return architectures.build(
        family,
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_layers=num_layers,
        hidden_dropout=0.0,
        **({'attention_dropout': 0.0} | changes),
    )


def make_rows(length: int, is_packed: bool) -> Rows:
    """Return random rows whose second half ends in padding of different lengths."""
    rng = np.random.default_rng(0)
    ids_BT = rng.integers(0, VOCABULARY, (ROWS, length), np.int32)
    num_tokens_B = length - np.arange(ROWS) * length // (2 * ROWS)
    mask_BT = (np.arange(length) < num_tokens_B[:, None]).astype(np.int32)
    rows = Rows(ids_BT, mask_BT)
    if not is_packed:
        return rows
    segment_ids_BT = np.where(mask_BT, np.arange(length) // (length // 3), 9).astype(np.int32)
    starts_BS = np.tile(np.arange(3, dtype=np.int32) * (length // 3), (ROWS, 1))
    return rows.replace(segment_ids_BT=segment_ids_BT, first_positions_BS=starts_BS)


def run(
    architecture: Architecture,
    compute: Compute,
    rows: Rows,
    seeds_B: np.ndarray | None,
    is_causal: bool,
) -> list[np.ndarray]:
    """Return the states at tokens and the gradients of all parameters, float32."""
    model = Model(architecture, compute, is_causal=is_causal)
    reference = Model(architecture, Compute('float32', attention_kernel='xla'))
    params = nn.unbox(jax.jit(reference.init)(jax.random.key(0), rows))['params']
    params = jax.tree.map(lambda x: x * 3 if x.ndim > 1 else x, params)  # attention is not uniform
    weights_BTD = jax.random.normal(jax.random.key(1), (*rows.input_ids_BT.shape, WIDTH))
    weights_BTD *= rows.is_token_BT[..., None]

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        states_BTD = model.apply({'params': params}, rows, seeds_B).states.hidden_BTD
        states_BTD = states_BTD.astype(jnp.float32) * rows.is_token_BT[..., None]
        return jnp.sum(states_BTD * weights_BTD), states_BTD

    gradients, states = jax.jit(jax.grad(loss, has_aux=True))(params)
    return [np.asarray(x, np.float32) for x in (states, *jax.tree.leaves(gradients))]


def largest_error(found: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """Return the largest difference, relative to the largest value of each array.

    Gradients that are zero but for rounding are left out: those of the biases of keys.
    """
    sizes = [np.abs(array).max() for array in exact]
    differences = (np.abs(a - b).max() for a, b in zip(found, exact, strict=True))
    pairs = zip(differences, sizes, strict=True)
    return float(max(d / size for d, size in pairs if size > 1e-6 * max(sizes)))


if __name__ == '__main__':
    main()
