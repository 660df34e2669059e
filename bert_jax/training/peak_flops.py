"""Peak FLOP/s of the devices: the reference for MFU.

For chips in PUBLISHED_TFLOPS, the reference is the published bf16 peak, whatever the dtype of the
run, so that MFU can be compared between all runs on one chip. For other chips it is measured with a
large matrix product in the dtype of the run. Runs on CPUs have no MFU: there a single product says
little about the peak, and small models exceeded it.
"""

import functools
import re
import timeit

import jax
import jax.numpy as jnp

# Part of a `device_kind` → TFLOP/s of dense bf16 products per device; the first match counts.
# TPU: cloud.google.com/tpu/docs, system architecture of each version (a device of v2 and v3 is a
# core, half a chip). GPU: NVIDIA's data sheets (half of the figure with sparsity); fp16 for V100
# and T4, which have no bf16 units.
PUBLISHED_TFLOPS = {
    'TPU v2': 22.5,
    'TPU v3': 61.5,
    'TPU v4 lite': 138,
    'TPU v4': 275,
    'TPU v5 lite': 197,  # v5e
    'TPU v5e': 197,
    'TPU v5p': 459,
    'TPU v5': 459,  # v5p
    'TPU v6 lite': 918,  # v6e
    'TPU v6e': 918,
    'B200': 2250,
    'H200 NVL': 835,
    'H200': 989,
    'H100 NVL': 835,
    'H100 PCIe': 756,
    'H100': 989,
    'A100': 312,
    'A30': 165,
    'A10G': 70,
    'A10': 125,
    'L40S': 362,
    'L4': 121,
    'V100-PCIE': 112,
    'V100': 125,
    'T4': 65,
}
# Edge of the square matrices that are measured: large enough to saturate a device.
MATRIX_SIZE = {'cpu': 1024, 'gpu': 8192, 'tpu': 8192}
_REPEATS = 8


def reference(dtype: str) -> float | None:
    """Return the peak to which MFU refers, `peak_flops`; None on CPUs."""
    return None if jax.default_backend() == 'cpu' else peak_flops(dtype)


def peak_flops(dtype: str) -> float:
    """Return the FLOP/s of all devices: published, or measured in `dtype`.

    Simulated CPU devices share the cores of their host, so each host counts once.
    """
    is_cpu = jax.default_backend() == 'cpu'
    devices = jax.process_count() if is_cpu else jax.device_count()
    return devices * (published_flops() or measured_flops(dtype))


def published_flops(device_kind: str | None = None) -> float | None:
    """Return the published dense bf16 FLOP/s of a device; None if it is not in the table.

    Args:
        device_kind: JAX's name of the device; None: the devices of this process.
    """
    device_kind = device_kind or jax.devices()[0].device_kind
    for part, tflops in PUBLISHED_TFLOPS.items():
        if re.search(rf'\b{part}\b', device_kind):
            return 1e12 * tflops
    return None


@functools.cache
def measured_flops(dtype: str) -> float:
    """Measure the FLOP/s of a large matrix product on one device, once in a process.

    The product of two [n, n] matrices in `dtype` with float32 output counts as 2·n³ operations; the
    fastest of a few runs counts.
    """
    n = MATRIX_SIZE.get(jax.default_backend(), MATRIX_SIZE['cpu'])
    a = jax.device_put(jnp.ones((n, n), dtype), jax.local_devices()[0])
    product = jax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.float32))
    product(a, a).block_until_ready()
    seconds = timeit.repeat(lambda: product(a, a).block_until_ready(), number=1, repeat=_REPEATS)
    return 2 * n**3 / min(seconds)
