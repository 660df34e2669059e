"""Fine-tuning on the samples that ship with the project, and prediction from checkpoints."""

import contextlib
import json
import logging
import pathlib
import re
from typing import NamedTuple

import jax
import numpy as np
import pytest

from bert_jax import export, main, predict
from bert_jax.errors import UserError
from bert_jax.inference import finetuned
from bert_jax.loaded import checkpoint_arrays
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models.architecture import Compute
from bert_jax.tasks import make_task
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
# Sample → the main metric, the value it must reach on the training examples, the --task of predict,
# and a line of input.
KINDS = {
    'sample_sentiment': ('accuracy', 0.95, 'classify', 'I am very happy with these shoes.'),
    'sample_pairs': ('accuracy', 0.85, 'classify', 'A man sleeps.\tNo man sleeps.'),
    'sample_similarity': ('score', 0.9, 'classify', 'A man sleeps.\tNobody sleeps.'),
    'sample_topics': ('f1_micro', 0.9, 'classify', 'The soup was cold.'),
    'sample_ratings': ('score', 0.8, 'classify', 'The soup was cold.'),
    'sample_choice': (
        'accuracy',
        0.9,
        'classify',
        json.dumps({'premise': 'It rained.', 'choices': ['It was wet.', 'It was dry.']}),
    ),
    'sample_entities': ('f1', 0.9, 'tag', 'Anna Berg works in London.'),
    'sample_pos': ('accuracy', 0.95, 'tag', 'The dog sleeps.'),
    'sample_roles': (
        'f1',
        0.5,
        'roles',
        json.dumps({'words': ['The', 'captain', 'sold', 'the', 'boat'], 'predicate': 2}),
    ),
    'sample_trees': ('las', 0.85, 'parse', 'The dog sleeps.'),
    'sample_constituents': ('f1', 0.5, 'constituents', 'The dog sleeps .'),
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


class Run(NamedTuple):
    folder: pathlib.Path
    results: dict
    compiled: list[str]  # log lines of XLA compilations


def keys(task: str, folder, **more) -> dict:
    """Config keys of a run whose dev split is its train split; '__' in `more` stands for '.'."""
    train = finetune.get_config(task).data.train
    given = {key.replace('__', '.'): value for key, value in more.items()}
    return SMALL | {'workdir': str(folder), 'data.dev': train} | given


def config_of(task: str, folder, **more):
    config = finetune.get_config(task).unlock()
    config.update_from_flattened_dict(keys(task, folder, **more))
    return config.lock()


def train(task: str, folder, **more) -> Run:
    """Train in this process."""
    compiled = []
    with jax.log_compiles(), collect_log(compiled):
        return Run(folder, main.run(config_of(task, folder, **more)), compiled)


@contextlib.contextmanager
def collect_log(lines: list[str]):
    """Collect what JAX logs about compilations."""
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger('jax._src.interpreters.pxla')
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.fixture(scope='module')
def sentiment(tmp_path_factory) -> Run:
    """One run that several tests look at."""
    folder = tmp_path_factory.mktemp('sentiment') / 'run'
    return train('sample_sentiment', folder, evaluation__every_steps=40)


def command(task: str, folder, **more) -> list[str]:
    """The arguments of python -m bert_jax.main."""
    flags = keys(task, folder, **more).items()
    return [f'--config=configs/finetune.py:{task}', *(f'--config.{k}={v}' for k, v in flags)]


def predictions_for(run: Run, task: str, lines: list[str]) -> list[dict]:
    """The output of bert_jax.predict for lines of input."""
    given, output = run.folder.parent / 'input', run.folder.parent / 'output'
    given.write_text(''.join(f'{line}\n' for line in lines))
    predict.main(
        [
            f'--model={run.folder}',
            f'--task={task}',
            f'--input={given}',
            f'--output={output}',
            '--overwrite',
        ]
    )
    return lines_of(output)


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# test_spans.py trains sample_spans; tests/problems learns the other kinds, and
# models/test_head_states.py answers with a checkpoint of each.
QUICK = ('sample_sentiment', 'sample_entities', 'sample_questions')


@pytest.mark.parametrize(
    'task',
    [pytest.param(task, marks=[pytest.mark.slow] * (task not in QUICK)) for task in KINDS],
)
def test_learns_the_training_examples_and_predicts_from_its_checkpoint(task, tmp_path, sentiment):
    metric, least, ask, line = KINDS[task]
    run = sentiment if task == 'sample_sentiment' else train(task, tmp_path / 'run')
    held_out = run.results['held_out']
    assert next(iter(held_out)) == metric
    assert held_out[metric] >= least
    saved = json.loads((run.folder / 'dev/metrics.json').read_text())['metrics']
    assert saved[metric] == pytest.approx(held_out[metric])
    assert (run.folder / 'dev/report.md').read_text().startswith('#')
    card = (run.folder / 'README.md').read_text()
    assert f'| {next(iter(saved))} | {next(iter(saved.values())):.4f} |' in card
    records = lines_of(run.folder / 'dev/predictions.jsonl')
    assert len(records) > 20
    assert all('gold' in record or 'gold' in record['words'][0] for record in records)
    (answer,) = predictions_for(run, ask, [line])
    assert answer.keys() == records[0].keys() - {'gold'}


def test_a_head_on_a_mix_an_lstm_and_concat_pooling_trains_predicts_and_exports(tmp_path, capsys):
    """On a frozen encoder; then its weights start a run that changes what the head reads."""
    states = {
        'model.head_states': 'mix',
        'model.head_lstm.layers': 1,
        'model.head_lstm.size': 12,
        'problem.pooling': 'concat',
    }
    more = {'transfer.trainable': 'heads', 'training.steps': 3, 'evaluation.every_steps': 0}
    arguments = command('sample_sentiment', tmp_path / 'run', **states | more)
    main.main(['main', *arguments])
    assert 'a learned mix of all layers through 1 bidirectional LSTM' in capsys.readouterr().err
    run = Run(tmp_path / 'run', {}, [])
    (answer,) = predictions_for(run, 'classify', ['I am very happy with these shoes.'])
    assert 0.3 < answer['probability'] <= 1
    with pytest.raises(SystemExit):
        export.main([f'--model={run.folder}', f'--output={tmp_path / "out"}'])
    assert 'sequence_classification reads a learned mix' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()

    changed = {'model.head_states': '1', 'model.head_lstm.layers': 0, 'problem.pooling': 'mean'}
    start = {key: None for key in SMALL if key.startswith('model.')} | {'data.tokenizer': ''}
    second = command('sample_sentiment', tmp_path / 'second', **more | start | changed)
    given = [flag for flag in second if not flag.endswith('None')]
    main.main(['main', *given, f'--config.init_from={run.folder}'])
    log = capsys.readouterr().err
    assert 'dropped heads: sequence_classification (it was trained on other' in log
    assert 'heads read layer 1; a text as one vector: mean' in log


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        ({'model.head_states': '3'}, 'head_states: the encoder has no layer 3; it must be'),
        ({'model.head_lstm.size': 8}, 'model.head_lstm.layers is not set'),
        ({'problem.pooling': 'max'}, "unknown problem.pooling 'max'"),
        (
            {'problem.pooling': 'pooler', 'model.head_states': 'mix'},
            "problem.pooling is 'pooler', which reads the last layer",
        ),
    ],
)
def test_states_and_poolings_that_do_not_fit_are_one_line(flags, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main.main(['main', *command('sample_sentiment', tmp_path / 'run', **flags)])
    assert message in capsys.readouterr().err


def test_a_run_that_is_no_better_than_a_guess_ends_with_a_warning(tmp_path, sentiment, capsys):
    (copies,) = sentiment.results['warnings']
    assert 'in the train split' in copies  # the dev split of these runs
    slow = {'schedule__learning_rate': 1e-30, 'training__steps': 1, 'evaluation__every_steps': 0}
    run = train('sample_sentiment', tmp_path / 'run', **slow)
    warning, _ = run.results['warnings']
    assert re.match(r'dev: accuracy 0\.\d+ is not clearly better than 0\.5', warning)
    assert 'schedule.learning_rate' in warning
    assert f'warning: {warning}' in capsys.readouterr().err
    assert warning in (run.folder / 'README.md').read_text()


def test_blind_guesses_of_tags_choices_spans_and_answers(tmp_path):
    def score(kind):
        task = make_task(config_of(kind, tmp_path / 'run'))
        examples = task.splits.dev
        return examples, task.problem.decoder.baseline(task.splits.train, examples)

    dev, metrics = score('sample_pos')
    tags = [tag for example in dev for tag in example.tags]
    assert metrics['accuracy'] == pytest.approx(max(map(tags.count, tags)) / len(tags))
    dev, metrics = score('sample_choice')
    places = [example.label for example in dev]
    assert metrics['accuracy'] == pytest.approx(max(map(places.count, places)) / len(places))
    _, metrics = score('sample_entities')
    assert metrics['f1'] == 0
    assert 0.5 < metrics['accuracy'] < 1  # most words are outside of entities
    assert score('sample_spans')[1]['f1'] == 0
    dev, metrics = score('sample_questions')
    unanswerable = sum(not example.answers for example in dev)
    assert metrics['exact_match'] == pytest.approx(unanswerable / len(dev))


def test_predictions_of_a_run_and_of_its_checkpoint_agree(sentiment):
    records = lines_of(sentiment.folder / 'dev/predictions.jsonl')
    texts = [record['texts'][0] for record in records]
    ours = predictions_for(sentiment, 'classify', texts)
    for expected, found in zip(records, ours, strict=True):
        assert found['predicted'] == expected['predicted']
        assert found['probability'] == pytest.approx(expected['probability'], abs=1e-5)


def test_predict_splits_text_into_words_like_the_training_data(tmp_path):
    path = tmp_path / 'a.conll'
    sentence = 'Rail B-ORG\nwon O\n8-{} O\nin O\nOslo B-LOC\n. O\n\n'
    path.write_text(''.join(map(sentence.format, range(10))))
    data = {'data__train': (str(path),), 'data__dev': ()}
    task = make_task(config_of('sample_entities', tmp_path / 'run', **data))
    assert task.record.kept == {'splitter': 'whitespace'}
    tokenizer = task.problem.encoding.tokenizer
    model = LoadedModel(
        'bert', task.architecture, {}, tokenizer, task.problem.setup.labels, usage=task.record
    )
    tagger = finetuned.build(model, 'tagging', tokenizer, Compute(), batch_tokens=64, overlap=0.25)
    encoding = tagger.problem().encoding
    inputs = {'text': 'Oslo lost 4-8 .'}, {'words': ['4-8', '.']}, {'tokens': ['4-8']}
    parsed = [encoding.parse_input('line 1', given) for given in inputs]
    words = [[one.text[start:end] for start, end in one.words] for one in parsed]
    assert words == [['Oslo', 'lost', '4-8', '.'], ['4-8', '.'], ['4-8']]
    for wrong in ({'words': 'Oslo'}, {'tokens': [1]}, {'text': ['Oslo']}, {'sentence': 'Oslo'}):
        with pytest.raises(UserError, match='^line 1: '):
            encoding.parse_input('line 1', wrong)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'problem__metrics': ('acuracy',)}, "'acuracy'; did you mean accuracy. known: accuracy"),
        ({'problem__positive': 'good'}, "problem.positive is 'good'; set it to one of the classes"),
    ],
)
def test_wrong_settings_of_metrics_are_refused_before_training(tmp_path, settings, message):
    """They ended a run at its first evaluation, after an epoch, and again on every restart."""
    with pytest.raises(UserError, match=message):
        make_task(config_of('sample_sentiment', tmp_path / 'run', **settings))


