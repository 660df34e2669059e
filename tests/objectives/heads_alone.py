"""Objectives on given states instead of an encoder's."""

import jax

from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model, ModelOutput


def init(objective, architecture, states, rows):
    """Shapes of the parameters of an objective's heads."""
    model = Model(architecture, Compute(), objective.heads())

    def init_heads(key):
        heads = {name: model.make_head(name) for name in model.heads}
        return {name: {'head': heads[name].init(key, states, rows)['params']} for name in heads}

    return jax.eval_shape(init_heads, jax.random.key(0))


def terms(objective, architecture, params, states, rows, clean):
    """The terms of an objective."""
    model = Model(architecture, Compute(), objective.heads())
    outputs = {
        name: model.make_head(name).apply({'params': params[name]['head']}, states, rows)
        for name in model.heads
    }
    return objective.terms(ModelOutput(rows, states, outputs), clean)
