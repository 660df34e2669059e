"""The folder of one run: locked by one process at a time, and tied to one config."""

import dataclasses
import json
import pathlib
import shutil
from contextlib import AbstractContextManager

from flax import traverse_util

from bert_jax import config_keys
from bert_jax.errors import UserError, writing
from bert_jax.files import read_json, write_json
from bert_jax.loaded import checkpoint_files
from bert_jax.storage import paths
from bert_jax.storage.locks import Lock
from bert_jax.storage.path import Path
from bert_jax.types import Config, JsonRecord

DATA = 'data'  # folder of what a run is given as objects of Python; not a result
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


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The folder of one run or sweep.

    If the folder is in a bucket, its files are written to a copy on this machine and then pushed.
    Checkpoints are uploaded and downloaded by `Checkpoints`.

    Attributes:
        path: The folder, on a disk or in a bucket.
        lock: The lock of the folder, which `claim` takes and `close` releases.
    """

    path: Path
    lock: Lock

    @classmethod
    def of(cls, name: str) -> 'Workdir':
        """Return the folder of this name; nothing is written."""
        path = paths.path(name)
        return cls(path, Lock(path / 'lock'))

    @property
    def local(self) -> pathlib.Path:
        """The folder on this machine: the folder itself, or the copy of a folder in a bucket."""
        return paths.local(self.path)

    def claim(self, config: Config) -> list[str]:
        """Create the folder, lock it until `close` and compare its config.

        In a multi-host run only host 0 calls this. If the folder is in a bucket, wait for its lock
        and copy its files, except checkpoints, to this machine.

        Returns:
            The changes to log, from `check_config`.

        Raises:
            UserError: The folder cannot be written, is in use, or belongs to a run with another
                config.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.lock.take():
                raise self._in_use()
            paths.fetch(self.path, without=_SEPARATE).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_writable(error) from error
        return self.check_config(config)

    def close(self) -> None:
        """Release the lock, if this process holds it."""
        self.lock.release()

    def check(self, config: Config) -> None:
        """Check that `claim` will succeed, without writing anything.

        Raises:
            UserError: As for `claim`; in a bucket only for a run with another config.
        """
        try:
            paths.check_writable(self.path)
        except OSError as error:
            raise self._not_writable(error) from error
        if self.lock.is_taken():
            raise self._in_use()
        self.check_config(config)

    def check_files(self) -> None:
        """Raise UserError if a run or sweep would replace files that are not its own."""
        if checkpoint_files.is_run(self.path) or self._is_sweep():
            return
        # An interruption right after the start leaves an empty folder.
        if taken := sorted(name for name in _WRITTEN if _has_content(self.path / name)):
            raise UserError(
                f'workdir {self.path} holds {", ".join(taken)}, but no run, which would replace '
                'them; choose another --config.workdir'
            )

    def check_config(self, config: Config) -> list[str]:
        """Compare a config with the config of the run in the folder, if there is one.

        Returns:
            The changes that affect the rest of the run, for the log.

        Raises:
            UserError: The folder belongs to a run of another config, or holds files of another
                origin.
        """
        self.check_files()
        has_checkpoints = any(self.path.glob('checkpoints/[0-9]*'))
        is_trained = has_checkpoints or (self.path / 'results.json').exists()
        path = self.path / 'config.json'
        if not is_trained or not path.exists():
            return []
        accepted, refused = compare(read_json(path), config)
        if refused:
            raise UserError(
                f'workdir {self.path} holds a run of another config ({"; ".join(refused[:3])}); '
                'choose another --config.workdir, or delete that run with --overwrite'
            )
        return accepted

    def writing(self) -> AbstractContextManager[None]:
        """Turn an error of the block whose reason is the disk into a UserError."""
        return writing(f'workdir {self.path}')

    def push(self) -> None:
        """Upload the changed files to a folder in a bucket, except checkpoints."""
        with self.writing():
            paths.push(self.path, without=_SEPARATE)

    def write_config(self, config: Config) -> None:
        """Write config.json, which later runs in the folder are compared with."""
        self._write('config.json', config.to_dict())

    def write_results(self, results: JsonRecord) -> None:
        """Write results.json, the last file of a run."""
        self._write('results.json', results)

    def delete_run(self) -> None:
        """Delete the run or sweep, if there is one, with everything in the folder but DATA.

        Raises:
            UserError: The folder holds something else, is in use, or is in a bucket.
        """
        if not self.path.exists() or all(child.name == DATA for child in self.path.iterdir()):
            return
        if self.local != self.path:
            raise UserError(
                f'--overwrite does not delete runs in buckets; remove {self.path} with the tool of '
                'the bucket, or choose another --config.workdir'
            )
        self.check_files()
        if not checkpoint_files.is_run(self.path) and not self._is_sweep():
            raise UserError(
                f'--overwrite: {self.path} holds no run; choose another --config.workdir or remove '
                'it'
            )
        with self.writing():
            if not self.lock.take():
                raise self._in_use()
            for child in self.local.iterdir():
                if child.name == DATA:
                    continue
                shutil.rmtree(child) if child.is_dir() else child.unlink()
            self.lock.release()

    def _is_sweep(self) -> bool:
        return (self.path / _SWEEP).exists()

    def _write(self, name: str, value: JsonRecord) -> None:
        with self.writing():
            write_json(self.local / name, value)
        self.push()

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(
            f'workdir {self.path} cannot be written: {error.strerror}; choose another '
            '--config.workdir'
        )

    def _in_use(self) -> UserError:
        return UserError(
            f'workdir {self.path} is in use by another run; choose another --config.workdir'
        )


def _has_content(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()


def compare(stored: JsonRecord, config: Config) -> tuple[list[str], list[str]]:
    """Return the changes since a stored config that a resumed run may have, and all others."""
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
    return accepted, refused


def _only_last_stage(key: str, old: JsonRecord, new: JsonRecord) -> bool:
    """Whether the lengths of all stages but the last are the same."""
    before, after = old.get(key), new.get(key)
    if not isinstance(before, list) or not isinstance(after, list):
        return True
    values = [value for name, value in new.items() if name.startswith('training.')]
    stages = max(len(value) for value in values if isinstance(value, list))
    return len(before) == len(after) == stages and before[:-1] == after[:-1]
