"""Python's collector of garbage kept away from where there is none."""

import contextlib
import gc


@contextlib.contextmanager
def uncollected():
    """No collection meanwhile: amid many new objects that stay, each looks through them for
    nothing.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
