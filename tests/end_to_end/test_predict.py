"""The real command line of predict, on a model trained for seconds and on published folders."""

import json
import pathlib

import numpy as np
import pytest

from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from tests.end_to_end import commands, small
from tests.interop import published


def start(*arguments: str, text: str = ''):
    return commands.run('bert_jax.predict', *arguments, text=text)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    status, stderr = small.run(
        folder,
        '--config.stages.steps=(150,)',
        '--config.stages.sequence_length=(16,)',
        '--config.stages.batch_size=(32,)',
        '--config.stages.accumulation=(1,)',
        '--config.stages.max_predictions=(3,)',
        '--config.model.hidden_size=32',
        '--config.evaluation.every_steps=0',
    )
    assert status == 0, stderr
    return folder / 'run'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('published') / 'bert')


def test_fill_mask_of_a_run(workdir):
    texts = ['the cow and the barn near [MASK] hen .', 'nothing', 'a [MASK] [MASK]']
    done = start(
        f'--model={workdir}',
        '--task=fill_mask',
        '--input=-',
        '--output=-',
        '--top=3',
        text='\n'.join(texts) + '\n',
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record['text'] for record in records] == texts
    assert [len(record['masks']) for record in records] == [1, 0, 2]
    assert '1 line(s) have no [MASK]' in done.stderr
    guesses = records[0]['masks'][0]
    assert [len(mask) for mask in records[2]['masks']] == [3, 3]
    assert guesses[0]['token'] == 'the'  # what always stands there
    assert guesses[0]['probability'] > guesses[1]['probability'] > guesses[2]['probability']


def test_embed_and_pseudo_likelihood(folder, tmp_path):
    texts = ['the ship', '', 'the moon and ' * 12]
    (tmp_path / 'texts').write_text('\r\n'.join(texts))
    common = (f'--model={folder}', f'--input={tmp_path}/texts')
    commands = {
        'mean.npz': ('--task=embed',),
        'tokens.npz': ('--task=embed', '--pooling=tokens', '--layer=0'),
        'scores.jsonl': ('--task=pseudo_likelihood', '--batch_tokens=100'),
    }
    for name, arguments in commands.items():
        done = start(*common, *arguments, f'--output={tmp_path}/{name}')
        assert done.returncode == 0, done.stderr
        assert 'window' in done.stderr
    predictor = Predictor(loading.load_any(folder))
    with np.load(tmp_path / 'mean.npz') as file:
        np.testing.assert_allclose(file['embeddings'], predictor.embed(texts), atol=1e-5)
    with np.load(tmp_path / 'tokens.npz') as file:
        vectors = predictor.embed(texts, 'tokens', 0)
        assert file['offsets'].tolist() == np.cumsum([0, *map(len, vectors)]).tolist()
        np.testing.assert_allclose(file['embeddings'], np.concatenate(vectors), atol=1e-5)
    lines = (tmp_path / 'scores.jsonl').read_text().splitlines()
    scores = predictor.pseudo_likelihood(texts)
    for line, text, scored in zip(lines, texts, scores, strict=True):
        record = json.loads(line)
        assert record['text'] == text
        assert record['tokens'] == scored.tokens
        assert record['pseudo_log_likelihood'] == pytest.approx(
            scored.log_probabilities.sum(), rel=1e-4
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*commands, 'texts'])


# Arguments (over good ones) → what the line must say.
MISTAKES = {
    'no model': (['--model=/none'], 'is not a folder of a model'),
    'no input': (['--input=/none'], '/none: No such file'),
    'no output': (['--output=/none/x.npz'], '/none/x.npz cannot be written'),
    'empty input': (['--input=/dev/null'], 'is empty'),
    'output name': (['--output=x.txt'], 'end it in .npz'),
    'pooling': (['--pooling=max'], "unknown pooling 'max'; known: cls"),
    'layer': (['--layer=7'], 'layer is 7'),
    'too long': (['--max_length=20'], 'max_length is 20'),
    'top': (['--task=fill_mask', '--top=0'], '--top is 0'),
    'no option of it': (['--top=3'], '--top is an option of fill_mask, not of --task=embed'),
}


def test_mistakes_are_one_line(folder, tmp_path):
    (tmp_path / 'texts').write_text('the ship\n')
    good = [f'--model={folder}', '--task=embed', f'--input={tmp_path}/texts']
    good.append(f'--output={tmp_path}/x.npz')
    started = {
        name: commands.Command('bert_jax.predict', [*good, *arguments])
        for name, (arguments, _) in MISTAKES.items()
    }
    for name, process in started.items():
        _, stderr = process.communicate()
        assert process.returncode == 2, (name, stderr)
        assert MISTAKES[name][1] in stderr.splitlines()[-1], name
        assert stderr.splitlines()[-1].startswith('error: ')
        assert 'Traceback' not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ['texts']


def test_a_file_that_is_no_text(folder, tmp_path):
    pathlib.Path(tmp_path / 'bytes').write_bytes(b'the ship\n\xff\xfe\n')
    done = start(f'--model={folder}', '--task=fill_mask', f'--input={tmp_path}/bytes', '--output=-')
    assert done.returncode == 2
    assert 'bytes, line 2: not valid UTF-8' in done.stderr
