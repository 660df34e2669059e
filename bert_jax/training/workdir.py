"""The folder of one run: one process at a time, one config for ever."""

import fcntl
import json
import os
import pathlib

from bert_jax.errors import UserError

# Keys that change how a run is carried out, not what it computes: free to differ when it goes on.
FREE = (
    'workdir',
    'mesh',
    'sharding_rules',
    'stages.accumulation',
    'debug',
    'checkpoint',
    'logging',
    'compute.remat',
    'compute.attention_kernel',
    'data.corpus',
    'data.prepare_workers',
    'data.reading_threads',
)


def claim(path: str, config: dict):
    """Makes the folder, locks it for this process' life and stores config.json there. For host 0.

    Raises UserError if it cannot be written, another process uses it, or it belongs to a run of
    another config.
    """
    workdir = pathlib.Path(path)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        lock = open(workdir / 'lock', 'w')  # noqa: SIM115  (stays open until the process ends)
    except OSError as error:
        raise UserError(f'workdir {path} cannot be written: {error.strerror}') from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f'workdir {path} is in use by another run; choose another --config.workdir'
        ) from error
    _locks.append(lock)
    check_config(workdir, config)
    write_json(workdir / 'config.json', config)


def write_json(path: pathlib.Path, value):
    """Written whole or not at all."""
    temporary = path.with_suffix('.tmp')
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + '\n', encoding='utf-8')
    os.replace(temporary, path)


def check_config(workdir: pathlib.Path, config: dict):
    """Raises UserError if the folder belongs to a run of another config."""
    path = workdir / 'config.json'
    if not path.exists():
        return
    old, new = _flat(json.loads(path.read_text(encoding='utf-8'))), _flat(config)
    changed = [
        f'{key} was {old.get(key)!r}, is {new.get(key)!r}'
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not _is_free(key)
    ]
    if changed:
        raise UserError(
            f'workdir {workdir} holds a run of another config ({"; ".join(changed[:3])}); '
            'choose another --config.workdir or remove it'
        )


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(free + '.') for free in FREE)


def _flat(tree: dict, prefix: str = '') -> dict:
    """Nested keys joined by dots; values as JSON has them, so that tuples and lists agree."""
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f'{prefix}{key}.')
        else:
            flat[prefix + key] = json.loads(json.dumps(value))
    return flat


_locks = []
