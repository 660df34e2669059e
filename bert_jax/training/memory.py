"""What a compiled step needs of a device's memory, beside what the device has."""

import os
import pathlib
from typing import NamedTuple

import jax

from bert_jax.training import compilation, sharding

MIB = 2**20
CGROUP = pathlib.Path('/sys/fs/cgroup/memory.max')


class MemoryEstimate(NamedTuple):
    """Bytes on each device; `temporaries`, all that is neither given nor kept, is None where XLA
    does not say. `largest` is the largest array of the program that is not shaped as a parameter:
    of a large batch the logits."""

    parameters: int
    optimizer: int
    batch: int
    temporaries: int | None
    largest: compilation.Array | None

    @classmethod
    def of(cls, compiled: compilation.CompiledStep, state, batch) -> 'MemoryEstimate':
        """Of a compiled step and what it is given."""
        return cls(
            compilation.local_bytes(state.params),
            compilation.local_bytes(state.opt_state),
            compilation.local_bytes(batch),
            compiled.temporary_bytes(),
            compilation.largest_array(compiled, compilation.local_shapes(state.params)),
        )

    @property
    def total(self) -> int:
        return self.parameters + self.optimizer + self.batch + (self.temporaries or 0)

    def table(self) -> list[str]:
        """Lines for the log, in MiB."""
        limit = device_bytes()
        rows = [
            ('parameters', self.parameters, ''),
            ('optimizer', self.optimizer, ''),
            ('batch', self.batch, ''),
            ('gradients, activations', self.temporaries, _largest(self.largest)),
            ('total', self.total, f'  of {_mib(limit)}' if limit else ''),
        ]
        lines = [f'  {name:22} {_mib(size):>9}{note}' for name, size, note in rows]
        return ['memory of each device, MiB', *lines]

    def warning(self, stage, remat: bool) -> list[str]:
        """A line that says what to change, if it will not fit."""
        limit = device_bytes()
        if limit is None or self.total <= limit:
            return []
        mesh = jax.sharding.get_mesh()
        rows = stage.source.batch_size // (stage.accumulation * sharding.batch_shards(mesh))
        return [f'this will not fit; what helps: {_advice(rows, remat, mesh)}']


def device_bytes() -> int | None:
    """The memory that each device has for this process; None where nobody says. Fake CPU devices
    share the machine's."""
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


def _advice(rows: int, remat: bool, mesh) -> str:
    """rows: of a micro-batch on each device."""
    changes = []
    if rows > 1:
        changes.append('twice the accumulation')
    if not remat:
        changes.append('--config.compute.remat=True')
    if mesh.shape['data'] > 1:
        shards = sharding.batch_shards(mesh)
        changes.append(f'--config.mesh.data=1 --config.mesh.fsdp={shards}')
    return ', '.join([*changes, 'a smaller batch, length or model'])


def _mib(size: int | None) -> str:
    return 'not known' if size is None else f'{size / MIB:,.0f}'


def _largest(array: compilation.Array | None) -> str:
    return '' if array is None else f'  largest {array} {_mib(array.bytes)}'
