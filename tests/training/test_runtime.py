"""What XLA and the allocator are told on this platform."""

import subprocess
import sys

import jax
import pytest

from bert_jax.training import runtime


def test_the_order_of_instructions_that_needs_the_least_memory():
    def draw(key):
        return [jax.random.normal(jax.random.fold_in(key, i), (500, 500)) for i in range(6)]

    def temporaries(**options):
        compiled = jax.jit(draw, **options).lower(jax.random.key(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(compiler_options=runtime.compiler_options()) < temporaries() / 2


FAULTS = """
import ctypes, resource
from bert_jax.training import allocator
allocator.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(3 << 30)
    ctypes.memset(block + (3 << 30) - (64 << 20), 1, 64 << 20)
    libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


RESIDENT = """
import ctypes, pathlib
from bert_jax.training import allocator
allocator.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
tell = lambda: print(pathlib.Path('/proc/self/statm').read_text().split()[1])
tell()
blocks = [libc.malloc(1 << 20) for _ in range(200)]
for block in blocks:
    ctypes.memset(block, 1, 1 << 20)
for block in blocks[:-1]:
    libc.free(block)
tell()
allocator.give_back_freed_memory()
tell()
"""


def numbers_of(code: str) -> list[int]:
    """What a process of this code prints."""
    done = subprocess.run(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, text=True, check=True
    )
    return list(map(int, done.stdout.split()))


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc is told')
def test_freed_memory_is_kept():
    """Of a block of 3 GiB, as a step's temporaries can be, whose end alone is touched."""
    first, second = numbers_of(FAULTS)
    assert second < first / 10


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc is told')
def test_freed_memory_is_given_back_on_request():
    before, freed, given_back = numbers_of(RESIDENT)
    assert freed - before > 150 << 20 >> 12  # pages
    assert given_back - before < 20 << 20 >> 12
