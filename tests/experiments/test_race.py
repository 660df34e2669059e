"""The race of recipes: equal times, keys of every entry, ranking, and a race of two entries."""

import argparse
import json
import types

import jax
import numpy as np
import pytest

from bert_jax import config_keys
from bert_jax.loaded.record import Usage
from bert_jax.models import architectures
from bert_jax.models.rows import Rows
from configs import fast
from experiments.studies import measures, runner
from experiments.studies.race import run
from experiments.studies.race.entries import ENTRIES, FAST, START
from tests.end_to_end import small


def test_stages_take_the_time_together_in_their_shares():
    first, second = run.stage_steps((1, 3), (0.1, 0.2), 70.0)
    assert (first, second) == (100, 300)
    assert first * 0.1 + second * 0.2 == pytest.approx(70)


def test_a_faster_step_gives_an_entry_more_steps():
    slow, fast = (run.flags(START, [time], 120)['training.steps'] for time in (0.1, 0.05))
    assert (slow, fast) == ((1200,), (2400,))


def test_values_may_depend_on_the_number_of_steps():
    keys = run.flags(ENTRIES['constant, last 40 % linear'], [0.1], 120)
    assert keys['schedule.decay_steps'] == 480


def test_the_keys_of_every_entry_exist():
    for keys in ENTRIES.values():
        config = run.config_of(keys, 'novels/*.txt')
        assert len(config.training.steps) == len(keys['training.steps'])
        architectures.find(config.model.architecture)


def test_the_config_fast_is_the_entry_fast():
    entry, config = (
        config_keys.flatten(config)
        for config in (run.config_of(FAST, 'novels/*.txt'), fast.get_config('tiny'))
    )
    same = ('data.segments', 'model.', 'masking.', 'objectives.', 'optimizer.', 'schedule.')
    shapes = {f'training.{name}' for name in ('sequence_length', 'batch_size', 'max_predictions')}
    compared = {key for key in entry if key.startswith(same) or key in shapes}
    # ModernBERT's block is the same function at this length; it has no dropout by default.
    names = {'architecture', 'attention.theta', 'hidden_dropout', 'attention_dropout'}
    differing = {key for key in compared if entry[key] != config[key]}
    assert differing == {f'model.{name}' for name in names}


def test_every_entry_has_its_own_folder():
    assert len({*map(runner.slug, ENTRIES)}) == len(ENTRIES)


def test_no_two_entries_are_the_same():
    times = {name: [0.1] * len(keys['training.steps']) for name, keys in ENTRIES.items()}
    flags = [run.flags(keys, times[name], 120) for name, keys in ENTRIES.items()]
    assert all(first not in flags[:place] for place, first in enumerate(flags))


def test_time_at_a_checkpoint_counts_the_steps_of_each_stage():
    assert run.seconds_until(150, [100, 100], [0.1, 0.3]) == pytest.approx(10 + 15)


def test_models_of_gptbert_predict_the_tokens_that_other_models_predict(tmp_path):
    chosen = {}
    for shift in (False, True):
        config = small.config(tmp_path, **small.ONE_STAGE, model__prediction__shift=shift)
        model = types.SimpleNamespace(
            usage=Usage(config=config.to_dict()),
            architecture=architectures.build('bert').changed({'prediction.shift': shift}),
        )
        task = measures.MaskedLoss(model).task
        clean = Rows.of(task.stages[0].source.batch(0))
        rows = task.corruption(jax.random.split(jax.random.key(0), len(clean.input_ids_BT)), clean)
        positions_BP, _, weights_BP = map(np.asarray, rows.chosen)
        chosen[shift] = [
            sorted(positions[weights > 0].tolist())
            for positions, weights in zip(positions_BP, weights_BP, strict=True)
        ]
    assert chosen[True] == chosen[False]
    assert all(chosen[True])


def test_a_race_without_a_treebank_is_written(tmp_path):
    options = argparse.Namespace(minutes=1, runs=tmp_path / 'runs', output=tmp_path)
    run.write(options, {'BERT': [{'nats_per_byte': 1.5}], 'start': [{'nats_per_byte': 1.2}]}, {})
    written = json.loads((tmp_path / 'results_1min.json').read_text())
    assert list(written['variants']) == ['start', 'BERT']


@pytest.mark.slow
def test_a_race_trains_measures_ranks_and_resumes(tmp_path, monkeypatch):
    changes = small.changes(tmp_path)
    entries = {
        name: {**ENTRIES[name], **{key: changes[key] for key in changes if 'data.' in key}}
        for name in ('BERT', 'start')
    }
    for keys in entries.values():
        keys |= {'evaluation.examples': 64}
        keys['data.segments'] = 'single'
        keys['objectives.nsp'] = 0.0
    monkeypatch.setattr(run, 'ENTRIES', entries)
    times = {'BERT': [1.0, 1.0], 'start': [2.0]}
    options = argparse.Namespace(
        texts='none',
        minutes=0.2,
        seeds=1,
        treebank=None,
        data=None,
        pairs=None,
        runs=tmp_path / 'runs',
        output=tmp_path / 'out',
    )
    results = run.race(options, list(entries), times)
    assert results == run.race(options, list(entries), times)
    assert results['start'][0]['steps'] == 6
    run.write(options, results, run.curves(options, list(entries)))
    record = json.loads((tmp_path / 'out/results_0.2min.json').read_text())
    losses = [entry['nats_per_byte']['mean'] for entry in record['variants'].values()]
    assert losses == sorted(losses)
    assert (tmp_path / 'out/curves_0.2min.png').exists()
