"""Training: the same loss and gradient in micro-batches, packed or not, from text to update."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import averages
from bert_jax.problems.embedding.in_batch import InBatch
from tests.problems.embedding.small import task_of
from tests.problems.embedding.test_losses import batch_of
from tests.random_parameters import random_parameters


@pytest.fixture(scope='module')
def task(tmp_path_factory):
    return task_of(tmp_path_factory.mktemp('pairs'), dropout=0.3)


@pytest.fixture(scope='module')
def params(task):
    batch = task.source.batch(0)
    return random_parameters(task.model.model, task.model.rows(batch), deviation=0.2)


def gradient(task, params, batch):
    def loss(params):
        terms = task.terms(params, batch, jax.random.key(3), train=True)
        return averages.mean(terms['embedding'])

    return jax.jit(jax.value_and_grad(loss))(params)


def test_micro_batches_of_one_row_have_the_loss_and_gradient_of_the_batch(task, params):
    batch = task.source.batch(1)
    rows = len(batch['input_ids'])
    assert rows > 2
    loss, expected = gradient(task, params, batch)
    config = task.config.copy_and_resolve_references()
    config.training.accumulation = rows
    micro_loss, found = gradient(dataclasses.replace(task, config=config), params, batch)
    np.testing.assert_allclose(micro_loss, loss, rtol=1e-6)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * largest), found, expected
    )
    without_dropout, _ = jax.jit(
        lambda params: (averages.mean(task.terms(params, batch, None, False)['embedding']), 0)
    )(params)
    assert abs(float(without_dropout) - float(loss)) > 1e-3


def test_packed_texts_have_the_vectors_and_the_loss_of_texts_alone(task, params):
    batch = task.source.batch(2)
    assert np.max(batch['segment_ids']) > 2
    terms = jax.jit(lambda params: task.terms(params, batch, None, train=False))(params)
    items = task.train.items
    order = task.source._batch_items(np.array([2]))[0]
    shape = task.source.shape._replace(rows=1, slots=1)
    step = jax.jit(task.model.outputs)
    vectors = [
        step(params, items.batch(np.array([item]), np.zeros(1, int), shape))['vectors'][0, 0]
        for item in order
    ]
    expected = InBatch()(batch_of(np.stack(vectors).reshape(6, 3, -1)))
    np.testing.assert_allclose(averages.mean(terms['embedding']), expected, rtol=1e-5)
