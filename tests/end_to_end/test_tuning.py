"""Parameter-efficient tuning from the command line: training, checkpoints, prediction, export."""

import contextlib
import dataclasses
import functools
import json
import shutil

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import export, main, predict, progress, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.loaded import checkpoint_arrays, tuned
from bert_jax.models import architectures
from bert_jax.tasks import initialization, make_task
from bert_jax.training import checkpoints
from bert_jax.training.run import NO_HOOKS, Hooks
from configs import finetune, finetune_tasks
from tests.interop import published

pytestmark = pytest.mark.usefixtures('no_loader_process_in_file')

SMALL = {
    'model.hidden_dropout': 0.1,
    'training.epochs': 0.0,
    'training.steps': 30,
    'training.batch_size': 16,
    'schedule.learning_rate': 3e-3,
    'logging.every_steps': 40,
    'data.dev': finetune.get_config('sample_sentiment').data.train,
}
BASE = {
    'data.tokenizer': 'train:wordpiece:400',
    'model.architecture': 'bert',
    'model.hidden_size': 32,
    'model.num_layers': 2,
    'model.num_heads': 2,
    'model.intermediate_size': 64,
    'model.max_position_embeddings': 64,
    'model.initializer_range': 0.15,
}


def keys(folder, method, base, **more):
    given = {key.replace('__', '.'): value for key, value in more.items()}
    tuning = {'workdir': str(folder), 'init_from': str(base), 'transfer.method': method}
    return SMALL | tuning | given


def config_of(*arguments, **more):
    config = finetune.get_config('sample_sentiment').unlock()
    config.update_from_flattened_dict(keys(*arguments, **more))
    return config.lock()


def tune(*arguments, hooks=NO_HOOKS, **more):
    return main.run(config_of(*arguments, **more), hooks=hooks)


def command(*arguments, **more):
    flags = keys(*arguments, **more).items()
    return [
        '--config=configs/finetune.py:sample_sentiment',
        *(f'--config.{k}={v}' for k, v in flags),
    ]


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    """A trained model."""
    folder = tmp_path_factory.mktemp('base') / 'run'
    config = finetune.get_config('sample_sentiment').unlock()
    config.update_from_flattened_dict(SMALL | BASE | {'workdir': str(folder)})
    main.run(config.lock())
    return folder


@pytest.fixture(scope='module')
def lora(base, tmp_path_factory):
    """A tuned model, which several tests look at."""
    folder = tmp_path_factory.mktemp('lora') / 'run'
    tune(folder, 'lora', base)
    return folder


def predictions(model, folder):
    given, output = folder / 'input', folder / 'output'
    given.write_text('I am very happy with these shoes.\nThe food was bad.\n')
    flags = (f'--model={model}', '--task=classify', f'--input={given}', f'--output={output}')
    predict.main([*flags, '--overwrite'])
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_checkpoints_hold_what_is_trained_and_nothing_else(base, lora):
    state = tree_paths.flatten(checkpoint_arrays.load(lora).state)
    params = {name for name in state if name.startswith('params/')}
    assert params == {
        *(
            f'params/encoder/layers_{layer}/attention/{which}/tuning/{part}'
            for layer in range(2)
            for which in ('query', 'value')
            for part in ('down', 'up')
        ),
        *(f'params/sequence_classification/head/output/{leaf}' for leaf in ('kernel', 'bias')),
    }
    moments = [name for name in state if '/first/' in name]
    assert len(moments) == len(params)
    before = tree_paths.flatten(loading.load_any(base).params)
    after = tree_paths.flatten(loading.load_any(lora).params)
    for name in before.keys() - {name.removeprefix('params/') for name in params}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert np.any(after['encoder/layers_0/attention/query/tuning/up'])


def test_the_pooler_is_trained_if_asked(base, lora, tmp_path, capsys):
    lines = make_task(config_of(tmp_path / 'frozen', 'lora', base)).start.lines
    assert any('the pooler is frozen' in line for line in lines)
    tune(tmp_path / 'run', 'lora', base, transfer__train_pooler=True, training__steps=3)
    assert 'the pooler is frozen' not in capsys.readouterr().err
    before, after, without = (
        tree_paths.flatten(loading.load_any(folder).params)
        for folder in (base, tmp_path / 'run', lora)
    )
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    pooler = {'encoder/pooler/kernel', 'encoder/pooler/bias'}
    assert {name for name in changed if name.startswith('encoder/')} == pooler
    for name in pooler:
        np.testing.assert_array_equal(without[name], before[name])


