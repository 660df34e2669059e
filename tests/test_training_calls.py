"""Training from Python: the same runs as by the command line."""

import json
import pathlib
import shlex
import signal

import numpy as np
import pyarrow
import pytest

import bert_jax
from bert_jax import config_keys, main, tree_paths
from bert_jax.cli import command_line
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from tests.end_to_end import small

DOCUMENTS = [
    ' '.join(f'The {a} and the {b} near the {c} .' for a in words[:5])
    for words in small.TOPICS.values()
    for b in words
    for c in words[:3]
]
REVIEWS = [
    (f'The {word} is {"good" if good else "bad"} .', 'good' if good else 'bad')
    for good in (True, False)
    for words in small.TOPICS.values()
    for word in words[:5]
]
TUNING = {
    'training': {'epochs': 0, 'steps': 8, 'batch_size': 8, 'sequence_length': 16},
    'evaluation': {'every_steps': 4},
    'data': {'dev_fraction': 0.25},
}


def keys(folder):
    """Keys for a run of seconds, as a user writes them."""
    values = small.changes(folder) | small.ONE_STAGE | {'workdir': folder / 'run'}
    values = {key.replace('__', '.'): value for key, value in values.items()}
    more = {'training.steps': 12, 'evaluation.every_steps': 6, 'checkpoint.every_steps': 4}
    return {key: value for key, value in values.items() if key != 'data.sources'} | more


class Killed(Exception):
    pass


@pytest.fixture(scope='module')
def pretrained(tmp_path_factory):
    """A run from Python that a callback ended after an evaluation, and what callbacks saw."""
    folder, steps, evaluations = tmp_path_factory.mktemp('pretrained'), [], []

    def after_evaluation(one):
        evaluations.append((one.step, dict(one.metrics), one.params))
        if len(evaluations) == 1:
            raise Killed

    call = dict(
        after_step=steps.append,
        after_evaluation=after_evaluation,
        evaluators=[Norm.build],
        **keys(folder),
    )
    documents = list(DOCUMENTS)
    with pytest.raises(Killed):
        bert_jax.pretrain(documents, 'tiny', **call)
    run = bert_jax.pretrain(documents, 'tiny', **call)
    assert documents == DOCUMENTS
    return run, steps, evaluations


class Norm:
    """An evaluator: the norm of all parameters."""

    lines = ('measuring the norm',)

    @classmethod
    def build(cls, inputs):
        assert inputs.text['input_ids'].shape[1] == 16
        return cls()

    def __call__(self, params):
        leaves = tree_paths.flatten(params).values()
        return {'norm': float(np.sqrt(sum(np.square(leaf).sum() for leaf in leaves)))}

    def report(self, held_out, workdir):
        from bert_jax.tasks.pretraining import Section

        return Section(f'The norm is {held_out["norm"]:.3f}.', frozenset(('norm',)))


def arrays(workdir):
    return tree_paths.flatten(checkpoint_arrays.load(workdir).state)


def test_a_run_from_python_is_the_run_of_its_command(pretrained, tmp_path):
    run, _, _ = pretrained
    main.main([*shlex.split(run.command)[2:], f'--config.workdir={tmp_path}/command'])
    ours, theirs = arrays(run.workdir), arrays(tmp_path / 'command')
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    results = json.loads((tmp_path / 'command/results.json').read_text())
    assert results['held_out'].items() <= run.held_out.items()


def test_callbacks_see_steps_and_evaluations(pretrained):
    run, steps, evaluations = pretrained
    assert steps == [*range(1, 6), *range(5, 13)]  # resumed from the checkpoint of step 4
    assert [step for step, _, _ in evaluations] == [6, 6, 12]
    assert evaluations[0][1] == evaluations[1][1]
    _, metrics, params = evaluations[-1]
    assert metrics == run.held_out
    np.testing.assert_allclose(Norm()(params)['norm'], run.held_out['norm'])
    card = (pathlib.Path(run.workdir) / 'README.md').read_text()
    assert f'The norm is {run.held_out["norm"]:.3f}.' in card


