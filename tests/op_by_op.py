"""Runs a function one operation at a time, without what its results do not need.

The operations of one test are compiled already when the next test needs them, while a whole
initialization is a program of its own for every model.
"""

import jax
import jax.core
from jax.interpreters import partial_eval


def evaluate(function, *arguments):
    """Return function(*arguments), as `jax.jit(function)(*arguments)` does."""
    traced, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
    needed, _ = partial_eval.dce_jaxpr(
        traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True
    )
    leaves = jax.core.eval_jaxpr(needed, traced.consts, *jax.tree.leaves(arguments))
    return jax.tree.unflatten(jax.tree.structure(result), leaves)
