"""When two arrays agree: nowhere further apart than a part of the largest entry."""

import jax
import numpy as np

TOLERANCE = 1e-5


def agree(ours, theirs, what='', tolerance=TOLERANCE):
    """Asserts |ours − theirs| ≤ tolerance · max(1, max |theirs|)."""
    ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    bound = tolerance * max(1, np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound, err_msg=what)


def agree_trees(ours, theirs, tolerance=TOLERANCE):
    """Asserts that two trees have the same leaves by name, and that these agree."""
    ours, theirs = (dict(jax.tree.leaves_with_path(tree)) for tree in (ours, theirs))
    assert ours.keys() == theirs.keys()
    for path in ours:
        agree(ours[path], theirs[path], jax.tree_util.keystr(path), tolerance)
