"""Errors that a user can fix: one clear line instead of a traceback."""

import contextlib
import contextvars
import difflib
import errno
import functools
import os
import re
import resource
import select
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NoReturn, TypeVar

Entry = TypeVar('Entry')

# What XLA, the loader of libraries, and the system say.
_OUT_OF_MEMORY = re.compile('RESOURCE_EXHAUSTED|failed to map segment|Cannot allocate memory')
_ADDRESSES = 4 * 2**30  # bytes; with 3 GiB, tiny models train, with 2.5 GiB they do not


_MESSAGE_CHARACTERS = 2_000


class UserError(Exception):
    """Says in one line what is wrong, where it came from, and what to do.

    A message can quote a file or a library: its line breaks become spaces, and of a very long one
    the middle is left out.
    """

    def __str__(self) -> str:
        text = ' '.join(super().__str__().split('\n')).strip()
        if len(text) < _MESSAGE_CHARACTERS:
            return text
        return f'{text[: _MESSAGE_CHARACTERS - 500]} … {text[-400:]}'

    def _render_traceback_(self) -> list[str]:  # what a notebook shows
        return [f'error: {self}']


class Diverged(UserError):
    """Training with these settings cannot go on; with others it might.

    Attributes:
        step: the last step.
    """

    def __init__(self, message: str, step: int = 0):
        super().__init__(message)
        self.step = step


class InvalidText(UserError):
    """A text of a list cannot be answered.

    Attributes:
        number: its number in the list, from 1.
        problem: what is wrong, without its subject.
    """

    def __init__(self, number: int, problem: str):
        super().__init__(f'text {number} {problem}')
        self.number, self.problem = number, problem


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """Return the error for a name that does not exist; it lists the names that do."""
    names = sorted({*known})  # a name may be that of a kind and of a task
    close = nearest(name, names)
    advice = f'did you mean {close}? ' if close else ''
    listed = f'known: {", ".join(names)}' if names else 'there is none'
    return UserError(f'unknown {kind} {name!r}; {advice}{listed}')


def look_up(kind: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """Return the entry of a table; raise UserError if there is none."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that a mistyped name is most like; '' if it is like none.

    A name is also like a longer or shorter one, such as classify and classification.
    """
    name, by_name = str(name).lower(), {other.lower(): other for other in known}
    close = difflib.get_close_matches(name, by_name, 1, 0.7)
    if not close:
        shared = {other: len(os.path.commonprefix([name, other])) for other in by_name}
        longest = max(shared, key=lambda other: shared[other], default='')
        close = [longest] * (shared.get(longest, 0) >= max(3, 0.75 * len(name)))
    return by_name[close[0]] if close else ''


def similar(name: str, known: Collection[str]) -> list[str]:
    """Return the known names that end in a name, such as schedule.rate; else the nearest."""
    ends = [key for key in known if key.endswith(f'.{name}')]
    return ends or list(filter(None, [nearest(name, known)]))


# Control characters except tab and line feed, and marks that reorder the text around them.
_CONTROL = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]')


def printable(text: str) -> str:
    """Escape characters with which a name from a file could rewrite a terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def report(text: str) -> None:
    """Print a line to stderr, escaping control characters."""
    print(printable(text), file=sys.stderr, flush=True)


_is_quiet = contextvars.ContextVar('is_quiet', default=False)


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Print no warnings in the block, for work that is done again afterwards."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)


def warn(text: str) -> None:
    """Print a warning to stderr, above progress bars if there are any."""
    if _is_quiet.get():
        return
    line = printable(f'warning: {text}')
    if 'tqdm' in sys.modules:
        sys.modules['tqdm'].tqdm.write(line, sys.stderr)
    else:
        print(line, file=sys.stderr, flush=True)


def join_first(names: Collection[str]) -> str:
    """Join up to 8 names for a message."""
    return ', '.join(list(names)[:8]) + (' …' if len(names) > 8 else '')


@contextlib.contextmanager
def writing(place: object) -> Iterator[None]:
    """Turn an error of the disk in the block into a UserError that names `place`."""
    try:
        yield
    except UserError:  # may be of the disk, and names another place
        raise
    except Exception as error:
        if (reason := disk_fault(error)) is None:
            raise
        raise UserError(
            f'{place} cannot be written: {reason}; fix that and rerun the same command'
        ) from error


def disk_fault(error: BaseException) -> str | None:
    """Return the system's message if the disk is the reason for an error, else None.

    Libraries in other languages raise exceptions of their own with the message of the system.
    """
    if isinstance(error, BrokenPipeError):  # not a disk
        return None
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if match := re.search(r'([^:]*) \[os_error_code', str(error)):  # Orbax
        return match[1].strip()
    messages = map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG))
    return next((message for message in messages if message in str(error)), None)


def exit_cleanly(main: Callable[..., None]) -> Callable[..., None]:
    """Decorate `main` of a command, so that no user sees a traceback.

    A UserError or a lack of memory becomes 'error: …' on stderr and exit status 2. Ctrl-C, and a
    reader of the output that ends, such as `head`, end the command with the statuses that shells
    give to these signals.
    """

    @functools.wraps(main)
    def wrapped(*args: object) -> None:
        _warn_of_address_limit()
        try:
            try:
                main(*args)
            finally:
                if sys.stdout:  # None if it was closed before, as by >&-
                    sys.stdout.flush()  # Python would report a failure after `main`
        except KeyboardInterrupt as interrupt:  # with a message if something remains
            report(f'interrupted: {str(interrupt) or "rerun the same command to start again"}')
            sys.exit(128 + signal.SIGINT)
        except (UserError, OSError) as error:
            if _has_no_reader(error):
                sys.exit(128 + signal.SIGPIPE)
            _end_with(error)
        except Exception as error:
            _end_with(error)

    return wrapped


def _end_with(error: Exception) -> NoReturn:
    """Report an error and exit with status 2; raise the error if no user can fix it."""
    reason = str(error)
    if not isinstance(error, UserError):
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(reason):
            raise error
        first = ' '.join(reason.split())[:200].rstrip('.') or type(error).__name__
        reason = (
            f'out of memory: {first}; use smaller batches, shorter texts or a smaller model, or '
            'more memory'
        )
    report(f'error: {reason}')
    sys.exit(2)


def _warn_of_address_limit() -> None:
    """Warn if libraries may end the process without a message, because they cannot map memory."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 < limit < _ADDRESSES:
        warn(
            f'this process may use only {limit // 2**20:,} MiB of addresses (ulimit -v), and JAX '
            f'needs up to {_ADDRESSES // 2**20:,}: with fewer, it may end the process without a '
            'message'
        )


def _has_no_reader(error: BaseException | None) -> bool:
    """Whether an error is, or follows from, one that nobody reads the output of this process.

    Other pipes break too, such as those to worker processes. Later output is discarded.
    """
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__cause__ or error.__context__
    if error is None:
        return False
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    broken = [descriptor for descriptor, event in poll.poll(0) if event & select.POLLERR]
    for descriptor in broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return bool(broken)
