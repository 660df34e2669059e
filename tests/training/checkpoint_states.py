"""A small training state of many dtypes, and checkpoints of it."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from bert_jax.training.checkpoints import Checkpoints

METADATA = {
    'config': {'seed': 1},
    'tokenizer': '{"vocab": ["[PAD]", "日本"]}',
    'labels': ['a', 'b'],
}


class State(NamedTuple):
    step: Any
    params: Any
    opt_state: Any


def random_bits(shape, dtype, seed=0):
    """An array of random bit patterns, which include NaNs with payloads.

    Not in bfloat16: the programs that conftest.py chooses change the payload when they move one.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    bits = np.random.default_rng(seed).bytes(size)
    array = np.frombuffer(bits, np.uint8).view(dtype).reshape(shape)
    return np.where(np.isnan(array), dtype(1), array) if dtype == jnp.bfloat16 else array


@functools.cache
def make_state(step=0, hidden_size=8):
    params = {
        'embeddings': {'tokens': random_bits((16, hidden_size), np.float32)},
        'layers_0': {'kernel': random_bits((hidden_size, 16), jnp.bfloat16, 1)},
        'layers_1': {
            'kernel': random_bits((hidden_size, 16), np.uint32, 2),
            'bias': random_bits((16,), np.int8),
        },
        'head': {'bias': random_bits((8,), np.float16, 3)},
    }
    zeros = jax.tree.map(lambda array: np.zeros(array.shape, np.float32), params)
    adam = optax.ScaleByAdamState(np.int32(3), zeros, zeros)
    return jax.device_put(State(np.int32(step), params, (optax.EmptyState(), (adam,))))


def abstract(state, mesh=None):
    """The abstract state with matrices over ('fsdp', 'tensor') and vectors over 'data'."""

    def sharding(leaf):
        if mesh is None:
            return SingleDeviceSharding(jax.devices()[0])
        spec = {0: [], 1: ['data'], 2: ['fsdp', 'tensor']}[leaf.ndim]
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding(leaf)), state
    )


def assert_bitwise_equal(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def save_all(directory, steps, keep=9):
    """Save a checkpoint of each step, and close the folder."""
    made = Checkpoints.open(directory, keep)
    for step in steps:
        made.save(step, make_state(step), METADATA | {'step': step})
    made.close()
