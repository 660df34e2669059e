"""Names that strangers choose: keys in buckets, and names of files that other files list.

A key may be '../x', 'a//b' or a line break: joined to a folder of this machine, it would leave the
folder, replace another file, or rewrite a terminal.
"""

import re
from collections.abc import Iterable

from bert_jax.errors import UserError

# An empty part, '.' or '..'; a control character or a backslash.
_UNSAFE = re.compile(r'(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f-\x9f\\]')
_LONGEST = 255  # bytes of the name of a file on every disk
_DIGEST = re.compile('[0-9a-f]{64}')
_NUMBER = re.compile('0|[1-9][0-9]{0,17}')  # below 2**63


def check(name: object, source: object) -> str:
    """Return a name of a file below a folder, as a file or listing `source` gives it.

    Raises:
        UserError: The name is empty, absolute or too long, leaves the folder, or has a control
            character or a backslash.
    """
    if isinstance(name, str) and any(
        len(part.encode('utf-8', 'surrogatepass')) > _LONGEST for part in name.split('/')
    ):
        raise UserError(f'{source}: {name:.100} … is too long for the name of a file')
    if not isinstance(name, str) or _UNSAFE.search(name):
        raise UserError(
            f'{source}: the name {name!r:.200} is not of a file below its folder; names must be '
            "relative, without empty parts, '.', '..', backslashes and control characters"
        )
    return name


def check_distinct(names: Iterable[str], source: object) -> None:
    """Raise UserError if a name is also the folder of another, which no disk can hold."""
    known = set(names)
    for name in sorted(known):
        parts = name.split('/')
        for length in range(1, len(parts)):
            if (folder := '/'.join(parts[:length])) in known:
                raise UserError(
                    f'{source}: {folder!r:.200} is a file, and {name!r:.200} is in a folder of '
                    'this name; rename or remove one of them'
                )


def is_number(text: str) -> bool:
    """Whether a text is a whole number as `str` writes it, below 10^18.

    `str.isdigit` also accepts digits that `int` refuses, and `str.isdecimal` those of all scripts.
    """
    return bool(_NUMBER.fullmatch(text))


def is_digest(text: object) -> bool:
    """Whether a text is a SHA-256 in hexadecimal."""
    return isinstance(text, str) and bool(_DIGEST.fullmatch(text))


def check_digest(digest: object, source: object) -> str:
    """Return a SHA-256 in hexadecimal. Raises UserError if it is something else."""
    if not is_digest(digest):
        raise UserError(f'{source}: {digest!r:.80} is not a SHA-256 of 64 hexadecimal digits')
    return str(digest)
