"""Objectives train the same on any mesh and with any number of micro-batches, with dropout."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import TargetLayout, Vocabulary
from bert_jax.objectives.edits import EDITS
from bert_jax.objectives.rtd import ReplacedTokenDetection
from bert_jax.objectives.sbo import SpanBoundaryObjective
from bert_jax.training import optimizers, sharding
from bert_jax.training.state import abstract_state, initial_state
from bert_jax.training.step import make_train_step
from configs import base
from tests.multidevice.test_invariance import MESHES, make_mesh
from tests.objectives import small_objectives
from tests.training import synthetic

pytestmark = pytest.mark.eight_devices

RULES = base.get_config().sharding_rules
ARCHITECTURE = dataclasses.replace(synthetic.ARCHITECTURE, num_layers=1)
SIZES = ('vocab_size', 'hidden_size', 'num_layers', 'num_heads', 'intermediate_size')
XLNET = architectures.build('xlnet', **{name: getattr(ARCHITECTURE, name) for name in SIZES})
OPTIONS = {
    'sbo': SpanBoundaryObjective(8, 4),
    'rtd': ReplacedTokenDetection(1.0, 1.0, 'disentangled', 1.0),
}
WEIGHTS = {
    'masked': {'mlm': 1.0, 'sbo': 0.5},
    'replaced': {'mlm': 1.0, 'rtd': 5.0, 'nsp': 0.5},
    'edited': dict.fromkeys(EDITS, 1.0),
    'permuted': {'plm': 1.0},
    'noised': {'denoising': 1.0},
    'hybrid': {'mntp': 0.75, 'ntp': 0.25},
}
ENCODER_DECODER = architectures.build(
    'bart',
    vocab_size=ARCHITECTURE.vocab_size,
    hidden_size=ARCHITECTURE.hidden_size,
    num_heads=ARCHITECTURE.num_heads,
    intermediate_size=ARCHITECTURE.intermediate_size,
    num_layers=1,
    **{'decoder.num_layers': 1},
)


class Task:
    """Objectives of one corruption on synthetic batches; every third token starts a word."""

    start = synthetic.SyntheticTask.start
    memory = None

    def __init__(self, corruption, method=None):
        self.weights = objectives.loss_weights(WEIGHTS[corruption])
        names = objectives.enabled(WEIGHTS[corruption])
        assert objectives.common_corruption(names, 'spans') == corruption
        kind = objectives.CORRUPTIONS[corruption]
        self.objectives = [OPTIONS.get(name) or small_objectives.build(name) for name in names]
        shifted = ARCHITECTURE.changed({'prediction.shift': True})
        others = {'permuted': XLNET, 'noised': ENCODER_DECODER, 'hybrid': shifted}
        architecture = others.get(corruption, ARCHITECTURE)
        if method is not None:
            architecture = dataclasses.replace(architecture, tuning=tuning.build(method, {}))
        self.model = objectives.build_model(architecture, Compute(), self.objectives)
        layout = TargetLayout((2,), 3, 3)
        starts_V = np.arange(100) % 3 == 0
        counts_V = np.ones(100, int)
        vocabulary = Vocabulary(4, 0, (0, 1, 2, 3, 4), counts_V, starts_V, layout=layout)
        config = base.get_config()
        config.masking.scheme, config.editing = 'spans', dict.fromkeys(EDITS, 0.2)
        config.objectives.update({name: 0.0 for name in config.objectives} | WEIGHTS[corruption])
        self.corruption = kind.build(config, vocabulary, {24: 24 if corruption == 'hybrid' else 5})

    def init(self, key):
        clean = Rows.of(self.batch(0, size=1))
        return self.model.init(key, self.corruption(key[None], clean))['params']

    def terms(self, params, batch, key, train, progress=1.0):
        keys_B = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['example_index'])
        clean, seeds_B = Rows.of(batch), jax.vmap(jax.random.bits)(keys_B)
        output = self.model.apply({'params': params}, self.corruption(keys_B, clean), seeds_B)
        return objectives.compute_terms(self.objectives, output, clean)

    def batch(self, step, size=16):
        batch = synthetic.batch(step, size)
        text = (batch['input_ids'] > 4).astype(np.int32)
        return batch | {'sentence_start': text * (np.arange(24) % 5 == 1)}


def run(corruption, sizes, accumulation, method=None):
    """Return the loss and terms of 3 steps, and the parameters after them."""
    task = Task(corruption, method)
    optimizer = optimizers.build(synthetic.OPTIMIZER, lambda step: 1e-3)
    mesh = make_mesh(sizes)
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        abstract = abstract_state(task, optimizer, mesh, RULES)
        state = initial_state(task, optimizer, abstract, seed=0)
        step = jax.jit(make_train_step(task, optimizer, accumulation), donate_argnums=0)
        records = []
        for number in range(3):
            batch = jax.device_put(task.batch(number), sharding.batch_sharding(mesh))
            state, metrics = step(state, batch, jax.random.key(1))
            records.append(jax.device_get((metrics['loss'], metrics['terms'])))
        return records, jax.device_get(state.params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('corruption', 'method'), [*((name, None) for name in WEIGHTS), ('noised', 'mam')]
)
def test_training_does_not_depend_on_mesh_and_micro_batches(corruption, method):
    reference, parameters = run(corruption, MESHES['one device'], 1, method)
    records, sharded_parameters = run(corruption, MESHES['2 × 2 × 2'], 4, method)
    for ours, theirs in zip(records, reference, strict=True):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        assert all(term.count > 0 for term in theirs[1].values())
        assert all(term.sum > 0 for name, term in theirs[1].items() if name.endswith('_loss'))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        sharded_parameters,
        parameters,
    )
