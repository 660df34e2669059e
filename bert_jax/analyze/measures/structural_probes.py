"""Structural probes: linear maps after which squared distances approximate tree distances.

The predicted distance of words i and j is |B(h_i − h_j)|², the predicted depth of word i is
|B h_i|². The probes of all layers are trained at once. Source: Hewitt and Manning 2019, sections 2
and 3.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.analyze.measures.dependency_trees import TreeDistances
from bert_jax.types import Tree

_RANGE = 0.05  # initial values are uniform in ±_RANGE
_DECAY = 0.1  # factor on the learning rate after an epoch without improvement of the dev loss
_IMPROVEMENT, _PATIENCE = 1e-4, 5  # stop once no probe improves by this in this many epochs
_PADDING = 8  # sentence lengths are rounded up to a multiple, so that few shapes are compiled


class ParsedSentence(NamedTuple):
    """The states [W, L, D] of the words of a sentence, and their tree."""

    states_WLD: np.ndarray
    gold: TreeDistances


class StructuralSettings(NamedTuple):
    """How the probes are trained.

    Attributes:
        rank: R, number of rows of B.
        epochs: maximal number of passes over the sentences.
        batch_size: in sentences.
        learning_rate: initial learning rate of Adam.
        seed: seed of the initial values and of the order of sentences.
    """

    rank: int = 128
    epochs: int = 40
    batch_size: int = 20
    learning_rate: float = 1e-3
    seed: int = 0


def train(
    sentences: Sequence[ParsedSentence], dev: Sequence[ParsedSentence], settings: StructuralSettings
) -> dict[str, np.ndarray]:
    """Train the distance probes and the depth probes of all layers.

    Each of these 2 × L probes has its own learning rate and its own best epoch.

    Returns:
        'distance' and 'depth' → B of each layer, float32 [L, D, R].
    """
    _, layers, size = sentences[0].states_WLD.shape
    key, shape = jax.random.key(settings.seed), (2, 1, size, settings.rank)
    initial = jax.random.uniform(key, shape, minval=-_RANGE, maxval=_RANGE)
    params = jnp.broadcast_to(initial, (2, layers, size, settings.rank))
    state = optax.scale_by_adam().init(params)
    rates_KL = np.full((2, layers), settings.learning_rate, np.float32)
    best_loss_KL, stale_KL = np.full((2, layers), np.inf), np.zeros((2, layers), int)
    best_params = np.array(params)
    for epoch in range(settings.epochs):
        generator = np.random.default_rng([settings.seed, epoch])
        for batch in _batches(sentences, settings.batch_size, generator):
            params, state = _step(params, state, rates_KL, batch)
        loss_KL = _dev_loss(params, dev, settings.batch_size)
        is_better_KL = loss_KL < best_loss_KL - _IMPROVEMENT
        best_params[is_better_KL] = np.asarray(params)[is_better_KL]
        rates_KL = np.where(is_better_KL, rates_KL, rates_KL * _DECAY).astype(np.float32)
        best_loss_KL = np.where(is_better_KL, loss_KL, best_loss_KL)
        stale_KL = np.where(is_better_KL, 0, stale_KL + 1)
        if (stale_KL >= _PATIENCE).all():
            break
    return {'distance': best_params[0], 'depth': best_params[1]}


def predict(params: dict[str, np.ndarray], states_WLD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict the distances [L, W, W] and the depths [L, W] of a sentence, in float32."""
    states_LWD = np.asarray(states_WLD, np.float32).swapaxes(0, 1)
    mapped_LWR = states_LWD @ params['distance']
    squares_LW = np.square(mapped_LWR).sum(-1)
    products_LWW = mapped_LWR @ mapped_LWR.swapaxes(1, 2)
    distances_LWW = squares_LW[:, :, None] + squares_LW[:, None] - 2 * products_LWW
    return distances_LWW, np.square(states_LWD @ params['depth']).sum(-1)


class _Batch(NamedTuple):
    """Padded sentences: states [B, T, L, D], distances [B, T, T], depths [B, T], lengths [B]."""

    states_BTLD: np.ndarray
    distances_BTT: np.ndarray
    depths_BT: np.ndarray
    lengths_B: np.ndarray


