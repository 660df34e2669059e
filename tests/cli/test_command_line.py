"""The command line of training: config files, overrides, unset keys, print_config and dry_run."""

import re
import subprocess

import pytest

from bert_jax import completion, main, recipes
from bert_jax.cli import command_line
from bert_jax.config_keys import declarations, flatten
from bert_jax.errors import UserError
from configs import base
from tests.end_to_end import small

TINY, SENTIMENT = '--config=configs/tiny.py', '--config=configs/finetune.py:sample_sentiment'


def parse(*arguments: str) -> command_line.CommandLine:
    return command_line.parse(['main', *arguments], 'usage')


# Arguments → part of the error.
REFUSED = {
    'unknown key': ([TINY, '--config.model.hiden_size=3'], 'did you mean model.hidden_size'),
    'key of another task': (
        ['--config=configs/base.py', '--config.data.train=x'],
        r'unknown config key data.train in --config=.*base.py \(pretraining\)',
    ),
    'pretraining key': ([SENTIMENT, '--config.objectives.mlm=1'], 'fine-tuning, classification'),
    'section': ([TINY, '--config.model=5'], 'unknown config key model '),
    'text for an integer': ([TINY, '--config.seed=one'], 'seed=one: .* must be a whole number'),
    'fraction for an integer': ([TINY, '--config.seed=1.5'], 'seed=1.5: .* must be a whole number'),
    'text for a process': ([TINY, '--num_processes=two'], 's=two: .* must be a whole number'),
    'text for a number': ([TINY, '--config.masking.rate=high'], 'rate=high: .* must be a number'),
    'text for a boolean': ([TINY, '--config.data.pack=maybe'], 'pack=maybe: .* be True or False'),
    'not optional': ([TINY, '--config.data.pack=None'], 'data.pack is None, .* give True or False'),
    'unknown flag': ([TINY, '--confg=x'], 'confg'),
    'stray word': ([TINY, 'tiny'], "'tiny' is not a flag"),
    'flag and its key': (
        [TINY, '--output=a', '--config.workdir=b'],
        '--config.workdir and --output set the same',
    ),
    'two corpora': ([TINY, '--input=a', '--input=b'], 'a run has one corpus'),
    'no config': (['--config.seed=1'], 'no config given'),
    'missing file': (['--config=configs/none.py'], "config file 'configs/none.py' does not exist"),
    'recipe without its folder': (['--config=tinny'], r'did you mean configs/tiny\.py'),
    'key without its prefix': ([TINY, '--training.steps=5'], '--config.training.steps'),
    'key without its section': (
        [TINY, '--learning_rate=1.0'],
        r'did you mean --config\.schedule\.learning_rate\?',
    ),
    'key of several sections': (
        [TINY, '--config.every_steps=5'],
        'did you mean .*checkpoint.every_steps or .*logging.every_steps',
    ),
    'mistyped flag': ([TINY, '--dryrun'], '--dry_run'),
    'folder': (['--config=configs'], "config file 'configs' does not exist"),
    'not Python': (['--config=README.md'], "config file 'README.md': SyntaxError"),
    'unknown task': (['--config=configs/finetune.py:unknown_task'], 'unknown task .*; known: '),
    'kind of problem': (['--config=configs/finetune.py:classify'], 'did you mean classification?'),
    'unknown size': (['--config=configs/electra.py:huge'], 'known: base, small'),
    'parameter': (['--config=configs/base.py:foo'], 'takes 0 positional arguments'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_a_mistyped_command_is_refused_in_one_line(name):
    arguments, word = REFUSED[name]
    with pytest.raises(UserError, match=word) as caught:
        parse(*arguments)
    assert '\n' not in str(caught.value)
    assert 'Traceback' not in str(caught.value)


def test_an_error_in_a_config_file_of_the_user_is_one_line(tmp_path):
    (tmp_path / 'own.py').write_text(
        'from configs import tiny\n'
        'def get_config():\n'
        '    config = tiny.get_config()\n'
        "    config.model.hidden_size = 'many'\n"
        '    return config\n'
    )
    with pytest.raises(UserError, match="own.py': TypeError: .*hidden_size") as caught:
        parse(f'--config={tmp_path}/own.py')
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('config.own_thing = 3', ["no key 'own_thing'", 'config.unlocked()']),
        ("config['own_thing'] = 3", ["no key 'own_thing'", 'config.unlocked()']),
        ('config.model.hiden_size = 3', ["no key 'hiden_size'", 'hidden_size?', 'unlocked()']),
        ('del config.seed', ['config.unlocked()']),
    ],
)
def test_a_key_that_a_locked_recipe_lacks_is_named_with_the_remedy(line, words, tmp_path):
    own = (
        f'from configs import tiny\ndef get_config():\n    config = tiny.get_config()\n    {line}\n'
    )
    (tmp_path / 'own.py').write_text(f'{own}    return config\n')
    with pytest.raises(UserError) as caught:
        parse(f'--config={tmp_path}/own.py')
    assert '\n' not in str(caught.value)
    for word in ['own.py', *words]:
        assert word in str(caught.value)


