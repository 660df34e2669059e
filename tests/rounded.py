"""What rounding explains in the answers of a loaded model; see bert_jax/rounding.py."""

import dataclasses

import numpy as np

from bert_jax import rounding
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading


def allowed(path, answer) -> float:
    """The largest difference that rounding explains in answer(model), an array."""
    model = loading.load_any(path)

    def compute(params):
        return {'': answer(Predictor(dataclasses.replace(model, params=params)))}

    return rounding.tolerances(compute, model.params, model.architecture.longest_sum)['']


def agree(path, answer, theirs) -> None:
    """Assert that answer(the model of a folder) differs from an array by rounding only."""
    ours = answer(Predictor(loading.load_any(path)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=allowed(path, answer))
