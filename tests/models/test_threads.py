"""Encoders are traced by several threads at once, as in inference."""

import concurrent.futures
import dataclasses
import time

import jax
import numpy as np
import pytest

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import build_encoder
from bert_jax.models.rows import Rows

SIZES = dict(vocab_size=50, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=12)


@pytest.mark.parametrize('changes', [{}, {'scan_layers': True}, {'remat': True}])
def test_threads_that_trace_at_once_do_not_disturb_each_other(changes, monkeypatch):
    architecture = architectures.build('bert', **SIZES, max_position_embeddings=64)
    encoder = build_encoder(architecture, Compute(**changes))
    ids = np.ones((1, 4), np.int32)
    params = jax.eval_shape(lambda: encoder.init(jax.random.key(0), Rows(ids, ids)))
    create = dataclasses.dataclass

    def create_slowly(*args, **kwargs):  # flax changes base classes while it creates a class
        time.sleep(0.02)
        return create(*args, **kwargs)

    monkeypatch.setattr(dataclasses, 'dataclass', create_slowly)

    def trace(length):
        ids = np.ones((1, length), np.int32)
        return jax.eval_shape(
            lambda own: encoder.apply(own, Rows(ids, ids)).hidden_BTD, params
        ).shape

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(trace, range(5, 13))) == [(1, length, 8) for length in range(5, 13)]