def test_at_most_three_large_programs_are_compiled(sentiment):
    """The training step, and predictions with and without loss."""
    large = [name for name in sentiment.compiled if re.search(r'jit\(\w*step\)', name)]
    assert 2 <= len(large) <= 3, sentiment.compiled


@pytest.mark.slow  # test_tuning.py stops and resumes a fine-tuning run in one process
@pytest.mark.parametrize('task', ['sample_pairs', 'sample_embedding'])
def test_killed_and_resumed_bitwise(task, tmp_path):
    more = {'model__hidden_dropout': 0.1, 'checkpoint__every_steps': 7, 'training__steps': 30}
    for name, step in (('killed', 17), ('whole', None)):
        killed = commands.run('bert_jax.main', *command(task, tmp_path / name, **more), die_at=step)
        assert (killed.returncode != 0) == (step is not None), killed.stderr
    done = commands.run('bert_jax.main', *command(task, tmp_path / 'killed', **more))
    assert done.returncode == 0, done.stderr
    assert 'resuming from step 14' in done.stderr
    ours, theirs = (
        jax.tree.leaves_with_path(checkpoint_arrays.load(tmp_path / name)[1])
        for name in ('killed', 'whole')
    )
    assert len(ours) > 30
    for (path, own), (_, other) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(own, other, err_msg=str(path))


