"""configs/elmo.py, shrunk: pretrained, fine-tuned with a mix of its layers, and not exported."""

import json

import pytest

from bert_jax import export, main, predict
from configs import elmo, finetune
from tests.end_to_end import small

pytestmark = pytest.mark.slow


def test_a_bidirectional_language_model_is_trained_fine_tuned_and_kept(tmp_path, capsys):
    config = elmo.get_config()
    own = {'model.num_heads', 'model.attention_dropout', 'data.tokenizer'}
    changes = {key: value for key, value in small.changes(tmp_path).items() if key not in own}
    config.update_from_flattened_dict(
        changes
        | {key.replace('__', '.'): value for key, value in small.ONE_STAGE.items()}
        | {'data.tokenizer': 'train:wordpiece:120', 'evaluation.cloze_examples': 0}
    )
    results = main.run(config)
    assert 0 < results['held_out']['bilm_loss'] < 6
    lines = (tmp_path / 'run/metrics.jsonl').read_text().splitlines()
    *_, values = [record for record in map(json.loads, lines) if 'bilm_forward' in record]
    mean = (values['bilm_forward'] + values['bilm_backward']) / 2
    assert values['bilm_loss'] == pytest.approx(mean, rel=1e-5)
    assert 'bert_jax.export' not in capsys.readouterr().out

    tuned = finetune.get_config('sample_pos').unlock()
    tuned.update_from_flattened_dict(
        {
            'init_from': config.workdir,
            'workdir': str(tmp_path / 'tuned'),
            'model.head_states': 'mix',
            'training.epochs': 0.0,
            'training.steps': 2,
        }
    )
    main.run(tuned.lock())
    (tmp_path / 'in.txt').write_text('The dog sleeps.\n')
    predict.main(
        [
            f'--model={tuned.workdir}',
            '--task=tag',
            f'--input={tmp_path / "in.txt"}',
            f'--output={tmp_path / "out.jsonl"}',
        ]
    )
    record = json.loads((tmp_path / 'out.jsonl').read_text())
    assert [word['text'] for word in record['words']] == ['The', 'dog', 'sleeps', '.']
    with pytest.raises(SystemExit):
        export.main([f'--model={config.workdir}', f'--output={tmp_path / "exported"}'])
    assert 'belongs to no published family' in capsys.readouterr().err
