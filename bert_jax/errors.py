"""A user's mistake is one clear line, never a traceback."""

import sys
from collections.abc import Callable


class UserError(Exception):
    """What was wrong, where, and what to do, in one line for the person who started the run."""


def unknown(kind: str, name: str, known) -> UserError:
    """The error for a misspelled name: says which names there are."""
    return UserError(f'unknown {kind} {name!r}; known: {", ".join(sorted(known))}')


def exit_cleanly(main: Callable) -> Callable:
    """Wraps a command line: a UserError becomes `error: …` on stderr and exit status 2."""

    def wrapped(*args):
        try:
            return main(*args)
        except UserError as error:
            print(f'error: {error}', file=sys.stderr)
            sys.exit(2)

    return wrapped
