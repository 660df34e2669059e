"""A study of two variants with a few steps: training, measuring, caching, tables."""

import argparse
import json
import math
import subprocess

import numpy as np
import pytest

from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from experiments.studies import measures, runner
from tests.end_to_end import small

CONLLU = """# text = The ship can't wait.
1\tThe\tthe\tDET\t_\t_\t_\t_\t_\t_
2\tship\tship\tNOUN\t_\t_\t_\t_\t_\t_
3-4\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
3\tca\tcan\tAUX\t_\t_\t_\t_\t_\t_
4\tn't\tnot\tPART\t_\t_\t_\t_\t_\t_
5\twait\twait\tVERB\t_\t_\t_\t_\t_\t_
5.1\there\there\tADV\t_\t_\t_\t_\t_\t_
6\t.\t.\tPUNCT\t_\t_\t_\t_\t_\t_

# text = Storm
1\tStorm\tstorm\tNOUN\t_\t_\t_\t_\t_\t_

"""
VARIANTS = {'masked': {}, 'causal': {'objectives.mlm': 0.0, 'objectives.clm': 1.0}}


@pytest.fixture(scope='module')
def study(tmp_path_factory):
    """(options, results, names of the measured runs) of a study that was run twice."""
    folder = tmp_path_factory.mktemp('study')
    for part in ('train', 'dev'):
        (folder / f'x-ud-{part}.conllu').write_text(CONLLU, encoding='utf-8')
    changes = small.changes(folder) | {
        'training.sequence_length': (16,),
        'training.batch_size': (8,),
        'training.max_predictions': (3,),
        'evaluation.cloze_examples': 0,
    }
    for key in ('workdir', 'training.steps', 'schedule.warmup_steps'):
        del changes[key]
    variants = {name: changes | more for name, more in VARIANTS.items()}
    options = argparse.Namespace(
        texts='none', steps=3, seeds=1, runs=folder / 'runs', output=folder / 'figures'
    )
    compare, measured = measures.Comparison(folder), []

    def measure(run):
        measured.append(run.name)
        return compare(run)

    first = runner.run_all(options, variants, measure)
    before = (folder / 'runs/masked_0/results.json').stat().st_mtime_ns
    assert runner.run_all(options, variants, measure) == first
    assert (folder / 'runs/masked_0/results.json').stat().st_mtime_ns == before
    baselines = compare.baselines(runner.run_folder(options, 'masked', 0))
    columns = {'pos_accuracy': 'POS', 'mlm_loss': 'MLM'}
    runner.write(options, first | baselines, columns, runner.all_keys(options, variants))
    return options, first, measured


@pytest.mark.slow
def test_finished_runs_are_neither_trained_nor_measured_again(study):
    _, results, measured = study
    assert measured == ['masked_0', 'causal_0']
    assert 3 < results['masked'][0]['mlm_loss'] < 8
    assert 'mlm_loss' not in results['causal'][0]
    assert 0 < results['causal'][0]['pos_accuracy'] <= 1


@pytest.mark.slow
def test_results_are_written_as_json_a_table_and_a_plot(study):
    options, results, _ = study
    written = json.loads((options.output / 'results.json').read_text())
    loss = results['masked'][0]['mlm_loss']
    assert written['variants']['masked']['mlm_loss'] == {'mean': loss, 'sd': None, 'values': [loss]}
    table = (options.output / 'table.md').read_text()
    assert f'| masked | {results["masked"][0]["pos_accuracy"]:.3f} | {loss:.3f} |' in table
    assert '| most frequent tag | 0.286 | – |' in table  # NOUN, two of seven words
    assert (options.output / 'plot.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.slow
def test_a_run_of_another_command_is_repeated(study, monkeypatch):
    options, _, _ = study
    started = []

    def run(command, cwd):
        started.append(command)
        return subprocess.CompletedProcess(command, 2)

    monkeypatch.setattr(subprocess, 'run', run)
    with pytest.raises(SystemExit) as stopped:
        runner.train(runner.run_folder(options, 'masked', 0), 'none', {'seed': 7})
    assert stopped.value.code == 2
    assert '--config.seed=7' in started[0]


@pytest.mark.slow
def test_the_states_of_a_causal_model_do_not_depend_on_later_words(study):
    options, _, _ = study
    for name, same in (('causal', True), ('masked', False)):
        predictor = Predictor(loading.load_any(runner.run_folder(options, name, 0)))
        one, other = predictor.embed(['the ship near the cow', 'the ship near the moon'], 'tokens')
        assert np.allclose(one[:4], other[:4], atol=1e-6) == same


def test_seeds_are_summarized_by_mean_and_deviation():
    assert runner.summarize([1.0, 2.0, 3.0]) == {'mean': 2.0, 'sd': 1.0, 'values': [1.0, 2.0, 3.0]}
    found = runner.summaries({'a': [{'x': 1.0}, {'x': 2.0}], 'b': [{'y': 1234.5}]})
    assert math.isclose(found['a']['x']['sd'], math.sqrt(0.5))
    table = runner.table(found, {'x': 'X', 'y': 'Y'})
    assert '| a | 1.500 ± 0.707 | – |' in table
    assert '| b | – | 1,234 |' in table


def test_a_treebank_is_read_without_multiword_tokens_and_empty_nodes(tmp_path):
    for part in ('train', 'dev'):
        (tmp_path / f'x-ud-{part}.conllu').write_text(CONLLU, encoding='utf-8')
    for first, second in measures.read_treebank(tmp_path)[:2]:
        assert [first.text[start:] for start, _ in first.words][2:4] == ["can't wait.", "n't wait."]
        assert first.tags == ('DET', 'NOUN', 'AUX', 'PART', 'VERB', 'PUNCT')
        assert (second.text, second.words, second.tags) == ('Storm', ((0, 5),), ('NOUN',))
