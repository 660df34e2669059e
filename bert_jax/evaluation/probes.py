"""Probes: small classifiers of the states of words, of all layers and seeds trained at once.

A probe reads the state of one layer; probes of L layers, S seeds and K labelings share the batches
and are trained as one program. Sources: Hewitt and Liang 2019 (control tasks, selectivity); Voita
and Titov 2020 (online code length); Peters et al. 2018 (scalar mix).
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

# Shares of the training words at which the online code trains a new probe (Voita and Titov 2020).
FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
_LEAST_STEPS = 300  # of a probe, also on few words
_EVALUATED = 2048  # words at a time


class ProbeSettings(NamedTuple):
    """How probes are trained.

    Attributes:
        num_classes: C.
        hidden_size: width of the hidden layer of an MLP with ReLU; 0 for a linear probe.
        has_mix: whether there is one probe of a learned mixture of all layers instead of one probe
            of each layer.
        seeds: S, number of initializations.
        epochs: passes over the words.
        batch_size: words of a batch.
        learning_rate: of Adam.
    """

    num_classes: int
    hidden_size: int = 0
    has_mix: bool = False
    seeds: int = 1
    epochs: int = 4
    batch_size: int = 512
    learning_rate: float = 1e-3


Params = dict[str, Any]


def train(states_NLD: np.ndarray, labels_NK: np.ndarray, settings: ProbeSettings) -> Params:
    """Train probes.

    Args:
        states_NLD: the states of N words in L layers, of any float type.
        labels_NK: int32, classes of the words in K labelings, such as the task and a control task.
        settings: how.

    Returns:
        The parameters of the K × S × L probes (K × S × 1 with a mix), stacked.
    """
    number, layers, size = states_NLD.shape
    params = _init(settings, labels_NK.shape[1], layers, size)
    optimizer = optax.adam(settings.learning_rate)
    state = optimizer.init(params)
    batch = min(settings.batch_size, number)
    steps = max(settings.epochs * (number // batch), _LEAST_STEPS)
    generator = np.random.default_rng(0)
    order = np.concatenate(
        [generator.permutation(number) for _ in range(-(-steps * batch // number))]
    )
    for rows in order[: steps * batch].reshape(steps, batch):
        rows = np.sort(rows)  # neighbors in memory are read together; the batch has no order
        params, state = _step(settings, params, state, states_NLD[rows], labels_NK[rows])
    return params


def losses(
    params: Params, states_NLD: np.ndarray, labels_NK: np.ndarray, settings: ProbeSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each word is right, bool [K, S, L, N], and its loss in bits, float32 [K, S, L, N]."""
    parts = []
    for start in range(0, len(states_NLD), _EVALUATED):
        rows = np.arange(start, start + _EVALUATED) % len(states_NLD)  # full, for one shape
        found = jax.device_get(_evaluate(settings, params, states_NLD[rows], labels_NK[rows]))
        parts.append([one[..., : len(states_NLD) - start] for one in found])
    right, bits = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return right, bits


def online_code_length(
    states_NLD: np.ndarray, labels_N: np.ndarray, settings: ProbeSettings
) -> np.ndarray:
    """Bits to transmit the labels, each block coded by probes of all blocks before: float64 [L].

    The first block is coded uniformly. Sentences' words are in random order.
    """
    order = np.random.default_rng(0).permutation(len(labels_N))
    ends = sorted({max(1, round(share * len(labels_N))) for share in FRACTIONS})
    bits_L = np.full(states_NLD.shape[1], ends[0] * np.log2(settings.num_classes))
    for end, next_end in zip(ends[:-1], ends[1:], strict=True):
        known, coded = np.sort(order[:end]), np.sort(order[end:next_end])
        params = train(states_NLD[known], labels_N[known, None], settings)
        _, lost = losses(params, states_NLD[coded], labels_N[coded, None], settings)
        bits_L += lost[0].mean(0).sum(-1)  # of the seeds
    return bits_L


def control_labels(
    words: Sequence[str], tags: np.ndarray, num_classes: int, seed: int
) -> np.ndarray:
    """A class for each word type, drawn with the frequencies of `tags` [N]: int32 [words].

    The same type has the same class everywhere, because its spelling seeds the draw.

    Args:
        words: all words, of training and test.
        tags: the classes of the training words, whose distribution is drawn from.
        num_classes: C.
        seed: another one gives another control task.
    """
    types = sorted(set(words))
    shares = np.bincount(tags, minlength=num_classes) / len(tags)
    drawn = np.random.default_rng(seed).choice(num_classes, len(types), p=shares)
    class_of = dict(zip(types, drawn.tolist(), strict=True))
    return np.array([class_of[word] for word in words], np.int32)