def test_which_heads_read_the_pooler():
    roberta = dataclasses.replace(architectures.build('roberta'), pooler=True)  # in some files
    bert = architectures.build('bert')
    cases = {
        ('classification', bert): True,
        ('classification', roberta): False,
        ('multiple_choice', roberta): True,
        ('multiple_choice', architectures.build('roberta')): False,
        ('tagging', bert): False,
    }
    for (kind, architecture), expected in cases.items():
        assert initialization.reads_pooler(finetune.get_config(kind), architecture) == expected


def test_a_pooler_that_is_not_read_cannot_be_trained(base, tmp_path, capsys):
    flags = command(tmp_path / 'run', 'lora', base, transfer__train_pooler=True)[1:]
    flags = [flag for flag in flags if '.data.dev=' not in flag]
    with pytest.raises(SystemExit):
        main.main(['main', '--config=configs/finetune.py:sample_pos', *flags])
    assert 'train_pooler is True, but no head reads a pooler' in capsys.readouterr().err


def test_a_run_and_its_checkpoint_predict_the_same(lora, tmp_path):
    records = [json.loads(line) for line in (lora / 'dev/predictions.jsonl').open()]
    given = tmp_path / 'input'
    given.write_text(''.join(f'{record["texts"][0]}\n' for record in records))
    flags = (f'--model={lora}', '--task=classify', f'--input={given}', f'--output={tmp_path / "o"}')
    predict.main(list(flags))
    for record, line in zip(records, (tmp_path / 'o').open(), strict=True):
        assert json.loads(line)['probability'] == pytest.approx(record['probability'], abs=1e-5)


def test_tuned_models_answer_by_name_and_share_their_base(base, lora, tmp_path):
    other = tmp_path / 'other'
    tune(other, 'ia3', base, training__steps=2)
    given, output = tmp_path / 'input', tmp_path / 'output'
    given.write_text('I am very happy with these shoes.\nThe food was bad.\n')
    flags = (f'--tuned={lora},{other}', '--task=classify', f'--input={given}', f'--output={output}')
    predict.main(list(flags))
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record.pop('model') for record in records] == [str(lora), str(other)] * 2
    assert records[::2] == predictions(lora, tmp_path)
    assert records[1::2] == predictions(other, tmp_path)
    loaded = [bert_jax.load(model).params['encoder'] for model in (lora, other)]
    addresses = {own['embeddings']['token'].unsafe_buffer_pointer() for own in loaded}
    assert len(addresses) == 1


def test_tuned_models_in_a_bucket_answer(base, lora, tmp_path, buckets):
    """One whose base is on a disk, and one whose base is in the bucket."""
    shutil.copytree(lora, buckets / 'bucket/lora')
    shutil.copytree(base, buckets / 'bucket/base')
    tune('gs://bucket/other', 'ia3', 'gs://bucket/base', training__steps=2)
    given, output, names = tmp_path / 'input', tmp_path / 'output', ['lora', 'other']
    given.write_text('I am very happy with these shoes.\nThe food was bad.\n')
    tuned = ','.join(f'gs://bucket/{name}' for name in names)
    predict.main([f'--tuned={tuned}', '--task=classify', f'--input={given}', f'--output={output}'])
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record.pop('model') for record in records] == tuned.split(',') * 2
    assert records[::2] == predictions(lora, tmp_path)
    assert records[1::2] == predictions('gs://bucket/other', tmp_path)


def test_another_base_is_refused(base, lora, tmp_path):
    """Also a base that is gone."""
    moved = tmp_path / 'base'
    shutil.copytree(base, moved)
    tune(tmp_path / 'run', 'lora', moved, training__steps=1)
    shutil.rmtree(moved)
    with pytest.raises(UserError, match='which does not exist; restore that folder'):
        loading.load_any(tmp_path / 'run')
    stored = checkpoint_arrays.load(base)
    params = jax.tree.map(lambda leaf: leaf * 1.001, stored.state['params'])
    with contextlib.closing(checkpoints.Checkpoints.open(moved / 'checkpoints', 1)) as other:
        other.save(stored.step, {'params': params}, stored.metadata)
    with pytest.raises(UserError, match='is not the model that was tuned: its sha256 is'):
        loading.load_any(tmp_path / 'run')
    shutil.copytree(tmp_path / 'run', tmp_path / 'again')
    with pytest.raises(UserError, match='is not the model that the run in .* tunes: its sha256 is'):
        tune(tmp_path / 'again', 'lora', moved, training__steps=2)


