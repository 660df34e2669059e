"""On GPUs and TPUs, no product of float32 operands is rounded to fewer bits.

By default those devices round operands of float32, to TF32 or bf16.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests import jaxprs

SIZES = dict(vocab_size=50, hidden_size=16, num_layers=2)


def is_rounded(equation):
    precision = equation.params['precision']
    is_float32 = all(variable.aval.dtype == jnp.float32 for variable in equation.invars)
    return is_float32 and precision != (jax.lax.Precision.HIGHEST,) * 2


@pytest.mark.parametrize('family', ['bert', 'deberta', 'modernbert', 't5', 'elmo', 'xlnet'])
@pytest.mark.parametrize(('platform', 'dtype'), [('gpu', 'float32'), ('tpu', 'bfloat16')])
def test_products_of_float32_operands_have_full_precision(family, platform, dtype, monkeypatch):
    architecture = architectures.build(family, **SIZES)
    model = Model(architecture, Compute(dtype, attention_kernel='xla'), {'mlm': {}})
    rows = Rows(np.ones((2, 8), np.int32), np.ones((2, 8), np.int32))
    params = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), rows))['params']
    monkeypatch.setattr(jax, 'default_backend', lambda: platform)

    def loss(params):
        return sum(x.sum() for x in jax.tree.leaves(model.apply({'params': params}, rows).heads))

    traced = jax.make_jaxpr(jax.grad(loss))(params)
    products = [x for x in jaxprs.equations(traced.jaxpr) if x.primitive.name == 'dot_general']
    assert len(products) > 10
    assert not [str(equation) for equation in products if is_rounded(equation)]
