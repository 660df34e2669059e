"""Losses of pretraining beside the loss of predicting token frequencies."""

import json

import numpy as np
import pytest
import scipy.stats

from bert_jax import main
from bert_jax.reports import pretraining
from tests.end_to_end import small

COUNTS = np.array([0, 5, 3, 1, 1])
ENTROPY = scipy.stats.entropy(COUNTS)


@pytest.mark.parametrize('name', ['mlm', 'clm'])
def test_a_loss_above_the_unigram_entropy_is_named_with_both_numbers(name):
    for loss, is_worse in ((ENTROPY + 0.01, True), (ENTROPY - 0.01, False), (np.nan, True)):
        metrics = pretraining.add_baselines({f'{name}_loss': loss, 'nsp_loss': 99.0}, COUNTS, 4.0)
        warnings = pretraining.warnings(metrics)
        assert len(warnings) == is_worse
        assert all(f'{ENTROPY:.3f}' in line and f'{loss:.3f}' in line for line in warnings)
    assert not pretraining.warnings({'rtd_loss': 9.0, 'sop_loss': 9.0})


def test_bits_per_byte_are_given_for_bounds_of_the_likelihood():
    means = {'diffusion_loss': 9.0, 'diffusion_bound': 3 * np.log(2)}
    metrics = pretraining.add_baselines(means, COUNTS, bytes_per_token=1.5)
    assert metrics['diffusion_bits_per_byte'] == pytest.approx(2.0)
    expected = scipy.stats.entropy(COUNTS, base=2) / 1.5
    assert metrics['unigram_bits_per_byte'] == pytest.approx(expected)
    metrics = pretraining.add_baselines({'mlm_loss': 3.0}, COUNTS, 1.5)
    assert not any(name.endswith('bits_per_byte') for name in metrics)


def test_a_run_that_learns_nothing_says_so(tmp_path, capsys):
    changes = {'schedule__learning_rate': 1e-9, 'evaluation__every_steps': 0}
    results = main.run(small.config(tmp_path, **small.ONE_STAGE | changes))
    held_out = results['held_out']
    assert held_out['mlm_loss'] > held_out['unigram_entropy']
    (warning,) = results['warnings']
    assert f'{held_out["mlm_loss"]:.3f}' in warning
    assert f'warning: {warning}' in capsys.readouterr().err
    for name in ('results.json', 'README.md'):
        text = (tmp_path / 'run' / name).read_text()
        assert warning in (json.loads(text)['warnings'] if name == 'results.json' else text)
