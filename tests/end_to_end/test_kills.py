"""Commands that are killed at any moment write what an undisturbed command writes.

The slow tests kill everything that writes, 208 times in all, and print how often the kill came
after the output was complete.
"""

import json
import random

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.answers.base import FAST, SLOW
from bert_jax.loaded import checkpoint_arrays
from tests.end_to_end import killing, preparation, small
from tests.end_to_end.test_schedules import ALL
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy

KILLS = 20
WORDS = [word for topic in small.TOPICS.values() for word in topic]


def report(name, found):
    print(f'\n{name}: {found["kills"]} kills, {found["complete"]} of them after the end')


def write_texts(path, number):
    rng = random.Random(number)
    texts = [f'the {rng.choice(WORDS)} [MASK] near {rng.choice(WORDS)}' for _ in range(number)]
    path.write_text('\n'.join(texts) + '\n')
    return path


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    """A masked language model and a model of sentences."""
    folder = tmp_path_factory.mktemp('models')
    bert = published.folder(folder / 'bert', 'BertModel')
    return {
        'mlm': published.folder(folder / 'mlm', 'BertForMaskedLM'),
        'sentences': add_modules(bert, legacy('mean'), ['Normalize']),
    }


# Name → model, number of input rows, and flags.
ANSWERS = {
    'lines.jsonl': ('mlm', 3 * FAST, ['--task=fill_mask', '--top=2']),
    'vectors.npz': ('mlm', 3 * FAST, ['--task=embed', '--pooling=tokens']),
    'written.jsonl': ('mlm', 4 * SLOW, ['--task=generate', '--new_tokens=2']),
    'found.jsonl': ('sentences', 20, ['--task=search']),
}


def killed_answers(name, models, folder, kills):
    """Kill `predict` and compare what it writes in the end."""
    kind, number, flags = ANSWERS[name]
    texts, outputs = write_texts(folder / 'texts.txt', number), folder / 'outputs'
    flags = [f'--model={models[kind]}', f'--input={texts}', *flags]
    sides = [outputs / side / name for side in ('expected', 'killed')]
    for output in sides:
        output.parent.mkdir(parents=True)
    own = [[*flags, f'--output={output}'] for output in sides]
    if kind == 'sentences':
        documents = write_texts(folder / 'documents.txt', 3 * FAST)
        for output, arguments in zip(sides, own, strict=True):
            arguments += [f'--documents={documents}', f'--vectors={output.parent}/vectors']
    seconds = killing.run('bert_jax.predict', own[0])
    report(name, killing.kill('bert_jax.predict', own[1], sides[1], seconds, kills))
    killing.run('bert_jax.predict', own[1])
    found = killing.contents(sides[1].parent)
    assert found == killing.contents(sides[0].parent)


