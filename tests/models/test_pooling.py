"""Every pooling computes the same for sequences of a row and for the windows of a text."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.pooling import POOLINGS

STATES_TD = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
EXPECTED = {
    'mean': lambda states_TD: states_TD.mean(0),
    'mean_sqrt_len_tokens': lambda states_TD: states_TD.sum(0) / len(states_TD) ** 0.5,
    'cls': lambda states_TD: states_TD[0],
    'lasttoken': lambda states_TD: states_TD[-1],
    'max': lambda states_TD: states_TD.max(0),
}


@pytest.mark.parametrize('name', POOLINGS)
def test_the_sequences_of_a_row_are_pooled_apart(name):
    member_ST = np.zeros((3, 7), bool)
    member_ST[0, 1:4] = member_ST[1, 4:6] = True  # the third sequence is absent
    vectors_SD = POOLINGS[name](jnp.asarray(STATES_TD[None]), jnp.asarray(member_ST[None]))[0]
    for vector_D, states_TD in zip(vectors_SD, (STATES_TD[1:4], STATES_TD[4:6]), strict=False):
        np.testing.assert_allclose(vector_D, EXPECTED[name](states_TD), rtol=1e-6)


@pytest.mark.parametrize('name', [n for n, one in POOLINGS.items() if one.tokens == 'all'])
def test_windows_of_a_text_give_the_vector_of_all_their_tokens(name):
    pooling, chosen_BT = POOLINGS[name], np.ones((1, 7), bool)
    parts = [
        np.asarray(pooling.of_window(STATES_TD[None, window], chosen_BT[:, window]))[0]
        for window in (slice(0, 3), slice(3, 7))
    ]
    np.testing.assert_allclose(pooling.combine(parts, 7), EXPECTED[name](STATES_TD), rtol=1e-5)
