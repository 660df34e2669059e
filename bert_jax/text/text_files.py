"""Reads text files, plain or compressed, in any encoding, for text sources and labeled data.

Lines end at \\n or \\r\\n and nowhere else: other Unicode line breaks may occur inside a field.
In a file without any \\n, lines end at \\r, as on old Macs.
"""

import bz2
import codecs
import contextlib
import glob
import gzip
import importlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from bert_jax import limits
from bert_jax.errors import UserError
from bert_jax.storage import paths
from bert_jax.storage.path import BucketError
from bert_jax.text import file_types

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_HEAD_BYTES = 2**13  # checked to distinguish text from other files
_COMPRESSED_SUFFIXES = ('.gz', '.bz2', '.xz', '.zst')
_CUTTABLE = re.compile('utf-8|ascii|iso8859-.*|cp125.|koi8-.')  # codecs, see `can_cut`
_PART_CHARACTERS = 2**20  # read at once where lines do not matter
_MAX_LINE_BYTES = 2**22  # no part of a file starts with a longer line, see `Cut`
_ZSTD_WINDOW = 2**27  # the largest window that pyarrow reads
_DOUBLE_STAR = re.compile(r'(?:^|(?<=/))\*\*(?:/|$)')


def matching_files(pattern: str) -> list[str]:
    """Return the sorted paths of the files that a glob matches; '**' is recursive.

    Symbolic links may form loops: each folder is entered once. A broken link counts as a file, so
    reading it is an error. If a path exists as written, such as '[EN] book.txt', or begins with
    such a folder, its brackets and other special characters are taken literally.

    Raises:
        UserError: A path exists as written, but the glob matches other files.
    """
    pattern = paths.lasting_name(pattern)
    in_bucket = paths.glob(pattern)
    if in_bucket is not None:
        is_name = not in_bucket and glob.has_magic(pattern) and paths.path(pattern).is_file()
        return [pattern] if is_name else in_bucket
    pattern = os.path.expanduser(pattern)
    matches, literal = _files(pattern), _escape_existing(pattern)
    if literal == pattern:
        return matches
    as_written = _files(literal)
    if matches and as_written and matches != as_written:
        raise UserError(
            f'{pattern!r} is the name of {as_written[0]}, but as a glob it matches {matches[0]}: '
            'rename one of them, or write [[] for a bracket, [*] for a star and [?] for a '
            'question mark'
        )
    return matches or as_written


def _files(pattern: str) -> list[str]:
    matches = _glob(pattern)
    return sorted(path for path in matches if os.path.isfile(path) or not os.path.exists(path))


def _escape_existing(pattern: str) -> str:
    """Escape the beginning of a glob that exists as written."""
    name = pattern
    while glob.has_magic(name) and not os.path.lexists(name):
        name = os.path.dirname(name)
    return glob.escape(name) + pattern[len(name) :]


def _glob(pattern: str) -> Iterator[str]:
    """Yield the matches of a glob, without endless or repeated paths through symbolic links."""
    star = _DOUBLE_STAR.search(pattern)
    if not star:
        yield from glob.iglob(pattern)
        return
    for root in glob.iglob(pattern[: star.start()] or os.curdir):
        for folder in _folders(root):
            inside = glob.escape(folder if star.start() else folder[2:])  # without './'
            yield from _glob(os.path.join(inside, pattern[star.end() :] or '*'))


def _folders(root: str) -> Iterator[str]:
    """Yield a folder and its subfolders, each once, without hidden folders."""

    def fail(error: OSError) -> None:
        raise UserError(f'cannot read folder {error.filename}: {error.strerror}')

    seen = set()
    for folder, folders, _ in os.walk(root, followlinks=True, onerror=fail):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith('.'))
        yield folder


def identify(path: str) -> tuple[int, int, int] | str:
    """Return an identifier that is the same for all paths of a file, through any links."""
    try:
        status = os.stat(path)
    except OSError:  # missing, or in a bucket, which has no links
        return path
    return status.st_dev, status.st_ino, status.st_size


