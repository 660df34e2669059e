"""Which positions attend to which: the bias and the segments describe the same pairs."""

import numpy as np
import pytest

from bert_jax.models.visibility import MASKED, Visibility, alibi_slopes

LENGTH = 6
MASK = np.array([[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1]])
SEGMENTS = np.array([[1, 1, 2, 2, 2, 0], [0, 1, 1, 1, 2, 2]], np.int32)
QUERY, KEY = np.indices((LENGTH, LENGTH))
SAME_SEGMENT = SEGMENTS[:, :, None] == SEGMENTS[:, None, :]
IS_TOKEN = MASK[:, None, :] > 0
CASES = {
    'padding': ({}, IS_TOKEN),
    'segments': ({'segment_ids_BT': SEGMENTS}, IS_TOKEN & SAME_SEGMENT),
    'causal': ({'is_causal': True}, IS_TOKEN & (KEY <= QUERY)),
    'window': ({'window': 2}, IS_TOKEN & (abs(QUERY - KEY) <= 2)),
    'all': (
        {'segment_ids_BT': SEGMENTS, 'is_causal': True, 'window': 1},
        IS_TOKEN & SAME_SEGMENT & (KEY <= QUERY) & (abs(QUERY - KEY) <= 1),
    ),
}


@pytest.mark.parametrize('case', CASES)
def test_the_bias_is_zero_where_attention_is_allowed_and_masks_all_else(case):
    fields, expected_BTU = CASES[case]
    bias = np.asarray(Visibility(MASK, **fields).bias(LENGTH, LENGTH))
    bias_BTU = np.broadcast_to(bias, (2, 1, LENGTH, LENGTH))[:, 0]
    expected_BTU = np.broadcast_to(expected_BTU, bias_BTU.shape)
    np.testing.assert_array_equal(bias_BTU, np.where(expected_BTU, 0, MASKED))


def test_slopes_lower_scores_in_proportion_to_the_distance():
    slopes = alibi_slopes(3)
    bias = np.asarray(Visibility(MASK, slopes_H=slopes).bias(LENGTH, LENGTH))
    expected = np.where(IS_TOKEN[:, None], -slopes[:, None, None] * abs(QUERY - KEY), MASKED)
    np.testing.assert_allclose(bias, expected, rtol=1e-6)


def test_slopes_are_those_published():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-n for n in range(1, 9)])
    between = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    np.testing.assert_allclose(alibi_slopes(12), [2.0**-n for n in range(1, 9)] + between)


@pytest.mark.parametrize('case', ['padding', 'segments'])
def test_segments_allow_what_the_bias_allows(case):
    visibility = Visibility(MASK, **CASES[case][0])
    query_BT, key_BU = visibility.segments(LENGTH)
    same_BTU = np.asarray(query_BT)[:, :, None] == np.asarray(key_BU)[:, None, :]
    np.testing.assert_array_equal(same_BTU, np.broadcast_to(CASES[case][1], same_BTU.shape))


def test_queries_of_another_length_see_the_keys_of_their_segment():
    query_BT, key_BU = Visibility(MASK).segments(4)
    np.testing.assert_array_equal(query_BT, np.zeros((2, 4)))
    np.testing.assert_array_equal(np.asarray(key_BU) == 0, MASK > 0)
    queries = np.array([[1, 2], [2, 0]], np.int32)
    query_BT, key_BU = Visibility(MASK, queries, SEGMENTS).segments(2)
    np.testing.assert_array_equal(query_BT, queries)
    np.testing.assert_array_equal(key_BU, np.where(MASK > 0, SEGMENTS, np.iinfo(np.int32).max))
