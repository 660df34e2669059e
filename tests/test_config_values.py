"""Values that no run can have are refused by the name of their key."""

import functools

import pytest

from bert_jax import config_values
from bert_jax.errors import UserError
from bert_jax.problems import PROBLEMS
from configs import albert, base, deberta, electra, finetune, modernbert, roberta, spanbert, xlmr
from configs.finetune_tasks import TASKS

PRETRAINING = {
    'workdir': '',
    'data.corpus': '',
    'seed': -1,
    'data.short_sequence_probability': 2.0,
    'data.held_out_fraction': 0.0,
    'data.prepare_workers': -3,
    'data.reading_threads': 0,
    'data.sources': (5,),
    'training.batch_size': (256, 0),
    'training.steps': ('many',),
    'training.accumulation': (True,),
    'schedule.learning_rate': -1e-4,
    'schedule.warmup_fraction': 1.0,
    'optimizer.beta1': 1.5,
    'optimizer.weight_decay': -0.1,
    'optimizer.decay_exclude': (1,),
    'checkpoint.keep': 0,
    'evaluation.examples': 0,
    'evaluation.every_steps': -1,
    'max_skipped_in_row': 0,
    'spike_factor': float('nan'),
    'model.layer_norm_eps': 0.0,
    'transfer.layer_decay': 2.0,
    'transfer.unfreeze_every_steps': -1,
    'objectives.mlm': -1.0,
    'masking.rate': 1.0,
    'masking.random': -0.1,
    'masking.longest_span': 0,
    'rtd.generator_depth': 0.0,
    'rtd.temperature': -1.0,
    'sbo.max_targets': 0,
    'editing.deletion': 1.0,
    'sweep.seeds': (1, 'a'),
    'debug.batch': -1,
}
FINE_TUNING = {
    'data.dev_fraction': 1.0,
    'data.train_examples': -1,
    'data.train': (5,),
    'data.skip_labels': (5,),
    'training.batch_size': 0,
    'training.epochs': float('inf'),
    'problem.labels': (1, 2),
    'problem.label_smoothing': 1.0,
}


@pytest.mark.parametrize(
    ('make', 'key', 'value'),
    [(base.get_config, key, PRETRAINING[key]) for key in PRETRAINING]
    + [(finetune.get_config, key, FINE_TUNING[key]) for key in FINE_TUNING]
    + [(functools.partial(finetune.get_config, 'tagging'), 'problem.overlap', 1.0)],
)
def test_a_value_out_of_range_is_refused_by_name(make, key, value):
    config = make()
    config.update_from_flattened_dict({key: value})
    with pytest.raises(UserError, match=rf'^{key} is .*; (it|all its values) must be '):
        config_values.check(config)


def test_all_recipes_have_valid_values():
    modules = (albert, base, deberta, modernbert, roberta, spanbert, xlmr)
    configs = [module.get_config() for module in modules]
    configs += [electra.get_config(size) for size in electra.SIZES]
    configs += [finetune.get_config(name) for name in (*TASKS, *PROBLEMS)]
    for config in configs:
        config_values.check(config)


@pytest.mark.parametrize('name', ['base', *PROBLEMS])
def test_no_numeric_key_takes_nan_or_infinity_or_a_negative_number_by_accident(name):
    make = base.get_config if name == 'base' else functools.partial(finetune.get_config, name)
    may_be_negative = ('mesh.', 'data.first_choice', 'problem.lowest', 'problem.highest')
    tried = 0
    for key, old in config_values.flatten(make()):
        for value in (float('nan'), float('inf'), float('-inf'), -0.5, -2):
            config = make()
            new = (value,) if isinstance(old, tuple) else value
            try:
                config.update_from_flattened_dict({key: new})
            except TypeError:
                continue  # not a number, or not a whole one
            if key.startswith(may_be_negative) and value in (-0.5, -2):
                continue
            tried += 1
            with pytest.raises(UserError, match=rf'^{key} is '):
                config_values.check(config)
    assert tried > 100
