"""bert_jax.export: models trained for seconds, opened by transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax import main, tree_paths
from bert_jax.errors import UserError
from bert_jax.export import Request, export
from bert_jax.export import main as command_line
from bert_jax.interop import huggingface, huggingface_export, loading
from bert_jax.loaded import checkpoint_arrays, loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.tasks.pretraining import builder as pretraining_builder
from tests import disks
from tests.end_to_end import commands, small
from tests.inference import small_runs
from tests.interop import published
from tests.parity.agreement import agree_trees

pytestmark = pytest.mark.usefixtures('no_loader_process_in_file')

SINGLE = small.ONE_STAGE | {'objectives__nsp': 0.0, 'data__segments': 'single'}
ROBERTA = {
    'model__architecture': 'roberta',
    'model__type_vocab_size': 1,
    'training__sequence_length': (31,),
    'training__max_predictions': (5,),
}


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    changes = {'training__steps': (20,), 'compute__scan_layers': True, 'model__num_layers': 2}
    main.run(small.config(folder, **small.ONE_STAGE | changes))
    return folder / 'run'


@pytest.fixture(scope='module')
def exported(workdir, no_loader_process_in_file):
    path = workdir.parent / 'exported'
    done = commands.here('bert_jax.export', f'--model={workdir}', f'--output={path}')
    assert done.returncode == 0, done.stderr
    assert 'mlm, nsp; logits compared' in done.stdout
    return path


def test_transformers_opens_a_run_and_computes_the_same(workdir, exported):
    theirs, report = transformers.BertForPreTraining.from_pretrained(
        exported, output_loading_info=True
    )
    assert not any(report[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys'))
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    batch = tokenizer(
        [('The cow and the barn', 'near the [MASK] .'), ('A ship .', 'x')],
        return_tensors='pt',
        padding=True,
    )
    with torch.no_grad():
        output = theirs.eval()(**batch)
    model = loading.load_any(workdir)
    ours = loaded_model.outputs(
        model.architecture,
        Compute(),
        model.params,
        Rows.of({name: array.numpy() for name, array in batch.items()}),
    )
    np.testing.assert_allclose(ours['mlm_logits'], output.prediction_logits, atol=1e-5)
    np.testing.assert_allclose(ours['nsp_logits'], output.seq_relationship_logits, atol=1e-5)


def test_an_exported_folder_predicts_like_the_run(workdir, exported):
    texts = ['The [MASK] and the barn .', 'a ship near the [MASK] [MASK]', '']
    run, folder = bert_jax.load(workdir), bert_jax.load(exported)
    assert folder.tasks == run.tasks
    assert folder.fill_mask(texts) == run.fill_mask(texts)
    np.testing.assert_array_equal(folder.embed(texts), run.embed(texts))


def test_the_model_card_describes_the_model(workdir, exported):
    card = (exported / 'README.md').read_text()
    for word in ('BertForPreTraining', 'mlm, nsp', 'wordpiece', '"learning_rate"', 'Limits'):
        assert word in card
    step = max(int(f.name) for f in (workdir / 'checkpoints').iterdir() if f.name.isdigit())
    assert f'"step": {step}' in card
    assert json.loads((exported / 'config.json').read_text())['num_hidden_layers'] == 2


def test_the_mean_of_the_last_checkpoints_is_exported(workdir, tmp_path):
    steps = sorted(int(f.name) for f in (workdir / 'checkpoints').iterdir() if f.name.isdigit())
    export(Request(model=str(workdir), output=str(tmp_path / 'mean'), average=len(steps)))
    name = 'encoder/embeddings/token'
    each = [
        tree_paths.flatten(loading.load_checkpoint(workdir / f'checkpoints/{step}').params)[name]
        for step in steps
    ]
    found = tree_paths.flatten(loading.load_any(tmp_path / 'mean').params)[name]
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-6)
    assert not np.array_equal(found, each[-1])


def test_a_checkpoint_and_a_published_folder_can_be_exported(workdir, exported, tmp_path):
    checkpoint = next((workdir / 'checkpoints').iterdir())
    export(Request(model=str(checkpoint), output=str(tmp_path / 'checkpoint')))
    export(Request(model=str(exported), output=str(tmp_path / 'again')))
    weights = (exported / 'model.safetensors').read_bytes()
    assert (tmp_path / 'again/model.safetensors').read_bytes() == weights
    assert huggingface.load(tmp_path / 'checkpoint').heads == ('mlm', 'nsp')


def test_positions_start_after_the_padding_of_the_tokenizer(tmp_path):
    config = small.config(tmp_path, **SINGLE | ROBERTA)
    task = pretraining_builder.build(config)
    assert task.start.architecture.first_position == task.corpus.tokenizer.pad_id + 1


@pytest.mark.slow
def test_position_ids_start_after_the_padding_of_the_tokenizer(tmp_path):
    main.run(small.config(tmp_path, **SINGLE | ROBERTA))
    model = loading.load_any(tmp_path / 'run')
    assert model.architecture.first_position == model.tokenizer.pad_id + 1
    huggingface_export.save(model, tmp_path / 'out')
    theirs, report = transformers.RobertaForMaskedLM.from_pretrained(
        tmp_path / 'out', output_loading_info=True
    )
    assert not any(report[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys'))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
    batch = tokenizer(['The [MASK] and the barn .', 'A'], return_tensors='pt', padding=True)
    assert set(batch) == {'input_ids', 'attention_mask'}
    with torch.no_grad():
        expected = theirs.eval()(**batch).logits
    arrays = (batch[name].numpy() for name in ('input_ids', 'attention_mask'))
    ours = loaded_model.outputs(model.architecture, Compute(), model.params, Rows(*arrays))
    np.testing.assert_allclose(ours['mlm_logits'], expected, atol=1e-5)


@pytest.mark.slow  # test_configs.py exports both of a shrunk ELECTRA
def test_discriminator_and_generator_are_exported_separately(tmp_path, capsys):
    changes = {
        'model__architecture': 'electra',
        'objectives__rtd': 50.0,
        'rtd__sharing': 'disentangled',
        'rtd__generator_width': 0.5,
        'evaluation__cloze_examples': 0,
    }
    main.run(small.config(tmp_path, **SINGLE | changes))
    run = tmp_path / 'run'
    export(Request(model=str(run), output=str(tmp_path / 'discriminator')))
    assert 'generator is dropped: export it separately with --generator' in capsys.readouterr().err
    export(Request(model=str(run), output=str(tmp_path / 'generator'), generator=True))
    folders = {name: huggingface.load(tmp_path / name) for name in ('discriminator', 'generator')}
    assert [model.heads for model in folders.values()] == [('rtd',), ('mlm',)]
    for name, kind in [
        ('discriminator', transformers.ElectraForPreTraining),
        ('generator', transformers.ElectraForMaskedLM),
    ]:
        _, report = kind.from_pretrained(tmp_path / name, output_loading_info=True)
        assert not any(report[key] for key in ('missing_keys', 'unexpected_keys'))
    params = checkpoint_arrays.load(run, 'params').state['params']
    read, shared = (m.params['encoder']['embeddings']['token'] for m in folders.values())
    np.testing.assert_array_equal(shared, params['encoder']['embeddings']['token'])
    difference = np.asarray(params['generator']['delta'])
    assert abs(difference).max() > 1e-4
    np.testing.assert_allclose(read - shared, difference, atol=1e-7)
    assert folders['generator'].architecture.hidden_size == 16
    with pytest.raises(UserError, match='there is no checkpoint'):
        export(
            Request(model=str(tmp_path / 'generator'), output=str(tmp_path / 'no'), generator=True)
        )


@pytest.mark.parametrize(
    ('model', 'word'),
    [('/none', "no folder '/none'"), ('empty', 'there is no checkpoint')],
)
def test_a_mistake_is_one_line_and_leaves_no_folder(model, word, tmp_path, capfd):
    (tmp_path / 'empty').mkdir()
    with pytest.raises(SystemExit) as stopped:
        command_line([f'--model={tmp_path / model}', f'--output={tmp_path}/out'])
    assert stopped.value.code == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith('error: ')
    assert word in line
    assert not (tmp_path / 'out').exists()


def test_the_card_of_a_fine_tuned_model_has_that_of_its_run(tmp_path):
    run = small_runs.save_run(tmp_path / 'run', 'classification')
    (run / 'README.md').write_text(
        '# classification\n\n![loss](x.png)\n\n## Scores\n\n| f1 | 0.5 |\n'
    )
    export(Request(model=str(run), output=str(tmp_path / 'out')))
    card = (tmp_path / 'out/README.md').read_text()
    assert '## The run\n\n## classification\n' in card
    assert '### Scores\n\n| f1 | 0.5 |' in card
    assert '![' not in card
    # An earlier checkpoint may have other scores.
    export(Request(model=str(run / 'checkpoints/1'), output=str(tmp_path / 'checkpoint')))
    assert 'Scores' not in (tmp_path / 'checkpoint/README.md').read_text()


@pytest.mark.slow  # interop/test_families.py publishes 'bert clm'
def test_a_causal_run_is_exported_as_a_decoder(tmp_path, capsys):
    changes = {'objectives__mlm': 0.0, 'objectives__clm': 1.0, 'evaluation__cloze_examples': 0}
    main.run(small.config(tmp_path, **SINGLE | changes))
    export(Request(model=str(tmp_path / 'run'), output=str(tmp_path / 'out')))
    assert 'parameters, clm; logits compared' in capsys.readouterr().out
    assert json.loads((tmp_path / 'out/config.json').read_text())['is_decoder'] is True
    theirs = published.open_without_complaints(tmp_path / 'out')
    model = loading.load_any(tmp_path / 'run')
    agree_trees(
        published.ours(huggingface_export.publishable(model)[0]),
        published.theirs(theirs, model.architecture),
    )
    again = huggingface.load(tmp_path / 'out')
    assert (again.is_causal, again.heads) == (True, ('clm',))


def test_a_full_disk_is_one_line_and_leaves_no_files(workdir, tmp_path):
    with disks.small(tmp_path, '60k') as disk:
        done = commands.here('bert_jax.export', f'--model={workdir}', f'--output={disk}/model')
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            f'error: {disk}/model cannot be written: No space left on device; fix that and rerun '
            'the same command'
        )
        assert 'Traceback' not in done.stderr
        assert list(disk.iterdir()) == []
