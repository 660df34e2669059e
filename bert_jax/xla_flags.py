"""Flags of XLA that the installed jaxlib knows: it aborts the process at an unknown one."""

import functools
import os
import re
import subprocess
import sys

_READ_FLAGS = 'from jaxlib import xla_client; xla_client.make_cpu_client()'


@functools.cache
def known_flags(*flags: str) -> str:
    """Return the text for XLA_FLAGS with those of the flags that the installed jaxlib knows.

    Starts a Python process that reads the flags, and another one for each unknown flag, which the
    process names before it dies. Does not import JAX, which reads XLA_FLAGS only once.

    Args:
        flags: such as '--xla_backend_optimization_level=0'.

    Raises:
        RuntimeError: jaxlib does not start, or refuses the value of a flag.
    """
    text = ' '.join(flags)
    answer = subprocess.run(
        [sys.executable, '-c', _READ_FLAGS],
        env=os.environ | {'XLA_FLAGS': text},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if answer.returncode == 0:
        return text
    unknown = re.search(r'Unknown flags? in XLA_FLAGS: (\S+)', answer.stderr)
    if unknown is None or unknown[1] not in flags:
        raise RuntimeError(f'jaxlib does not start with XLA_FLAGS={text!r}: {answer.stderr}')
    return known_flags(*(flag for flag in flags if flag != unknown[1]))
