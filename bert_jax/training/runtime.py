"""How JAX, XLA and the C library run on this machine.

These settings change memory and speed, not results; experiments/benchmarks/training_step.md has the
measurements.
"""

import ctypes
import functools
import importlib.util
import logging
import os
import sys

import jax
import numpy as np

from bert_jax.errors import UserError, warn
from bert_jax.models import partitioning

CACHE = os.path.join(os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache')), 'bert_jax')
COMPILER_OPTIONS = {
    # Order instructions for the least memory instead of for concurrency: each matrix product of a
    # step already uses all cores.
    'cpu': {'xla_cpu_scheduler_type': 'CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED'},
}
# For programs that run a few times: machine code that is made quickly is enough.
QUICK_COMPILER_OPTIONS = {'cpu': {'xla_backend_optimization_level': '0'}}
# For parameters sharded over the fsdp axis: gather whole weights while matrix products run, instead
# of splitting each product into steps that pass parts of the weights from chip to chip.
FSDP_COMPILER_OPTIONS = {
    'tpu': {
        'xla_tpu_enable_windowed_einsum_for_all_gather': 'false',
        'xla_tpu_enable_windowed_einsum_for_reduce_scatter': 'false',
        'xla_enable_async_all_gather': 'true',
        'xla_tpu_enable_async_collective_fusion': 'true',
        'xla_tpu_enable_async_collective_fusion_fuse_all_gather': 'true',
        'xla_tpu_enable_async_collective_fusion_multiple_steps': 'true',
        'xla_tpu_overlap_compute_collective_tc': 'true',
    },
}
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def configure(keep_memory: bool = True) -> None:
    """Apply the settings. Commands call this once, before they compute anything.

    Args:
        keep_memory: see `keep_freed_memory`; False for programs of many shapes, which would
            fragment the memory they keep.

    Raises:
        UserError: see `find_devices`.
    """
    disable_async_dispatch()
    find_devices()
    # Only process 0 writes to the cache. While GPU processes compile, they wait for each other's
    # autotuning results: forever, if one of them finds the program in the cache of its own host. So
    # they need a cache that all of them share, which only the user can provide.
    is_shared = jax.default_backend() != 'gpu' or jax.process_count() == 1
    if is_shared and 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
        jax.config.update('jax_compilation_cache_dir', CACHE)
    if keep_memory and jax.default_backend() == 'cpu':
        keep_freed_memory()


def find_devices() -> list[jax.Device]:
    """Return the devices of all processes; the first call initializes JAX's backends.

    On a machine without a GPU, JAX logs a traceback if jax[cuda12] is installed and continues; on
    one without a TPU, libtpu fails silently. This function logs one line in both cases.

    Raises:
        UserError: JAX_PLATFORMS names devices that cannot be used.
    """
    log = logging.getLogger('jax._src.xla_bridge')
    log.addFilter(_without_traceback)
    try:
        devices = jax.devices()
        is_fallback = devices[0].platform == 'cpu' and not os.environ.get('JAX_PLATFORMS')
        if is_fallback and importlib.util.find_spec('libtpu'):
            warn('libtpu is installed, but finds no TPU; continuing on the CPU')
        return devices
    except (AssertionError, RuntimeError) as error:  # JAX asserts that some backend is left
        reason = f' ({_one_line(error)})' if str(error) else ''
        raise UserError(
            f'JAX_PLATFORMS is {os.environ.get("JAX_PLATFORMS")!r}, but no such device can be used'
            f'{reason}; unset it to use the available devices'
        ) from error
    finally:
        log.removeFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    """A logging filter: replaces the traceback of a record with the message of its exception."""
    if record.exc_info:
        reason, record.exc_info = record.exc_info[1], None
        record.msg = f'{record.getMessage()}: {_one_line(reason)}; continuing without its devices'
        record.args = ()
    return True


def _one_line(error: BaseException | None) -> str:
    return ' '.join(str(error).split())


def disable_async_dispatch() -> None:
    """Start a step on the CPU only when the step before has freed its buffers.

    Otherwise the temporaries of two steps exist at the same time. Has no effect on other backends
    or after the first computation.
    """
    jax.config.update('jax_cpu_enable_async_dispatch', False)


def keep_freed_memory() -> None:
    """Tell glibc not to return freed memory to the system; does nothing with another C library.

    XLA's CPU backend allocates and frees its large buffers in every step. By default glibc returns
    each of them to the system and gets it back page by page, which makes the step of a small model
    about 1.25 times slower.
    """
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None) if sys.platform == 'linux' else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)  # allocate large blocks on the heap too
        mallopt(_M_TRIM_THRESHOLD, -1)  # never trim it: a threshold is an int, at most 2 GiB


def return_freed_memory() -> None:
    """Tell glibc to return freed memory to the system; does nothing with another C library.

    Programs of many shapes fragment memory: the holes take several times the memory in use.
    """
    trim = getattr(ctypes.CDLL(None), 'malloc_trim', None) if sys.platform == 'linux' else None
    if trim is not None:
        trim(0)


def compiler_options() -> dict[str, str]:
    """Return the compiler options for `jax.jit` of memory-intensive functions on this mesh."""
    platform, mesh = partitioning.platform(), jax.sharding.get_mesh()
    options = COMPILER_OPTIONS.get(platform, {})
    if mesh.shape.get('fsdp', 1) > 1:
        options = options | FSDP_COMPILER_OPTIONS.get(platform, {})
    return known_options(options)


def quick_compiler_options() -> dict[str, str]:
    """Return the compiler options for `jax.jit` of functions that are called a few times."""
    return known_options(QUICK_COMPILER_OPTIONS.get(partitioning.platform(), {}))


def known_options(options: dict[str, str]) -> dict[str, str]:
    """Return those compiler options that this mesh's compiler accepts; warn about the others.

    Releases of XLA rename and remove options, and refuse to compile with an unknown one. They
    change memory and speed only, so that a newer release may do without.
    """
    mesh = jax.sharding.get_mesh()
    return {name: value for name, value in options.items() if _is_accepted(name, value, mesh)}


@functools.cache
def _is_accepted(name: str, value: str, mesh: jax.sharding.Mesh) -> bool:
    """Compile a small function with the option: milliseconds, once for each mesh."""
    sharding = None if mesh.empty else jax.sharding.NamedSharding(mesh, jax.P())
    scalar = jax.ShapeDtypeStruct((), np.float32, sharding=sharding)
    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(scalar).compile()
    except jax.errors.JaxRuntimeError as error:
        warn(f'the compiler refuses its option {name} ({_one_line(error)}); continuing without it')
        return False
    return True
