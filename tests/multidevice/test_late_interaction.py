"""Late interaction trains the same on any mesh and in any micro-batches."""

import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.tasks import make_task
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base, finetune
from tests.multidevice.test_invariance import MESHES, make_mesh
from tests.problems.embedding.small import SIZES, rows
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules
STEPS, ROWS = 3, 16


def config_of(folder, accumulation, **problem):
    """The config of a run with hard negatives."""
    lines = [['text0', 'text1', 'text2'], *rows(30, 3)]
    path = folder / 'train.tsv'
    path.write_text(''.join('\t'.join(line) + '\n' for line in lines))
    config = finetune.get_config('late_interaction')
    config.model.update(architecture='bert', hidden_dropout=0.3, attention_dropout=0.3, **SIZES)
    config.data.update(train=(str(path),), tokenizer='train:wordpiece:90', dev_fraction=0.0)
    config.data.columns.texts = ('text0', 'text1', 'text2')
    config.training.update(steps=STEPS, epochs=0.0, batch_size=9, sequence_length=32)
    config.training.accumulation = accumulation
    config.problem.update(expansion=12, skip_punctuation=True, vector_size=16, **problem)
    return config


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A function that trains on a mesh of MESHES and returns losses and parameters."""

    @functools.cache
    def train(scoring, name, accumulation=1):
        folder = tmp_path_factory.mktemp('late')
        task = make_task(config_of(folder, accumulation, scoring=scoring))
        source = task.source.with_shape(task.source.shape._replace(rows=ROWS))
        optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
        mesh, terms = make_mesh(MESHES[name]), []
        with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
            state = initial_state(task, optimizer, abstract_state(task, optimizer, mesh, RULES), 0)
            step = jax.jit(make_train_step(task, optimizer, 1), donate_argnums=0)
            for number in range(STEPS):
                batch = jax.device_put(source.batch(number), sharding.batch_sharding(mesh))
                state, metrics = step(state, batch, jax.random.key(1))
                found = metrics['terms']
                assert float(found['late_interaction'].count) == pytest.approx(9)
                terms.append([float(metrics['loss']), float(found['accuracy'].sum)])
            return terms, jax.device_get(state.params)

    return train


@pytest.mark.parametrize(
    ('scoring', 'name', 'accumulation'),
    [
        ('maxsim', '8 × data', 2),
        pytest.param('xtr', '8 × data', 2, marks=pytest.mark.slow),
        pytest.param('maxsim', 'one device', 16, marks=pytest.mark.slow),
        pytest.param('maxsim', '8 × fsdp', 1, marks=pytest.mark.slow),
        pytest.param('maxsim', '2 × 2 × 2', 2, marks=pytest.mark.slow),
    ],
)
def test_losses_and_parameters_are_those_of_one_device(run, scoring, name, accumulation):
    terms, params = run(scoring, name, accumulation)
    expected, expected_params = run(scoring, 'one device')
    np.testing.assert_allclose(terms, expected, rtol=1e-5)
    assert terms[0] != terms[1]
    # Adam divides by √v: for a gradient close to 0 the rounding decides the sign of the update.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5), params, expected_params
    )
