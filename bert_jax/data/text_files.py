"""Reading text files, plain or gzipped, in any encoding, for text sources and labeled data.

Lines end at \\n or \\r\\n and nowhere else: other Unicode line breaks may occur inside a field.
"""

import codecs
import contextlib
import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from typing import TextIO, cast

from bert_jax.errors import UserError

_SURROGATE = re.compile('[\ud800-\udfff]')


def matching_files(pattern: str) -> list[str]:
    """Return the sorted paths of the files that a glob matches; '**' is recursive."""
    found = glob.glob(os.path.expanduser(pattern), recursive=True)
    return sorted(filter(os.path.isfile, found))


def check_encoding(encoding: str, option: str = 'encoding') -> None:
    """Raise UserError unless Python has a codec of this name.

    Args:
        encoding: Name of the encoding.
        option: The setting it comes from, for the message.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise UserError(
            f'unknown {option} {encoding!r}; use the name of a Python codec, such as utf-8'
        ) from None


@contextlib.contextmanager
def open_text(path: str, encoding: str, newline: str = '\n') -> Iterator[TextIO]:
    """Open a text file, decompressed if its name ends in .gz.

    A byte order mark is skipped. Undecodable bytes become lone surrogates
    (`errors='surrogateescape'`); see `has_surrogates` and `replace_surrogates`.

    Raises:
        UserError: The file cannot be read, or a read inside the `with` block fails.
    """
    if codecs.lookup(encoding).name == 'utf-8':
        encoding = 'utf-8-sig'
    opener = gzip.open if path.endswith('.gz') else open
    try:
        with opener(
            path, 'rt', encoding=encoding, errors='surrogateescape', newline=newline
        ) as file:
            yield cast(TextIO, file)
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise UserError(f'cannot read {path}: {error}') from error


def read_text(path: str, encoding: str) -> str:
    """Return the whole text of a file. Raises UserError if it cannot be read."""
    with open_text(path, encoding) as file:
        return file.read()


def read_lines(path: str, encoding: str, limit: int = -1) -> Iterator[str]:
    """Stream the lines of a file without their ends.

    Args:
        path: Plain or gzipped file.
        encoding: Name of its encoding.
        limit: A line of more characters is yielded in pieces of this length; −1 for no limit.

    Raises:
        UserError: The file cannot be read.
    """
    with open_text(path, encoding) as file:
        while line := file.readline(limit):
            yield line.removesuffix('\n').removesuffix('\r')


def has_surrogates(text: str) -> bool:
    """Whether a text holds undecodable bytes (see `open_text`) or halves of surrogate pairs."""
    return not text.isascii() and bool(_SURROGATE.search(text))


def replace_surrogates(text: str) -> tuple[str, int]:
    """Replace each surrogate by U+FFFD; return the text and the number of replacements."""
    return _SURROGATE.subn('\ufffd', text) if has_surrogates(text) else (text, 0)
