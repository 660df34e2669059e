"""Every config: by shape at its full size, and trained for a few steps when shrunk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import optimizers, schedules, sharding
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from configs import albert, base, deberta, electra, large, modernbert, roberta, spanbert, xlmr
from tests.end_to_end import small

CONFIGS = {
    'base': (base.get_config, 'wordpiece'),
    'large': (large.get_config, 'wordpiece'),
    'roberta': (roberta.get_config, 'bytebpe'),
    'spanbert': (spanbert.get_config, 'wordpiece'),
    'electra:small': (lambda: electra.get_config('small'), 'wordpiece'),
    'electra:base': (lambda: electra.get_config('base'), 'wordpiece'),
    'albert': (albert.get_config, 'unigram'),
    'deberta': (deberta.get_config, 'unigram'),
    'xlmr': (xlmr.get_config, 'unigram'),
    'modernbert': (modernbert.get_config, 'bytebpe'),
}
SIZES = {'wordpiece': 120, 'bytebpe': 300, 'unigram': 90}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('configs')


def make_config(name, folder):
    """The config on a small text of two languages, with a small vocabulary of its kind."""
    make, kind = CONFIGS[name]
    config = make()
    sources = []
    for number, language in enumerate(('aa', 'bb')[: len(config.data.sources)]):
        text = folder / language
        text.mkdir(exist_ok=True)
        source = small.write_text(text, documents=200, seed=number)
        sources.append(f'{source};language={language}')
    with config.unlocked():
        config.data.sources = tuple(sources)
        config.data.corpus = str(folder / f'{kind}_{len(sources)}_{config.data.lowercase}')
        config.data.tokenizer = f'train:{kind}:{SIZES[kind]}'
        config.data.held_out_fraction = 0.2
        config.data.prepare_workers = 0
        config.workdir = str(folder / name.replace(':', '_'))
    return config


def start(task):
    """The optimizer, and a function of a key that gives the state of step 0."""
    config = task.config
    schedule = schedules.build(config.schedule, sum(config.stages.steps))
    optimizer = optimizers.build(config.optimizer, schedule)

    def state(key):
        params = sharding.unbox(task.init(key))
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, zero, zero, params, optimizer.init(params))

    return optimizer, state


@pytest.mark.parametrize('name', CONFIGS)
def test_a_step_at_full_size_by_shape(name, folder):
    config = make_config(name, folder)
    task = Pretraining(config)
    optimizer, state = start(task)
    state = jax.eval_shape(state, jax.random.key(0))
    optimizers.check_decay_exclude(config.optimizer.decay_exclude, state.params)
    for stage, length in zip(task.stages, config.stages.sequence_length, strict=True):
        one = stage.source.batch(0, np.arange(1))
        size = stage.source.batch_size
        batch = {
            key: jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype)
            for key, array in one.items()
        }
        assert batch['input_ids'].shape == (size, length)
        step = make_train_step(task, optimizer, stage.accumulation, config.seed)
        after, metrics = jax.eval_shape(step, state, batch)
        assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(
            lambda leaf: leaf.shape, state
        )
        assert set(task.weights) <= set(metrics['terms'])


@pytest.mark.parametrize(
    'name', [name for name in CONFIGS if name not in ('large', 'electra:base')]
)
def test_a_few_steps_when_shrunk(name, folder):
    config = make_config(name, folder)
    with config.unlocked():
        config.model.update(dict(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64))
        if config.model.architecture.startswith(('albert', 'electra')):
            config.model.embedding_size = 16
        config.rtd.generator_width = max(config.rtd.generator_width, 0.5)
        config.compute.dtype = 'float32'
        config.stages.update(
            dict(
                steps=(12,),
                sequence_length=(32,),
                batch_size=(16,),
                accumulation=(1,),
                max_predictions=(10,),
            )
        )
        config.schedule.update(dict(learning_rate=0.02, warmup_steps=2, decay_steps=0))
    task = Pretraining(config)
    (stage,), (optimizer, state) = task.stages, start(task)
    step = jax.jit(make_train_step(task, optimizer, 1, config.seed), donate_argnums=0)
    losses = []
    state = jax.jit(state)(jax.random.key(0))
    for number in range(12):
        state, metrics = step(state, stage.source.batch(number % 2, np.arange(16)))
        losses.append(metrics['loss'])
    assert not state.skipped
    assert np.mean(losses[-2:]) < np.mean(losses[:2]) * 0.98
