"""The memory that training and evaluation need on each device, and the memory of the device."""

import math
import os
import pathlib
import resource
import sys
from typing import Any, NamedTuple

import jax

from bert_jax.training import sharding
from bert_jax.training.batches import AbstractBatch
from bert_jax.training.state import TrainState
from bert_jax.training.task import Stage
from bert_jax.types import Batch

MIB = 2**20
CGROUP = pathlib.Path('/sys/fs/cgroup/memory.max')


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
            local_bytes(state.params),
            local_bytes(state.opt_state),
            local_bytes(batch),
            train and train.temp_size_in_bytes,
            held_out and held_out.temp_size_in_bytes + held_out.output_size_in_bytes,
        )

    @property
    def total(self) -> int:
        largest = max(self.temporaries or 0, self.evaluation or 0)
        return self.parameters + self.optimizer + self.batch + largest

    def table(self) -> list[str]:
        """Return log lines with the sizes in MiB."""
        limit = device_bytes()
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

    def warning(self, stage: Stage, remat: bool) -> str | None:
        """Return a warning with advice if the step does not fit into memory, else None."""
        limit = device_bytes()
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


def local_bytes(tree: Any) -> int:
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
        return statistics['bytes_limit']
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
        return statistics['peak_bytes_in_use']
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == 'darwin' else peak * 1024


def _mib(size: int | None) -> str:
    return 'unknown' if size is None else f'{size / MIB:,.0f}'
