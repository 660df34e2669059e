"""Logits of marked pairs agree with NumPy, one sequence at a time, in packed rows."""

import jax
import numpy as np
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.architecture_parts import Classifier
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads.relations import MarkedPairHead
from bert_jax.models.rows import Rows

# Two sequences in the first row, one in the second. Some spans overlap; the second span of the last
# sequence is empty.
SEGMENTS = np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]])
MARKS = np.array([[0, 1, 1, 2, 1, 3, 2, 3], [0, 1, 0, 1, 0, 2, 2, 0]])
FIRST = np.array([[0, 4], [0, -1]])


def expected(p, states, marks):
    a, b = (
        states[(marks & bit) > 0].mean(0) if (marks & bit).any() else np.zeros(8) for bit in (1, 2)
    )
    x = np.concatenate([a, b, a * b, np.abs(a - b)]) @ p['hidden']['kernel'] + p['hidden']['bias']
    x = np.asarray(jax.nn.gelu(x, approximate=False))
    return x @ p['output']['kernel'] + p['output']['bias']


def test_pairs_depend_only_on_their_own_marked_positions():
    architecture = architectures.build(
        'bert', hidden_size=8, num_heads=2, classifier=Classifier(dropout=0.5)
    )
    head = MarkedPairHead(architecture, Compute(), 3)
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(2, 8, 8)).astype(np.float32)
    rows = Rows(SEGMENTS, SEGMENTS, None, SEGMENTS, FIRST, labels={'marks': MARKS})
    shapes = jax.eval_shape(lambda: head.init(jax.random.key(0), EncoderOutput(hidden, None), rows))
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), nn.unbox(shapes)
    )

    def logits(hidden, seeds=None):
        return head.apply(params, EncoderOutput(hidden, None), rows, seeds)

    found = logits(hidden)
    assert found.shape == (2, 2, 3)
    assert np.isfinite(found).all()
    p = params['params']
    for row, slot in ((0, 0), (0, 1), (1, 0)):
        own = SEGMENTS[row] == slot + 1
        theirs = expected(p, hidden[row, own], MARKS[row, own])
        np.testing.assert_allclose(found[row, slot], theirs, rtol=1e-4, atol=1e-4)
    gradient = jax.jacobian(logits)(hidden)
    moved = np.abs(gradient).max(axis=(2, 5)) > 0  # [R, S, R, T]
    marked = MARKS > 0
    for row, slot in ((0, 0), (0, 1), (1, 0)):
        for other in range(2):
            own = (SEGMENTS[other] == slot + 1) & marked[other] & (other == row)
            np.testing.assert_array_equal(moved[row, slot, other], own)
    assert not np.allclose(logits(hidden, np.arange(2, dtype=np.uint32)), found)
