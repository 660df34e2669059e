"""A run of seconds, exported by the real command line and opened by transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

from bert_jax.interop import huggingface, loading, pretrained
from bert_jax.models.architecture import Compute
from bert_jax.training import checkpoints
from tests.end_to_end import commands, small


def export(*arguments: str):
    return commands.run('bert_jax.export', *arguments)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    status, stderr = small.run(
        folder,
        '--config.stages.steps=(20,5)',
        '--config.compute.scan_layers=True',
        '--config.model.num_layers=2',
    )
    assert status == 0, stderr
    return folder / 'run'


@pytest.fixture(scope='module')
def exported(workdir):
    path = workdir.parent / 'exported'
    done = export(f'--model={workdir}', f'--output={path}')
    assert done.returncode == 0, done.stderr
    assert 'mlm, nsp' in done.stdout
    return path


def test_transformers_opens_it_and_computes_the_same(workdir, exported):
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
    ours = pretrained.outputs(
        model.architecture,
        Compute(),
        model.params,
        *(batch[name].numpy() for name in ('input_ids', 'attention_mask', 'token_type_ids')),
    )
    np.testing.assert_allclose(ours['mlm_logits'], output.prediction_logits, atol=1e-5)
    np.testing.assert_allclose(ours['nsp_logits'], output.seq_relationship_logits, atol=1e-5)


def test_it_says_what_it_is(workdir, exported):
    card = (exported / 'README.md').read_text()
    for word in ('BertForPreTraining', 'mlm, nsp', 'wordpiece', '"learning_rate"', 'Limits'):
        assert word in card
    step = max(int(f.name) for f in (workdir / 'checkpoints').iterdir() if f.name.isdigit())
    assert f'"step": {step}' in card
    assert json.loads((exported / 'config.json').read_text())['num_hidden_layers'] == 2


def test_one_checkpoint_and_a_published_folder_can_be_exported_too(workdir, exported, tmp_path):
    checkpoint = next((workdir / 'checkpoints').iterdir())
    first = export(f'--model={checkpoint}', f'--output={tmp_path}/checkpoint')
    again = export(f'--model={exported}', f'--output={tmp_path}/again')
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    weights = (exported / 'model.safetensors').read_bytes()
    assert (tmp_path / 'again/model.safetensors').read_bytes() == weights
    assert huggingface.load(tmp_path / 'checkpoint').heads == ('mlm', 'nsp')


def test_positions_that_are_counted_go_with_the_tokenizer(tmp_path):
    status, stderr = small.run(
        tmp_path,
        '--config.model.architecture=roberta',
        '--config.model.type_vocab_size=1',
        '--config.objectives.nsp=0',
        '--config.data.segments=single',
        '--config.stages.steps=(2,1)',
        '--config.stages.sequence_length=(16,31)',
        '--config.schedule.warmup_steps=1',
    )
    assert status == 0, stderr
    model = loading.load_any(tmp_path / 'run')
    assert model.architecture.first_position == model.tokenizer.pad_id + 1
    huggingface.save(model, tmp_path / 'out')
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
    ours = pretrained.outputs(model.architecture, Compute(), model.params, *arrays)
    np.testing.assert_allclose(ours['mlm_logits'], expected, atol=1e-5)


def test_both_models_of_replaced_token_detection(tmp_path):
    status, stderr = small.run(
        tmp_path,
        '--config.model.architecture=electra',
        '--config.objectives.nsp=0',
        '--config.objectives.rtd=50',
        '--config.data.segments=single',
        '--config.rtd.sharing=disentangled',
        '--config.rtd.generator_width=0.5',
        '--config.stages.steps=(2,1)',
        '--config.schedule.warmup_steps=1',
    )
    assert status == 0, stderr
    run = tmp_path / 'run'
    first = export(f'--model={run}', f'--output={tmp_path}/discriminator')
    second = export(f'--model={run}', f'--output={tmp_path}/generator', '--generator')
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert 'generator is dropped' in first.stdout
    folders = {name: huggingface.load(tmp_path / name) for name in ('discriminator', 'generator')}
    assert [model.heads for model in folders.values()] == [('rtd',), ('mlm',)]
    for name, kind in [
        ('discriminator', transformers.ElectraForPreTraining),
        ('generator', transformers.ElectraForMaskedLM),
    ]:
        _, report = kind.from_pretrained(tmp_path / name, output_loading_info=True)
        assert not any(report[key] for key in ('missing_keys', 'unexpected_keys'))
    params = checkpoints.load(run, 'params').state['params']
    read, shared = (m.params['encoder']['embeddings']['token'] for m in folders.values())
    np.testing.assert_array_equal(shared, params['encoder']['embeddings']['token'])
    difference = np.asarray(params['generator']['delta'])
    assert abs(difference).max() > 1e-4
    np.testing.assert_allclose(read - shared, difference, atol=1e-7)
    assert folders['generator'].architecture.hidden_size == 16
    refused = export(f'--model={tmp_path}/generator', f'--output={tmp_path}/no', '--generator')
    assert refused.returncode == 2
    assert refused.stderr.startswith('error: ')


@pytest.mark.parametrize(
    ('model', 'word'),
    [('/none', 'is not a folder of a model'), ('empty', 'there is no checkpoint')],
)
def test_a_mistake_is_one_line(model, word, tmp_path):
    (tmp_path / 'empty').mkdir()
    done = export(f'--model={tmp_path / model}', f'--output={tmp_path}/out')
    assert done.returncode == 2
    assert done.stderr.startswith('error: ')
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / 'out').exists()