def test_the_named_remedy_adds_a_key(tmp_path):
    (tmp_path / 'own.py').write_text(
        'from configs import tiny\n'
        'def get_config():\n'
        '    config = tiny.get_config()\n'
        '    with config.unlocked():\n'
        '        config.own_thing = 3\n'
        '    return config\n'
    )
    assert parse(f'--config={tmp_path}/own.py', '--config.own_thing=4').config.own_thing == 4


def test_a_refused_command_exits_with_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(['main', '--config=configs/none.py'])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: config file 'configs/none.py' does not exist")


@pytest.mark.parametrize(
    ('argument', 'key', 'value'),
    [
        ('--config.seed=3', 'seed', 3),
        ('--config.training.steps=9', 'training.steps', (9,)),
        ('--config.training.steps=(9, 8)', 'training.steps', (9, 8)),
        ('--config.data.pack', 'data.pack', True),
        ('--config.data.pack=False', 'data.pack', False),
        ('--config.model.num_heads=None', 'model.num_heads', None),
        ('--config.model.architecture=None', 'model.architecture', None),
        ('--config.data.prepare_workers=None', 'data.prepare_workers', None),
        ('--config.workdir=None', 'workdir', 'None'),
        ('--config.data.sources=text:my books/*.txt', 'data.sources', ('text:my books/*.txt',)),
        (
            '--config.data.sources=text:a,b.txt;language=en',
            'data.sources',
            ('text:a,b.txt;language=en',),
        ),
        ("--config.data.sources=('text:a', 'text:b')", 'data.sources', ('text:a', 'text:b')),
        ('--config.data.sources=2020', 'data.sources', ('2020',)),
        ('--config.data.sources=', 'data.sources', ()),
    ],
)
def test_the_command_line_sets_values(argument, key, value):
    line = parse(TINY, argument)
    assert flatten(line.config)[key] == value
    assert line.user_keys == {key}


@pytest.mark.parametrize(
    ('arguments', 'values'),
    [
        ([TINY, '--input=a'], {'data.corpus': 'a'}),
        ([SENTIMENT, '--input=a', '--input=b'], {'data.train': ('a', 'b')}),
        ([TINY, '--model=m', '--output=o'], {'init_from': 'm', 'workdir': 'o'}),
    ],
)
def test_model_input_and_output_are_named_as_in_the_other_commands(arguments, values):
    line = parse(*arguments)
    assert {key: flatten(line.config)[key] for key in values} == values
    assert line.user_keys == values.keys()


def test_a_value_may_be_an_argument_of_its_own():
    assert parse(TINY, '--config.seed', '3', '--dry_run').config.seed == 3


def test_every_key_with_a_type_for_its_default_can_be_unset():
    keys = [key for key, value in flatten(base.get_config()).items() if value is None]
    config = parse(TINY, *(f'--config.{key}=None' for key in keys)).config
    assert all(flatten(config)[key] is None for key in keys)


def test_print_config_prints_all_values_and_ends(capsys):
    main.main(['main', TINY, '--config.seed=7', '--print_config'])
    printed = capsys.readouterr().out
    for key in flatten(base.get_config()):
        assert f'\n{key} = ' in f'\n{printed}'
    assert '\nseed = 7 ' in printed


