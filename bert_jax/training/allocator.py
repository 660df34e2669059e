"""glibc's allocator told to keep the memory it was given.

XLA on CPUs allocates and frees its large buffers in every step. By default glibc returns each to
the system and gets it back page by page; kept instead, a small model's step is about 1.25 × as
fast (experiments/benchmark/training_step.md). To be called before the first large allocation.
"""

import ctypes
import sys

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed_memory():
    """Large blocks come from one heap, never trimmed. Does nothing where libc is not glibc."""
    if sys.platform != 'linux':
        return
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is None:
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)  # never: a threshold is an int, and 2 GiB are soon exceeded
    mallopt(M_ARENA_MAX, 1)
