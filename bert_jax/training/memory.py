"""What a compiled step needs of a device's memory, beside what the device has."""

import os
import pathlib

import jax

from bert_jax.training import program

MIB = 2**20
CGROUP = pathlib.Path('/sys/fs/cgroup/memory.max')


def table(compiled, state, batch) -> list[str]:
    """Lines: parameters, optimizer, batch, everything else of the compiled step and the largest
    array therein (of a large batch the logits), in MiB on each device."""
    rows = {
        'parameters': program.local_bytes(state.params),
        'optimizer': program.local_bytes(state.opt_state),
        'batch': program.local_bytes(batch),
        'gradients, activations': program.temporary_bytes(compiled),
    }
    largest = program.largest_array(compiled, program.local_shapes(state.params))
    notes = {'gradients, activations': f'  largest {largest} {largest.bytes / MIB:,.0f}'}
    rows['together'] = sum(filter(None, rows.values()))
    limit = device_bytes()
    if limit:
        notes['together'] = f'  of {limit / MIB:,.0f}'
    lines = ['memory of a device, MiB']
    for name, size in rows.items():
        shown = 'not known' if size is None else f'{size / MIB:,.0f}'
        lines.append(f'  {name:24}{shown:>10}{notes.get(name, "")}')
    return lines


def needed_bytes(compiled, state, batch) -> int:
    """What the compiled step needs on each device."""
    held = program.local_bytes(state) + program.local_bytes(batch)
    return held + (program.temporary_bytes(compiled) or 0)


def device_bytes() -> int | None:
    """The memory that the first device has for this process; None where nobody says. Fake CPU
    devices share the machine's."""
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


def advice(config, number: int, mesh) -> str:
    """What to change in a config so that stage `number` needs less memory; what is set already is
    not named."""
    stages = config.stages
    shards = mesh.shape['data'] * mesh.shape['fsdp']
    rows = stages.batch_size[number] // (stages.accumulation[number] * shards)
    changes = []
    if rows > 1:
        micro_batches = list(stages.accumulation)
        micro_batches[number] *= 2 if rows % 2 == 0 else rows
        changes.append(f'--config.stages.accumulation="{tuple(micro_batches)}"')
    if not config.compute.remat:
        changes.append('--config.compute.remat=True')
    if mesh.shape['data'] > 1:
        changes.append(f'--config.mesh.data=1 --config.mesh.fsdp={shards}')
    changes.append('a smaller batch_size, sequence_length or model')
    return ', or '.join(changes)
