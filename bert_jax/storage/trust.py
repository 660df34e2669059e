"""Which buckets a path that was read from a file may lead to.

Opening a path in a bucket sends requests that are signed with the user's credentials, and downloads
files. The user names a bucket on the command line; a file that a stranger wrote must not.
"""

import os

from bert_jax.errors import UserError
from bert_jax.storage import paths
from bert_jax.storage.path import Path

TRUSTED = 'BERT_JAX_TRUSTED_BUCKETS'  # environment variable: s3://NAME,gs://NAME,…


def is_trusted(name: str, file: Path) -> bool:
    """Whether a path that a file names is on a disk, in the file's own bucket or a trusted one."""
    bucket = _bucket(name)
    allowed = {_bucket(paths.name_of(file)), *map(_bucket, _trusted())}
    return not bucket or bucket in allowed


def path_in(file: Path, key: str, name: str) -> Path:
    """Return the path that a file names; see `is_trusted`.

    Args:
        file: The file, or its local copy.
        key: Where in the file the path is, for the message.
        name: The path.

    Raises:
        UserError: The path leads to another bucket.
    """
    if not is_trusted(name, file):
        raise UserError(
            f'{paths.name_of(file)}: {key} is {name!r:.200}, in a bucket that you did not name; '
            f'copy it to a disk and enter its path there, or set {TRUSTED}={_bucket(name)} if you '
            'trust this file'
        )
    return paths.path(name)


def _trusted() -> list[str]:
    return [name for name in os.environ.get(TRUSTED, '').split(',') if name]


def _bucket(name: str) -> str:
    """The start of a URL, such as 'gs://NAME'; '' for a path on a disk."""
    scheme, separator, rest = name.strip().partition('://')
    return f'{scheme.lower()}://{rest.partition("/")[0]}' if separator else ''
