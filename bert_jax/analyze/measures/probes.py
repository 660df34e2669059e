"""Probes: small classifiers of word states, trained for all layers and seeds at once.

A probe reads the state of one layer; the probes of L layers, S seeds and K labelings share batches
and are trained by one program. Sources: Hewitt and Liang 2019 (control tasks, selectivity); Voita
and Titov 2020 (online code length); Peters et al. 2018 (scalar mix).
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.models.head_states import mix
from bert_jax.types import Tree

# Ends of the blocks of the online code, as shares of the training words (Voita and Titov 2020).
FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
_MIN_STEPS = 300  # training steps, even for few words
_EVALUATION_BATCH = 2048  # words


class ProbeSettings(NamedTuple):
    """How probes are trained.

    Attributes:
        num_classes: C.
        hidden_size: width of the hidden layer of an MLP with ReLU; 0 for a linear probe.
        has_mix: whether to train one probe of a learned mix of all layers instead of a probe of
            each layer.
        seeds: S, number of initializations.
        epochs: passes over the words.
        batch_size: in words.
        learning_rate: learning rate of Adam.
    """

    num_classes: int
    hidden_size: int = 0
    has_mix: bool = False
    seeds: int = 1
    epochs: int = 4
    batch_size: int = 512
    learning_rate: float = 1e-3


Params = dict[str, jax.Array]


def train(states_NLD: np.ndarray, labels_NK: np.ndarray, settings: ProbeSettings) -> Params:
    """Train probes.

    Args:
        states_NLD: the states of N words in L layers, of any float type.
        labels_NK: int32, classes of the words in K labelings, such as the task and a control task.

    Returns:
        The parameters of the K × S × L probes (K × S × 1 with a mix), stacked.
    """
    number, layers, size = states_NLD.shape
    params = _init(settings, labels_NK.shape[1], layers, size)
    optimizer = optax.adam(settings.learning_rate)
    state = optimizer.init(params)
    batch = min(settings.batch_size, number)
    steps = max(settings.epochs * (number // batch), _MIN_STEPS)
    generator = np.random.default_rng(0)
    order = np.concatenate(
        [generator.permutation(number) for _ in range(-(-steps * batch // number))]
    )
    for rows in order[: steps * batch].reshape(steps, batch):
        rows = np.sort(rows)  # reads memory in order; the order within a batch does not matter
        params, state = _step(settings, params, state, states_NLD[rows], labels_NK[rows])
    return params


def losses(
    params: Params, states_NLD: np.ndarray, labels_NK: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each word is classified correctly, and its loss in bits: [K, S, L, N] each."""
    parts = []
    for start in range(0, len(states_NLD), _EVALUATION_BATCH):
        rows = np.arange(start, start + _EVALUATION_BATCH) % len(states_NLD)  # always one shape
        outputs = jax.device_get(_evaluate(params, states_NLD[rows], labels_NK[rows]))
        parts.append([output[..., : len(states_NLD) - start] for output in outputs])
    is_correct, bits = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return is_correct, bits


def online_code_length(
    states_NLD: np.ndarray, labels_N: np.ndarray, settings: ProbeSettings
) -> np.ndarray:
    """Bits to transmit the labels of all words, by layer: float64 [L].

    Words are sent in random order, in blocks that grow exponentially. Each block is coded by probes
    that are trained on all earlier blocks, the first block by a uniform code.
    """
    order = np.random.default_rng(0).permutation(len(labels_N))
    ends = sorted({max(1, round(share * len(labels_N))) for share in FRACTIONS})
    bits_L = np.full(states_NLD.shape[1], ends[0] * np.log2(settings.num_classes))
    for end, next_end in zip(ends[:-1], ends[1:], strict=True):
        known, coded = np.sort(order[:end]), np.sort(order[end:next_end])
        params = train(states_NLD[known], labels_N[known, None], settings)
        _, bits_KSLN = losses(params, states_NLD[coded], labels_N[coded, None])
        bits_L += bits_KSLN[0].mean(0).sum(-1)  # mean over seeds
    return bits_L


