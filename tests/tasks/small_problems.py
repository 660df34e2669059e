"""A small model and tokenizer for tests of fine-tuning problems."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from ml_collections import ConfigDict

from bert_jax import tokenizers
from bert_jax.averages import mean
from bert_jax.examples.finetune_batches import BatchShape, evaluation_slots, row_length
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.problems.finetuning_model import (
    EncodedExamples,
    FineTuningModel,
    predict,
    prediction_step,
)
from bert_jax.problems.setup import Setup
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.random_parameters import random_parameters

TEXT = (
    'the small ship and the old harbour near the sea . a red tram on the wide bridge ! '
    'who saw the anchor , the gull or the lamp ? nobody saw what the cow did in the barn'
)


@functools.cache
def tokenizer(kind: str = 'wordpiece'):
    size = {'wordpiece': 90, 'bytebpe': 300, 'unigram': 60}[kind]
    return tokenizers.train(f'{kind}:{size}', iter([TEXT] * 3), True)


def architecture(name: str = 'bert', **sizes):
    common = dict(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=48)
    return architectures.build(name, vocab_size=tokenizer().vocab_size, **common, **sizes)


def problem_of(parts, settings, layout, labels=(), train=()):
    """A problem that is trained on some examples."""
    return parts.build_for(list(train), Setup(ConfigDict(settings), layout, tuple(labels)))


def make(parts, labels, max_length: int = 64, name: str = 'bert', train=(), **settings):
    """A problem with these settings, and its model."""
    built = architecture(name)
    layout = SpecialTokenLayout(tokenizer(), max_length, built.type_vocab_size)
    problem = problem_of(parts, settings, layout, labels, train)
    return problem, FineTuningModel(problem, Model(built, Compute(), problem.loss.heads()))


def large_params(model, encoded, scale: float = 8.0):
    """Initial parameters, scaled up so that every part of the model affects its outputs."""
    shape = BatchShape(1, row_length(int(encoded.items.length_N.max()), 512), 8)
    batch, _ = next(iter(batches(encoded, shape)))
    return random_parameters(model.model, model.rows(batch), deviation=0.02 * scale)


def fit(model, examples, steps: int):
    """Train on all examples at once with Adam: (host outputs of every example, losses)."""
    encoded = EncodedExamples.of(model.problem, examples)
    shape = BatchShape(8, row_length(int(encoded.items.length_N.max()), 512), 8)
    ((batch, _),) = batches(encoded, shape)
    optimizer = optax.adam(3e-3)

    def loss(params):
        terms = model.problem.loss.terms(model.outputs(params, batch), batch)
        return sum(mean(terms[name]) for name in model.problem.loss.weights)

    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def train(key):
        params = nn.unbox(model.model.init(key, model.rows(batch))['params'])
        (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), length=steps)
        return params, losses

    params, losses = train(jax.random.key(0))
    parts, _ = answers(model, params, examples, rows=8)
    return parts, losses


def batches(encoded, shape):
    from bert_jax.examples.finetune_batches import evaluation_batches

    shape = shape._replace(slots=evaluation_slots(encoded.items, shape))
    return evaluation_batches(encoded.items, shape)


def answers(model, params, examples, rows: int = 2, length: int | None = None):
    """Host outputs of every example, and the loss terms, from packed batches."""
    encoded = EncodedExamples.of(model.problem, examples)
    length = length or row_length(int(encoded.items.length_N.max()), 512)
    shape = BatchShape(rows, length, 1)
    shape = shape._replace(slots=evaluation_slots(encoded.items, shape))
    step = jax.jit(prediction_step(model, with_terms=True))
    predicted = predict(step, jax.tree.map(jnp.asarray, params), encoded, shape)
    return predicted.parts, predicted.terms
