"""The moving average of the parameters equals a loop, is evaluated and loaded, and resumes."""

import json
import shutil
import signal

import jax
import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.training.interruption import Interrupted
from tests.training import toy

DECAY = 0.8
# A step whose loss is not finite and is skipped; two layers that are never trained.
OPTIONS = dict(spoil={3: float('nan')}, transfer__trainable='last:1')
SAVED = dict(training__steps=(6,), checkpoint__every_steps=1, checkpoint__keep=20)


def train(folder, ema=DECAY, **more):
    return toy.train(folder, optimizer__ema=ema, **OPTIONS, **more)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    return folder, *train(folder, **SAVED)


def arrays(folder, step, *prefixes):
    return tree_paths.flatten(
        checkpoint_arrays.load(folder / 'checkpoints' / str(step), *prefixes).state
    )


def test_the_average_equals_a_loop_in_numpy(trained):
    folder, final, _ = trained
    averages, updates = {}, 0
    for step in range(1, 7):
        state = arrays(folder, step)
        if step == 1:  # the initial parameters are those of a run without steps
            initial = tree_paths.flatten(toy.parameters(0))
        params = {n.removeprefix('params/'): a for n, a in state.items() if n.startswith('params')}
        averages = averages or {name: np.float64(initial[name]) for name in params}
        if step != 4:
            updates += 1
            rate = min(DECAY, (1 + updates) / (10 + updates))
            for name, param in params.items():
                averages[name] = rate * averages[name] + (1 - rate) * param
        stored = {n.removeprefix('average/') for n in state if n.startswith('average')}
        assert stored == {
            n
            for n in params
            if not n.startswith(('encoder/emb', 'encoder/layers_0', 'encoder/layers_1'))
        }
        for name in stored:
            np.testing.assert_allclose(state[f'average/{name}'], averages[name], rtol=1e-5)
    for name, param in tree_paths.flatten(final).items():
        np.testing.assert_allclose(param, averages[name], rtol=1e-5)
        assert name not in stored or not np.allclose(param, params[name], rtol=1e-3)


def test_evaluation_and_loading_use_the_average(trained):
    folder, final, results = trained
    task = toy.Toy(toy.config(folder))
    assert results['held_out'] == task.evaluate(final, None)
    loaded = checkpoint_arrays.load_params(folder)
    assert loaded.step == 6
    jax.tree.map(np.testing.assert_array_equal, loaded.state, final)


def test_the_average_of_the_best_evaluation_is_kept(tmp_path):
    final, results = train(tmp_path, evaluation__best='loss', schedule__learning_rate=0.3)
    lines = map(json.loads, (tmp_path / 'metrics.jsonl').read_text().splitlines())
    losses = [line['loss'] for line in lines if line['kind'] == 'held_out']
    assert results['held_out']['loss'] == min(losses) < losses[-1]
    assert results['best_step'] < 30
    jax.tree.map(
        np.testing.assert_array_equal, checkpoint_arrays.load_params(tmp_path).state, final
    )


def test_a_run_resumes_bit_for_bit_and_refuses_another_decay(tmp_path):
    expected, _ = train(tmp_path / 'whole')
    with pytest.raises(Interrupted):
        train(
            tmp_path / 'stopped',
            after_step=lambda step: signal.raise_signal(signal.SIGTERM) if step == 12 else None,
        )
    resumed, _ = train(shutil.copytree(tmp_path / 'stopped', tmp_path / 'resumed'))
    jax.tree.map(np.testing.assert_array_equal, resumed, expected)
    with pytest.raises(UserError, match='optimizer.ema'):
        train(tmp_path / 'stopped', ema=0.0)


def test_without_a_decay_there_is_no_average(tmp_path):
    final, _ = train(tmp_path, ema=0.0, training__steps=(3,))
    assert not any(name.startswith('average') for name in arrays(tmp_path, 3))
    jax.tree.map(
        np.testing.assert_array_equal, checkpoint_arrays.load_params(tmp_path).state, final
    )
