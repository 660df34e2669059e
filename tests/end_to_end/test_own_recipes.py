"""Recipes in any folder that enter classes of their own in the tables of the package."""

import json
import re
import subprocess
import sys

import pytest

import bert_jax
from bert_jax.errors import UserError
from tests import extending
from tests.end_to_end import small
from tests.end_to_end.commands import ROOT, Command

LAST = 6
STEPS = (
    f'--config.training.steps={LAST}',
    '--config.training.sequence_length=16',
    '--config.training.batch_size=16',
    '--config.training.max_predictions=3',
    '--config.schedule.warmup_steps=1',
    '--config.checkpoint.every_steps=2',
    '--config.evaluation.every_steps=0',
)
# The classes of the page without what its recipe needs in the package.
ENTRIES = """
from bert_jax.text.sources import SOURCES
from bert_jax.models.encoders import ENCODERS
from bert_jax.objectives.masking_schemes import SCHEMES

SOURCES['line'] = RepeatedLine
ENCODERS['bag_of_words'] = BagOfWords
SCHEMES['first'] = FirstTokens


def get_config():
    from configs import tiny

    config = tiny.get_config()
    config.model.encoder, config.model.pooler = 'bag_of_words', False
    config.masking.scheme = 'first'
    config.objectives.nsp, config.data.segments = 0.0, 'single'
    return config
"""
PROBLEM = """
from bert_jax.config_keys import key
from bert_jax.problems import PROBLEMS, ProblemKind

PROBLEMS['word_count'] = ProblemKind(
    implementation=f'{__name__}:WORD_COUNT',
    predict_task='count',
    pipeline_tag='other',
    keys=dict(labels=key((), 'names'), scale=key(10.0, 'factor')),
    readers={'tsv': read_row},
)


def get_config():
    from configs import finetune

    return finetune.get_config('word_count')
"""


def block(name: str) -> str:
    """The code of a file of docs/extending.md."""
    (text,) = (text for place, text in extending.blocks().items() if place.endswith(name))
    return text


def predict(folder, recipe, *arguments, text):
    """Run bert_jax.predict after a recipe, as docs/extending.md prints it."""
    code = f'from bert_jax import predict, recipes; recipes.load({recipe!r}); predict.main()'
    return subprocess.run(
        [sys.executable, '-c', code, *arguments, '--input=-', '--output=-'],
        cwd=folder,
        env={'PATH': '', 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def train_objective(folder, **options) -> tuple[int, str]:
    recipe = folder / 'with_document_start.py'
    recipe.write_text(block(recipe.name))
    return small.run_alone(folder, *STEPS, config_file=str(recipe), **options)


def check_objective(run):
    """Check the results of the run of an objective; return its guesses."""
    results = json.loads((run / 'results.json').read_text())
    assert results['steps'] == LAST
    starts = results['held_out']['document_start_negatives']  # the share of label 1
    assert 0 < starts < 1  # documents have several rows
    (guesses,) = bert_jax.load(run).fill_mask(['the [MASK] .'], top_k=2)
    assert len(guesses[0]) == 2
    return guesses[0]


def test_an_objective_with_its_segments_trains_and_fills_masks(tmp_path):
    status, stderr = train_objective(tmp_path)
    assert status == 0, stderr
    check_objective(tmp_path / 'run')


@pytest.mark.slow
def test_an_objective_resumes_and_is_exported(tmp_path):
    status, stderr = train_objective(tmp_path, die_at=3)
    assert status == -9, stderr
    status, stderr = train_objective(tmp_path)
    assert status == 0, stderr
    guesses = check_objective(tmp_path / 'run')
    command = Command('bert_jax.export', [f'--model={tmp_path}/run', f'--output={tmp_path}/hf'])
    _, stderr = command.communicate()
    assert command.returncode == 0, stderr
    (exported,) = bert_jax.load(tmp_path / 'hf').fill_mask(['the [MASK] .'], top_k=2)
    assert [guess.token for guess in exported[0]] == [guess.token for guess in guesses]


def test_a_source_a_scheme_and_an_encoder_train_and_a_model_needs_its_encoder(tmp_path):
    recipe = tmp_path / 'with_mine.py'
    blocks = map(block, ('repeated_line.py', 'bag_of_words.py', 'first_tokens.py'))
    recipe.write_text('\n'.join([*blocks, ENTRIES]))
    source = '--config.data.sources=line:The old dog went home and slept.;times=60'
    status, stderr = small.run_alone(
        tmp_path,
        *STEPS,
        source,
        '--config.data.tokenizer=train:wordpiece:60',
        config_file=str(recipe),
    )
    assert status == 0, stderr
    run = tmp_path / 'run'
    with pytest.raises(UserError, match="'bag_of_words'; known: recurrent, transformer"):
        bert_jax.load(run)
    done = predict(tmp_path, recipe.name, '--model=run', '--task=fill_mask', text='the [MASK]\n')
    assert done.returncode == 0, done.stderr
    (record,) = map(json.loads, done.stdout.splitlines())
    assert len(record['masks'][0]) == 5


def test_a_problem_trains_and_answers(tmp_path):
    recipe = tmp_path / 'with_count.py'
    problem = re.sub('from .*word_counts import CountExample\n', '', block('word_count.py'))
    recipe.write_text('\n'.join([block('word_counts.py'), problem, PROBLEM]))
    rows = [f'{"word " * number}\t{number}' for number in (1, 2, 3, 4) * 4]
    (tmp_path / 'counts.tsv').write_text('\n'.join(['text\tlabel', *rows]) + '\n')
    arguments = [
        f'--config={recipe}',
        f'--config.workdir={tmp_path}/run',
        f'--config.data.train={tmp_path}/counts.tsv',
        '--config.data.dev_fraction=0.25',
        '--config.data.tokenizer=train:wordpiece:30',
        '--config.model.architecture=bert',
        *('--config.model.hidden_size=16', '--config.model.num_layers=1'),
        '--config.model.num_heads=2',
        *('--config.training.epochs=1', '--config.training.batch_size=4'),
    ]
    command = Command('bert_jax.main', arguments)
    _, stderr = command.communicate()
    assert command.returncode == 0, stderr
    assert 'rmse' in json.loads((tmp_path / 'run/results.json').read_text())['held_out']
    done = predict(tmp_path, recipe.name, '--model=run', '--task=count', text='word word\n')
    assert done.returncode == 0, done.stderr
    (record,) = map(json.loads, done.stdout.splitlines())
    assert record['id'] == 'input 1'
    assert isinstance(record['count'], float)