def majority_per_type(
    train_words: Sequence[str], train_tags: np.ndarray, words: Sequence[str]
) -> np.ndarray:
    """The most frequent class of each word type in training; of all words for unseen types."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for word, tag in zip(train_words, train_tags.tolist(), strict=True):
        counts[word][tag] += 1
    best = {word: own.most_common(1)[0][0] for word, own in counts.items()}
    overall = int(np.bincount(train_tags).argmax())
    return np.array([best.get(word, overall) for word in words], np.int32)


def mix_weights(params: Params) -> np.ndarray:
    """The weights of the layers in a mix, float32 [S, L]; of the first labeling."""
    return np.asarray(jax.nn.softmax(params['mix'][0, :, 0]))


def _init(settings: ProbeSettings, labelings: int, layers: int, size: int) -> Params:
    """Uniform weights within 1/√inputs, the same for each labeling and layer of a seed."""
    sizes = (size, *([settings.hidden_size] * bool(settings.hidden_size)), settings.num_classes)
    own: Params = {}
    for number, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        draws = [
            jax.random.uniform(
                jax.random.fold_in(jax.random.key(seed), number),
                (inputs + 1, outputs),
                minval=-(inputs**-0.5),
                maxval=inputs**-0.5,
            )
            for seed in range(settings.seeds)
        ]
        own[f'kernel_{number}'] = jnp.stack([draw[:-1] for draw in draws])
        own[f'bias_{number}'] = jnp.stack([draw[-1] for draw in draws])
    if settings.has_mix:
        own |= {'mix': jnp.zeros((settings.seeds, layers)), 'scale': jnp.ones(settings.seeds)}
    probes = 1 if settings.has_mix else layers
    return {
        name: jnp.broadcast_to(
            value[None, :, None], (labelings, settings.seeds, probes, *value.shape[1:])
        )
        for name, value in own.items()
    }


def _logits(params: Params, x: jax.Array) -> jax.Array:
    """Logits [B, C] of one probe for states [B, D], or for all layers [B, L, D] with a mix."""
    if 'mix' in params:
        x = params['scale'] * jnp.einsum('BLD,L->BD', x, jax.nn.softmax(params['mix']))
    for number in range(len([name for name in params if name.startswith('kernel')])):
        x = jax.nn.relu(x) if number else x
        x = x @ params[f'kernel_{number}'] + params[f'bias_{number}']
    return x


def _all(function: Callable[..., Any], params: Params, states_BLD: Any, labels_BK: Any) -> Any:
    """Apply a function of (one probe, its states, its labels) to all probes: [K, S, L, …]."""
    states_BLD = jnp.asarray(states_BLD, jnp.float32)
    if 'mix' in params:
        states_BLD = states_BLD[:, None]  # [B, 1, L, D]: one probe reads all layers
    over_layers = jax.vmap(function, (0, 1, None))
    over_seeds = jax.vmap(over_layers, (0, None, None))
    return jax.vmap(over_seeds, (0, None, 1))(params, states_BLD, labels_BK)


def _cross_entropy(params: Params, x: jax.Array, labels_B: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(_logits(params, x), labels_B)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _step(
    settings: ProbeSettings, params: Params, state: Any, states_BLD: Any, labels_BK: Any
) -> tuple[Params, Any]:
    def total(params: Params) -> jax.Array:
        # The probes share no parameters, so each gets the gradient of its own mean.
        lost = _all(_cross_entropy, params, states_BLD, labels_BK)
        return lost.mean(-1).sum()

    updates, state = optax.adam(settings.learning_rate).update(jax.grad(total)(params), state)
    return optax.apply_updates(params, updates), state


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(
    settings: ProbeSettings, params: Params, states_BLD: Any, labels_BK: Any
) -> tuple[jax.Array, jax.Array]:
    def one(params: Params, x: jax.Array, labels_B: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits_BC = _logits(params, x)
        lost_B = optax.softmax_cross_entropy_with_integer_labels(logits_BC, labels_B)
        return logits_BC.argmax(-1) == labels_B, lost_B / np.log(2)

    return _all(one, params, states_BLD, labels_BK)