def check_encoding(encoding: str, option: str = 'encoding') -> None:
    """Raise UserError unless Python can read text in this encoding.

    Args:
        encoding: Name of the encoding.
        option: Name of the setting, for the error message.
    """
    try:
        # Not every codec is for text: rot13 is not, and idna has no error handler.
        io.TextIOWrapper(io.BytesIO(' \n'.encode(encoding)), encoding, 'surrogateescape').read()
    except (LookupError, ValueError):
        raise UserError(
            f'unknown {option} {encoding!r}; use the name of a text encoding, such as utf-8'
        ) from None


class Cut(NamedTuple):
    """The part of a text file that begins in a range of its bytes.

    The part begins at the first line at or after `start` for which `starts_part` is true, and ends
    before the first such line at or after `stop`. The parts of adjacent ranges are adjacent.

    Attributes:
        start: First byte of the range.
        stop: End of the range; None for the end of the file.
        starts_part: Whether a line, without its end, can be the first of a part.
    """

    start: int
    stop: int | None
    starts_part: Callable[[str], bool]


def can_cut(path: str, encoding: str) -> bool:
    """Whether parts of a file can be read on their own; see `Cut`.

    The byte of a line feed must not occur in other characters, and decoding must not depend on
    earlier lines. Compressed files, recognized by their names, are read as a whole.
    """
    name = codecs.lookup(encoding).name
    return bool(_CUTTABLE.fullmatch(name)) and not path.endswith(_COMPRESSED_SUFFIXES)


@contextlib.contextmanager
def open_text(
    path: str,
    encoding: str,
    newline: str | None = '\n',
    cut: Cut | None = None,
    option: str = '',
) -> Iterator[TextIO]:
    """Open a text file; gzip, bzip2, xz and zstd are recognized by the first bytes of a file.

    A byte order mark is skipped. Undecodable bytes become lone surrogates
    (`errors='surrogateescape'`); see `scripts.has_surrogates`. In a compressed
    file, a `cut` that starts at 0 is the whole file, and any other cut is empty. `option` is the
    user's setting of the encoding, for messages.

    Raises:
        UserError: The file cannot be read or does not contain text, or a read inside the `with`
            block fails.
    """
    try:
        with paths.open_binary(path) as raw, _decompressed(raw) as file:
            head = file.peek(_HEAD_BYTES)
            head_encoding = _with_byte_order_mark(encoding, head)
            file_types.check(head, path, head_encoding, option)
            may_end_lines = newline == '\n' and not (cut and cut.start)
            if may_end_lines and _ends_lines_with_returns(path, head, head_encoding):
                newline = None  # universal newlines: each line end becomes '\n'
            if cut and (cut.start or cut.stop) and file is raw:
                start, stop = _find_ends(raw, encoding, cut)
                file = io.BufferedReader(_Range(raw, start, stop))
            elif cut and cut.start:
                file = io.BufferedReader(io.BytesIO())
            codec = encoding if cut and cut.start else head_encoding
            yield io.TextIOWrapper(file, codec, 'surrogateescape', newline)
    except BucketError:  # the storage failed; the file may be fine
        raise
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeError) as error:
        from bert_jax.storage import wrong_paths  # only to say what is wrong

        similar = wrong_paths.suggest(path) if isinstance(error, FileNotFoundError) else ''
        raise UserError(f'cannot read {path}: {error}{similar}') from error


def _ends_lines_with_returns(path: str, head: bytes, encoding: str) -> bool:
    """Whether a file has carriage returns but no line feed."""
    if b'\r' not in head:
        return False
    text = codecs.getincrementaldecoder(encoding)('surrogateescape').decode(head)
    if '\r' not in text or '\n' in text:
        return False
    with paths.open_binary(path) as raw:
        if not raw.seekable():  # standard input, which can be read only once
            return False
        with _decompressed(raw) as file:
            reader = io.TextIOWrapper(file, encoding, 'surrogateescape', newline='')
            return not any('\n' in part for part in iter(lambda: reader.read(_PART_CHARACTERS), ''))


