"""A key that the user set is refused if nothing uses it; a recipe's value is not."""

import pytest

from bert_jax import config_keys, main, recipes
from bert_jax.cli import command_line
from bert_jax.errors import UserError

FOLDER = 'bert_jax/labels/samples'


def check(name: str, *arguments: str) -> None:
    """Check a command line as training does, before it reads any data."""
    line = command_line.parse(['main', f'--config=configs/{name}', *arguments], '')
    config_keys.check_used(line.config, line.user_keys)


MLM = ['--config.objectives.nsp=0', '--config.data.segments=single']
CLM = [*MLM, '--config.objectives.mlm=0', '--config.objectives.clm=1']
EDITS = [*MLM, '--config.objectives.mlm=0', '--config.objectives.deletion=1']

# Config file, the values that make a key meaningless, the key with a value.
UNUSED = [
    ('base.py', [], 'rtd.temperature=0.5'),
    ('base.py', [], 'sbo.max_targets=5'),
    ('base.py', [], 'editing.deletion=0.3'),
    ('base.py', [], 'masking.span_p=0.3'),
    ('base.py', [], 'masking.unspaced=characters'),
    ('spanbert.py', [], 'masking.longest_ngram=2'),
    ('spanbert.py', [], 'masking.per_sequence=True'),
    ('electra.py:small', [], 'masking.replacement=unigram'),
    ('electra.py:small', [], 'evaluation.cloze_examples=3'),
    ('roberta.py', [], 'data.short_sequence_probability=0.5'),
    ('roberta.py', [], 'data.faithful_negatives=True'),
    ('base.py', CLM, 'masking.rate=0.3'),
    ('base.py', EDITS, 'masking.mask=0.5'),
    ('base.py', ['--config.data.tokenizer=vocab.txt'], 'data.tokenizer_characters=99'),
    ('base.py', [], 'init_positions=interpolate'),
    ('base.py', ['--config.init_from=weights'], 'model.architecture=bert_large'),
    ('base.py', ['--config.init_from=weights'], 'model.architecture=bert_base'),
    ('base.py', ['--config.optimizer.weight_decay=0'], 'optimizer.decay_exclude=bias'),
    ('base.py', [], 'schedule.decay_steps=5'),
    ('base.py', ['--config.schedule.name=constant'], 'schedule.end_learning_rate=0.1'),
    ('finetune.py:sample_pos', [], 'transfer.rank=4'),
    ('finetune.py:sample_pos', ['--config.transfer.method=bitfit'], 'transfer.rank=4'),
    ('finetune.py:sample_pos', [], 'transfer.train_pooler=True'),
    ('base.py', ['--config.sweep.seeds=(1, 2)'], 'seed=5'),
    (
        'finetune.py:sample_pos',
        ['--config.sweep.vmap=True', '--config.sweep.seeds=(1, 2)'],
        'checkpoint.every_steps=5',
    ),
    ('base.py', ['--config.sweep.learning_rates=(0.1,)'], 'schedule.learning_rate=0.5'),
    ('base.py', ['--config.schedule.warmup_steps=10'], 'schedule.warmup_fraction=0.5'),
    ('finetune.py:sample_entities', [], 'problem.crf_rate=5.0'),
    ('finetune.py:sample_sentiment', [], 'data.record=row'),
    ('finetune.py:sample_sentiment', [], 'data.comment=#'),
    ('finetune.py:sample_sentiment', [], 'data.units=words'),
    ('finetune.py:sample_sentiment', [], 'data.scheme=bioes'),
    ('finetune.py:sample_sentiment', [], 'data.language=de'),
    ('finetune.py:sample_sentiment', [], 'data.columns.question=q'),
    ('finetune.py:sample_pos', [], 'data.tags_as=bioes'),
    ('finetune.py:sample_entities', [], 'data.quotes=yes'),
    ('finetune.py:sample_relation', [], 'data.ends=inclusive'),
    (
        'finetune.py:sample_sentiment',
        [f'--config.data.dev={FOLDER}/sentiment.tsv'],
        'data.dev_fraction=0.3',
    ),
    ('finetune.py:sample_sentiment', ['--config.data.dev_fraction=0'], 'data.split_seed=3'),
]


