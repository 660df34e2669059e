"""Parameters drawn without compiling an initialization."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn


def random_parameters(module: nn.Module, *inputs, deviation: float = 0.2, **options):
    """The parameters of a module, with normal noise around 1 in norms and around 0 elsewhere.

    Compiling `module.init` takes most of the time of a test of a small model.
    """
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        mean = float(path[-1].key == 'scale')
        return jnp.asarray(rng.normal(mean, deviation, leaf.shape), leaf.dtype)

    abstract = jax.eval_shape(lambda: nn.unbox(module.init(jax.random.key(0), *inputs, **options)))
    return jax.tree.map_with_path(draw, abstract['params'])
