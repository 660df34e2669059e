"""Pretraining through its command line, and the files that a run leaves behind."""

import json
import re

import numpy as np
import pytest

from bert_jax.training import checkpoints
from tests.end_to_end import small

ARGUMENTS = (
    '--config.training.steps=(300,100)',
    '--config.training.batch_size=(32,16)',
    '--config.schedule.learning_rate=0.003',
    '--config.model.initializer_range=0.15',
    '--config.model.hidden_dropout=0.0',
    '--config.model.attention_dropout=0.0',
    '--config.logging.every_steps=20',
    '--config.evaluation.every_steps=300',
    '--config.evaluation.cloze_examples=2',
    '--config.checkpoint.every_steps=100',
)
ONE_STAGE = {
    'steps': (6,),
    'sequence_length': (16,),
    'batch_size': (16,),
    'accumulation': (1,),
    'max_predictions': (3,),
}


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """The folder of a finished run, with the file `stdout`."""
    folder = tmp_path_factory.mktemp('run')
    command = small.start(folder, *ARGUMENTS, figures=True)
    stdout, stderr = command.communicate()
    assert command.returncode == 0, stderr
    (folder / 'stdout').write_text(stdout)
    return folder


def test_the_model_learns(finished):
    results = json.loads((finished / 'run/results.json').read_text())
    held_out = results['held_out']
    assert held_out['mlm_loss'] < held_out['unigram_entropy'] - 0.1
    assert held_out['mlm_accuracy'] > held_out['mlm_majority']
    assert held_out['mlm_perplexity'] == pytest.approx(np.exp(held_out['mlm_loss']))
    assert held_out['nsp_negatives'] == pytest.approx(0.5, abs=0.02)
    assert results['steps'] == 400
    assert results['tokens'] == 300 * 32 * 16 + 100 * 16 * 32


def test_a_run_leaves_plot_card_cloze_examples_and_config(finished):
    workdir = finished / 'run'
    assert (workdir / 'loss.png').read_bytes().startswith(b'\x89PNG')
    card = (workdir / 'README.md').read_text()
    for word in ('unigram_entropy', 'Datasheet', 'wordpiece', '[MASK]', '"hidden_size": 32'):
        assert word in card
    assert '[MASK]' in (workdir / 'cloze.md').read_text()
    shown = (finished / 'stdout').read_text().splitlines()
    assert sum('[MASK]' in line and 'guesses: ' in line for line in shown) == 2  # of two examples
    metrics, where, *commands = shown[-4:]
    assert re.match(r'held-out: mlm_accuracy 0\.\d+, mlm_loss \d', metrics)
    assert str(workdir) in where
    assert all(command.startswith('  ') for command in commands)
    assert list((workdir / 'tensorboard').iterdir())
    config = json.loads((workdir / 'config.json').read_text())
    assert config['model']['hidden_size'] == 32


def test_metrics_are_recorded_for_every_window_and_add_up(finished):
    lines = (finished / 'run/metrics.jsonl').read_text().splitlines()
    records = [json.loads(line) for line in lines]
    train = [record for record in records if record['kind'] == 'train']
    steps = [record['step'] for record in train]
    assert steps == sorted(set(steps))
    assert set(range(20, 401, 20)) <= set(steps)
    assert train[-1]['mlm_loss'] < train[0]['mlm_loss']
    for record in train:
        total = record['mlm_loss'] + record['nsp_loss']
        assert record['loss'] == pytest.approx(total, rel=1e-5)
        assert record['tokens_per_second'] > 0
        assert 'mfu' not in record  # on a CPU
    held_out = [record['step'] for record in records if record['kind'] == 'held_out']
    assert {300, 400} <= set(held_out)


def test_a_checkpoint_describes_itself(finished):
    metadata = checkpoints.Checkpoints.open(finished / 'run/checkpoints', 2).metadata()
    assert metadata['config']['model']['num_layers'] == 1
    assert json.loads(metadata['tokenizer'])['model']['type'] == 'WordPiece'
    assert len(metadata['corpus_fingerprint']) == 64


def test_a_finished_run_is_not_trained_again(finished):
    before = (finished / 'run/metrics.jsonl').read_text()
    status, stderr = small.run(finished, *ARGUMENTS)
    assert status == 0, stderr
    after = (finished / 'run/metrics.jsonl').read_text()
    assert after == before


@pytest.mark.slow  # multidevice/test_invariance.py compares more meshes in one process
def test_eight_devices_give_the_same_loss_as_one(tmp_path):
    """On simulated devices, with parameters and batch sharded over all three mesh axes."""
    few = [f'--config.training.{key}={value}' for key, value in ONE_STAGE.items()]
    few += ['--config.schedule.warmup_steps=1', '--config.evaluation.cloze_examples=0']
    meshes = {'one': (1, 1, 1), 'eight': (2, 2, 2)}
    losses = {}
    for name, sizes in meshes.items():
        axes = zip(('data', 'fsdp', 'tensor'), sizes, strict=True)
        status, stderr = small.run_alone(
            tmp_path,
            *few,
            *(f'--config.mesh.{axis}={size}' for axis, size in axes),
            f'--config.workdir={tmp_path}/{name}',
            xla_flags=f'--xla_force_host_platform_device_count={np.prod(sizes)}',
        )
        assert status == 0, stderr
        results = json.loads((tmp_path / name / 'results.json').read_text())
        assert results['devices'].startswith(f'{np.prod(sizes)} ×')
        losses[name] = results['held_out']['mlm_loss']
    assert losses['eight'] == pytest.approx(losses['one'], rel=1e-5)