def _find_ends(file: io.BufferedReader, encoding: str, cut: Cut) -> tuple[int, int]:
    """The first byte of a part and its end (exclusive)."""
    size = file.seek(0, os.SEEK_END)
    stop = size if cut.stop is None else cut.stop
    start = _find_start(file, encoding, cut, cut.start, stop)
    return start, stop if start == stop else _find_start(file, encoding, cut, stop, size)


def _find_start(file: io.BufferedReader, encoding: str, cut: Cut, position: int, end: int) -> int:
    """The offset of the first line in [position, end) that starts a part; `end` if none does."""
    if position in (0, end):
        return position
    file.seek(position - 1)
    offset, is_start = position - 1, False
    while offset < end and (line := file.readline(_MAX_LINE_BYTES)):
        if is_start and len(line) < _MAX_LINE_BYTES:
            text = line.decode(encoding, 'surrogateescape')
            if cut.starts_part(text.removesuffix('\n').removesuffix('\r')):
                return offset
        offset += len(line)
        is_start = line.endswith(b'\n')
    return end


class _Range(io.RawIOBase):
    """The bytes of a file from `start` to `stop`."""

    def __init__(self, file: io.BufferedReader, start: int, stop: int):
        self._file, self._left = file, stop - start
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: 'WriteableBuffer') -> int:
        num_bytes = self._file.readinto(memoryview(buffer)[: self._left])
        self._left -= num_bytes
        return num_bytes


class Compressed(Protocol):
    """A compressed file that is open."""

    def read(self, size: int, /) -> bytes:
        """Return decompressed bytes; b'' at the end."""


class _Expanded(io.RawIOBase):
    """Decompressed bytes; OSError if they are many and far more than the compressed ones.

    A pipe does not tell how many bytes were read from it, and is read without a limit.
    """

    def __init__(self, file: Compressed, raw: io.BufferedReader):
        self._file, self.compressed, self._num_bytes = file, raw, 0
        self._is_limited = raw.seekable()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: 'WriteableBuffer') -> int:
        view = memoryview(buffer)
        data = self._file.read(len(view))
        view[: len(data)] = data
        self._num_bytes += len(data)
        if self._is_limited and self._num_bytes > max(
            limits.EXPANDED, limits.EXPANSION * self.compressed.tell()
        ):
            raise OSError(
                f'it expands to more than {limits.EXPANSION:,} times its size and '
                f'{limits.EXPANDED:,} bytes'
            )
        return len(data)


def uncompressed_name(path: str) -> str:
    """Return a file name without the suffix of a compression format."""
    stem, suffix = os.path.splitext(path)
    return stem if suffix in _COMPRESSED_SUFFIXES else path


def _decompressed(raw: io.BufferedReader) -> io.BufferedReader:
    head = raw.peek(_HEAD_BYTES)
    for signature, decompress in _DECOMPRESSORS.items():
        if re.match(signature, head):
            expanded = _Expanded(decompress(raw), raw)
            return io.BufferedReader(expanded, _HEAD_BYTES)
    return raw


class _Xz:
    """The streams of a file of xz; zeros between and after them are padding.

    `lzma.LZMAFile` fails at padding, or ignores the streams behind it.
    """

    def __init__(self, raw: io.BufferedReader):
        self._raw, self._next = raw, b''
        self._stream: lzma.LZMADecompressor | None = None

    def read(self, size: int, /) -> bytes:
        while True:
            if self._stream is None:
                self._skip_padding()
                if not self._next:
                    return b''
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            if self._stream.needs_input and not self._next:
                self._next = self._raw.read(_HEAD_BYTES)
                if not self._next:
                    raise EOFError('the file ends inside a stream of xz')
            data, self._next = self._stream.decompress(self._next, size), b''
            if self._stream.eof:
                self._next, self._stream = self._stream.unused_data, None
            if data:
                return data

    def _skip_padding(self) -> None:
        self._next = self._next.lstrip(b'\0')
        while not self._next and (block := self._raw.read(_HEAD_BYTES)):
            self._next = block.lstrip(b'\0')