REFUSED = {
    'other labels': (
        {'problem__labels': ('good', 'bad')},
        r"example .*: the label '(positive|negative)' is not among the trained labels: good, bad",
    ),
    'epochs and steps': ({'training__epochs': 2.0}, r'training.steps is 80 and .*epochs is 2'),
    'column': (
        {'data__columns__label': 'gold'},
        r"'gold', but .*sentiment\.tsv has columns text, label",
    ),
    'no model': ({'model__architecture': None}, r'set init_from .*or set model.architecture'),
    'no tokenizer': ({'data__tokenizer': ''}, r'set init_from .*data.tokenizer'),
}


def test_the_sequence_length_follows_the_model_unless_the_user_set_it(tmp_path):
    config = config_of('sample_sentiment', tmp_path / 'run', training__sequence_length=128)
    task = make_task(config)
    assert task.problem.encoding.layout.max_length == 64
    assert any('sequences of 64 tokens' in line and '128' in line for line in task.describe())
    with pytest.raises(UserError, match='sequence_length is 128, but the model has 64 positions'):
        make_task(config, ['training.sequence_length'])


@pytest.mark.parametrize('mistake', REFUSED)
def test_mistakes_are_refused_in_one_line(mistake, tmp_path):
    changes, message = REFUSED[mistake]
    with pytest.raises(UserError, match=message) as refused:
        make_task(config_of('sample_sentiment', tmp_path / 'run', **changes))
    assert '\n' not in str(refused.value)