def test_a_signal_is_a_keyboard_interrupt(tmp_path):
    stop = lambda step: signal.raise_signal(signal.SIGINT) if step == 2 else None  # noqa: E731
    with pytest.raises(KeyboardInterrupt, match='call again to resume'):
        bert_jax.pretrain(DOCUMENTS, after_step=stop, **keys(tmp_path))
    assert (tmp_path / 'run/checkpoints').exists()


@pytest.fixture(scope='module')
def tuned(pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp('tuned')
    return bert_jax.finetune(REVIEWS, pretrained[0], workdir=folder / 'run', seed=3, **TUNING)


def test_fine_tuning_on_tuples_is_the_run_of_its_command(tuned, tmp_path):
    main.main([*shlex.split(tuned.command)[2:], f'--config.workdir={tmp_path}/command'])
    ours, theirs = arrays(tuned.workdir), arrays(tmp_path / 'command')
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    (answer,) = tuned.load().classify(['The barn is good .'])
    assert answer['predicted'] in ('good', 'bad')
    assert '| accuracy |' in tuned._repr_markdown_()


def test_every_form_of_the_examples_is_the_same_file(tuned, pretrained, tmp_path):
    (kept,) = (pathlib.Path(tuned.workdir) / 'data').iterdir()
    rows = [dict(text=text, label=label) for text, label in REVIEWS]
    assert [json.loads(line) for line in kept.read_text().splitlines()] == rows
    columns = {name: [row[name] for row in rows] for name in ('text', 'label')}
    frame, classes = Frame(columns), Hub(columns)
    for form in (iter(rows), columns, pyarrow.table(columns), frame, classes, {'train': rows}):
        given = dict(training=TUNING['training'], data=TUNING['data'])
        with pytest.raises(UserError, match='holds a run of another config|in use'):
            # The file is known by its digest, so another seed is the only difference.
            bert_jax.finetune(form, pretrained[0], workdir=tuned.workdir, seed=4, **given)
        assert list(kept.parent.iterdir()) == [kept]


class Frame:
    """What is used of a DataFrame of pandas."""

    def __init__(self, columns):
        self.data, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return self.data[name]

    def itertuples(self, index, name):
        assert (index, name) == (False, None)
        return zip(*self.data.values(), strict=True)


class Hub:
    """What is used of a Dataset of Hugging Face, whose labels are numbers with names."""

    def __init__(self, columns):
        names = ['bad', 'good']
        self.column_names, self.features = ['text', 'label'], self
        self.to_dict = lambda: {'label': {'names': names, '_type': 'ClassLabel'}}
        self.rows = [
            dict(text=text, label=names.index(label))
            for text, label in zip(*columns.values(), strict=True)
        ]

    def with_format(self, form):
        assert form is None
        return self

    def __iter__(self):
        return iter(self.rows)


def test_a_command_line_has_the_same_config(tuned):
    line = command_line.parse(shlex.split(tuned.command)[2:], '')
    stored = json.loads((pathlib.Path(tuned.workdir) / 'config.json').read_text())
    flat = json.loads(json.dumps(config_keys.flatten(line.config)))
    for key, value in flat.items():
        found = stored
        for part in key.split('.'):
            found = found[part]
        assert found == value or key in ('model.architecture', 'schedule.learning_rate'), key


def test_overwriting_keeps_the_data_that_were_given(pretrained, tmp_path):
    given = dict(workdir=tmp_path / 'run', **TUNING)
    first = bert_jax.finetune(REVIEWS, pretrained[0], **given)
    again = bert_jax.finetune(REVIEWS, pretrained[0], overwrite=True, **given, seed=1)
    assert len(list((tmp_path / 'run/data').iterdir())) == 1
    assert first.results['held_out'].keys() == again.results['held_out'].keys()


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda folder: bert_jax.pretrain(['a', None], workdir=folder), 'text 2 is None'),
        (lambda folder: bert_jax.pretrain([], workdir=folder), 'the data of text are empty'),
        (lambda folder: bert_jax.pretrain([__file__], workdir=folder), 'the name of a file'),
        (lambda folder: bert_jax.pretrain('The cat sat.', workdir=folder), 'neither a file nor'),
        (lambda folder: bert_jax.pretrain(['a'], data={'corpus': f'{__file__}/x'}), 'cannot be wr'),
        (lambda folder: bert_jax.pretrain({'a': ['b']}, workdir=folder), "no column 'text'"),
        (lambda folder: bert_jax.pretrain(['a'], 'tinny'), 'did you mean configs/tiny.py'),
        (lambda folder: bert_jax.pretrain(['a'], training={'step': 3}), 'unknown config key'),
        (
            lambda folder: bert_jax.pretrain(['a'], seed=1.5),
            'seed is 1.5; it must be a whole number',
        ),
        (lambda folder: bert_jax.pretrain(['a'], seed=-1), 'seed is -1; it must be in'),
        (lambda folder: bert_jax.pretrain(['a'], data={'sources': 'b'}), 'are both given'),
        (lambda folder: bert_jax.pretrain(['a'], 'finetune:cola'), 'call bert_jax.finetune'),
        (lambda folder: bert_jax.finetune([('a',)], workdir=folder), 'has 1 values, not 2'),
        (lambda folder: bert_jax.finetune([('a', 'b')], None, 'tagging'), 'give this problem dict'),
        (lambda folder: bert_jax.finetune(['a'], workdir=folder), 'not a dictionary'),
        (lambda folder: bert_jax.finetune({'a': [1], 'b': []}, workdir=folder), 'differ in length'),
        (lambda folder: bert_jax.finetune([{'a': 1j}], workdir=folder), 'of type complex'),
        (lambda folder: bert_jax.finetune([{'a': np.inf}], workdir=folder), 'is inf'),
        (lambda folder: bert_jax.finetune({'train': [], 'eval': []}), "leave 'eval' out"),
        (lambda folder: bert_jax.finetune([], problem='tag'), 'unknown task'),
        (lambda folder: bert_jax.finetune(None, workdir=folder), 'data.train'),
        (lambda folder: bert_jax.prepare(['a'], folder / 'x', 'none'), 'none'),
    ],
)
def test_bad_calls_raise_one_line(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the corpus of a recipe would lie
    with pytest.raises(bert_jax.UserError, match=message) as raised:
        call(tmp_path)
    assert '\n' not in str(raised.value)


def test_runs_on_the_same_documents_share_their_corpus(pretrained, tmp_path):
    run, _, _ = pretrained
    corpus = pathlib.Path(run.workdir).parent / 'corpus'
    made = corpus.stat().st_mtime_ns
    given = keys(corpus.parent) | {'workdir': tmp_path / 'other'}
    other = bert_jax.pretrain(iter(DOCUMENTS), 'tiny', **given)
    assert other.results['held_out']['mlm_loss'] == run.results['held_out']['mlm_loss']
    assert corpus.stat().st_mtime_ns == made
    assert len(list(corpus.with_name('corpus.data').iterdir())) == 1


def test_prepare_is_a_function_and_the_module_of_the_command(tmp_path):
    corpus = bert_jax.prepare(DOCUMENTS, tmp_path / 'corpus', 'train:wordpiece:120', workers=0)
    assert corpus.split('train').num_documents + corpus.split('held_out').num_documents == len(
        DOCUMENTS
    )
    from bert_jax import prepare

    prepare.main([f'--output={tmp_path}/corpus', '--verify'])
    assert prepare is bert_jax.prepare


def test_odd_characters_survive(tmp_path):
    from bert_jax import given_data

    odd = 'a\u2028b\x85c\x0bd\rḕ\U0001f600\ud800'
    (path,) = given_data.labeled_files([{'text': odd, 'n': np.float32(1.5)}], tmp_path, 'train')
    assert json.loads(pathlib.Path(path).read_text()) == {'text': odd, 'n': 1.5}