def _open_zstd(raw: io.BufferedReader) -> Compressed:
    opened: Compressed
    if _zstd_window(raw.peek(_HEAD_BYTES)) > _ZSTD_WINDOW:
        return _open_long_zstd(raw)
    import pyarrow  # takes 0.1 s

    opened = pyarrow.CompressedInputStream(raw, 'zstd')
    return opened


def _zstd_window(head: bytes) -> int:
    """The bytes of the window of a frame (RFC 8878, section 3.1.1.1.2); 0 if it is not stated."""
    is_single_segment = head[4] & 0x20
    if not head.startswith(b'\x28\xb5\x2f\xfd') or is_single_segment:
        return 0
    base = 1 << (10 + (head[5] >> 3))
    return base + base // 8 * (head[5] & 7)


def _open_long_zstd(raw: io.BufferedReader) -> Compressed:
    """Open a file that `zstd --long=31` compressed, such as a dump of Reddit."""
    opened: Compressed
    try:
        zstandard = importlib.import_module('zstandard')
    except ImportError:
        raise OSError(
            f'zstd --long compressed it with a window of more than {_ZSTD_WINDOW:,} bytes: `pip '
            'install zstandard`, or decompress it with `zstd -d --long=31`'
        ) from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
    opened = decompressor.stream_reader(raw, read_across_frames=True)
    return opened


# Pattern of the first bytes of a file → how it is decompressed.
_DECOMPRESSORS: dict[bytes, Callable[[io.BufferedReader], Compressed]] = {
    rb'\x1f\x8b\x08': lambda raw: gzip.GzipFile(fileobj=raw),
    rb'BZh[1-9]1AY&SY': bz2.BZ2File,
    rb'\xfd7zXZ\x00': _Xz,
    rb'\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18': _open_zstd,  # or a frame that is skipped
}


def _with_byte_order_mark(encoding: str, head: bytes) -> str:
    """The encoding that skips the byte order mark of a file, if there is one."""
    name = codecs.lookup(encoding).name
    if name == 'utf-8':
        return 'utf-8-sig'
    if re.fullmatch('utf-(16|32)-[bl]e', name) and head.startswith('\ufeff'.encode(name)):
        return name[:6]
    return encoding


def read_text(path: str, encoding: str, option: str = '') -> str:
    """Return the whole text of a file; UserError if it cannot be read. See `open_text`."""
    with open_text(path, encoding, option=option) as file:
        return file.read()


def read_lines(path: str, encoding: str, limit: int = -1, option: str = '') -> Iterator[str]:
    """Stream the lines of a file; UserError if it cannot be read. See `open_text`, `lines_of`."""
    with open_text(path, encoding, option=option) as file:
        yield from lines_of(file, limit)


def lines_of(file: TextIO, limit: int = -1) -> Iterator[str]:
    """Stream the lines of an open file without their ends.

    A line of more than `limit` characters is yielded in pieces of this length; −1 for no limit.
    """
    while line := file.readline(limit):
        line = line.removesuffix('\n').removesuffix('\r')  # frees the line with its end
        yield line


def position(file: TextIO) -> int:
    """Return how many bytes of a file of `open_text`, as it is on disk, were read.

    0 if the file is a pipe, a range of a file (`Cut`) or closed.
    """
    if file.closed:
        return 0
    buffer: Any = file.buffer
    on_disk = buffer.raw.compressed if isinstance(buffer.raw, _Expanded) else buffer
    return on_disk.tell() if on_disk.seekable() else 0
