"""Fine-tuning on the samples that ship with the project: configs/finetune.py through main, what it
leaves in its folder, and prediction from its checkpoint alone."""

import contextlib
import json
import logging
import re

import jax
import numpy as np
import pytest

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.tasks import make_task
from bert_jax.training import checkpoints
from configs import finetune
from tests.end_to_end import commands

SMALL = {
    'data.tokenizer': 'train:wordpiece:400',
    'model.architecture': 'bert',
    'model.hidden_size': 32,
    'model.num_layers': 2,
    'model.num_heads': 2,
    'model.intermediate_size': 64,
    'model.max_position_embeddings': 64,
    'model.initializer_range': 0.15,
    'model.hidden_dropout': 0.0,
    'model.attention_dropout': 0.0,
    'training.epochs': 0.0,
    'training.steps': 80,
    'training.batch_size': 16,
    'schedule.learning_rate': 3e-3,
    'evaluation.every_steps': 80,
    'logging.every_steps': 40,
}
# The main figure, what it must reach on the very examples trained on, and a line to ask about with
# the way to ask.
KINDS = {
    'sample_sentiment': ('accuracy', 0.95, 'classify', 'I am very happy with these shoes.'),
    'sample_pairs': ('accuracy', 0.85, 'classify', 'A man sleeps.\tNo man sleeps.'),
    'sample_similarity': ('score', 0.9, 'classify', 'A man sleeps.\tNobody sleeps.'),
    'sample_choice': (
        'accuracy',
        0.9,
        'classify',
        json.dumps({'premise': 'It rained.', 'choices': ['It was wet.', 'It was dry.']}),
    ),
    'sample_entities': ('f1', 0.9, 'tag', 'Anna Berg works in London.'),
    'sample_pos': ('accuracy', 0.95, 'tag', 'The dog sleeps.'),
    'sample_spans': ('f1', 0.7, 'spans', 'The mayor of Leeds spoke.'),
    'sample_relation': (
        'accuracy',
        0.85,
        'classify',
        json.dumps({'text': 'Anna works for Green Park.', 'marks': [[0, 4], [15, 25]]}),
    ),
    'sample_wic': (
        'accuracy',
        0.75,
        'classify',
        json.dumps({'text': 'a nail', 'text2': 'the nail', 'marks': [[2, 6], [4, 8]]}),
    ),
    'sample_coreference': (
        'f1',
        0.6,
        'classify',
        json.dumps({'text': 'Anna said she slept.', 'marks': [[10, 13], [0, 4]]}),
    ),
    'sample_questions': (
        'f1',
        0.6,
        'answer',
        json.dumps({'question': 'Who sleeps?', 'context': 'Anna sleeps in a chair.'}),
    ),
}


def keys(task: str, folder, **more) -> dict:
    """Of a run that is evaluated on what it learns from."""
    train = finetune.get_config(task).data.train
    given = {key.replace('__', '.'): value for key, value in more.items()}
    return SMALL | {'workdir': str(folder), 'data.dev': train} | given


def config_of(task: str, folder, **more):
    config = finetune.get_config(task).unlock()
    config.update_from_flattened_dict(keys(task, folder, **more))
    return config.lock()


def train(task: str, folder, **more) -> dict:
    """In this process: the results."""
    return main.run(config_of(task, folder, **more))


def command(task: str, folder, **more) -> list[str]:
    """The arguments of python -m bert_jax.main."""
    flags = keys(task, folder, **more).items()
    return [f'--config=configs/finetune.py:{task}', *(f'--config.{k}={v}' for k, v in flags)]


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize('task', KINDS)
def test_learns_what_it_is_shown_and_answers_from_its_checkpoint(task, tmp_path):
    metric, least, ask, line = KINDS[task]
    results = train(task, tmp_path / 'run')
    assert next(iter(results['held_out'])) == metric
    assert results['held_out'][metric] >= least
    saved = json.loads((tmp_path / 'run/dev/metrics.json').read_text())['metrics']
    assert saved[metric] == pytest.approx(results['held_out'][metric])
    assert (tmp_path / 'run/dev/report.md').read_text().startswith('#')
    records = lines_of(tmp_path / 'run/dev/predictions.jsonl')
    assert len(records) > 20
    assert all('gold' in record or 'gold' in record['words'][0] for record in records)

    (tmp_path / 'input').write_text(line + '\n')
    flags = {'model': tmp_path / 'run', 'task': ask, 'input': tmp_path / 'input', 'output': '-'}
    done = commands.run('bert_jax.predict', *(f'--{k}={v}' for k, v in flags.items()))
    assert done.returncode == 0, done.stderr
    (answer,) = [json.loads(own) for own in done.stdout.splitlines()]
    assert answer.keys() == records[0].keys() - {'gold'}


