"""What a traced function computes, including functions it calls."""

from jax.extend.core import jaxprs_in_params


def shapes(jaxpr):
    """Yield the shape of every computed array."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from shapes(inner)


def primitives(jaxpr) -> set[str]:
    """Return the names of all primitives."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in jaxprs_in_params(equation.params):
            found |= primitives(inner)
    return found
