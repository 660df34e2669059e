"""A tiny task that compiles quickly: regression with a few layers, named like an encoder's."""

import contextlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Term
from bert_jax.loaded.record import RunRecord
from bert_jax.models.architecture import Architecture
from bert_jax.tasks.initialization import InitialModel
from bert_jax.training import loop
from bert_jax.training.run import Hooks
from bert_jax.training.task import Stage
from bert_jax.training.workdir import Workdir
from configs import base

LAYERS, WIDTH, INPUTS = 3, 4, 6


class ToySource:
    """Three batches of noise, so that a model soon overfits.

    `spoil` maps the number of a batch to a factor for its targets.
    """

    batch_size, num_examples = 8, 24

    def __init__(self, seed, spoil=None):
        self.seed, self.spoil = seed, spoil or {}

    def batch(self, step, rows):
        """The batch of one step, or those of several steps, stacked."""
        if np.ndim(step):
            batches = [self.batch(one, rows) for one in step]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
        rng = np.random.default_rng([self.seed, step % 3])
        x_BI = rng.normal(size=(self.batch_size, INPUTS)).astype(np.float32)
        y_B = x_BI[:, 0] + rng.normal(size=self.batch_size).astype(np.float32)
        y_B *= np.float32(self.spoil.get(int(step), 1))
        return {'x': x_BI[rows], 'y': y_B[rows]}


class Toy:
    """A task of the training loop, see training/task.py."""

    source = ToySource
    weights = {'loss': 1.0}
    record = RunRecord(
        task='toy',
        family=None,
        architecture=Architecture(),
        base=None,
        tokenizer='',
        tokenizer_fingerprint='',
        is_causal=False,
        has_prefix=False,
        is_generative=False,
        config={},
        train_seconds=0.0,
        is_evaluated=True,
    )
    memory = None
    start = None  # weights that training starts from

    def __init__(self, config, stacked=False, spoil=None):
        self.config, self.stacked = config, stacked
        self.start = self.start or InitialModel(None, None, {}, [])
        self.learning_rate = config.schedule.learning_rate
        source, (accumulation, *_) = self.source(config.seed, spoil), config.training.accumulation
        self.stages = tuple(
            Stage(source, steps, accumulation, tokens_per_step=8, flops_per_step=1e3)
            for steps in config.training.steps
        )
        self.dev = ToySource(1000).batch(0, np.arange(8))

    def init(self, key):
        params = parameters(jax.random.key_data(key)[-1])
        if self.stacked:
            params = stack(params)
        box = lambda leaf: nn.LogicallyPartitioned(leaf, (None,) * leaf.ndim)  # noqa: E731
        return jax.tree.map(box, params)

    def predict(self, params, x_BI):
        encoder = params['encoder']
        h_BD = x_BI @ encoder['embeddings']['token']
        for number in range(LAYERS):
            if self.stacked:
                layer = jax.tree.map(lambda leaf_L, n=number: leaf_L[n], encoder['layers'])
            else:
                layer = encoder[f'layers_{number}']
            h_BD = jnp.tanh(h_BD @ layer['kernel'] + layer['bias'])
        pooled_BD = jnp.tanh(h_BD @ encoder['pooler']['kernel'])
        return pooled_BD @ params['sequence_classification']['head']['kernel']

    def terms(self, params, batch, key, train, progress=1.0):
        error_B = self.predict(params, batch['x']) - batch['y']
        return {'loss': Term(jnp.sum(error_B**2), jnp.float32(len(error_B)))}

    def evaluate(self, params, stage):
        loss = float(np.mean((self.predict(params, self.dev['x']) - self.dev['y']) ** 2))
        return {'loss': loss, 'accuracy': -loss}

    def lower_evaluation(self, params, stage):
        x_BI = jax.ShapeDtypeStruct(self.dev['x'].shape, np.float32)
        return jax.jit(self.predict).lower(params, x_BI)

    def describe(self):
        return []

    def check(self, stored):
        """Accept every checkpoint."""

    def references(self, held_out):
        return {}


def parameters(seed=0):
    """Draw the parameters of an encoder with LAYERS layers and a head."""
    keys = iter(jax.random.split(jax.random.key(seed), 2 * LAYERS + 4))
    draw = lambda *shape: jax.random.normal(next(keys), shape)  # noqa: E731
    encoder = {'embeddings': {'token': draw(INPUTS, WIDTH)}, 'pooler': {'kernel': draw(WIDTH, 4)}}
    for number in range(LAYERS):
        encoder[f'layers_{number}'] = {'kernel': draw(WIDTH, WIDTH), 'bias': draw(WIDTH)}
    return {'encoder': encoder, 'sequence_classification': {'head': {'kernel': draw(4)}}}


def stack(params):
    """Stack the parameters of the layers under the name `layers`."""
    encoder = dict(params['encoder'])
    layers = [encoder.pop(f'layers_{number}') for number in range(LAYERS)]
    encoder['layers'] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    return params | {'encoder': encoder}


def config(folder, **more):
    """Return the config of a run of 30 steps; `more` maps keys to values, with '__' for '.'."""
    made = base.get_config()
    changes = {
        'workdir': str(folder),
        'mesh.data': 1,
        'mesh.fsdp': jax.device_count(),
        'training.steps': (30,),
        'training.accumulation': (1,),
        'compute.dtype': 'float32',
        'optimizer.name': 'adamw',
        'optimizer.decay_exclude': ('bias',),
        'optimizer.weight_decay': 0.1,
        'schedule.name': 'constant',
        'schedule.learning_rate': 0.03,
        'schedule.warmup_steps': 0,
        'evaluation.every_steps': 5,
        'checkpoint.every_steps': 10,
        'checkpoint.keep': 1,
        'logging.every_steps': 5,
    }
    made.update_from_flattened_dict(
        changes | {key.replace('__', '.'): value for key, value in more.items()}
    )
    return made


def train(folder, *, spoil=None, after_step=None, kind=Toy, **more):
    """Train a task in `folder`: (parameters, results); the results are also written there."""
    made = config(folder, **more)
    workdir = Workdir.of(made.workdir)
    with contextlib.closing(workdir):
        params, results = loop.train(kind(made, spoil=spoil), made, workdir, Hooks(after_step))
        workdir.write_results(results)
    return params, results


PATIENT = dict(
    training__steps=(200,),
    evaluation__best='loss',
    evaluation__patience=4,
    checkpoint__every_steps=7,
    transfer__trainable='last:2',
    transfer__unfreeze_every_steps=10,
    transfer__layer_decay=0.9,
)