def test_predictions_of_the_run_and_of_its_checkpoint_agree(tmp_path):
    train('sample_sentiment', tmp_path / 'run', training__steps=20)
    records = lines_of(tmp_path / 'run/dev/predictions.jsonl')
    (tmp_path / 'input').write_text(''.join(r['texts'][0] + '\n' for r in records))
    flags = {'model': tmp_path / 'run', 'task': 'classify', 'input': tmp_path / 'input'}
    output = tmp_path / 'output'
    done = commands.run(
        'bert_jax.predict', *(f'--{k}={v}' for k, v in flags.items()), f'--output={output}'
    )
    assert done.returncode == 0, done.stderr
    for theirs, ours in zip(records, lines_of(output), strict=True):
        assert ours['predicted'] == theirs['predicted']
        assert ours['probability'] == pytest.approx(theirs['probability'], abs=1e-5)


def test_killed_and_resumed_bitwise(tmp_path):
    more = {'model__hidden_dropout': 0.1, 'checkpoint__every_steps': 7, 'training__steps': 30}
    for name, step in (('killed', 17), ('whole', None)):
        killed = commands.run(
            'bert_jax.main', *command('sample_pairs', tmp_path / name, **more), die_at=step
        )
        assert (killed.returncode != 0) == (step is not None), killed.stderr
    done = commands.run('bert_jax.main', *command('sample_pairs', tmp_path / 'killed', **more))
    assert done.returncode == 0, done.stderr
    assert 'resuming from step 14' in done.stderr
    ours, theirs = (
        jax.tree.leaves_with_path(checkpoints.load(tmp_path / name)[1])
        for name in ('killed', 'whole')
    )
    assert len(ours) > 30
    for (path, own), (_, other) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(own, other, err_msg=str(path))


def test_at_most_three_programs_are_compiled(tmp_path):
    """Training, evaluation and the first parameters; what else is compiled is smaller than them."""
    compiled = []
    with jax.log_compiles(), _logged(compiled):
        train('sample_sentiment', tmp_path / 'run', training__steps=60, evaluation__every_steps=20)
    large = [name for name in compiled if re.search(r'jit\((step|init)\)', name)]
    assert 2 <= len(large) <= 3, compiled


@contextlib.contextmanager
def _logged(lines: list[str]):
    """What jax logs of its compilations."""
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger('jax._src.interpreters.pxla')
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


REFUSED = {
    'other labels': (
        {'problem__labels': ('good', 'bad')},
        r"example .*: the label '(positive|negative)' is not among those trained: good, bad",
    ),
    'metric': ({'problem__metrics': ('acuracy',)}, r'metric.*acuracy.*accuracy'),
    'epochs and steps': ({'training__epochs': 2.0}, r'training.steps is 80 and .*epochs 2'),
    'column': ({'data__columns__label': 'gold'}, r"sentiment\.tsv.*'?gold'?.*text.*label"),
    'too long': ({'training__max_length': 65}, r'max_length 65 is longer than the 64 positions'),
    'no model': ({'model__architecture': None}, r'set init_from .*or model.architecture'),
    'no tokenizer': ({'data__tokenizer': ''}, r'set init_from .*data.tokenizer'),
}


@pytest.mark.parametrize('mistake', REFUSED)
def test_mistakes_are_refused_in_one_line(mistake, tmp_path):
    changes, told = REFUSED[mistake]
    with pytest.raises(UserError, match=told):
        train('sample_sentiment', tmp_path / 'run', **changes)


def test_a_workdir_of_another_task_is_refused(tmp_path):
    more = {'training__steps': 2}
    done = commands.run('bert_jax.main', *command('sample_sentiment', tmp_path / 'run', **more))
    assert done.returncode == 0, done.stderr
    with pytest.raises(UserError, match='workdir .* holds a run of another config'):
        train('sample_pairs', tmp_path / 'run', **more)


def test_weights_with_the_labels_in_another_order_are_refused(tmp_path):
    train('sample_sentiment', tmp_path / 'run', training__steps=2)
    weights = {'init_from': str(tmp_path / 'run'), 'training__steps': 2, 'data__tokenizer': ''}
    labels = {'problem__labels': ('positive', 'negative')}
    with pytest.raises(UserError, match='the same labels in another order'):
        train('sample_sentiment', tmp_path / 'again', **weights, **labels)
    task = make_task(config_of('sample_sentiment', tmp_path / 'again', **weights))
    assert task.problem.labels == ('negative', 'positive')
    assert 'sequence_classification/head/output/kernel' in task.start.params
