"""Runs with all schedules at once: resumed bit for bit, the same on any mesh, and tiled."""

import json

import numpy as np
import pytest

from bert_jax import main, tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.training.run import Hooks, Paused
from tests.end_to_end import small

# Falling masking, growing batches and sequences, causal rows, Muon, EMA, z-loss.
ALL = small.ONE_STAGE | {
    'objectives__mlm': 0.0,
    'objectives__nsp': 0.0,
    'objectives__mntp': 0.75,
    'objectives__ntp': 0.25,
    'mntp__causal_share': 0.25,
    'model__architecture': 'neobert',
    'model__prediction__shift': True,
    'training__steps': (12,),
    'training__max_predictions': (16,),
    'training__batch_ramp': (0.5,),
    'training__z_loss': 1e-4,
    'data__segments': 'single',
    'masking__rate': 0.4,
    'masking__end_rate': 0.1,
    'optimizer__name': 'muon',
    'optimizer__ema': 0.9,
    'checkpoint__every_steps': 100,
    'evaluation__every_steps': 100,
    'evaluation__cloze_examples': 0,
    'logging__every_steps': 1,
}


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    return folder, main.run(small.config(folder, **ALL))


def final_arrays(folder):
    return tree_paths.flatten(checkpoint_arrays.load(folder / 'run').state)


def test_the_tokens_of_all_parts_are_counted(whole):
    folder, results = whole
    assert results['stage_steps'] == [6, 6]
    assert results['tokens'] == 6 * 8 * 16 + 6 * 16 * 16
    records = [json.loads(line) for line in (folder / 'run/metrics.jsonl').open()]
    assert [one['step'] for one in records if one['kind'] == 'train'] == list(range(1, 13))


def test_a_run_with_all_schedules_resumes_bit_for_bit(whole, tmp_path):
    config = small.config(tmp_path, **ALL)
    with pytest.raises(Paused):
        main.run(config, hooks=Hooks(pause_at=8))
    main.run(config)
    check_same(whole[0], tmp_path)


def check_same(folder, other):
    expected, found = final_arrays(folder), final_arrays(other)
    assert expected.keys() == found.keys()
    assert any(name.startswith('average/') for name in found)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.slow
def test_a_run_that_is_interrupted_in_each_part_ends_the_same(tmp_path_factory):
    """With a ramp of the length too, and twenty interruptions."""
    ramps = {'training__length_ramp': (0.5,), 'training__length_ramp_share': 0.25}
    longer = ALL | ramps | {'training__steps': (24,)}
    folders = [tmp_path_factory.mktemp('ramps') for _ in range(2)]
    whole, often = (small.config(folder, **longer) for folder in folders)
    assert main.run(whole)['stage_steps'] == [6, 6, 12]
    for step in range(2, 22):
        with pytest.raises(Paused):
            main.run(often, hooks=Hooks(pause_at=step))
    main.run(often)
    check_same(*folders)


@pytest.mark.slow
def test_micro_batches_change_nothing_but_rounding(whole, tmp_path):
    main.run(small.config(tmp_path, **ALL | {'training__accumulation': (2,)}))
    expected, found = final_arrays(whole[0]), final_arrays(tmp_path)
    for name in expected:
        if name.startswith('params/'):
            np.testing.assert_allclose(found[name], expected[name], atol=2e-3, err_msg=name)


@pytest.mark.slow
def test_a_run_starts_from_a_narrower_one(whole, tmp_path, capsys):
    wider = {
        'init_from': str(whole[0] / 'run'),
        'model__architecture': None,
        'model__hidden_size': 48,
        'model__num_heads': 3,
        'training__steps': (2,),
        'training__batch_ramp': (),
        'data__corpus': str(whole[0] / 'corpus'),
        'data__sources': small.config(whole[0]).data.sources,
    }
    with pytest.raises(UserError, match='hidden_size is 32 there and 48 here'):
        main.run(small.config(tmp_path, **ALL | wider))
    results = main.run(small.config(tmp_path, **ALL | wider | {'init_sizes': 'tile'}))
    assert results['steps'] == 2
    assert 'tiled: hidden_size 32 → 48' in capsys.readouterr().err


@pytest.mark.slow
def test_a_resumed_run_by_time_continues_with_the_next_examples(tmp_path):
    """The checkpoint has the steps after which stages began; the ramp goes on from there."""
    timed = ALL | {'training__minutes': 0.02}
    config = small.config(tmp_path, **timed)
    with pytest.raises(Paused):
        main.run(config, hooks=Hooks(pause_at=2))
    results = main.run(config)
    assert len(results['stage_steps']) == 2
    assert sum(results['stage_steps']) == results['steps']
    first, second = results['stage_steps']
    assert results['tokens'] == first * 8 * 16 + second * 16 * 16
