"""What a traced function computes, including functions it calls."""

from jax.extend.core import jaxprs_in_params


def equations(jaxpr):
    """Yield every equation."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def shapes(jaxpr):
    """Yield the shape of every computed array."""
    for equation in equations(jaxpr):
        yield from (variable.aval.shape for variable in equation.outvars)


def primitives(jaxpr) -> set[str]:
    """Return the names of all primitives."""
    return {equation.primitive.name for equation in equations(jaxpr)}
