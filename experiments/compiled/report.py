"""Formats the records of compiled steps as text and tables, and compares records."""

import re
from collections.abc import Mapping
from typing import Any

TOLERANCE = {'temporaries': 0.1, 'seconds': 0.1, 'mfu': 0.1, 'cycles': 0.1}  # relative
TITLE = (
    '| command | a device | temporaries, GiB | total, GiB | fits | collectives, GiB | kernels '
    '| estimated ms | MFU |'
)
_GIB = 2**30


def describe(record: Mapping[str, Any]) -> str:
    """Format a record as lines of text."""
    limit = f'{record["memory"] / _GIB:.1f} GiB'
    size = f'{record["rows"]} × {record["length"]} tokens a device'
    if record['accumulation'] > 1:
        size += f', {record["accumulation"]} micro-batches'
    lines = [f'{size}, {record["model_flops"] / 1e12:.2f} TFLOP of the model a device']
    if 'needed' in record:
        return f'{lines[0]}\ndoes not fit: needs {record["needed"] / _GIB:.1f} of {limit}'
    for key in ('parameters', 'optimizer', 'temporaries'):
        lines.append(f'  {key:12} {record[key] / _GIB:7.2f} GiB')
    lines.append(f'{"fits into" if record["fits"] else "does not fit into"} {limit}')
    for kind, sums in record['collectives'].items():
        lines.append(f'  {sums["number"]:4} {kind}, {sums["bytes"] / _GIB:.3f} GiB')
    lines += [f'  {number:4} {name}' for name, number in record['kernels'].items()]
    if 'traffic' in record:
        lines.append(f'{record["traffic"]["bytes"] / 1e9:.1f} GB moved by kernels')
        lines += [
            f'  {number:4} × float32 {short_path(name.partition(" ")[0])} {name.partition(" ")[2]}'
            for name, number in record['traffic']['float32'].items()
        ]
    if 'seconds' in record:
        lines.append(f'estimated {record["seconds"] * 1e3:.1f} ms, MFU {record["mfu"]:.1%}')
    total = record.get('cycles')
    for operation in record.get('operations', []):
        share, name = operation['cycles'] / total, short_path(operation['path'])
        lines.append(f'  {share:6.1%} {operation["number"]:4} × {name}  {operation["source"]}')
    return '\n'.join(lines)


def table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Format records as a Markdown table: command → record."""
    lines = [TITLE, '|---' * TITLE.count(' | ') + '|---|']
    for command, record in records.items():
        batch = f'{record["rows"]} × {record["length"]}'
        if record['accumulation'] > 1:
            batch += f' × {record["accumulation"]}'
        if 'needed' in record:
            cells = ['', f'{record["needed"] / _GIB:.1f}', 'no', '', '', '', '']
        else:
            sizes = [record[key] for key in ('parameters', 'optimizer', 'batch', 'temporaries')]
            moved = sum(sums['bytes'] for sums in record['collectives'].values())
            cells = [
                f'{record["temporaries"] / _GIB:.2f}',
                f'{sum(sizes) / _GIB:.1f}',
                'yes' if record['fits'] else 'no',
                f'{moved / _GIB:.2f}',
                ', '.join(f'{number} {name}' for name, number in record['kernels'].items()),
                f'{record["seconds"] * 1e3:.1f}' if 'seconds' in record else '',
                f'{record["mfu"]:.0%}' if 'mfu' in record else '',
            ]
        lines.append(f'| {" | ".join([f"`{command}`", batch, *cells])} |')
    return '\n'.join(lines) + '\n'


def differences(golden: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Return a line for each value of a record that differs from the golden record.

    The most expensive operations are not compared: small changes affect their order. Nor is the
    traffic, which follows from what is compared.
    """
    lines = []
    for key in sorted((golden.keys() | record.keys()) - {'operations', 'traffic'}):
        before, after = golden.get(key), record.get(key)
        is_number = None not in (before, after) and key in TOLERANCE
        if is_number and abs(after - before) <= TOLERANCE[key] * before:
            continue
        if before != after:
            lines.append(f'{key}: {before} recorded, now {after}')
    return lines


def short_path(path: str) -> str:
    """Shorten JAX's name of an operation: 'backward …/feedforward/output/BTD,FD->BTF'."""
    parts = [part for part in re.sub(r'jit\(\w*\)/?', '', path).split('/') if part]
    is_backward = any(part.startswith('transpose(') for part in parts)
    kept = [part for part in parts if not re.search(r'\(|\.|^shard_map$', part)]
    return ('backward ' if is_backward else '') + '/'.join(kept[-4:])
