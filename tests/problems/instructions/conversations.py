"""Small models of both kinds that learn to answer, for tests."""

import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from ml_collections import ConfigDict

from bert_jax import tokenizers
from bert_jax.averages import mean
from bert_jax.examples.finetune_batches import BatchShape
from bert_jax.labels.conversations import make_conversation
from bert_jax.loaded.record import RunRecord
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.problems import PROBLEMS
from bert_jax.problems.base import Setup
from bert_jax.problems.finetuning_model import EncodedExamples, FineTuningModel
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.training.checkpoints import Checkpoints
from tests.tasks.small_problems import batches

WORDS = ['cat', 'dog', 'bird', 'fish', 'tree', 'stone', 'river', 'cloud', 'apple', 'horse']
TEXT = f'User: Repeat: {" ".join(WORDS)} Assistant: System: be short.\n'


@functools.cache
def tokenizer():
    return tokenizers.train('wordpiece:150', [TEXT * 3])


def conversation(name, *turns):
    """A user and an assistant in turn."""
    roles = [('user', 'assistant')[number % 2] for number in range(len(turns))]
    return make_conversation(list(zip(roles, turns, strict=True)), name)


EXAMPLES = [
    conversation('a', 'Repeat: cat dog', 'cat dog'),
    conversation('b', 'Repeat: tree', 'tree', 'Repeat: fish stone', 'fish stone'),
    make_conversation(
        [('system', 'be short.'), ('user', 'Repeat: river'), ('assistant', 'river')], 'c'
    ),
]


def make(is_causal, max_length=48, **settings):
    """A problem and its model."""
    architecture = architectures.build(
        'bert',
        vocab_size=tokenizer().vocab_size,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    layout = SpecialTokenLayout(tokenizer(), max_length, architecture.type_vocab_size)
    kind = PROBLEMS['instructions']
    setup = Setup(ConfigDict(kind.settings | settings), layout, is_causal=is_causal)
    problem = kind.load().build_for(EXAMPLES, setup)
    loss = problem.loss
    return problem, FineTuningModel(
        problem, Model(architecture, Compute(), loss.heads(), setup.is_causal)
    )


def encoded(problem, examples=EXAMPLES):
    return EncodedExamples.of(problem, examples)


# Prompts and answers of one to four tokens.
SPELLED = [
    conversation(str(number), f'Repeat: {word}', ' '.join(WORDS[number : number + 1 + number % 4]))
    for number, word in enumerate(WORDS[:7])
]


def fit(model, examples, steps):
    """Parameters after training on all examples at once with Adam, and the losses."""
    ((batch, _),) = batches(encoded(model.problem, examples), BatchShape(4, 64, 8))
    optimizer = optax.adam(5e-3)

    def loss(params, seeds_R):
        terms = model.problem.loss.terms(model.outputs(params, batch, seeds_R), batch)
        return mean(terms['answer'])

    def step(carry, number):
        params, state = carry
        seeds_R = number * 4 + jnp.arange(4, dtype=jnp.uint32)
        value, gradient = jax.value_and_grad(loss)(params, seeds_R)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def train(key):
        params = nn.unbox(model.model.init(key, model.rows(batch))['params'])
        start = (params, optimizer.init(params))
        (params, _), losses = jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.uint32))
        return params, losses

    return jax.device_get(train(jax.random.key(0)))


def save_run(folder, model, params):
    """A run of one checkpoint."""
    problem = model.problem
    record = RunRecord(
        task='instructions',
        family='bert',
        architecture=model.model.architecture,
        base=None,
        tokenizer=tokenizer().to_json(),
        tokenizer_fingerprint=tokenizer().fingerprint,
        is_causal=problem.setup.is_causal,
        is_generative=True,
        has_prefix=problem.loss.has_prefix,
        config={
            'training': {'sequence_length': problem.encoding.layout.max_length},
            'problem': problem.setup.settings.to_dict(),
        },
        train_seconds=0.0,
        is_evaluated=True,
    )
    writer = Checkpoints.open(folder / 'checkpoints', keep=1)
    writer.save(1, {'params': params}, record.to_json())
    writer.close()
    return folder