class Stopped(Exception):
    """Stands for the end of the process."""


def stop_at_step_10(step: int):
    if step == 10:
        raise Stopped


def test_stopped_and_resumed_bitwise(base, tmp_path, capsys):
    more = {'checkpoint__every_steps': 7, 'training__steps': 18}
    stop = Hooks(after_step=stop_at_step_10)
    with pytest.raises(Stopped):
        tune(tmp_path / 'killed', 'mam', base, hooks=stop, **more)
    for name in ('killed', 'whole'):
        tune(tmp_path / name, 'mam', base, **more)
    assert 'resuming from step 7' in capsys.readouterr().err
    ours, theirs = (checkpoint_arrays.load(tmp_path / name).state for name in ('killed', 'whole'))
    for (path, own), other in zip(
        jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        np.testing.assert_array_equal(own, other, err_msg=str(path))


@pytest.mark.parametrize(
    'method', [pytest.param('houlsby', marks=pytest.mark.slow), 'prompt', 'bitfit']
)
def test_other_methods_train_and_predict(method, base, tmp_path, capsys):
    results = tune(tmp_path / 'run', method, base, training__steps=2)
    assert results['steps'] == 2
    assert f'{method} was published with a learning rate of ' in capsys.readouterr().err
    assert predictions(tmp_path / 'run', tmp_path)[0]['predicted'] in ('negative', 'positive')


@pytest.mark.slow
@pytest.mark.parametrize('name', [name for name in finetune_tasks.TASKS if 'sample_' in name])
@pytest.mark.parametrize('method', ['lora', 'mam', 'prompt'])
def test_every_problem_trains(name, method, base, tmp_path):
    config = finetune.get_config(name).unlock()
    more = {'training.steps': 2, 'training.epochs': 0.0, 'data.max_length': 64}
    tuning = {'workdir': str(tmp_path), 'init_from': str(base), 'transfer.method': method}
    config.update_from_flattened_dict(more | tuning)
    results = main.run(config.lock())
    assert np.isfinite(list(results['held_out'].values())).all()


def test_a_merged_export_predicts_what_the_run_predicts(lora, tmp_path):
    with pytest.raises(UserError, match='export it with --merge'):
        export.export(export.Request(model=str(lora), output=str(tmp_path / 'unmerged')))
    export.export(export.Request(model=str(lora), output=str(tmp_path / 'merged'), merge=True))
    for ours, merged in zip(
        predictions(lora, tmp_path), predictions(tmp_path / 'merged', tmp_path), strict=True
    ):
        assert merged['predicted'] == ours['predicted']
        assert merged['probability'] == pytest.approx(ours['probability'], abs=1e-5)


@pytest.mark.parametrize('seeds', [(2,), pytest.param((1, 2), marks=pytest.mark.slow)])
def test_runs_trained_at_once_have_the_results_they_have_alone(seeds, base, tmp_path, monkeypatch):
    """Seeds, learning rates and ranks; dropout and the order of examples depend on the seed."""
    without_bar = functools.partial(progress.bar, disable=True)  # as with TQDM_DISABLE=1
    monkeypatch.setattr(progress, 'bar', without_bar)
    sweep = {
        'sweep__seeds': seeds,
        'sweep__learning_rates': (1e-3, 3e-3),
        'sweep__ranks': (2, 8),
        'sweep__vmap': True,
        'schedule__learning_rate': None,
    }
    more = {'training__steps': 6, 'optimizer__clip_norm': 0.5}
    found = tune(tmp_path / 'sweep', 'lora', base, **sweep, **more)
    settings = [tuple(row['values'].values()) for row in found['settings']]
    assert sorted(settings) == [(1e-3, 2), (1e-3, 8), (3e-3, 2), (3e-3, 8)]
    for rate, rank, seed in ((0.003, 2, 2),):
        name = f'learning_rate_{rate}_rank_{rank}_seed_{seed}'
        alone = {'seed': seed, 'schedule__learning_rate': rate, 'transfer__rank': rank}
        expected = tune(tmp_path / name, 'lora', base, **alone, **more)
        results = json.loads((tmp_path / 'sweep' / name / 'results.json').read_text())
        assert results['held_out'] == pytest.approx(expected['held_out'], abs=1e-5)
        assert results.keys() == expected.keys()
        assert results['tokens_per_second'] < 1e7
        ours, theirs = (
            checkpoint_arrays.load(path / name).state for path in (tmp_path / 'sweep', tmp_path)
        )
        ours, theirs = tree_paths.flatten(ours), tree_paths.flatten(theirs)
        assert ours.keys() == theirs.keys()
        for path, leaf in ours.items():
            np.testing.assert_allclose(leaf, theirs[path], atol=2e-6, rtol=1e-4, err_msg=path)
    again = tune(tmp_path / 'sweep', 'lora', base, **sweep, **more)
    assert again == found  # finished runs are kept


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'transfer__method': 'full'}, 'set transfer.method, such as lora'),
        (
            {'evaluation__best': 'accuracy'},
            'leave evaluation.best, evaluation.patience and sweep.rungs out',
        ),
        (
            {
                'schedule__learning_rate': None,
                'schedule__end_learning_rate': 1e-4,
                'sweep__learning_rates': (1e-3, 3e-3),
            },
            'leave schedule.end_learning_rate or the learning rates of the sweep out',
        ),
    ],
)
def test_sweeps_that_cannot_run_at_once_are_refused(changes, message, base, tmp_path):
    with pytest.raises(UserError, match=message):
        tune(tmp_path / 'run', 'lora', base, sweep__vmap=True, sweep__seeds=(1, 2), **changes)


