"""Agreement of arrays relative to their largest entry."""

import numpy as np

from bert_jax import tree_paths

TOLERANCE = 1e-5


def agree(ours, theirs, what='', tolerance=TOLERANCE):
    """Assert |ours − theirs| ≤ tolerance · max(1, max |theirs|)."""
    ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    bound = tolerance * max(1, np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound, err_msg=what)


def agree_trees(ours, theirs, tolerance=TOLERANCE):
    """Assert that two trees have leaves of the same names, which agree."""
    ours, theirs = tree_paths.flatten(ours), tree_paths.flatten(theirs)
    assert ours.keys() == theirs.keys()
    for name in ours:
        agree(ours[name], theirs[name], name, tolerance)
