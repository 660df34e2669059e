"""Every config: published values, shapes at full size, and a few steps of a shrunk version."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config_keys
from bert_jax.errors import UserError
from bert_jax.export import Request, export
from bert_jax.interop import huggingface_export, loading
from bert_jax.models import architectures, initial_values, layer_stack
from bert_jax.tasks.pretraining import builder
from bert_jax.tasks.pretraining import task as pretraining
from bert_jax.tasks.pretraining.stage_settings import stage_settings
from bert_jax.training import checkpoints, optimizers, schedules, sharding
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from configs import (
    albert,
    bart,
    base,
    deberta,
    diffusion,
    electra,
    ettin,
    fast,
    gpt2,
    gptbert,
    large,
    mbart,
    mmbert,
    modernbert,
    mosaicbert,
    neobert,
    roberta,
    spanbert,
    t5,
    tiny,
    xlmr,
    xlnet,
)
from tests.end_to_end import small
from tests.interop import published
from tests.parity.agreement import agree_trees

CONFIGS = {
    'base': (base.get_config, 'wordpiece'),
    'large': (large.get_config, 'wordpiece'),
    'roberta': (roberta.get_config, 'bytebpe'),
    'spanbert': (spanbert.get_config, 'wordpiece'),
    'electra:small': (lambda: electra.get_config('small'), 'wordpiece'),
    'electra:base': (lambda: electra.get_config('base'), 'wordpiece'),
    'albert': (albert.get_config, 'unigram'),
    'deberta': (deberta.get_config, 'unigram'),
    'gpt2': (gpt2.get_config, 'bytebpe'),
    'gpt2:tiny': (lambda: gpt2.get_config('tiny'), 'bytebpe'),
    'xlmr': (xlmr.get_config, 'unigram'),
    'xlmr:large': (lambda: xlmr.get_config('large'), 'unigram'),
    'modernbert': (modernbert.get_config, 'bytebpe'),
    'ettin:17m': (lambda: ettin.get_config('17m'), 'bytebpe'),
    'ettin:1b': (lambda: ettin.get_config('1b'), 'bytebpe'),
    'mosaicbert': (mosaicbert.get_config, 'wordpiece'),
    'fast:tiny': (fast.get_config, 'wordpiece'),
    'fast:base': (lambda: fast.get_config('base'), 'wordpiece'),
    'mmbert': (mmbert.get_config, 'unigram'),
    'gptbert': (gptbert.get_config, 'bytebpe'),
    'neobert': (neobert.get_config, 'wordpiece'),
    'xlnet:base': (lambda: xlnet.get_config('base'), 'xlnet'),
    'xlnet:large': (lambda: xlnet.get_config('large'), 'xlnet'),
    'diffusion:bert': (lambda: diffusion.get_config('bert'), 'wordpiece'),
    'bart:base': (bart.get_config, 'bytebpe'),
    'bart:large': (lambda: bart.get_config('large'), 'bytebpe'),
    'mbart': (mbart.get_config, 'unigram:languages=aa,bb:cls=no'),
    't5:small': (t5.get_config, 'unigram:sentinels=100:cls=no'),
    't5:base': (lambda: t5.get_config('base'), 'unigram:sentinels=100:cls=no'),
    't5:tiny': (lambda: t5.get_config('tiny'), 'unigram:sentinels=100:cls=no'),
}
SIZES = {'wordpiece': 120, 'bytebpe': 300, 'unigram': 90, 'xlnet': 90}


# Values from the papers and the code that the configs cite.
PUBLISHED = {
    'bart:large': {
        'data.segments': 'doc_sentences',
        'noise.kind': 'bart',
        'noise.mask': 0.3,
        'noise.poisson_lambda': 3.0,
        'noise.replace_length': 1,
        'noise.permute_sentences': 1.0,
        'noise.insert': 0.0,
        'noise.rotate': 0.0,
        'training.steps': (500_000,),
        'training.batch_size': (8000,),
        'training.sequence_length': (512,),
        'optimizer.weight_decay': 0.01,
        'optimizer.clip_norm': 0.1,
        'schedule.learning_rate': 4e-4,
    },
    'mbart': {
        'noise.mask': 0.35,
        'noise.poisson_lambda': 3.5,
        'noise.permute_sentences': 1.0,
        'data.language_alpha': 0.7,
        'training.steps': (500_000,),
        'optimizer.beta2': 0.98,
        'optimizer.eps': 1e-6,
    },
    't5:small': {
        'noise.kind': 't5',
        'noise.density': 0.15,
        'noise.mean_span': 3.0,
        'training.batch_size': (2048,),
        'training.steps': (1_000_000,),
        'training.z_loss': 1e-4,
    },
    'base': {
        'training.steps': (900_000, 100_000),
        'training.sequence_length': (128, 512),
        'training.batch_size': (256, 256),
        'training.max_predictions': (20, 76),
        'optimizer.name': 'bert_adam',
        'optimizer.eps': 1e-6,
        'optimizer.clip_norm': 1.0,
        'schedule.learning_rate': 1e-4,
        'data.short_sequence_probability': 0.1,
        'masking.rate': 0.15,
        'masking.mask': 0.8,
        'masking.random': 0.1,
        'masking.replacement': 'uniform',
    },
    'roberta': {
        'data.segments': 'full_sentences',
        'objectives.nsp': 0.0,
        'training.sequence_length': (512,),
        'training.batch_size': (8192,),
        'training.steps': (500_000,),
        'optimizer.beta2': 0.98,
        'optimizer.clip_norm': 0.0,
    },
    'gpt2': {
        'objectives.clm': 1.0,
        'objectives.mlm': 0.0,
        'data.segments': 'full_sentences',
        'training.sequence_length': (1024,),
        'training.batch_size': (512,),
        'training.steps': (600_000,),
        'optimizer.beta2': 0.95,
        'optimizer.weight_decay': 0.1,
        'optimizer.clip_norm': 1.0,
        'schedule.learning_rate': 6e-4,
    },
    'xlnet:large': {
        'data.segments': 'pairs',
        'objectives.plm': 1.0,
        'masking.rate': 1 / 6,
        'masking.longest_ngram': 5,
        'plm.block_size': 256,
        'training.sequence_length': (512,),
        'training.batch_size': (8192,),
        'training.max_predictions': (85,),
        'training.steps': (500_000,),
        'optimizer.name': 'bert_adam',
        'optimizer.weight_decay': 0.01,
        'optimizer.eps': 1e-6,
        'optimizer.clip_norm': 1.0,
        'schedule.name': 'linear',
        'schedule.learning_rate': 4e-4,
        'schedule.end_learning_rate': 4e-7,
    },
    'spanbert': {
        'data.segments': 'single',
        'masking.scheme': 'anchored_spans',
        'masking.span_p': 0.2,
        'masking.longest_span': 10,
        'masking.replacement': 'unigram',
        'sbo.position_size': 200,
        'objectives.sbo': 1.0,
        'training.steps': (2_400_000,),
        'schedule.learning_rate': 1e-4,
        'optimizer.eps': 1e-8,
        'optimizer.clip_norm': 1.0,
    },
    'electra:small': {
        'objectives.rtd': 50.0,
        'masking.mask': 0.85,
        'masking.random': 0.0,
        'rtd.generator_width': 1 / 4,
        'rtd.sharing': 'tied',
        'rtd.temperature': 1.0,
        'schedule.learning_rate': 5e-4,
        'training.batch_size': (128,),
        'training.sequence_length': (128,),
        'training.steps': (1_000_000,),
    },
    'electra:base': {
        'masking.unknown': True,
        'rtd.generator_width': 1 / 3,
        'schedule.learning_rate': 2e-4,
        'training.batch_size': (256,),
        'training.sequence_length': (512,),
    },
    'albert': {
        'data.segments': 'ordered_pairs',
        'data.tokenizer': 'train:unigram:30000',
        'objectives.sop': 1.0,
        'masking.unknown': True,
        'masking.scheme': 'ngrams',
        'masking.longest_ngram': 3,
        'masking.word_starts': 'albert',
        'optimizer.name': 'albert_lamb',
        'schedule.name': 'bert_linear',
        'training.batch_size': (4096,),
        'training.steps': (125_000,),
        'schedule.learning_rate': 0.00176,
    },
    'deberta': {
        'objectives.rtd': 50.0,
        'masking.unknown': False,
        'rtd.sharing': 'gdes',
        'model.positions': 'mask_decoder',
        'rtd.generator_width': 1.0,
        'rtd.generator_depth': 0.5,
        'training.batch_size': (8192,),
        'training.steps': (500_000,),
        'optimizer.beta2': 0.98,
        'schedule.learning_rate': 5e-4,
    },
    'xlmr': {
        'data.language_alpha': 0.3,
        'data.tokenizer_language_alpha': 0.3,
        'data.tokenizer': 'train:unigram:250002',
        'training.steps': (1_500_000,),
        'training.batch_size': (8192,),
        'schedule.learning_rate': 6e-4,
    },
    'xlmr:large': {
        'model.architecture': 'xlmr_large',
        'training.steps': (1_500_000,),
        'training.batch_size': (8192,),
        'schedule.learning_rate': 4e-4,
        'schedule.warmup_fraction': 0.02,
    },
    'modernbert': {
        'masking.rate': 0.3,
        'optimizer.name': 'stable_adamw',
        'optimizer.beta1': 0.9,
        'optimizer.beta2': 0.98,
        'optimizer.eps': 1e-6,
        'optimizer.weight_decay': 0.0125,
        'schedule.name': 'constant',
        'schedule.learning_rate': 8e-4,
        'model.attention.theta': 10_000.0,
        'compute.float32_residual': True,
        'training.sequence_length': (1024,),
    },
    'ettin:17m': {
        'masking.rate': 0.3,
        'optimizer.name': 'stable_adamw',
        'optimizer.beta2': 0.98,
        'optimizer.eps': 1e-6,
        'schedule.name': 'constant',
        'schedule.learning_rate': 3e-3,
        'model.attention.theta': 10_000.0,
        'training.sequence_length': (1024,),
        'training.batch_size': (4608,),
    },
    'mosaicbert': {
        'masking.rate': 0.3,
        'optimizer.name': 'adamw',
        'optimizer.beta2': 0.98,
        'optimizer.eps': 1e-6,
        'optimizer.weight_decay': 0.02,
        'optimizer.decay_exclude': (),
        'optimizer.clip_norm': 0.0,
        'schedule.name': 'linear',
        'schedule.learning_rate': 5e-4,
        'schedule.end_learning_rate': 1e-5,
        'training.steps': (70_000,),
        'training.sequence_length': (128,),
        'training.batch_size': (4096,),
    },
    'mmbert': {
        'masking.rate': 0.3,
        'data.language_alpha': 0.7,
        'optimizer.name': 'stable_adamw',
        'optimizer.beta2': 0.95,
        'optimizer.eps': 1e-8,
        'optimizer.weight_decay': 0.1,
        'schedule.name': 'constant',
        'schedule.learning_rate': 8e-4,
        'model.attention.theta': 10_000.0,
        'training.sequence_length': (1024,),
        'training.batch_size': (4608,),
    },
    'gptbert': {
        'masking.rate': 0.3,
        'masking.end_rate': 0.15,
        'masking.longest_span': 3,
        'mntp.causal_share': 1 / 16,
        'training.sequence_length': (128, 256, 512),
        'training.z_loss': 1e-4,
        'optimizer.name': 'lamb',
        'optimizer.beta2': 0.98,
        'optimizer.eps': 1e-8,
        'optimizer.weight_decay': 0.1,
        'optimizer.clip_norm': 2.0,
        'optimizer.ema': 0.999,
        'schedule.name': 'cosine',
        'schedule.learning_rate': 1.41e-2,
        'schedule.end_learning_rate': 1.41e-3,
    },
    'neobert': {
        'masking.rate': 0.2,
        'masking.mask': 1.0,
        'data.segments': 'doc_sentences',
        'optimizer.name': 'adamw',
        'optimizer.beta2': 0.95,
        'optimizer.eps': 1e-8,
        'optimizer.weight_decay': 0.1,
        'optimizer.decay_exclude': (),
        'optimizer.clip_norm': 1.0,
        'schedule.name': 'cosine',
        'schedule.learning_rate': 6e-4,
        'schedule.end_learning_rate': 6e-5,
        'training.steps': (1_000_000,),
        'training.sequence_length': (1024,),
    },
    'diffusion:bert': {
        'objectives.diffusion': 1.0,
        'objectives.mlm': 0.0,
        'diffusion.weight': 'bound',
        'training.steps': (1_000_000,),
        'training.sequence_length': (128,),
        'training.max_predictions': (128,),
        'training.batch_size': (512,),
        'optimizer.name': 'adamw',
        'optimizer.beta2': 0.999,
        'optimizer.weight_decay': 0.0,
        'optimizer.clip_norm': 1.0,
        'optimizer.ema': 0.9999,
        'schedule.name': 'constant',
        'schedule.learning_rate': 3e-4,
    },
}


@pytest.mark.parametrize('name', PUBLISHED)
def test_hyperparameters_are_as_published(name):
    config = CONFIGS[name][0]()
    for key, value in PUBLISHED[name].items():
        assert config_keys.find(config, key) == value, key


# Steps of the warmup in the papers and the code; the configs state shares of the run.
WARMUPS = {
    'base': 10_000,
    'large': 10_000,
    'roberta': 24_000,
    'spanbert': 10_000,
    'electra:small': 10_000,
    'electra:base': 10_000,
    'albert': 3125,
    'deberta': 10_000,
    'gpt2': 2_000,
    'gptbert': 125,
    'mmbert': 636,
    'neobert': 2_000,
    'mosaicbert': 4_200,
    'ettin:17m': 848,
    'ettin:1b': 424,
    'diffusion:bert': 2500,
    'xlnet:large': 40_000,
    'bart:base': 10_000,
    'bart:large': 10_000,
    't5:small': 10_000,
}


@pytest.mark.parametrize('name', WARMUPS)
def test_the_warmup_is_as_published_and_follows_the_length_of_the_run(name):
    config = CONFIGS[name][0]()
    total = sum(config.training.steps)
    assert schedules.warmup_length(config.schedule, total) == WARMUPS[name]
    for steps in (1, 10, 10_000):
        schedules.build(config.schedule, steps)  # raises if the warmup is not shorter
    assert schedules.warmup_length(config.schedule, total // 100) == pytest.approx(
        WARMUPS[name] / 100, abs=1
    )


def test_modernbert_trains_on_the_published_number_of_tokens():
    first, second = (modernbert.get_config(stage) for stage in modernbert.STAGES)
    tokens = [
        config.training.steps[0]
        * config.training.batch_size[0]
        * config.training.sequence_length[0]
        for config in (first, second)
    ]
    assert tokens == pytest.approx([1.7e12, 0.3e12], rel=0.02)
    per_step = 4608 * 1024
    warmup = schedules.warmup_length(first.schedule, first.training.steps[0])
    assert warmup * per_step == pytest.approx(3e9, rel=0.02)
    assert second.schedule.decay_steps * per_step == pytest.approx(50e9, rel=0.02)
    assert (second.schedule.name, second.schedule.learning_rate) == ('sqrt', 3e-4)
    # The published weight decay, 1e-5, is not multiplied by the peak rate.
    for config in (first, second):
        per_step = config.optimizer.weight_decay * config.schedule.learning_rate
        assert per_step == pytest.approx(1e-5)
    assert (second.init_from, second.model.attention.theta) == (first.workdir, 160_000.0)


# Tokens of the three phases, in 1e9, and the weight decay of a step, in the authors' files.
ETTIN = {name: ((1700, 250, 50), 1e-5) for name in ettin.SIZES}
ETTIN |= {name: ((1700, 250, 50), 3e-4) for name in ('17m', '32m', '68m')}
ETTIN['1b'] = ((1700, 83.333, 16.667), 5e-5)


@pytest.mark.parametrize('size', ettin.SIZES)
def test_ettin_trains_in_three_phases(size):
    published, decay = ETTIN[size]
    phases = [ettin.get_config(f'{size}-{phase}') for phase in ettin.PHASES]
    tokens = [
        config.training.steps[0]
        * config.training.batch_size[0]
        * config.training.sequence_length[0]
        / 1e9
        for config in phases
    ]
    assert tokens == pytest.approx(published, rel=0.01)
    assert [config.init_from for config in phases[1:]] == [one.workdir for one in phases[:2]]
    first, second, third = (config.schedule for config in phases)
    assert (second.learning_rate, second.name) == (first.learning_rate, 'sqrt')
    assert second.end_learning_rate == third.learning_rate == first.learning_rate / 2
    assert third.end_learning_rate == pytest.approx(0.04 * third.learning_rate)
    for config in phases:
        per_step = config.optimizer.weight_decay * config.schedule.learning_rate
        assert per_step == pytest.approx(decay)
        schedules.build(config.schedule, config.training.steps[0])  # raises if it does not fit
    assert [config.masking.rate for config in phases] == [0.3, 0.3, 0.15]
    thetas = [(c.model.attention.theta, c.model.attention.local_theta) for c in phases]
    assert thetas == [(10_000, None), (160_000, None), (160_000, 160_000)]


def test_mmbert_masks_less_and_adds_languages_in_each_phase():
    phases = [mmbert.get_config(phase) for phase in mmbert.PHASES]
    assert [config.masking.rate for config in phases] == [0.3, 0.15, 0.05]
    assert [config.data.language_alpha for config in phases] == [0.7, 0.5, 0.3]
    assert [len(config.data.sources) for config in phases] == [16, 28, 41]
    assert [config.training.max_predictions for config in phases] == [(308,), (1229,), (410,)]
    assert [config.init_from for config in phases[1:]] == [one.workdir for one in phases[:2]]
    tokens = [
        config.training.steps[0]
        * config.training.batch_size[0]
        * config.training.sequence_length[0]
        for config in phases
    ]
    assert tokens == pytest.approx([2.3e12, 0.6e12, 0.1e12], rel=0.01)
    assert [config.model.attention.local_theta for config in phases] == [None, 160_000.0, 160_000.0]
    assert [config.schedule.name for config in phases] == ['constant', 'constant', 'sqrt']
    assert phases[-1].schedule.end_learning_rate == pytest.approx(1.6e-5)
    languages = [{*config.data.sources} for config in phases]
    assert languages[0] < languages[1] < languages[2]


def test_neobert_continues_with_longer_sequences():
    first, second = (neobert.get_config(stage) for stage in neobert.STAGES)
    for config in (first, second):
        training = config.training
        assert training.batch_size[0] * training.sequence_length[0] == 2**21
    assert (second.init_from, second.training.sequence_length) == (first.workdir, (4096,))
    assert second.schedule.learning_rate == first.schedule.end_learning_rate


def test_gptbert_grows_batches_and_sequences():
    stages = stage_settings(gptbert.get_config().training)
    tokens = [stage.batch_size * stage.sequence_length for stage in stages]
    assert tokens == [2**20, 2**21, 3 * 2**20, 3 * 2**20, 2**22, 2**22]
    assert [stage.sequence_length for stage in stages] == [128, 128, 128, 256, 256, 512]
    assert sum(stage.steps for stage in stages) == 7812


def test_gptbert_base_trains_longer_at_a_lower_rate():
    config = gptbert.get_config('base')
    assert sum(config.training.steps) == 15_625
    assert schedules.warmup_length(config.schedule, 15_625) == 250
    rates = config.schedule.learning_rate, config.schedule.end_learning_rate
    assert rates == pytest.approx((1e-2, 1e-3))


def test_the_sizes_of_fast_keep_their_ratios():
    for size in fast.SIZES:
        config = fast.get_config(size)
        model = config.model
        assert model.hidden_size * config.schedule.learning_rate == pytest.approx(0.512)
        assert model.hidden_size * model.initializer_range**2 == pytest.approx(0.81, rel=0.03)
        assert model.intermediate_size == round(model.hidden_size * 8 / 3)
        (length,), (targets,) = config.training.sequence_length, config.training.max_predictions
        assert targets - 1 < config.masking.rate * length <= targets
    with pytest.raises(UserError, match="unknown size of configs/fast.py 'huge'"):
        fast.get_config('huge')


def test_diffusion_continues_from_weights():
    config = diffusion.get_config('modernbert')
    assert config.model.architecture is None
    assert config.training.batch_size == (48 * 8,)
    assert (config.schedule.name, config.schedule.learning_rate) == ('cosine', 1e-4)
    assert schedules.warmup_length(config.schedule, 50_000) == 5000
    config = diffusion.get_config('tiny')
    assert config.init_from == tiny.get_config().workdir != config.workdir
    assert config.data.corpus == tiny.get_config().data.corpus


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('configs')


def make_config(name, folder):
    """The config with a small text and a small vocabulary of its kind."""
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
        name_of_corpus = f'{kind.replace(":", "_")}_{len(sources)}_{config.data.lowercase}'
        config.data.corpus = str(folder / name_of_corpus)
        kind, _, options = kind.partition(':')
        config.data.tokenizer = f'train:{kind}:{SIZES[kind]}{options and ":"}{options}'
        config.data.held_out_fraction = 0.2
        config.data.prepare_workers = 0
        config.workdir = str(folder / name.replace(':', '_'))
    return config


def start(task):
    """Return the optimizer, and a function from parameters to the state of step 0."""
    config = task.config
    schedule = schedules.build(config.schedule, sum(config.training.steps))
    optimizer = optimizers.build(config.optimizer, schedule)

    def state(params):
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, zero, zero, params, optimizer.init(params))

    return optimizer, state


OTHER_SIZES = (
    'ettin:1b',
    *('large', 'xlmr:large', 'electra:base', 'fast:base'),
    *('xlnet:large', 'bart:large', 't5:base'),
)


def quick_and_slow(names, slow):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


# end_to_end/test_errors.py rehearses these at full size up to their losses, and gpt2:tiny and
# t5:tiny are made of the same parts as the larger ones.
REHEARSED = ('spanbert', 'electra:small', 'deberta', 'xlmr', 'gpt2', 't5:small', 'mbart')


@pytest.mark.parametrize('name', quick_and_slow(CONFIGS, OTHER_SIZES + REHEARSED))
def test_a_step_at_full_size_has_the_right_shapes(name, folder):
    config = make_config(name, folder)
    architecture = architectures.build(config.model.architecture)
    config.compute.scan_layers = architecture.equal_layers  # trace one layer instead of all
    task = builder.build(config)
    optimizer, state = start(task)
    state = jax.eval_shape(state, sharding.unbox(layer_stack.abstract(task.init)))
    optimizers.check_decay_exclude(config.optimizer.decay_exclude, state.params)
    for stage, settings in zip(task.stages, stage_settings(config.training), strict=True):
        length = settings.sequence_length
        one = stage.source.batch(0, np.arange(1))
        size = stage.source.batch_size
        batch = {
            key: jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype)
            for key, array in one.items()
        }
        assert batch['input_ids'].shape == (size, length)
        step = make_train_step(task, optimizer, stage.accumulation)
        after, metrics = jax.eval_shape(step, state, batch, jax.random.key(0))
        assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(
            lambda leaf: leaf.shape, state
        )
        assert set(task.weights) <= set(metrics['terms'])


class Trained(NamedTuple):
    """A shrunk version of a config after a few steps."""

    task: pretraining.Pretraining
    state: TrainState
    losses: list


# What these train is also trained by the quick cases (replaced tokens by deberta), base by
# test_main.py and diffusion by test_diffusion.py in end_to_end/, gptbert by
# objectives/test_mntp.py; parity/ compares ALBERT.
REPETITIONS = (
    *('base', 'albert', 'gptbert', 'electra:small'),
    *('roberta', 'spanbert', 'xlmr', 'mbart', 't5:small', 'mmbert', 'neobert', 'gpt2'),
    'ettin:17m',
    'diffusion:bert',
    *('fast:tiny', 'gpt2:tiny', 't5:tiny'),
)


@pytest.fixture(
    scope='module',
    params=quick_and_slow([name for name in CONFIGS if name not in OTHER_SIZES], REPETITIONS),
)
def trained(request, folder):
    config = make_config(request.param, folder)
    with config.unlocked():
        config.model.update(dict(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64))
        if config.model.architecture.startswith(('albert', 'electra')):
            config.model.embedding_size = 16
        if architectures.build(config.model.architecture).decoder is not None:
            config.model.decoder.num_layers = 2
        config.rtd.generator_width = max(config.rtd.generator_width, 0.5)
        config.compute.dtype = 'float32'
        all_positions = config.objectives.diffusion or config.objectives.mntp
        config.training.update(
            dict(
                steps=(12,),
                sequence_length=(32,),
                batch_size=(16,),
                accumulation=(1,),
                max_predictions=(32 if all_positions else 10,),
                batch_ramp=(),
            )
        )
        config.schedule.update(dict(learning_rate=0.02, warmup_steps=2, decay_steps=0))
    task = builder.build(config)
    (stage,), (optimizer, state) = task.stages, start(task)
    step = jax.jit(make_train_step(task, optimizer), donate_argnums=0)
    losses = []
    shapes = sharding.unbox(layer_stack.abstract(task.init))
    arrays = initial_values.draw(task.init, 0).values()
    params = jax.tree.unflatten(jax.tree.structure(shapes), arrays)
    state = jax.tree.map(jnp.array, state(params))  # copies: the step donates its state
    for number in range(12):
        batch = stage.source.batch(number % 2, np.arange(16))
        state, metrics = step(state, batch, jax.random.key(config.seed))
        losses.append(metrics['loss'])
    return Trained(task, jax.device_get(state), losses)


def test_the_loss_of_a_shrunk_version_falls(trained):
    assert not trained.state.skipped
    assert np.mean(trained.losses[-2:]) < np.mean(trained.losses[:2]) * 0.98


def test_a_shrunk_version_and_its_generator_open_in_transformers(
    trained, tmp_path, no_loader_process
):
    task, params = trained.task, trained.state.params
    if task.start.family is None:
        pytest.skip('belongs to no published family')
    run = checkpoints.Checkpoints.open(tmp_path / 'checkpoints', keep=1)
    run.save(12, {'params': params}, task.record.to_json())
    run.close()
    for generator in [False, True][: 1 + ('generator' in params)]:
        path = tmp_path / f'exported_{generator}'
        export(Request(model=str(tmp_path), output=str(path), generator=generator))
        theirs = published.open_without_complaints(path)
        model = loading.load_checkpoint(tmp_path, generator=generator)
        # transformers has no mask decoder.
        architecture = model.architecture.without_mask_decoder()
        model = dataclasses.replace(model, architecture=architecture)
        expected = published.theirs(theirs, model.architecture)
        computed = published.ours(huggingface_export.publishable(model)[0])
        assert computed.keys() == expected.keys()
        agree_trees(computed, expected)


def test_a_value_for_all_stages():
    training = base.get_config().training
    training.update(dict(batch_size=(8,), steps=(2, 1)))
    stages = stage_settings(training)
    assert [stage.batch_size for stage in stages] == [8, 8]
    assert [stage.steps for stage in stages] == [2, 1]
