"""The devices of a run: their names, their memory, and their peak FLOP/s, the reference for MFU.

For chips in PUBLISHED_TFLOPS, the reference is the published bf16 peak, whatever the dtype of the
run, so that MFU can be compared between all runs on one chip. For other chips it is measured with a
large matrix product in the dtype of the run. Runs on CPUs have no MFU: there a single product says
little about the peak, and small models exceeded it.
"""

import functools
import math
import os
import pathlib
import re
import resource
import sys
import timeit
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.errors import warn
from bert_jax.training import sharding
from bert_jax.training.batches import AbstractBatch
from bert_jax.training.state import TrainState
from bert_jax.training.task import Stage
from bert_jax.types import Batch, Tree

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
_SLOWER = 1.2  # ratio of times that is not noise
MIB = 2**20
CGROUP = pathlib.Path('/sys/fs/cgroup/memory.max')


def describe() -> str:
    """Return the number and kind of the devices, such as '8 × TPU v4'."""
    return f'{jax.device_count()} × {jax.devices()[0].device_kind}'


def warn_of_slow_dtype(dtype: str) -> None:
    """Warn of bf16 on CPUs whose float32 products are faster, such as some Xeons without AMX."""
    if dtype != 'bfloat16' or jax.default_backend() != 'cpu':
        return
    ratio = measured_flops('float32') / measured_flops('bfloat16')
    if ratio > _SLOWER:
        warn(
            f'on this CPU, matrix products take {ratio:.1f} times as long in bfloat16 as in '
            'float32; set compute.dtype=float32'
        )


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


class MemoryEstimate(NamedTuple):
    """Bytes that a compiled step, and evaluation between steps, need on each device.

    Attributes:
        parameters: the parameters.
        optimizer: the optimizer state.
        batch: the batch.
        temporaries: gradients, activations and other intermediate results; None if unknown.
        evaluation: intermediate and final results of evaluating a batch; None if unknown.
    """

    parameters: int
    optimizer: int
    batch: int
    temporaries: int | None
    evaluation: int | None

    @classmethod
    def of(
        cls,
        compiled: jax.stages.Compiled,
        state: TrainState,
        batch: Batch | AbstractBatch,
        evaluation: jax.stages.Compiled | None = None,
    ) -> 'MemoryEstimate':
        """Estimate from the compiled steps of training and evaluation.

        Args:
            compiled: the training step.
            state: arrays or abstract arrays, like `batch`.
            batch: a training batch; evaluation batches are about as large.
            evaluation: the evaluation step, if it is known.
        """
        train = compiled.memory_analysis()
        held_out = evaluation.memory_analysis() if evaluation else None
        return cls(
            local_bytes((state.params, state.average, state.memory)),
            local_bytes(state.opt_state),
            local_bytes(batch),
            train and train.temp_size_in_bytes,
            held_out and held_out.temp_size_in_bytes + held_out.output_size_in_bytes,
        )

    @property
    def total(self) -> int:
        largest = max(self.temporaries or 0, self.evaluation or 0)
        return self.parameters + self.optimizer + self.batch + largest

    def table(self, limit: int | None) -> list[str]:
        """Return log lines with the sizes in MiB; `limit` is the memory of a device, in bytes."""
        sizes = {
            'parameters': self.parameters,
            'optimizer state': self.optimizer,
            'batch': self.batch,
            'gradients, activations': self.temporaries,
            'or evaluation': self.evaluation,
            'total': self.total,
        }
        lines = [f'  {name:22} {_mib(size):>9}' for name, size in sizes.items()]
        lines[-1] += f'  of {_mib(limit)}' if limit else ''
        return ['memory of each device, MiB', *lines]

    def warning(self, stage: Stage, remat: bool, limit: int | None) -> str | None:
        """Return a warning with advice if the step does not fit into memory, else None.

        Args:
            stage: the stage of the step.
            remat: whether activations are recomputed already.
            limit: memory of a device, in bytes; None if unknown.
        """
        if limit is None or self.total <= limit:
            return None
        mesh = jax.sharding.get_mesh()
        shards = sharding.batch_shards(mesh)
        rows = stage.source.batch_size // (stage.accumulation * shards)
        changes = []
        if rows > 1:  # of a micro-batch on each device
            changes.append('twice the accumulation')
        if not remat:
            changes.append('--config.compute.remat=True')
        if mesh.shape['data'] > 1:
            changes.append(f'--config.mesh.data=1 --config.mesh.fsdp={shards}')
        changes.append('a smaller batch, length or model')
        return f'this will not fit into memory; try {", ".join(changes)}'


def local_bytes(tree: Tree) -> int:
    """Return the bytes of a tree of arrays, abstract or not, that one device holds."""
    return sum(
        leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))
        for leaf in jax.tree.leaves(tree)
    )


def device_bytes() -> int | None:
    """Return the bytes of memory of each device that this process may use; None if unknown.

    Simulated CPU devices share the memory of the machine.
    """
    device = jax.local_devices()[0]
    statistics = device.memory_stats() or {}
    if 'bytes_limit' in statistics:
        limit: int | None = statistics['bytes_limit']
        return limit
    if device.platform != 'cpu':
        return None
    machine = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    allowed = CGROUP.read_text().strip() if CGROUP.exists() else 'max'
    limit = machine if allowed == 'max' else min(machine, int(allowed))
    return limit // jax.local_device_count()


def peak_bytes() -> int:
    """Return the peak memory so far in bytes: of the first device, or else of the process."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    if 'peak_bytes_in_use' in statistics:
        return int(statistics['peak_bytes_in_use'])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == 'darwin' else peak * 1024


def _mib(size: int | None) -> str:
    return 'unknown' if size is None else f'{size / MIB:,.0f}'
