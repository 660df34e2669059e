"""A run of seconds, exported by the real command line and opened by transformers."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

from bert_jax.interop import huggingface, loading, pretrained
from bert_jax.models.architecture import Compute
from tests.end_to_end import small


def export(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, '-m', 'bert_jax.export', *arguments]
    return subprocess.run(command, cwd=small.ROOT, text=True, capture_output=True, timeout=300)


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


@pytest.mark.parametrize(
    ('model', 'word'), [('/none', 'is no folder of a model'), ('empty', 'there is no checkpoint')]
)
def test_a_mistake_is_one_line(model, word, tmp_path):
    (tmp_path / 'empty').mkdir()
    done = export(f'--model={tmp_path / model}', f'--output={tmp_path}/out')
    assert done.returncode == 2
    assert done.stderr.startswith('error: ')
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / 'out').exists()
