"""On GPUs and TPUs, no product of float32 operands is rounded to fewer bits.

By default those devices round operands of float32, to TF32 or bf16.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.analyze.measures import probes, structural_probes
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests import jaxprs

SIZES = dict(vocab_size=50, hidden_size=16, num_layers=2)


def products_of(function, *arguments):
    traced = jax.make_jaxpr(function)(*arguments)
    return [x for x in jaxprs.equations(traced.jaxpr) if x.primitive.name == 'dot_general']


def is_rounded(equation):
    precision = equation.params['precision']
    is_float32 = all(variable.aval.dtype == jnp.float32 for variable in equation.invars)
    return is_float32 and precision != (jax.lax.Precision.HIGHEST,) * 2


@pytest.mark.parametrize('family', ['bert', 'deberta', 'modernbert', 't5', 'elmo', 'xlnet'])
@pytest.mark.parametrize('platform', ['gpu', 'tpu'])
def test_products_of_models_have_full_precision(family, platform, monkeypatch):
    architecture = architectures.build(family, **SIZES)
    model = Model(architecture, Compute('float32', attention_kernel='xla'), {'mlm': {}})
    rows = Rows(np.ones((2, 8), np.int32), np.ones((2, 8), np.int32))
    params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), rows))['params']
    monkeypatch.setattr(jax, 'default_backend', lambda: platform)

    def loss(params):
        return sum(x.sum() for x in jax.tree.leaves(model.apply({'params': params}, rows).heads))

    products = products_of(jax.grad(loss), params)
    assert len(products) > 10
    assert not any(map(is_rounded, products))


def test_products_of_mixed_layers_and_probes_have_full_precision():
    states_BLD = np.ones((4, 3, 5), np.float32)
    params = {'mix': np.ones(3, np.float32), 'scale': np.float32(1)}
    params |= {'kernel_0': np.ones((5, 2), np.float32), 'bias_0': np.zeros(2, np.float32)}
    products = products_of(probes._logits, params, states_BLD)
    batch = structural_probes._Batch(
        np.ones((1, 4, 3, 5), np.float32), np.ones((1, 4, 4)), np.ones((1, 4)), np.array([4])
    )
    products += products_of(structural_probes._losses, np.ones((2, 3, 5, 2), np.float32), batch)
    assert len(products) == 4
    assert not any(map(is_rounded, products))
