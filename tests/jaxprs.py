"""What a traced function computes, the functions it calls included."""

from jax.extend.core import jaxprs_in_params


def shapes(jaxpr):
    """The shape of every array that comes into being."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from shapes(inner)
