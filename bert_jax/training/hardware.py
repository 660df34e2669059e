"""What this machine can do: its measured matrix product rate and the memory a run took."""

import resource
import sys
import time

import jax
import jax.numpy as jnp

# Edge of the square matrices: large enough to saturate the device, small enough to take no time.
EDGE = {'cpu': 2048, 'gpu': 8192, 'tpu': 8192}
REPEATS = 4


def peak_flops(dtype: str) -> float:
    """FLOP/s of a large matrix product in `dtype` with float32 output, times the number of devices:
    what MFU is measured against.

    The best of a few runs on one device; 2·n³ operations a product. Fake CPU devices share the real
    cores, so there the rate counts once a host.
    """
    platform = jax.default_backend()
    n = EDGE.get(platform, EDGE['cpu'])
    device = jax.local_devices()[0]
    a = jax.device_put(jnp.ones((n, n), dtype), device)
    product = jax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.float32))
    product(a, a).block_until_ready()
    best = min(_seconds(lambda: product(a, a).block_until_ready()) for _ in range(REPEATS))
    devices = jax.process_count() if platform == 'cpu' else jax.device_count()
    return devices * 2 * n**3 / best


def peak_memory_bytes() -> int:
    """Highest memory so far: of the first device where it says so, else of this process."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if 'peak_bytes_in_use' in statistics:
        return statistics['peak_bytes_in_use']
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == 'darwin' else peak * 1024


def _seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
