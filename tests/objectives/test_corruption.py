"""Which objectives go together, and that the table is complete."""

import pathlib

import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.errors import UserError
from bert_jax.objectives import OBJECTIVES, corruption
from bert_jax.objectives.masking import Masked
from bert_jax.objectives.mlm import masked_terms


def test_every_objective_has_a_file_and_the_names_of_its_losses():
    files = {path.stem for path in pathlib.Path(objectives.__file__).parent.glob('*.py')}
    assert OBJECTIVES.keys() <= files
    weights = corruption.loss_weights(dict.fromkeys(OBJECTIVES, 2.0))
    assert weights == dict.fromkeys(
        [*(f'{name}_loss' for name in OBJECTIVES), 'deletion_token_loss'], 2.0
    )
    for objective in OBJECTIVES.values():
        assert set(objective.forms) <= corruption.FORMS.keys()


@pytest.mark.parametrize(
    ('names', 'scheme', 'form'),
    [
        (('mlm',), 'tokens', 'masked'),
        (('nsp',), 'tokens', 'masked'),
        (('mlm', 'sop'), 'ngrams', 'masked'),
        (('mlm', 'sbo', 'nsp'), 'spans', 'masked'),
        (('mlm', 'rtd', 'sop'), 'whole_words', 'replaced'),
        (('clm',), 'tokens', 'causal'),
        (('permutation', 'substitution', 'nsp'), 'tokens', 'edited'),
    ],
)
def test_what_goes_together(names, scheme, form):
    assert corruption.common_form(names, scheme) == form


@pytest.mark.parametrize(
    ('names', 'scheme', 'message'),
    [
        (('mlm', 'clm'), 'tokens', 'mlm: masked or replaced; clm: causal'),
        (('clm', 'nsp'), 'tokens', 'clm: causal; nsp'),
        (('mlm', 'deletion'), 'tokens', 'deletion: edited'),
        (('rtd',), 'tokens', "'rtd' needs 'mlm' too"),
        (('mlm', 'rtd', 'sbo'), 'spans', 'rtd: replaced; sbo: masked'),
        (('mlm', 'sbo'), 'ngrams', "'sbo' needs masking.scheme 'spans', not 'ngrams'"),
    ],
)
def test_what_does_not_is_refused_in_one_line(names, scheme, message):
    with pytest.raises(UserError, match=message) as caught:
        corruption.common_form(names, scheme)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('weights', 'message'),
    [
        ({'mlm': 1.0, 'nps': 1.0}, "unknown objective 'nps'"),
        ({'mlm': -1.0}, 'objectives.mlm is -1.0'),
        ({'mlm': 0.0, 'clm': 0.0}, 'none has a weight'),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, message):
    with pytest.raises(UserError, match=message):
        corruption.with_weight(weights)


def test_the_share_of_masked_tokens_is_reported():
    slots = np.zeros((2, 3), np.int32)
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    mask = np.array([[1] * 8, [1] * 4 + [0] * 4], np.int32)
    logits = jax.numpy.zeros((2, 3, 5))
    rate = masked_terms(logits, Masked(slots, slots, slots, weights), mask)['mlm_rate']
    assert (rate.sum, rate.count) == (3, 12)
