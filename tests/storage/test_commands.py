"""Fine-tuning, sweeps, trackers and exports with everything in a bucket, as command lines."""

import json

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.interop import loading
from bert_jax.loaded import tuned
from bert_jax.storage import paths
from tests.end_to_end import commands

KEYS = {
    'training.epochs': 0.0,
    'training.steps': 6,
    'training.batch_size': 16,
    'training.sequence_length': 32,
    'logging.every_steps': 2,
}
BASE = {
    'data.tokenizer': 'train:wordpiece:400',
    'model.architecture': 'bert',
    'model.hidden_size': 32,
    'model.num_layers': 2,
    'model.num_heads': 2,
    'model.intermediate_size': 64,
    'model.max_position_embeddings': 64,
}


def run(module, *arguments) -> str:
    """Run a command line that succeeds and return its stdout."""
    done = commands.run(f'bert_jax.{module}', *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tune(**keys):
    """Fine-tune on the sample of sentences."""
    given = {key.replace('__', '.'): value for key, value in keys.items()}
    flags = [f'--config.{key}={value}' for key, value in (KEYS | given).items()]
    return run('main', '--config=configs/finetune.py:sample_sentiment', *flags)


def predictions(root, *flags) -> list[dict]:
    """Predict for two sentences, with input and output in the bucket."""
    (root / 'input.txt').write_text('I am very happy with these shoes.\nThe food was bad.\n')
    run(
        'predict',
        *flags,
        '--task=classify',
        f'--input={root}/input.txt',
        f'--output={root}/out',
        '--overwrite',
    )
    return [json.loads(line) for line in (root / 'out').read_text().splitlines()]


@pytest.mark.slow
def test_a_sweep_on_an_exported_model_is_tracked_and_answers(root, monkeypatch):
    pytest.importorskip('wandb', reason='wandb is not installed (extra wandb)')
    monkeypatch.setenv('WANDB_MODE', 'offline')
    tune(workdir=root / 'base', **BASE)
    run('export', f'--model={root}/base', f'--output={root}/exported')
    sweep = {
        'workdir': root / 'sweep',
        'init_from': root / 'exported',
        'transfer__method': 'lora',
        'sweep__seeds': '(0,1)',
        'logging__wandb': 'project',
        'logging__profile_steps': '(2,3)',
    }
    stdout = tune(**sweep)
    assert f'sweep in {root}/sweep' in stdout
    names = [str(file.relative_to(root / 'sweep')) for file in (root / 'sweep').files()]
    for seed in (0, 1):
        own = [name.removeprefix(f'seed_{seed}/') for name in names if name.startswith('seed_')]
        for beginning in ('profile/plugins/profile/', 'wandb/offline-run-', 'tensorboard/events'):
            assert any(name.startswith(beginning) for name in own), beginning
    results = (root / 'sweep/results.json').read_bytes()
    (root / 'sweep/results.json').unlink()
    tune(**sweep)  # nothing is left to train
    assert (root / 'sweep/results.json').read_bytes() == results

    runs = [f'{root}/sweep/seed_{seed}' for seed in (0, 1)]
    records = predictions(root, f'--tuned={",".join(runs)}')
    assert [record.pop('model') for record in records] == runs * 2
    run('export', f'--model={runs[0]}', '--format=peft', f'--output={root}/peft')
    for own, record in zip(predictions(root, f'--model={root}/peft'), records[::2], strict=True):
        assert own == record | {'probability': pytest.approx(record['probability'], abs=1e-5)}
    ours, theirs = (loading.load_any(path) for path in (f'{root}/peft', runs[0]))
    theirs = tree_paths.flatten(tuned.merge(theirs).params)
    for name, array in tree_paths.flatten(ours.params).items():
        np.testing.assert_allclose(array, theirs[name], atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_an_original_checkpoint_starts_a_run(root, tmp_path):
    pytest.importorskip('transformers', reason='transformers is not installed')
    from tests.interop import original

    paths.upload(original.folder(tmp_path / 'original'), root / 'original')
    keys = {'training__sequence_length': 19, 'training__steps': 2}
    tune(workdir=root / 'run', init_from=root / 'original', **keys)
    assert len(predictions(root, f'--model={root}/run')) == 2
