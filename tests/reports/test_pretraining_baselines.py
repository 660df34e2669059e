"""Losses of pretraining beside the loss of predicting token frequencies."""

import json

import numpy as np
import pytest
import scipy.stats

from bert_jax import main, objectives
from bert_jax.reports import pretraining
from bert_jax.tasks.pretraining import builder
from tests.end_to_end import small

COUNTS = np.array([0, 5, 3, 1, 1])
BIAS = (4 - 1) / (2 * 10)  # Miller 1955: 4 different tokens among 10
ENTROPY = scipy.stats.entropy(COUNTS) + BIAS


@pytest.mark.parametrize('name', ['mlm', 'clm', 'bilm', 'sbo', 'a_new_objective'])
def test_a_loss_above_the_unigram_entropy_is_named_with_both_numbers(name):
    for loss, is_worse in ((ENTROPY + 0.01, True), (ENTROPY - 0.01, False), (np.nan, True)):
        means = {f'{name}_loss': loss, 'nsp_loss': 99.0}
        metrics = pretraining.add_baselines(means, [name], COUNTS, 4.0)
        warnings = pretraining.warnings(metrics)
        assert len(warnings) == is_worse
        assert all(f'{ENTROPY:.3f}' in line and f'{loss:.3f}' in line for line in warnings)
    assert not pretraining.warnings({'rtd_loss': 9.0, 'sop_loss': 9.0})


@pytest.mark.parametrize(('negatives', 'guess'), [(0.5, 0.693), (0.3, 0.611)])
@pytest.mark.parametrize('name', ['nsp', 'sop'])
def test_a_loss_of_pairs_above_that_of_a_guess_is_named(name, negatives, guess):
    for loss, is_worse in ((guess + 0.05, True), (guess + 0.005, False), (np.nan, True)):
        held_out = {f'{name}_loss': loss, f'{name}_negatives': negatives}
        warnings = pretraining.warnings(held_out)
        assert len(warnings) == is_worse
        for line in warnings:
            assert f'{name}_loss is {loss:.3f}, but guessing has a loss of {guess:.3f}' in line


def test_bits_per_byte_are_given_for_bounds_of_the_likelihood():
    means = {'diffusion_loss': 9.0, 'diffusion_bound': 3 * np.log(2)}
    metrics = pretraining.add_baselines(means, ['diffusion'], COUNTS, bytes_per_token=1.5)
    assert metrics['diffusion_bits_per_byte'] == pytest.approx(2.0)
    expected = ENTROPY / np.log(2) / 1.5
    assert metrics['unigram_bits_per_byte'] == pytest.approx(expected)
    metrics = pretraining.add_baselines({'mlm_loss': 3.0}, ['mlm'], COUNTS, 1.5)
    assert not any(name.endswith('bits_per_byte') for name in metrics)


def test_a_run_that_learns_nothing_says_so_and_names_its_held_out_share(tmp_path, capsys):
    for name in 'ab':
        (tmp_path / f'{name}.txt').write_text(f'The {name} and the moon near the ship. ' * 20)
    keys = {'data__segments': 'single', 'objectives__nsp': 0.0, 'evaluation__every_steps': 0}
    text = {'data__sources': (f'text:{tmp_path}/?.txt',), 'data__held_out_fraction': 0.05}
    rate = {'schedule__learning_rate': 1e-9}
    results = main.run(small.config(tmp_path, **small.ONE_STAGE | keys | text | rate))
    held_out, shown = results['held_out'], capsys.readouterr().err
    assert held_out['mlm_loss'] > held_out['unigram_entropy']
    share, loss = sorted(results['warnings'], key=lambda line: 'held out' not in line)
    assert '50.00% of the tokens are held out instead of 5.00%' in share
    assert f'{held_out["mlm_loss"]:.3f}' in loss
    assert f'warning: {loss}' in shown
    card = (tmp_path / 'run/README.md').read_text()
    assert share in card
    assert loss in card
    assert loss in json.loads((tmp_path / 'run/results.json').read_text())['warnings']


def test_few_texts_are_named_where_pairs_of_texts_are_told_apart(tmp_path):
    parts = (f'The cow and the moon near the ship {"up " * i}.' for i in range(99))
    (tmp_path / 'a.txt').write_text('\n\n'.join(parts))
    keys = {'data__sources': (f'text:{tmp_path}/a.txt;longest=300',)}
    expected = 'warning: the corpus has 1 text(s): next sentence prediction learns which text'
    for segments, is_named in (('pairs', True), ('ordered_pairs', False)):
        keys |= {'data__segments': segments, 'objectives__nsp': float(is_named)}
        config = small.config(tmp_path, objectives__sop=float(not is_named), **keys)
        lines = builder.build(config).describe()
        assert any(line.startswith(expected) for line in lines) == is_named


def test_every_objective_that_predicts_tokens_has_the_baselines(monkeypatch):
    names = {'mlm', 'clm', 'plm', 'diffusion', 'mntp', 'ntp', 'denoising', 'bilm', 'sbo'}
    assert {*objectives.predicting_tokens(objectives.OBJECTIVES)} == names
    new = type('New', (objectives.OBJECTIVES['mlm'],), {})  # predicts_tokens is inherited
    monkeypatch.setitem(objectives.OBJECTIVES, 'new', new)
    assert objectives.predicting_tokens(['new', 'nsp']) == ['new']
    assert objectives.loss_weights({'new': 2.0}, z_loss=0.5) == {'new_loss': 2.0, 'new_z': 1.0}
    assert objectives.loss_weights({'bilm': 1.0}, z_loss=0.5) == {'bilm_loss': 1.0}


def test_the_entropy_of_a_sample_is_nearly_that_of_the_distribution():
    p_V = 1 / np.arange(1, 301)
    p_V /= p_V.sum()
    counts = np.random.default_rng(0).multinomial(1000, p_V, size=50)
    found = np.mean([pretraining.unigram_entropy(counts_V) for counts_V in counts])
    plain = np.mean([scipy.stats.entropy(counts_V) for counts_V in counts])
    true = scipy.stats.entropy(p_V)
    assert abs(found - true) < 0.4 * abs(plain - true)