def _batches(
    sentences: Sequence[ParsedSentence], size: int, generator: np.random.Generator | None
) -> Iterator[_Batch]:
    """Yield batches of sentences of similar length, shuffled if there is a generator."""
    order: Callable[[int], np.ndarray] = np.arange if generator is None else generator.permutation
    by_length: dict[int, list[int]] = {}
    for row in order(len(sentences)):
        length = len(sentences[row].states_WLD)
        by_length.setdefault(-(-length // _PADDING) * _PADDING, []).append(row)
    batches = [
        (length, rows[start : start + size])
        for length, rows in by_length.items()
        for start in range(0, len(rows), size)
    ]
    for number in order(len(batches)):
        length, rows = batches[number]
        yield _pad([sentences[row] for row in rows], length, size)


def _pad(sentences: Sequence[ParsedSentence], length: int, size: int) -> _Batch:
    _, layers, width = sentences[0].states_WLD.shape
    dtype = sentences[0].states_WLD.dtype
    batch = _Batch(
        np.zeros((size, length, layers, width), dtype),
        np.zeros((size, length, length), np.float32),
        np.zeros((size, length), np.float32),
        np.zeros(size, np.int32),
    )
    for row, (states_WLD, gold) in enumerate(sentences):
        number = len(states_WLD)
        batch.states_BTLD[row, :number] = states_WLD
        batch.distances_BTT[row, :number, :number] = gold.distances_WW
        batch.depths_BT[row, :number] = gold.depths_W
        batch.lengths_B[row] = number
    return batch


def _losses(params_KLDR: jax.Array, batch: _Batch) -> jax.Array:
    """Mean absolute errors of the distances and the depths, summed over sentences: [2, L]."""
    states_BTLD = jnp.asarray(batch.states_BTLD, jnp.float32)
    lengths_B = jnp.maximum(batch.lengths_B, 1)
    is_word_BT = jnp.arange(states_BTLD.shape[1]) < batch.lengths_B[:, None]
    is_pair_BTT = is_word_BT[:, :, None] & is_word_BT[:, None]
    mapped_KLBTR = jnp.einsum('BTLD,KLDR->KLBTR', states_BTLD, params_KLDR, precision='highest')
    squares_KLBT = jnp.square(mapped_KLBTR).sum(-1)
    mapped_LBTR, squares_LBT = mapped_KLBTR[0], squares_KLBT[0]
    products_LBTT = jnp.einsum('LBTR,LBUR->LBTU', mapped_LBTR, mapped_LBTR, precision='highest')
    distances_LBTT = squares_LBT[..., None] + squares_LBT[..., None, :] - 2 * products_LBTT
    errors_LBTT = jnp.abs(distances_LBTT - batch.distances_BTT) * is_pair_BTT
    distance_L = (errors_LBTT.sum((2, 3)) / lengths_B**2).sum(1)
    depth_L = ((jnp.abs(squares_KLBT[1] - batch.depths_BT) * is_word_BT).sum(2) / lengths_B).sum(1)
    return jnp.stack([distance_L, depth_L])


@functools.partial(jax.jit, donate_argnums=(0, 1))
def _step(
    params: jax.Array, state: Tree, rates_KL: jax.Array, batch: _Batch
) -> tuple[jax.Array, Tree]:
    number = jnp.maximum((batch.lengths_B > 0).sum(), 1)
    gradient = jax.grad(lambda params: (_losses(params, batch) / number).sum())(params)
    updates, state = optax.scale_by_adam().update(gradient, state)
    return params - rates_KL[:, :, None, None] * updates, state


_jitted_losses = jax.jit(_losses)


def _dev_loss(params: jax.Array, dev: Sequence[ParsedSentence], batch_size: int) -> np.ndarray:
    """The mean loss over sentences, float64 [2, L]."""
    sums = [
        jax.device_get(_jitted_losses(params, batch)) for batch in _batches(dev, batch_size, None)
    ]
    return np.asarray(np.sum(sums, axis=0, dtype=np.float64) / len(dev))
