"""Sizes that the messages of an Arrow file or stream claim, checked before pyarrow allocates them.

A buffer may be compressed, and begins with the number of bytes that it becomes.

Source: https://arrow.apache.org/docs/format/Columnar.html, Message.fbs, File.fbs; FlatBuffers.
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Self, TypeAlias

Arrow: TypeAlias = Any  # an object of pyarrow, which ships no types

MAGIC = b'ARROW1'
_CONTINUATION = b'\xff\xff\xff\xff'
_DICTIONARY, _RECORDS = 2, 3  # MessageHeader
_BLOCK = struct.Struct('<qi4xq')  # File.fbs: Block
_BUFFER = struct.Struct('<qq')  # Message.fbs: Buffer
_MOST_METADATA = 2**28  # bytes of the metadata of a message


class _Table(NamedTuple):
    """A table of a FlatBuffer; its fields are found by their numbers."""

    data: bytes
    place: int

    @classmethod
    def root(cls, data: bytes) -> Self:
        return cls(data, *struct.unpack_from('<I', data))

    def _find(self, number: int) -> int:
        """The place of a field; 0 if it is not there."""
        vtable = self.place - struct.unpack_from('<i', self.data, self.place)[0]
        (size,) = struct.unpack_from('<H', self.data, vtable)
        if 4 + 2 * number >= size:
            return 0
        (offset,) = struct.unpack_from('<H', self.data, vtable + 4 + 2 * number)
        return self.place + offset if offset else 0

    def scalar(self, number: int, kind: str) -> int:
        place = self._find(number)
        return int(struct.unpack_from(kind, self.data, place)[0]) if place else 0

    def table(self, number: int) -> Self | None:
        place = self._find(number)
        if not place:
            return None
        return self._replace(place=place + struct.unpack_from('<I', self.data, place)[0])

    def structs(self, number: int, kind: struct.Struct) -> Iterator[tuple[Any, ...]]:
        """Yield the items of a vector of structs."""
        if place := self._find(number):
            place += struct.unpack_from('<I', self.data, place)[0]
            (count,) = struct.unpack_from('<I', self.data, place)
            for index in range(count):
                yield kind.unpack_from(self.data, place + 4 + index * kind.size)


class _Message(NamedTuple):
    """A message: its kind (None at the end), the bytes that it becomes, and where it ends."""

    kind: int | None
    num_bytes: int
    end: int


class Messages:
    """The messages of an open file, which a reader of pyarrow reads at the same time.

    Methods raise OSError for a damaged file, and leave the position of the file as it is.

    Attributes:
        dictionary_bytes: Bytes that the dictionaries of a file become; 0 for a stream.
    """

    def __init__(self, file: Arrow):
        self._file, self._size, self._next = file, file.size(), 0
        self._batches: list[int] = []  # places of the record batches of a file
        self.dictionary_bytes = 0
        if self._read(0, len(MAGIC)) == MAGIC:
            with _damage():
                self._read_footer()

    def batch_bytes(self, index: int) -> int:
        """Return how many bytes a record batch of a file becomes."""
        if index >= len(self._batches):
            raise OSError('the footer is damaged')
        with _damage():
            return self._message(self._batches[index]).num_bytes

    def next_bytes(self) -> int:
        """Return how many bytes the next record batch of a stream becomes.

        The messages before it, dictionaries and the schema, are counted with it.
        """
        total = 0
        while True:
            with _damage():
                message = self._message(self._next)
            total, self._next = total + message.num_bytes, message.end
            if message.kind in (None, _RECORDS):
                return total

    def _read_footer(self) -> None:
        tail = self._read(self._size - 4 - len(MAGIC), 4 + len(MAGIC))
        (size,) = struct.unpack_from('<i', tail)
        if not 0 < size <= min(self._size, _MOST_METADATA):
            raise ValueError(size)
        footer = _Table.root(self._read(self._size - 4 - len(MAGIC) - size, size))
        for place, _, _ in footer.structs(2, _BLOCK):
            self.dictionary_bytes += self._message(place).num_bytes
        self._batches = [place for place, _, _ in footer.structs(3, _BLOCK)]

    def _message(self, place: int) -> _Message:
        head = self._read(place, 8)
        if head[:4] == _CONTINUATION:
            place, head = place + 4, head[4:]
        if len(head) < 4:  # the end of a stream may be that of the file
            return _Message(None, 0, place)
        (size,) = struct.unpack_from('<i', head)
        if not size:
            return _Message(None, 0, place)
        if not 0 < size <= _MOST_METADATA:
            raise ValueError(size)
        message = _Table.root(self._read(place + 4, size))
        kind, body, length = message.scalar(1, '<B'), place + 4 + size, message.scalar(3, '<q')
        header = message.table(2)
        if kind == _DICTIONARY and header:
            header = header.table(1)
        if not 0 <= length <= self._size - body:
            raise ValueError(length)
        is_data = header is not None and kind in (_DICTIONARY, _RECORDS)
        num_bytes = self._become(header, body, length) if header and is_data else 0
        return _Message(kind, num_bytes, body + length)

    def _become(self, header: _Table, body: int, length: int) -> int:
        """The bytes that the buffers of a batch become."""
        buffers = list(header.structs(2, _BUFFER))
        if any(offset < 0 or size < 0 or offset + size > length for offset, size in buffers):
            raise ValueError(buffers[0])
        if header.table(3) is None:  # not compressed
            return length
        total = 0
        for offset, size in buffers:
            if size:
                (claimed,) = struct.unpack('<q', self._read(body + offset, 8))
                total += size if claimed < 0 else claimed  # -1: stored as it is
        return total

    def _read(self, place: int, number: int) -> bytes:
        if place < 0:
            raise ValueError(place)
        position = self._file.tell()
        try:
            data: bytes = self._file.read_at(number, place)
            return data
        finally:
            self._file.seek(position)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Turn the errors of sizes and places that cannot be into an OSError."""
    try:
        yield
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise OSError(f'a message is damaged: {error!r:.60}') from None
