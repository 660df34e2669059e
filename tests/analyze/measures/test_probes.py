"""Probes trained together equal probes trained alone, and measure what they say."""

import numpy as np
import pytest
import torch

from bert_jax.analyze.measures import probes
from bert_jax.analyze.measures.probes import ProbeSettings

RNG = np.random.default_rng(0)
N, LAYERS, SIZE, CLASSES = 400, 2, 6, 3
STATES = RNG.normal(size=(N, LAYERS, SIZE)).astype(np.float32)
# The first layer has the labels in its first dimensions, the second layer knows nothing.
LABELS = STATES[:, 0, :CLASSES].argmax(1).astype(np.int32)
RANDOM = RNG.integers(CLASSES, size=N).astype(np.int32)
BOTH = np.stack([LABELS, RANDOM], axis=1)


@pytest.mark.parametrize('hidden_size', [0, 5])
def test_a_probe_equals_one_trained_alone_by_torch(hidden_size):
    settings = ProbeSettings(CLASSES, hidden_size, seeds=2, batch_size=N, epochs=1)
    start = probes._init(settings, 2, LAYERS, SIZE)
    params = probes.train(STATES, BOTH, settings)  # one step an epoch, 300 steps
    labeling, seed, layer = 1, 1, 1
    names = sorted(start)
    alone = {
        name: torch.tensor(np.array(start[name][labeling, seed, layer]), requires_grad=True)
        for name in names
    }
    optimizer = torch.optim.Adam(alone.values(), 1e-3)
    x, y = torch.tensor(STATES[:, layer]), torch.tensor(BOTH[:, labeling], dtype=torch.long)
    for _ in range(300):
        hidden = x @ alone['kernel_0'] + alone['bias_0']
        if hidden_size:
            hidden = hidden.relu() @ alone['kernel_1'] + alone['bias_1']
        loss = torch.nn.functional.cross_entropy(hidden, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name in names:
        found = np.asarray(params[name])[labeling, seed, layer]
        np.testing.assert_allclose(found, alone[name].detach(), atol=1e-4)
    right, bits = probes.losses(params, STATES, BOTH)
    assert right.shape == (2, 2, LAYERS, N)
    assert bits[labeling, seed, layer].mean() == pytest.approx(loss.item() / np.log(2), abs=1e-3)


@pytest.fixture(scope='module')
def linear():
    return ProbeSettings(CLASSES, batch_size=50, epochs=60, learning_rate=1e-2)


def test_labels_are_found_in_the_layer_that_has_them(linear):
    params = probes.train(STATES[:300], BOTH[:300], linear)
    right, _ = probes.losses(params, STATES[300:], BOTH[300:])
    accuracy = right.mean((1, 3))
    assert accuracy[0, 0] > 0.95
    assert accuracy[0, 1] < 0.5
    assert (accuracy[1] < 0.5).all()


def test_the_code_is_shorter_where_the_labels_are_easier(linear):
    bits = probes.online_code_length(STATES, LABELS, linear._replace(epochs=4))
    uniform = N * np.log2(CLASSES)
    assert bits[0] < 0.5 * uniform
    assert bits[1] > 0.9 * uniform


def test_a_mix_takes_the_layer_that_has_the_labels(linear):
    settings = linear._replace(has_mix=True)
    params = probes.train(STATES[:300], LABELS[:300, None], settings)
    right, _ = probes.losses(params, STATES[300:], LABELS[300:, None])
    (weights,) = probes.mix_weights(params)
    assert right.mean() > 0.95
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > 0.7


def test_a_control_task_gives_a_type_one_class_with_the_frequencies_of_the_task():
    tags = np.repeat([0, 1, 2], [60, 30, 10])
    words = [f'word{i % 2000}' for i in range(6000)]
    labels = probes.control_labels(words, tags, 3, seed=0)
    assert (labels[:2000] == labels[2000:4000]).all()
    np.testing.assert_allclose(np.bincount(labels) / 6000, [0.6, 0.3, 0.1], atol=0.03)
    assert (labels != probes.control_labels(words, tags, 3, seed=1)).any()


def test_the_majority_of_a_type_is_that_of_training():
    train, tags = ['a', 'a', 'a', 'b', 'c'], np.array([1, 1, 0, 2, 1])
    assert probes.majority_per_type(train, tags, ['a', 'b', 'A']).tolist() == [1, 2, 1]
