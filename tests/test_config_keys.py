"""Values that no run can have are refused by the name of their key."""

import copy
import functools
import pathlib
import re
import runpy

import pytest

from bert_jax import config_keys, files, recipes
from bert_jax.cli import command_line
from bert_jax.errors import UserError
from bert_jax.problems import PROBLEMS
from bert_jax.training.workdir import Workdir
from configs import albert, base, deberta, electra, finetune, modernbert, roberta, spanbert, xlmr
from configs.finetune_tasks import TASKS

ROOT = pathlib.Path(__file__).parents[1]
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
        config_keys.check(config)


def test_all_recipes_have_valid_values():
    modules = (albert, base, deberta, modernbert, roberta, spanbert, xlmr)
    configs = [module.get_config() for module in modules]
    configs += [electra.get_config(size) for size in electra.SIZES]
    configs += [finetune.get_config(name) for name in (*TASKS, *PROBLEMS)]
    for config in configs:
        config_keys.check(config)


def numeric_keys():
    """Yields (function that makes a config, key, default) once for each key and default."""
    seen = set()
    for make in (
        base.get_config,
        *(functools.partial(finetune.get_config, name) for name in PROBLEMS),
    ):
        for key, old in config_keys.flatten(make()).items():
            if (key, repr(old)) not in seen:
                seen.add((key, repr(old)))
                yield make, key, old


def test_no_numeric_key_takes_nan_or_infinity_or_a_negative_number_by_accident():
    may_be_negative = ('mesh.', 'data.first_choice', 'problem.lowest', 'problem.highest')
    tried = set()
    for make, key, old in numeric_keys():
        config = make()
        for value in (float('nan'), float('inf'), float('-inf'), -0.5, -2):
            new = (value,) if isinstance(old, tuple) else value
            try:
                config.update_from_flattened_dict({key: new})
            except TypeError:
                continue  # not a number, or not a whole one
            if key.startswith(may_be_negative) and value in (-0.5, -2):
                continue
            tried.add(key)
            with pytest.raises(UserError, match=rf'^{key} is '):
                config_keys.check(config)
    assert len(tried) > 100


DECLARED = """
from bert_jax.config_keys import key, needs, section
from configs import tiny


def get_config():
    config = tiny.get_config()
    with config.unlocked():
        config.noise = section(
            'Noise on the embeddings.',
            unused=needs('objectives.mlm'),
            scale=key(0.1, 'standard deviation', '(0, 1)'),
            kind=key('gauss', "'gauss' or 'uniform'", choices=('gauss', 'uniform')),
            seeds=key((), 'one for each stage', of=int, on_resume='logged'),
        )
    return config
"""


@pytest.fixture
def declared(tmp_path):
    path = tmp_path / 'noisy.py'
    path.write_text(DECLARED)
    return lambda *given: command_line.parse(['main', f'--config={path}', *given], '')


def test_one_declaration_checks_a_key_of_a_recipe(declared):
    line = declared('--config.noise.seeds=(1, 2)', '--config.noise.kind=uniform')
    config_keys.check(line.config)
    config_keys.check_used(line.config, line.user_keys)
    assert line.config.noise.seeds == (1, 2)
    for given, message in {
        'noise.scale=2.0': r'noise.scale is 2.0; it must be in \(0, 1\)',
        'noise.kind=gaus': "unknown noise.kind 'gaus'; did you mean gauss",
        'noise.seeds=(1, 0.5)': 'noise.seeds is .*; all its values must be whole numbers',
    }.items():
        with pytest.raises(UserError, match=message):
            config_keys.check(declared(f'--config.{given}').config)


def test_one_declaration_documents_a_key_of_a_recipe(declared, capsys):
    with pytest.raises(SystemExit):
        declared('--help')
    assert re.search(
        r'^noise.scale = 0.1 +# standard deviation; in \(0, 1\)$', capsys.readouterr().out, re.M
    )


def test_one_declaration_is_a_row_of_the_page_of_keys(declared):
    generate = runpy.run_path(str(ROOT / 'docs/generate.py'))
    sections = dict(generate['by_section'](config_keys.entries(declared().config)))
    assert sections['noise'] == [
        ('noise', '', 'Noise on the embeddings.'),
        ('noise.scale', '`0.1`', 'standard deviation; in (0, 1)'),
        ('noise.kind', "`'gauss'`", "'gauss' or 'uniform'"),
        ('noise.seeds', '`()`', 'one for each stage'),
    ]


def test_one_declaration_refuses_a_key_of_a_recipe_without_effect(declared):
    line = declared('--config.noise.scale=0.5', '--config.objectives.mlm=0')
    with pytest.raises(UserError, match='noise.scale is 0.5, but objectives.mlm is 0; leave'):
        config_keys.check_used(line.config, line.user_keys)


def test_one_declaration_says_what_may_change_on_resume(declared, tmp_path):
    (tmp_path / 'run/checkpoints/10').mkdir(parents=True)
    files.write_json(tmp_path / 'run/config.json', declared().config.to_dict())
    changed = declared('--config.noise.seeds=(1, 2)').config
    (told,) = Workdir.of(str(tmp_path / 'run')).check_config(changed)
    assert told == 'noise.seeds was [], is [1, 2]'
    changed = declared('--config.noise.scale=0.5').config
    with pytest.raises(UserError, match='noise.scale was 0.1, is 0.5'):
        Workdir.of(str(tmp_path / 'run')).check_config(changed)


def test_a_copy_of_a_config_keeps_the_declarations_and_no_value():
    config = base.get_config()
    copied = copy.deepcopy(config)
    copied.masking.rate = 0.5
    assert (config.masking.rate, copied.masking.rate) == (0.15, 0.5)
    assert config_keys.declarations(copied) == config_keys.declarations(config)


def test_every_choice_is_checked():
    chosen = set()
    for make in (base.get_config, finetune.get_config):
        for name, _, declaration in config_keys.entries(make()):
            if declaration.choices:
                config = make()
                config.update_from_flattened_dict({name: 'none of them'})
                with pytest.raises(UserError, match=f"^unknown {name} 'none of them'; .*known: "):
                    config_keys.check(config)
                chosen.add(name)
    assert chosen > {'optimizer.name', 'schedule.name', 'data.segments', 'masking.scheme'}


def test_every_literal_choice_is_in_the_meaning():
    for config in recipes.all_configs():
        for name, _, declaration in config_keys.entries(config):
            if not isinstance(declaration.choices, str):
                known = {*declaration.choices} - {'', 'none', declaration.default}
                assert all(f"'{one}'" in declaration.meaning for one in known), name
