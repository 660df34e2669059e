"""glibc's allocator told to keep the memory it was given.

XLA on CPUs allocates and frees its large buffers in every step. By default glibc returns each to
the system and gets it back page by page; kept instead, a small model's step is about 1.25 × as
fast (experiments/benchmarks/training_step.md). To be called before the first large allocation.
"""

import ctypes
import sys

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory():
    """Large blocks come from the heap, never trimmed. Does nothing where libc is not glibc.

    Each thread still has a heap of its own: with a common one (M_ARENA_MAX) a compilation, which
    allocates small blocks in all of them, takes 1.5 × as long.
    """
    mallopt = _of_glibc('mallopt')
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)  # never: a threshold is an int, and 2 GiB are soon exceeded


def give_back_freed_memory():
    """All that is free now, in every heap: after a compilation, what the compiler needed."""
    malloc_trim = _of_glibc('malloc_trim')
    if malloc_trim is not None:
        malloc_trim(0)


def _of_glibc(name: str):
    """The function, or None where libc is not glibc."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == 'linux' else None
