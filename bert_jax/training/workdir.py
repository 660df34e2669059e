"""The folder of one run: locked by one process at a time, and tied to one config."""

import fcntl
import json
import pathlib
from typing import TextIO

from flax import traverse_util

from bert_jax.errors import UserError
from bert_jax.files import write_json
from bert_jax.training import older_versions

# Keys that change how a run is carried out but not what it computes; a resumed run may change them.
CHANGEABLE = (
    'workdir',
    'mesh',
    'sharding_rules',
    'training.accumulation',
    'debug',
    'checkpoint',
    'logging',
    'compute.remat',
    'compute.attention_kernel',
    'data.corpus',
    'data.max_bad_share',
    'data.prepare_workers',
    'data.reading_threads',
)

_locks: list[TextIO] = []  # open until the process ends, which releases them


def claim(path: str, config: dict) -> None:
    """Create the folder, lock it for the life of this process and write config.json there.

    In a multi-host run only host 0 calls this.

    Raises:
      UserError: the folder cannot be written, is in use, or belongs to a run with another config.
    """
    workdir = pathlib.Path(path)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        lock = open(workdir / 'lock', 'w')  # noqa: SIM115  (stays open until the process ends)
    except OSError as error:
        raise UserError(
            f'workdir {path} cannot be written: {error.strerror}; choose another --config.workdir'
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f'workdir {path} is in use by another run; choose another --config.workdir'
        ) from error
    _locks.append(lock)
    check_config(workdir, config)
    write_json(workdir / 'config.json', config)


def check_config(workdir: pathlib.Path, config: dict) -> None:
    """Raise UserError if the folder belongs to a run of another config."""
    path = workdir / 'config.json'
    if not path.exists():
        return
    stored = json.loads(path.read_text(encoding='utf-8'))
    given = json.loads(json.dumps(config))  # lists for tuples
    old, new = (
        traverse_util.flatten_dict(older_versions.current_config(each), sep='.')
        for each in (stored, given)
    )
    changeable = tuple(f'{key}.' for key in CHANGEABLE)
    changed = [
        f'{key} was {old.get(key)!r}, is {new.get(key)!r}'
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not f'{key}.'.startswith(changeable)
    ]
    if changed:
        raise UserError(
            f'workdir {workdir} holds a run of another config ({"; ".join(changed[:3])}); '
            'choose another --config.workdir or remove this one'
        )