@pytest.mark.parametrize(('file', 'others', 'given'), UNUSED)
def test_a_key_that_nothing_uses_is_refused(file, others, given):
    check(file, *others)  # the recipe's own value is fine
    key, value = given.split('=', 1)
    with pytest.raises(UserError, match=rf'^{key} is .*{value}.*, but .*; leave {key} out$'):
        check(file, *others, f'--config.{given}')


USED = [
    ('base.py', ['masking.rate=0.3', 'data.short_sequence_probability=0.5', 'seed=3']),
    ('base.py', ['masking.scheme=spans', 'masking.span_p=0.3', 'training.max_predictions=9']),
    ('albert.py', ['data.short_sequence_probability=0.5', 'masking.longest_ngram=2']),
    ('electra.py:small', ['rtd.temperature=0.5', 'masking.random=0.1']),
    ('base.py', ['init_from=weights', 'init_positions=interpolate', 'model.architecture=None']),
    ('base.py', ['schedule.learning_rate=0.1', 'sweep.seeds=(1, 2)']),
    ('electra.py:small', ['evaluation.cloze_examples=0']),
    ('finetune.py:sample_pos', ['data.scheme=none']),
    ('finetune.py:sample_pos', ['transfer.method=lora', 'transfer.rank=4']),
    ('finetune.py:sample_pos', ['transfer.method=ia3', 'transfer.train_pooler=True']),
    ('finetune.py:sample_entities', ['problem.crf=True', 'problem.crf_rate=5.0']),
    ('finetune.py:sample_entities', ['data.tags_as=bioes', 'data.comment=#', 'data.group=']),
    ('finetune.py:sample_sentiment', ['data.split_seed=3', 'data.rename_labels=positive=good']),
    ('finetune.py:sample_sentiment', ['data.dev_fraction=0.3', 'data.quotes=yes']),
    ('finetune.py:sample_sentiment', ['data.dev_fraction=0', 'data.test_fraction=0.3']),
    ('finetune.py:sample_sentiment', [f'data.dev={FOLDER}/sentiment.tsv', 'data.dev_fraction=0']),
    ('finetune.py:sample_sentiment', ['data.header=True', 'data.malformed_fraction=0.1']),
    ('finetune.py:sample_spans', ['data.units=words', 'data.ends=exclusive']),
    ('finetune.py:sample_choice', ['data.misplaced_fraction=0.5']),
    ('finetune.py:sample_sentiment', ['data.tokenizer=train:wordpiece:200']),
]


@pytest.mark.parametrize(('file', 'given'), USED)
def test_a_key_that_is_used_is_not_refused(file, given):
    check(file, *(f'--config.{one}' for one in given))


OWN = """
from configs import finetune

def get_config():
    config = finetune.get_config('sample_sentiment')
    config.data.dev = ('bert_jax/labels/samples/sentiment.tsv',)
    {line}
    return config
"""


def test_a_config_file_of_the_user_is_checked_but_not_for_values_of_the_recipe(tmp_path):
    path = tmp_path / 'own.py'
    path.write_text(OWN.format(line=''))
    line = command_line.parse(['main', f'--config={path}'], '')
    assert line.user_keys == {'data.dev'}  # but not dev_fraction, which has the value of the recipe
    config_keys.check_used(line.config, line.user_keys)
    path.write_text(OWN.format(line='config.data.dev_fraction = 0.4'))
    line = command_line.parse(['main', f'--config={path}'], '')
    with pytest.raises(UserError, match='data.dev_fraction is 0.4'):
        config_keys.check_used(line.config, line.user_keys)


def test_training_checks_the_keys_before_it_reads_the_data(capsys):
    with pytest.raises(SystemExit):
        main.main(['main', '--config=configs/base.py', '--config.rtd.temperature=0.5'])
    reason = 'rtd.temperature is 0.5, but objectives.rtd is 0; leave rtd.temperature out'
    assert capsys.readouterr().err.splitlines() == [f'error: {reason}']
    config = recipes.base()
    config.rtd.temperature = 0.5
    with pytest.raises(UserError, match=f'^{reason}$'):
        main.run(config)
