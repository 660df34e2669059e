"""The folder of one run: locked by one process at a time, and tied to one config."""

import errno
import fcntl
import json
import os
import pathlib
import shutil
from typing import IO

from flax import traverse_util
from ml_collections import ConfigDict

from bert_jax import config_keys
from bert_jax.errors import UserError, writing
from bert_jax.files import write_json
from bert_jax.storage import leases, paths, temporary

_SEPARATE = ('checkpoints',)  # folders that other modules upload and download
# Files and folders of every run, and one that only a sweep has.
_WRITTEN = (
    'README.md',
    'checkpoints',
    'cloze.md',
    'config.json',
    'loss.pdf',
    'loss.png',
    'metrics.jsonl',
    'results.json',
    'tensorboard',
)
_SWEEP = 'table.md'
_locks: list[IO[bytes]] = []  # open until the process ends, which releases them


def claim(path: str, config: ConfigDict) -> list[str]:
    """Create the folder, lock it for the life of this process and compare its config.

    In a multi-host run only host 0 calls this. If the folder is in a bucket, wait for its lock and
    copy its files, except checkpoints, to this machine.

    Returns:
        The changes to log, from `check_config`.

    Raises:
        UserError: the folder cannot be written, is in use, or belongs to a run with another config.
    """
    workdir = paths.path(path)
    try:
        if paths.is_in_bucket(workdir):
            leases.hold(workdir / 'lock')
        else:
            workdir.mkdir(parents=True, exist_ok=True)
            _lock(workdir / 'lock')
        paths.fetch(workdir, without=_SEPARATE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(path, error) from error
    return check_config(workdir, config)


def check(path: str, config: ConfigDict) -> None:
    """Check that `claim` will succeed, without writing anything.

    Raises:
        UserError: as for `claim`; in a bucket only for a run with another config.
    """
    workdir = paths.path(path)
    if not paths.is_in_bucket(workdir):
        try:
            _check_writable(workdir)
        except OSError as error:
            raise _not_writable(path, error) from error
    check_config(workdir, config)


def _check_writable(folder: pathlib.Path) -> None:
    """Raise OSError if a folder cannot be created or written, UserError if a run holds it."""
    parent = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not parent.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(parent, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(parent).f_flag & os.ST_RDONLY
        code = errno.EROFS if is_read_only else errno.EACCES
        raise OSError(code, os.strerror(code))
    lock = folder / 'lock'
    if lock.is_file():
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_use(folder) from None
            except OSError:
                pass  # the file system has no locks


def _not_writable(path: str, error: OSError) -> UserError:
    return UserError(
        f'workdir {path} cannot be written: {error.strerror}; choose another --config.workdir'
    )


def _in_use(folder: pathlib.Path) -> UserError:
    return UserError(f'workdir {folder} is in use by another run; choose another --config.workdir')


def _lock(path: pathlib.Path) -> None:
    """Lock a file until the process ends; UserError if another process has locked it."""
    file = temporary.open_lock(path)  # stays open until the process ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _in_use(path.parent) from error
    except OSError:  # the file system has no locks
        leases.hold(path)
    _locks.append(file)


def push(path: str | os.PathLike[str]) -> None:
    """Upload the changed files of a working directory in a bucket, except checkpoints."""
    with writing(f'workdir {path}'):
        paths.push(path, without=_SEPARATE)


def write_config(path: str, config: ConfigDict) -> None:
    """Write config.json, which later runs in the folder are compared with."""
    with writing(f'workdir {path}'):
        write_json(paths.local(path) / 'config.json', config.to_dict())
    push(path)


def delete_run(path: str) -> None:
    """Delete the run or sweep in a folder, if there is one, with everything in the folder.

    Raises:
        UserError: the folder holds something else, is in use, or is in a bucket.
    """
    workdir = paths.path(path)
    if not workdir.exists() or not any(workdir.iterdir()):
        return
    if paths.is_in_bucket(workdir):
        raise UserError(
            f'--overwrite does not delete runs in buckets; remove {path} with the tool of the '
            'bucket, or choose another --config.workdir'
        )
    check_files(workdir)
    if not is_run(workdir) and not (workdir / _SWEEP).exists():
        raise UserError(
            f'--overwrite: {path} holds no run; choose another --config.workdir or remove it'
        )
    with writing(f'workdir {path}'):
        _lock(workdir / 'lock')
        for child in workdir.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        _locks.pop().close()


def _has_content(path: pathlib.Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()


def check_files(workdir: pathlib.Path) -> None:
    """Raise UserError if a run or sweep would replace files in a folder that are not its own."""
    if is_run(workdir) or (workdir / _SWEEP).exists():
        return
    # An interruption right after the start leaves an empty folder.
    if taken := sorted(name for name in _WRITTEN if _has_content(workdir / name)):
        raise UserError(
            f'workdir {workdir} holds {", ".join(taken)}, but no run, which would replace them; '
            'choose another --config.workdir'
        )


def is_run(workdir: pathlib.Path) -> bool:
    """Whether the folder has the config of a run."""
    path = workdir / 'config.json'
    try:
        config = json.loads(path.read_text(encoding='utf-8')) if path.exists() else {}
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and {'task', 'workdir'} <= config.keys()


def check_config(workdir: pathlib.Path, config: ConfigDict) -> list[str]:
    """Compare a config with the config of the run in a folder, if there is one.

    Returns:
        The changes that affect the rest of the run, for the log.

    Raises:
        UserError: the folder belongs to a run of another config, or holds files of another origin.
    """
    check_files(workdir)
    is_trained = any(workdir.glob('checkpoints/[0-9]*')) or (workdir / 'results.json').exists()
    path = workdir / 'config.json'
    if not is_trained or not path.exists():
        return []
    stored = json.loads(path.read_text(encoding='utf-8'))
    old = traverse_util.flatten_dict(stored, sep='.')
    new = json.loads(json.dumps(config_keys.flatten(config)))  # lists for tuples
    if new.get('init_from'):
        new['model.architecture'] = None  # of the recipe; the run uses and stores that of weights
    declared = config_keys.declarations(config)
    refused: list[str] = []
    accepted: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        on_resume = declared[key].on_resume if key in declared else 'same'
        if old.get(key) == new.get(key) or on_resume == 'free':
            continue
        only_last = on_resume == 'last stage' and _only_last_stage(key, old, new)
        changes = accepted if on_resume == 'logged' or only_last else refused
        changes.append(f'{key} was {old.get(key)!r}, is {new.get(key)!r}')
    if refused:
        raise UserError(
            f'workdir {workdir} holds a run of another config ({"; ".join(refused[:3])}); '
            'choose another --config.workdir, or delete that run with --overwrite'
        )
    return accepted


def _only_last_stage(key: str, old: dict, new: dict) -> bool:
    """Whether the lengths of all stages but the last are the same."""
    before, after = old.get(key), new.get(key)
    if not isinstance(before, list) or not isinstance(after, list):
        return True
    stages = max(len(value) for name, value in new.items() if name.startswith('training.'))
    return len(before) == len(after) == stages and before[:-1] == after[:-1]
