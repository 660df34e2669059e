"""Checkpoints written by earlier versions of the library still load and resume."""

import jax
import numpy as np
import pytest

from bert_jax.training import checkpoints

HEADS = {
    'sequence': 'sequence_classification',
    'token': 'token_classification',
    'span': 'question_answering',
    'choice': 'multiple_choice',
}


@pytest.mark.parametrize('older', HEADS)
def test_heads_are_found_under_their_older_names(older, tmp_path):
    def state(head):
        kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
        params = {
            'encoder': {'embeddings': {'token': kernel + 1}},
            head: {'head': {'bias': kernel}},
        }
        return {'params': params, 'opt_state': ({'mu': {head: {'head': {'bias': 2 * kernel}}}},)}

    with_checkpoints = checkpoints.Checkpoints(tmp_path, keep=1)
    with_checkpoints.save(7, jax.tree.map(jax.numpy.asarray, state(older)), {})
    expected = state(HEADS[older])
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), expected
    )
    resumed = with_checkpoints.restore(abstract)
    with_checkpoints.close()
    assert resumed.step == 7
    jax.tree.map(np.testing.assert_array_equal, resumed.state, expected)
    loaded = checkpoints.load(tmp_path, 'params').state['params']
    jax.tree.map(np.testing.assert_array_equal, loaded, expected['params'])