REFUSED = {
    'no model': ({'init_from': '', **BASE}, 'lora tunes a trained model; set init_from'),
    'heads only': ({'transfer.trainable': 'heads'}, "set transfer.trainable to 'all'"),
    'unknown': ({'transfer.method': 'lara'}, "'lara'.*lora"),
    'more positions': ({'model.max_position_embeddings': 80}, 'keep its positions and its tok'),
}


@pytest.mark.parametrize('mistake', REFUSED)
def test_mistakes_are_refused_in_one_line(mistake, base, tmp_path):
    changes, message = REFUSED[mistake]
    with pytest.raises(UserError, match=message) as refused:
        tune(tmp_path / 'run', 'lora', base, **changes)
    assert '\n' not in str(refused.value)
    assert not (tmp_path / 'run').exists()


def test_bitfit_needs_biases(tmp_path):
    folder = published.folder(tmp_path / 'base', 'ModernBertForMaskedLM')
    with pytest.raises(UserError, match='bitfit adds no parameters, and .* has none that it'):
        tune(tmp_path / 'run', 'bitfit', folder)


def test_a_peft_folder_of_multiple_choice_keeps_its_head(base, tmp_path):
    config = finetune.get_config('sample_choice').unlock()
    config.update_from_flattened_dict(keys(tmp_path / 'run', 'lora', base, training__steps=1))
    config.data.dev = ()
    main.run(config.lock())
    export.export(
        export.Request(model=str(tmp_path / 'run'), output=str(tmp_path / 'peft'), format='peft')
    )
    ours, theirs = (loading.load_any(tmp_path / name) for name in ('run', 'peft'))
    assert theirs.heads == ours.heads == ('multiple_choice',)
    check = functools.partial(np.testing.assert_allclose, atol=1e-6)
    jax.tree.map(check, theirs.params, dict(tuned.merge(ours).params))


def test_only_tuned_runs_become_peft_folders(base, tmp_path):
    with pytest.raises(UserError, match='hold lora and ia3, not transfer.method=full'):
        export.export(export.Request(model=str(base), output=str(tmp_path / 'peft'), format='peft'))


def test_methods_that_cannot_be_merged_are_refused(base, tmp_path):
    tune(tmp_path / 'run', 'prefix', base, training__steps=1)
    with pytest.raises(UserError, match='prefix cannot be merged'):
        export.export(
            export.Request(model=str(tmp_path / 'run'), output=str(tmp_path / 'out'), merge=True)
        )
    with pytest.raises(UserError, match='not a tuned model; leave --merge out'):
        export.export(export.Request(model=str(base), output=str(tmp_path / 'out'), merge=True))
    assert not (tmp_path / 'out').exists()
