"""Training: the same loss and gradient in micro-batches, packed or not, from text to update."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import averages
from bert_jax.errors import UserError
from bert_jax.problems.embedding import LOSSES
from bert_jax.problems.embedding.base import EmbeddingLoss
from bert_jax.problems.embedding.in_batch import InBatch
from bert_jax.tasks import make_task
from tests.problems.embedding.small import config_of, rows, task_of
from tests.problems.embedding.test_losses import VECTORS_BND, batch_of
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


def small_rows(columns: tuple[str, ...], number: int = 12) -> list[list[str]]:
    """Lines with texts, a score of 0 or 1, a second score, and one of three classes."""
    texts = rows(number, len(columns))
    return [
        [*columns, 'score', 'other', 'category'],
        *([*own, str(i % 2), str(i / number), f'c{i % 3}'] for i, own in enumerate(texts)),
    ]


KEYS = {
    'scores': {'data__columns__scores': ('score',)},
    'label': {'data__columns__label': 'category'},
}


ON_VECTORS = [
    name
    for name, loss in LOSSES.items()
    if issubclass(loss, EmbeddingLoss) and 'vectors' not in loss.reads
]


@pytest.mark.parametrize('name', ON_VECTORS)
def test_every_loss_has_terms_of_a_batch_of_its_task(name, tmp_path):
    loss, keys = LOSSES[name], {}
    for field in loss.reads:
        keys |= KEYS[field]
    columns = tuple(f'text{number}' for number in range(max(loss.min_texts, 1)))
    if name == 'distill_kl':
        keys['data__columns__scores'] = ('score', 'other')
    task = make_task(config_of(tmp_path, small_rows(columns), problem__loss=name, **keys))
    batch = task.source.batch(0)
    vectors = np.random.default_rng(0).normal(size=(*batch['class'].shape, 4)).astype(np.float32)
    values = task.problem.loss.terms({'vectors': vectors}, batch)
    assert float(averages.mean(values['embedding'])) > 0
    assert float(values['embedding'].count) == 6
    held_out = task.problem.loss.held_out_terms(task.splits.train, [np.eye(3)[: len(columns)]] * 12)
    assert ('embedding' in held_out) == (loss.copies == 1)


def test_a_teacher_has_a_vector_for_each_text(tmp_path):
    path = tmp_path / 'a.jsonl'
    path.write_text(
        ''.join(
            json.dumps({'q': 'the ship', 'd': f'a lamp {i}', 'u': [1, i], 'v': [i, 2.5]}) + '\n'
            for i in range(6)
        )
    )
    config = config_of(tmp_path, [['text1'], ['x']], problem__loss='teacher_vectors')
    config.data.train = (str(path),)
    config.data.columns.update(texts=('q', 'd'), vectors=('u', 'v'))
    task = make_task(config)
    batch = task.source.batch(0)
    outputs = {'vectors': np.ones((*batch['class'].shape, 2), np.float32)}
    collected = task.problem.loss.collect(outputs['vectors'], batch)
    found = np.asarray(collected.teacher_BNV).tolist()
    assert sorted(found) == [[[1.0, i], [i, 2.5]] for i in range(6)]
    wide = {'vectors': np.ones((*batch['class'].shape, 3), np.float32)}
    with pytest.raises(UserError, match='vectors of 2 numbers, but those of the model have 3'):
        task.problem.loss.terms(wide, batch)
    config.data.columns.vectors = ('u',)
    with pytest.raises(UserError, match='give each of the 2 texts a vector of 2 numbers'):
        make_task(config)


def test_matryoshka_sizes_add_up_and_are_normalized(tmp_path):
    """The value is that of sentence-transformers 6.2 on the same vectors."""
    task = task_of(tmp_path, columns=2, problem__dimensions=(6, 3))
    loss = task.problem.loss
    assert float(loss.of_sizes(batch_of(VECTORS_BND[:, :2]))) == pytest.approx(29.55821, rel=2e-5)
    task = task_of(
        tmp_path, columns=2, problem__dimensions=(6, 3), problem__dimension_weights=(1.0, 0.0)
    )
    first = float(task.problem.loss.of_sizes(batch_of(VECTORS_BND[:, :2])))
    assert first == pytest.approx(float(InBatch()(batch_of(VECTORS_BND[:, :2]))))


def test_simcse_compares_two_passes_that_differ_in_dropout(tmp_path):
    task = task_of(tmp_path, columns=1, dropout=0.3, problem__loss='simcse')
    batch = task.source.batch(0)
    params = random_parameters(task.model.model, task.model.rows(batch), deviation=0.2)
    for seeds_R, is_same in (
        (np.arange(len(batch['input_ids']), dtype=np.uint32), False),
        (None, True),
    ):
        vectors_RSD = jax.jit(task.model.outputs)(params, batch, seeds_R)['vectors']
        vectors_BND = np.asarray(task.problem.loss.collect(vectors_RSD, batch).vectors_BND)
        assert vectors_BND.shape == (6, 2, 32)
        assert np.allclose(vectors_BND[:, 0], vectors_BND[:, 1], atol=1e-4) == is_same