@pytest.mark.parametrize(
    ('arguments', 'line'),
    [
        ([], r'training\.max_predictions = \(20, 76\) +# maximum number of masked tokens'),
        ([SENTIMENT], r'data\.columns\.label = .* # the class, the number or the index'),
        (['--config=configs/finetune.py:tagging'], r'problem\.crf = False +# True: a linear-chain'),
    ],
)
def test_help_lists_the_keys_with_their_meanings(arguments, line, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(['main', *arguments, '--help'])
    assert ended.value.code in (0, None)
    assert re.search(line, capsys.readouterr().out)


def test_every_key_of_every_recipe_has_a_meaning():
    for config in recipes.all_configs():
        assert [key for key, one in declarations(config).items() if not one.meaning] == []


@pytest.mark.parametrize(
    ('typed', 'words'),
    [
        ('python -m bert_jax.pre', ['bert_jax.prepare', 'bert_jax.predict']),
        ('python3 -m bert_jax.main --config.schedule.e', ['--config.schedule.end_learning_rate=']),
        ('bert-jax train --dry', ['--dry_run']),
        ('/bin/bert-jax predict --mod', ['--model=']),
        ('python -m bert_jax.analyze pro', ['probe']),
        ('bert-jax evaluate --data.columns.text2', ['--data.columns.text2=']),
        ('python -m bert_jax.evaluate --problem.no_a', ['--problem.no_answer=']),
        ('python -m bert_jax.evaluate --problem.crf', []),
        ('python other.py --mod', []),
        ('bert-jax pre', ['prepare', 'predict']),
        ('bert-jax analyze pro', ['probe']),
    ],
)
def test_the_shell_completes_commands_flags_and_keys(typed, words, completion_script):
    *before, word = typed.split()
    command = (
        f'{completion_script}\nCOMP_WORDS=({" ".join([*before, word])}); COMP_CWORD={len(before)}'
    )
    command += '; _bert_jax; echo "${COMPREPLY[@]}"'
    result = subprocess.run(['bash', '-c', command], capture_output=True, text=True, check=True)
    assert result.stdout.split() == words


@pytest.fixture(scope='module')
def completion_script():
    return completion.script()


@pytest.mark.parametrize('kind', ['pretraining', 'fine-tuning'])
def test_a_dry_run_compiles_everything_and_writes_nothing(kind, tmp_path, capsys):
    arguments = small.arguments(tmp_path)
    if kind == 'fine-tuning':
        arguments = [
            SENTIMENT,
            f'--config.workdir={tmp_path}/run',
            '--config.data.tokenizer=train:wordpiece:200',
            '--config.model.architecture=bert_tiny',
        ]
    main.main(['main', *map(str, arguments), '--dry_run'])
    output = capsys.readouterr().out
    assert 'memory of each device, MiB' in output
    assert output.endswith('nothing was trained or written\n')
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        ('--config.optimizer.decay_exclude=nothing', "the pattern 'nothing' in optimizer.decay_"),
        (
            "--config.sharding_rules=(('batch', 'dta'),)",
            "unknown mesh axis in sharding_rules 'dta'",
        ),
        ("--config.sharding_rules=(('batsch', 'data'),)", 'unknown logical axis in sharding_rules'),
        ('--config.sweep.seeds=(1,1)', 'sweep.seeds is (1, 1); use distinct whole numbers'),
    ],
)
def test_a_dry_run_refuses_what_a_run_refuses(wrong, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main.main(['main', *map(str, small.arguments(tmp_path, wrong)), '--dry_run'])
    assert message in capsys.readouterr().err
    assert not (tmp_path / 'run').exists()


def test_a_dry_run_refuses_the_workdir_of_another_run(tmp_path, capsys):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run/config.json').write_text('{"task": "pretraining", "workdir": "x", "seed": 99}')
    (tmp_path / 'run/results.json').write_text('{}')
    with pytest.raises(SystemExit):
        main.main(['main', *map(str, small.arguments(tmp_path)), '--dry_run'])
    assert 'holds a run of another config' in capsys.readouterr().err
