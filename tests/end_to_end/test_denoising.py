"""configs/bart.py:tiny, shrunk: trained, resumed bit for bit, shown, and refused."""

import json
import shutil

import numpy as np
import pytest

from bert_jax import main, tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from configs import bart
from tests.end_to_end import small

_OTHERS = ('model.max_position_embeddings', 'training.steps', 'training.max_predictions')
_CHANGES = {
    'data.tokenizer': 'train:bytebpe:300',
    'model.decoder.num_layers': 1,
    'training.steps': (4,),
    'training.sequence_length': (24,),
    'training.batch_size': (8,),
    'training.max_predictions': (24,),
    'schedule.warmup_steps': 1,
    'checkpoint.every_steps': 2,
    'evaluation.every_steps': 4,
    'evaluation.examples': 8,
    'evaluation.cloze_examples': 0,
}


def make_config(folder, **more):
    config = bart.get_config('tiny')
    changes = {key: value for key, value in small.changes(folder).items() if key not in _OTHERS}
    further = {key.replace('__', '.'): value for key, value in more.items()}
    config.update_from_flattened_dict(changes | _CHANGES | further)
    return config


def final_arrays(folder):
    return tree_paths.flatten(checkpoint_arrays.load(folder / 'run').state)


@pytest.mark.slow
def test_a_run_learns_and_resumes_bit_for_bit(tmp_path):
    results = main.run(make_config(tmp_path))
    held_out = results['held_out']
    assert 0 < held_out['denoising_loss'] < 6
    assert held_out['denoising_cut'] == 0
    assert held_out['denoising_perplexity'] == pytest.approx(np.exp(held_out['denoising_loss']))
    assert {'unigram_entropy', 'denoising_majority'} <= held_out.keys()
    assert 'An encoder–decoder pretrained' in (tmp_path / 'run/README.md').read_text()
    straight = final_arrays(tmp_path)
    (tmp_path / 'run/results.json').unlink()
    shutil.rmtree(tmp_path / 'run/checkpoints/4')
    main.run(make_config(tmp_path))  # steps 3 and 4 again
    resumed = final_arrays(tmp_path)
    assert resumed.keys() == straight.keys()
    for name, array in straight.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)


@pytest.mark.slow
def test_a_batch_is_shown_with_source_and_target(tmp_path, capsys):
    kind = {'noise__kind': 't5', 'data__tokenizer': 'train:wordpiece:120:sentinels=10:cls=no'}
    main.run(make_config(tmp_path, debug__batch=1, **kind))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == '{']
    assert len(rows) == 8
    for row in rows:
        assert row['source'][-1] == row['target'][-1] == '[SEP]'
        assert row['target'][0] == '<extra_id_0>'
        assert row['target'][0] in row['source']
        kept = [t for t in row['source'] + row['target'] if not t.startswith('<extra_id_')]
        assert sorted(kept[:-1]) == sorted(row['tokens'][1:])


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'noise__kind': 't5'}, 'needs 1 sentinels'),
        ({'model__architecture': 'bert', 'model__decoder__num_layers': None}, 'with a decoder'),
        ({'objectives__denoising': 0.0, 'objectives__mlm': 1.0}, 'which mlm does not train'),
        ({'data__pack': True}, 'set data.pack=False'),
        ({'training__sequence_length': (70,)}, 'exceeds the 64 positions'),
        ({'noise__insert': 0.9, 'training__sequence_length': (64,)}, 'gives rows of 122 tokens'),
    ],
)
def test_a_run_that_cannot_denoise_is_refused(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        main.run(make_config(tmp_path, **changes))
