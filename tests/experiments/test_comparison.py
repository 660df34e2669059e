"""The comparison of pretraining: keys of all runs, intervals, tables, and a run of two variants."""

import argparse
import json
import pathlib

import pytest

from bert_jax import config_keys, objectives
from bert_jax.errors import UserError
from bert_jax.models import architectures
from experiments.finetuning import tasks
from experiments.studies import runner
from experiments.studies.comparison import downstream, run, tables
from experiments.studies.comparison.variants import DIFFERENCES, PRETRAINING, VARIANTS
from tests.end_to_end import small

ARGUMENTS = ['--texts=none', '--data=none']
OBJECTIVES = {
    'MLM': ('mlm',),
    'LTR': ('clm',),
    'biLM': ('bilm',),
    'permutation': ('plm',),
    'ELECTRA': ('mlm', 'rtd'),
    'diffusion': ('diffusion',),
    'not trained': ('mlm',),
}


def test_each_pretraining_has_its_objective_and_the_same_tokens():
    found, tokens = {}, set()
    for name in PRETRAINING:
        keys = run.pretraining_keys(name, 7)
        config = run.config_of(keys, 'novels/*.txt')
        config_keys.check_used(config, keys)  # a run refuses keys that its objective does not use
        architectures.find(config.model.architecture)
        found[name] = tuple(objectives.enabled(config.objectives))
        if name != 'not trained':
            (steps,), (size,) = config.training.steps, config.training.batch_size
            tokens.add(steps * size * config.training.sequence_length[0])
    assert found == OBJECTIVES
    assert tokens == {7 * 16 * 64}


@pytest.mark.parametrize('mode', downstream.MODES)
def test_the_keys_of_every_task_exist(mode):
    variant = VARIANTS['LTR + BiLSTM']
    for task in downstream.TASKS.values():
        keys = downstream.config_keys(task, mode, variant.head, 'DATA', pathlib.Path('RUN'), 5)
        config = tasks.make_config(task, keys)
        assert config.model.head_lstm.layers == 1
        assert config.transfer.trainable == ('heads' if mode == 'frozen' else 'all')
        assert config.training.steps == config.evaluation.every_steps == 5
        assert config.init_from == 'RUN'


def test_names_of_variants_refer_to_each_other():
    for variant in VARIANTS.values():
        assert variant.pretraining in PRETRAINING
    for name, others in DIFFERENCES.items():
        assert {name, *others} <= {*VARIANTS}


def test_unknown_names_and_times_are_refused():
    for arguments in (['--variants', 'MLN'], ['--tasks', 'NLI'], ['--minutes=0']):
        with pytest.raises(UserError):
            run.parse([*ARGUMENTS, *arguments])


def test_equal_time_gives_a_faster_step_more_steps(monkeypatch):
    times = {'MLM': [0.1], 'biLM': [0.4]}
    monkeypatch.setattr(run.step_times, 'measure', lambda configs, path: times)
    options = run.parse([*ARGUMENTS, '--minutes=2', '--variants', 'not trained', 'biLM + mix'])
    assert run.find_steps(options) == {'biLM': 300, 'not trained': 1}
    options = run.parse([*ARGUMENTS, '--steps=9', '--variants', 'MLM + mix', 'MLM', 'LTR'])
    assert run.find_steps(options) == {'MLM': 9, 'LTR': 9}


def test_a_paired_interval_by_students_t():
    found = tables.paired_difference([3.0, 5.0, 4.0], [1.0, 1.0, 1.0])
    assert found['mean'] == pytest.approx(3)
    assert found['high'] == pytest.approx(3 + 4.3027 / 3**0.5, abs=1e-4)
    assert found['low'] == pytest.approx(3 - 4.3027 / 3**0.5, abs=1e-4)
    assert tables.paired_difference([3.0], [1.0]) == {'mean': 2.0, 'low': None, 'high': None}


def test_tables_have_means_differences_and_dashes():
    ltr = [{'QA, frozen': 0.2, 'BLiMP': 0.6, 'tokens': 9.0}]
    lstm = [{'QA, frozen': 0.5, 'tokens': 9.0}]
    results = {'LTR': ltr, 'LTR + BiLSTM': lstm}
    differences = tables.differences(results)
    assert list(differences) == ['LTR + BiLSTM − LTR']
    text = tables.report(runner.summaries(results), differences)
    assert '| LTR + BiLSTM | 0.500 | – | 9.000 |' in text
    assert '| LTR + BiLSTM − LTR | +0.300 | – |' in text
    assert 'fine-tuned' not in text  # nothing was measured


@pytest.mark.slow
def test_a_comparison_trains_measures_writes_and_resumes(tmp_path, monkeypatch):
    changes = small.changes(tmp_path)
    common = {key: value for key, value in changes.items() if 'data.' in key}
    common['data.tokenizer'] = 'train:wordpiece:120'
    monkeypatch.setattr(run, 'COMMON', {**run.COMMON, **common, 'evaluation.examples': 32})
    rows = [f'{"good" if n % 2 else "bad"} ship {n}\tthe sea\t{n % 2}' for n in range(40)]
    folder = tmp_path / 'data/med_nli'
    folder.mkdir(parents=True)
    table = '\n'.join(['sentence1\tsentence2\tgold_label', *rows])
    (folder / 'MED.tsv').write_text(table, encoding='utf-8')
    options = run.parse(
        [
            '--texts=none',
            f'--data={tmp_path / "data"}',
            '--steps=3',
            '--seeds=1',
            '--task_steps=2',
            '--tasks=pairs',
            f'--runs={tmp_path / "runs"}',
            f'--output={tmp_path / "out"}',
            '--variants',
            'LTR + BiLSTM',
            'biLM + mix',
        ]
    )
    results = _run_twice(options)
    assert set(results['biLM + mix'][0]) == {'tokens', 'pairs, frozen', 'pairs, fine-tuned'}
    record = json.loads((tmp_path / 'out/results_3steps.json').read_text())
    assert record['settings']['biLM']['objectives.bilm'] == 1.0
    assert (tmp_path / 'out/frozen_3steps.png').exists()
    assert '| biLM + mix |' in (tmp_path / 'out/table_3steps.md').read_text()


def _run_twice(options: argparse.Namespace) -> run.Results:
    steps = run.find_steps(options)
    results = run.run_all(options, steps)
    files = list(pathlib.Path(options.runs).glob('**/results.json'))
    times = [path.stat().st_mtime_ns for path in files]
    assert run.run_all(options, steps) == results
    assert [path.stat().st_mtime_ns for path in files] == times
    run.write(options, steps, results)
    return results
