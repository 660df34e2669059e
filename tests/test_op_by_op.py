"""The initializations of the tests have the values of compiled ones."""

import jax
import numpy as np

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.rows import Rows
from bert_jax.training import sharding
from tests import op_by_op


def test_parameters_equal_those_of_a_compiled_initialization():
    sizes = dict(vocab_size=50, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=24)
    encoder = build_encoder(architectures.build('bert', **sizes), Compute())
    ids = np.ones((1, 8), np.int32)

    def init(key):
        return sharding.unbox(encoder.init(key, Rows(ids, ids)))

    key = jax.random.key(3)
    jax.tree.map(
        lambda ours, compiled: np.testing.assert_allclose(ours, compiled, atol=1e-7),
        op_by_op.evaluate(init, key),
        jax.jit(init)(key),
    )