def control_labels(
    words: Sequence[str], tags: np.ndarray, num_classes: int, seed: int
) -> np.ndarray:
    """Control task: a random class for each word type, the same at every occurrence: int32 [N].

    Args:
        words: all N words, training and test.
        tags: classes of the training words; the random classes follow their distribution.
        num_classes: C.
        seed: seed of the random classes.
    """
    types = sorted(set(words))
    shares = np.bincount(tags, minlength=num_classes) / len(tags)
    drawn = np.random.default_rng(seed).choice(num_classes, len(types), p=shares)
    class_of = dict(zip(types, drawn.tolist(), strict=True))
    return np.array([class_of[word] for word in words], np.int32)


def majority_per_type(
    train_words: Sequence[str], train_tags: np.ndarray, words: Sequence[str]
) -> np.ndarray:
    """The most frequent training class of each word's type; of all types for unseen words."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for word, tag in zip(train_words, train_tags.tolist(), strict=True):
        counts[word][tag] += 1
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    overall = int(np.bincount(train_tags).argmax())
    return np.array([best.get(word, overall) for word in words], np.int32)


def mix_weights(params: Params) -> np.ndarray:
    """The weights of the layers in the mix of the first labeling, float32 [S, L]."""
    return np.asarray(jax.nn.softmax(params['mix'][0, :, 0]))


def _init(settings: ProbeSettings, labelings: int, layers: int, size: int) -> Params:
    """Draw uniform weights within ±1/√inputs, the same for all labelings and layers of a seed."""
    hidden_sizes = [settings.hidden_size] if settings.hidden_size else []
    sizes = [size, *hidden_sizes, settings.num_classes]
    of_seeds: Params = {}
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
        of_seeds[f'kernel_{number}'] = jnp.stack([draw[:-1] for draw in draws])
        of_seeds[f'bias_{number}'] = jnp.stack([draw[-1] for draw in draws])
    if settings.has_mix:
        of_seeds |= {'mix': jnp.zeros((settings.seeds, layers)), 'scale': jnp.ones(settings.seeds)}
    probes = 1 if settings.has_mix else layers
    return {
        name: jnp.broadcast_to(
            value[None, :, None], (labelings, settings.seeds, probes, *value.shape[1:])
        )
        for name, value in of_seeds.items()
    }


def _logits(params: Params, x: jax.Array) -> jax.Array:
    """Logits [B, C] of one probe for states [B, D], or for all layers [B, L, D] with a mix."""
    if 'mix' in params:
        x = mix(jnp.moveaxis(x, 1, 0), params['mix'], params['scale'])
    for number in range(sum(name.startswith('kernel') for name in params)):
        x = jax.nn.relu(x) if number else x
        x = jnp.matmul(x, params[f'kernel_{number}'], precision='highest')
        x = x + params[f'bias_{number}']
    return x


def _score_probe(params: Params, x: jax.Array, labels_B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether each prediction of one probe is correct, and the losses in nats: [B] each."""
    logits_BC = _logits(params, x)
    losses_B = optax.softmax_cross_entropy_with_integer_labels(logits_BC, labels_B)
    return logits_BC.argmax(-1) == labels_B, losses_B


def _score_all(
    params: Params, states_BLD: jax.Array, labels_BK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`_score_probe` of all probes: [K, S, L, B] each."""
    states_BLD = jnp.asarray(states_BLD, jnp.float32)
    if 'mix' in params:
        states_BLD = states_BLD[:, None]  # [B, 1, L, D]: one probe reads all layers
    over_layers = jax.vmap(_score_probe, (0, 1, None))
    over_seeds = jax.vmap(over_layers, (0, None, None))
    return jax.vmap(over_seeds, (0, None, 1))(params, states_BLD, labels_BK)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _step(
    settings: ProbeSettings,
    params: Params,
    state: Tree,
    states_BLD: jax.Array,
    labels_BK: jax.Array,
) -> tuple[Params, Tree]:
    def loss(params: Params) -> jax.Array:
        # The probes share no parameters, so the sum gives each probe the gradient of its own mean.
        _, losses_KSLB = _score_all(params, states_BLD, labels_BK)
        return losses_KSLB.mean(-1).sum()

    updates, state = optax.adam(settings.learning_rate).update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


@jax.jit
def _evaluate(
    params: Params, states_BLD: jax.Array, labels_BK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Whether each prediction is correct, and the losses in bits: [K, S, L, B] each."""
    is_correct, nats = _score_all(params, states_BLD, labels_BK)
    return is_correct, nats / np.log(2)