def test_a_prediction_killed_a_few_times(models, tmp_path):
    killed_answers('written.jsonl', models, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize('name', ANSWERS)
def test_answers_killed_twenty_times(name, models, tmp_path):
    killed_answers(name, models, tmp_path, KILLS)


@pytest.mark.slow
def test_an_export_killed_twenty_times(tmp_path):
    status, stderr = small.run(tmp_path)
    assert status == 0, stderr
    expected, output = tmp_path / 'expected/model', tmp_path / 'killed/model'
    arguments = [f'--model={tmp_path / "run"}', '--output']
    seconds = killing.run('bert_jax.export', [*arguments, expected])
    found = killing.kill('bert_jax.export', [*arguments, output], output, 0.8 * seconds, KILLS)
    report('export', found)
    killing.run('bert_jax.export', [*arguments, output])
    assert killing.contents(output) == killing.contents(expected)
    assert [path.name for path in output.parent.iterdir()] == ['model']


@pytest.mark.slow
def test_an_export_that_replaces_another_killed_twenty_times(tmp_path):
    """One of the two is at the path after each kill."""
    states = []
    for side in ('old', 'new'):
        (tmp_path / side).mkdir()
        seed = {'old': 1, 'new': 2}[side]
        status, stderr = small.run(tmp_path / side, f'--config.seed={seed}')
        assert status == 0, stderr
        arguments = [f'--model={tmp_path / side / "run"}', f'--output={tmp_path / side / "model"}']
        seconds = killing.run('bert_jax.export', arguments)
        states.append(weights(tmp_path / side / 'model'))
    output = tmp_path / 'out' / 'model'
    killing.run('bert_jax.export', [f'--model={tmp_path / "old/run"}', f'--output={output}'])
    seen = set()

    def check():
        state = weights(output)
        assert state in states
        seen.add(states.index(state))

    arguments = [f'--model={tmp_path / "new/run"}', f'--output={output}', '--overwrite']
    found = killing.kill(
        'bert_jax.export',
        arguments,
        output,
        1.2 * seconds,
        KILLS,
        check=check,
        keeps=True,
        first=0.5,
    )
    report(f'export --overwrite (found {sorted(seen)})', found)
    killing.run('bert_jax.export', arguments)
    assert weights(output) == states[1]
    assert [path.name for path in output.parent.iterdir()] == ['model']


def weights(folder):
    files = killing.contents(folder)
    return {name: files[name] for name in files if name.endswith('.safetensors')}


@pytest.mark.slow
@pytest.mark.parametrize('workers', [1, 2])
def test_a_preparation_killed_twenty_times(workers, tmp_path):
    source = small.write_text(tmp_path, documents=2000)
    arguments = [f'--input={source}', '--tokenizer=train:wordpiece:200', f'--workers={workers}']
    seconds = killing.run('bert_jax.prepare', [*arguments, f'--output={tmp_path / "expected"}'])
    output = tmp_path / 'killed'
    arguments.append(f'--output={output}')
    found = killing.kill('bert_jax.prepare', arguments, output, 0.8 * seconds, KILLS)
    report(f'preparation on {workers} workers', found)
    killing.run('bert_jax.prepare', arguments)
    assert preparation.contents(output) == preparation.contents(tmp_path / 'expected')
    assert not list(tmp_path.glob('*.partial'))


def settings_of(name):
    """Arguments of a training command of seconds."""
    if name == 'sweep':
        keys = ('sweep.seeds=(0,1)', 'training.steps=(20,10)', 'checkpoint.every_steps=2')
        return [f'--config.{key}' for key in keys]
    keys = ALL | {'training__steps': (24,), 'checkpoint__every_steps': 2}
    return [f'--config.{key.replace("__", ".")}={value}' for key, value in keys.items()]


def fine_tuning(folder):
    """Arguments of a fine-tuning run of seconds, from a published model."""
    base = published.folder(folder.parent / 'base', 'BertForMaskedLM')
    keys = {
        'init_from': base,
        'workdir': folder / 'run',
        'training.epochs': 4.0,
        'training.batch_size': 8,
        'training.sequence_length': 16,
        'checkpoint.every_steps': 2,
        'evaluation.every_steps': 6,
    }
    flags = [f'--config.{key}={value}' for key, value in keys.items()]
    return ['--config=configs/finetune.py:sample_sentiment', *flags]


@pytest.mark.slow
@pytest.mark.parametrize('name', ['schedules', 'sweep', 'fine-tuning'])
def test_training_killed_twenty_times(name, tmp_path):
    sides, seconds = {}, 0.0
    for side in ('expected', 'killed'):
        folder = sides[side] = tmp_path / side
        folder.mkdir()
        if name == 'fine-tuning':
            command = fine_tuning(folder)
        else:
            command = small.arguments(folder, *settings_of(name))
        if side == 'killed':
            output = folder / 'run'
            report(name, killing.kill('bert_jax.main', command, output, 0.6 * seconds, KILLS))
        seconds = killing.run('bert_jax.main', command)
    if name == 'sweep':
        found = [json.loads((side / 'run/results.json').read_text()) for side in sides.values()]
        assert found[0] == found[1]
    runs = ['run/seed_0', 'run/seed_1'] if name == 'sweep' else ['run']
    for run in runs:
        ours, theirs = (
            tree_paths.flatten(checkpoint_arrays.load(side / run).state) for side in sides.values()
        )
        assert ours.keys() == theirs.keys()
        for key in theirs:
            np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
        means = [
            tree_paths.flatten(checkpoint_arrays.load_mean_params(side / run, 2).state)
            for side in sides.values()
        ]
        for key in means[0]:
            np.testing.assert_array_equal(means[0][key], means[1][key], err_msg=key)
