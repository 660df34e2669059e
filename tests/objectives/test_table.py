"""The table of objectives: which objectives can be combined, and their loss terms."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.errors import UserError
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.model import ModelOutput
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives import OBJECTIVES


def test_every_objective_weights_its_own_loss_terms():
    weights = objectives.loss_weights(dict.fromkeys(OBJECTIVES, 2.0))
    names = [*(f'{name}_loss' for name in OBJECTIVES), 'deletion_token_loss']
    assert weights == dict.fromkeys(names, 2.0)


def test_the_z_loss_applies_to_the_objectives_that_predict_tokens():
    weights = objectives.loss_weights({'mlm': 2.0, 'nsp': 1.0}, z_loss=1e-3)
    assert weights == {'mlm_loss': 2.0, 'nsp_loss': 1.0, 'mlm_z': 2e-3}
    rng = np.random.default_rng(0)
    logits_BPV = np.float32(3 * rng.normal(size=(2, 3, 7)))
    weights_BP = np.float32([[1, 1, 0], [1, 0, 0]])
    ids = np.zeros((2, 3), np.int32)
    rows = Rows(ids, ids, ids, targets=Targets(ids, ids, weights_BP))
    output = ModelOutput(rows, None, {'mlm': jnp.array(logits_BPV), 'nsp': None})
    chosen = {name: OBJECTIVES[name]() for name in ('mlm', 'nsp')}
    (term,) = objectives.z_terms(chosen, output).values()
    squares = [
        weight * np.log(sum(np.exp(np.float64(logit)) for logit in logits_V)) ** 2
        for logits_PV, weights_P in zip(logits_BPV, weights_BP, strict=True)
        for logits_V, weight in zip(logits_PV, weights_P, strict=True)
    ]
    np.testing.assert_allclose(term.sum / term.count, sum(squares) / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ('names', 'scheme', 'corruption'),
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
def test_objectives_of_a_run_share_one_corruption(names, scheme, corruption):
    assert objectives.common_corruption(names, scheme) == corruption


@pytest.mark.parametrize(
    ('names', 'scheme', 'message'),
    [
        (('mlm', 'clm'), 'tokens', 'mlm: masked or replaced; clm: causal'),
        (('clm', 'nsp'), 'tokens', 'clm: causal; nsp'),
        (('mlm', 'deletion'), 'tokens', 'deletion: edited'),
        (('rtd',), 'tokens', "'rtd' needs 'mlm' too"),
        (('mlm', 'rtd', 'sbo'), 'spans', 'rtd: replaced; sbo: masked'),
        (('mlm', 'sbo'), 'ngrams', "'sbo' needs masking.scheme 'spans' or 'anchored_spans', not"),
    ],
)
def test_incompatible_objectives_are_rejected_in_one_line(names, scheme, message):
    with pytest.raises(UserError, match=message) as caught:
        objectives.common_corruption(names, scheme)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('weights', 'message'),
    [
        ({'mlm': 1.0, 'nps': 1.0}, "unknown objective 'nps'"),
        ({'mlm': 0.0, 'clm': 0.0}, 'none has a weight'),
    ],
)
def test_invalid_weights_are_rejected(weights, message):
    with pytest.raises(UserError, match=message):
        objectives.enabled(weights)


def test_only_left_to_right_models_are_causal():
    assert objectives.is_causal({'mlm': 0.0, 'clm': 1.0})
    assert not objectives.is_causal({'mlm': 1.0, 'nsp': 1.0, 'clm': 0.0})
    assert not objectives.is_causal({})


def test_the_share_of_masked_tokens_is_reported():
    slots = np.zeros((2, 3), np.int32)
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    mask = np.array([[1] * 8, [1] * 4 + [0] * 4], np.int32)
    rows = Rows(mask, mask, targets=Targets(slots, slots, weights))
    states = EncoderOutput(jnp.zeros((2, 8, 4)), None)
    output = ModelOutput(rows, states, {'mlm': jnp.zeros((2, 3, 5))})
    rate = OBJECTIVES['mlm']().terms(output, rows)['mlm_rate']
    assert (rate.sum, rate.count) == (3, 12)