def test_tuned_thresholds_need_a_dev_split(tmp_path):
    without = {'data__dev': (), 'data__dev_fraction': 0.0, 'evaluation__every_steps': 0}
    with pytest.raises(UserError, match="problem.thresholds is 'one', but there is no dev split"):
        make_task(
            config_of('sample_topics', tmp_path / 'run', problem__thresholds='one', **without)
        )


def task_on(folder, format: str, text: str, **more):
    """The task of a kind of problem on a file of this content, without a model to train."""
    path = folder / 'train'
    path.write_text(text)
    data = {'data__train': (str(path),), 'data__dev': (), 'data__format': format}
    kind = 'sample_entities' if format == 'conll' else 'sample_sentiment'
    return make_task(config_of(kind, folder / 'run', **data | more))


def test_labels_are_those_of_the_whole_train_file(tmp_path):
    rows = ''.join(f'text {n}\tclass {n % 40:02}\n' for n in range(200))
    task = task_on(tmp_path, 'tsv', f'text\tlabel\n{rows}', data__train_examples=20)
    assert len(task.splits.train) == 20
    assert task.problem.setup.labels == tuple(f'class {n:02}' for n in range(40))


def test_a_tag_set_with_b_has_i_too(tmp_path):
    text = 'a B-X\n\n' + ''.join(f'a{n} B-Y\nb I-Y\n\n' for n in range(20))
    task = task_on(tmp_path, 'conll', text)
    assert task.problem.setup.labels == ('B-X', 'B-Y', 'I-X', 'I-Y', 'O')
    task = task_on(tmp_path, 'conll', text, data__tags_as='bioes')
    assert {'E-X', 'S-X', 'S-Y'} < set(task.problem.setup.labels)
    task = task_on(tmp_path, 'conll', text, data__scheme='none', data__rename_labels=('I-Y=N',))
    assert task.problem.setup.labels == ('B-X', 'B-Y', 'N')


@pytest.mark.parametrize(('format', 'row'), [('tsv', 'text {}\tx\n'), ('conll', 'a{} O\nb O\n\n')])
def test_a_single_class_is_refused(tmp_path, format, row):
    text = 'text\tlabel\n' * (format == 'tsv') + ''.join(map(row.format, range(20)))
    with pytest.raises(UserError, match=r"20 training examples are \['[xO]'\], but at least 2 are"):
        task_on(tmp_path, format, text)


def test_without_a_dev_split_there_is_no_evaluation(tmp_path):
    text = 'text\tlabel\n' + ''.join(f'a {n}\tx\nb {n}\ty\n' for n in range(10))
    none = {'data__dev_fraction': 0.0, 'evaluation__every_steps': 0}
    task = task_on(tmp_path, 'tsv', text, **none)
    assert len(task.splits.train) == 20
    assert task.evaluate({}, task.stages[0]) == {}
    for key, value in ('best', 'accuracy'), ('every_steps', 80):
        message = f'evaluation.{key} is {value!r}, but there is no dev split'
        with pytest.raises(UserError, match=message):
            task_on(tmp_path, 'tsv', text, **none | {f'evaluation__{key}': value})
    with pytest.raises(
        UserError, match='fraction=0.01 of 20 examples, .*a larger fraction, 0 for no'
    ):
        task_on(tmp_path, 'tsv', text, data__dev_fraction=0.01)


def test_an_unknown_metric_is_refused_before_training(tmp_path):
    config = config_of('sample_sentiment', tmp_path / 'run', problem__metrics=('acuracy',))
    config.evaluation.best = 'acuracy'
    with pytest.raises(UserError, match=r'metric.*acuracy.*accuracy'):
        main.run(config)
    assert not list((tmp_path / 'run').glob('checkpoints/[0-9]*'))


def test_the_workdir_of_another_task_is_refused(sentiment):
    with pytest.raises(UserError, match='workdir .* holds a run of another config'):
        train('sample_pairs', sentiment.folder)


def test_weights_with_the_labels_in_another_order_are_refused(tmp_path, sentiment):
    weights = {'init_from': str(sentiment.folder), 'data__tokenizer': ''}
    labels = {'problem__labels': ('positive', 'negative')}
    with pytest.raises(UserError, match='the same labels in another order'):
        make_task(config_of('sample_sentiment', tmp_path / 'again', **weights, **labels))
    task = make_task(config_of('sample_sentiment', tmp_path / 'again', **weights))
    assert task.problem.setup.labels == ('negative', 'positive')
    assert 'sequence_classification/head/output/kernel' in task.start.params
