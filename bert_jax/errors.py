"""Errors that a user can fix: one clear line instead of a traceback."""

import contextlib
import difflib
import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator


class UserError(Exception):
    """Says in one line what is wrong, where it came from, and what to do."""


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """Return the error for a name that does not exist; it lists the names that do."""
    names = sorted(known)
    close = nearest(name, names)
    advice = f'did you mean {close}? ' if close else ''
    return UserError(f'unknown {kind} {name!r}; {advice}known: {", ".join(names)}')


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that a mistyped name is most like; '' if it is like none."""
    return next(iter(difflib.get_close_matches(str(name), list(known), 1, 0.7)), '')


def join_first(names: Collection[str]) -> str:
    """Join up to 8 names for a message."""
    return ', '.join(list(names)[:8]) + (' …' if len(names) > 8 else '')


@contextlib.contextmanager
def writing_to(folder: str | os.PathLike, name: str = 'workdir') -> Iterator[None]:
    """Turn an error of the disk in the block into a UserError with the folder and its option."""
    try:
        yield
    except Exception as error:
        if (reason := disk_fault(error)) is None:
            raise
        raise UserError(
            f'cannot write to {name} {folder}: {reason}; fix that and rerun the same command'
        ) from error


def disk_fault(error: BaseException) -> str | None:
    """Return the system's message if the disk is the reason for an error, else None.

    Libraries in other languages raise exceptions of their own with the message of the system.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if match := re.search(r'([^:]*) \[os_error_code', str(error)):  # Orbax
        return match[1].strip()
    messages = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG))
    return next((message for message in messages if message in str(error)), None)


def exit_cleanly(main: Callable[..., None]) -> Callable[..., None]:
    """Decorate `main` of a command: a UserError becomes 'error: …' on stderr and exit status 2."""

    @functools.wraps(main)
    def wrapped(*args: object) -> None:
        try:
            main(*args)
        except UserError as error:
            print(f'error: {error}', file=sys.stderr)
            sys.exit(2)

    return wrapped
