"""Sizes that the pages of a Parquet file claim, checked before pyarrow allocates them.

A page is compressed, and its header says how long it becomes and how many values it has; the footer
says so too, but nothing makes the two agree. The footer is read here, because pyarrow 26 ends the
process when it is asked for the metadata of some damaged columns.

Source: https://github.com/apache/parquet-format, parquet.thrift; Thrift's compact protocol.
"""

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

Arrow: TypeAlias = Any  # an object of pyarrow, which ships no types
Fields: TypeAlias = dict[int, Any]  # number of a field of Thrift → its value

_PAGES = {5: 2, 7: 2, 8: 4}  # field with the header of a kind of page → that of its encoding
_DICTIONARY = 7
_DELTA_BYTE_ARRAY = 7  # Encoding
_HEAD_BYTES = 2**14  # read at a page; headers with long statistics are longer
_DEPTH = 8  # structs inside each other
_VALUE_BYTES = 8  # of memory for a value that takes no bytes in a page
_BOOLEANS, _INTEGERS = (1, 2), (4, 5, 6)
_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 3, 7, 8, 9, 10, 12
_ROW_GROUPS = 4  # field of the footer
_MAGIC = b'PAR1'


class Claims(NamedTuple):
    """What the pages of a column of a row group become, by their headers.

    Attributes:
        total: Bytes of all pages.
        at_once: Bytes of the two largest, which stand for a page and its dictionary in memory.
        shared: Bytes of the largest page with bytes that many values may share: a dictionary, or a
            page of values that begin as the one before them. Any value may be that long.
    """

    total: int
    at_once: int
    shared: int


class Chunk(NamedTuple):
    """Where a column of a row group is, by the footer.

    Attributes:
        start: Place of its first page.
        compressed: Bytes in the file.
        uncompressed: Bytes of its pages.
    """

    start: int
    compressed: int
    uncompressed: int


def read_footer(file: Arrow) -> list[list[Chunk]]:
    """Return the columns of each row group.

    Raises:
        OSError: The footer is damaged or encrypted.
    """
    size = file.size()
    tail = file.read_at(8, max(0, size - 8))
    length = int.from_bytes(tail[:4], 'little')
    if tail[4:] != _MAGIC or length > size - 8:
        raise OSError('the file does not end with a footer of Parquet')
    data = file.read_at(length, size - 8 - length)
    try:
        return _row_groups(data)
    except (IndexError, struct.error, AttributeError, KeyError, TypeError):
        raise OSError('the footer of the file is damaged or encrypted') from None


def _row_groups(data: bytes) -> list[list[Chunk]]:
    groups: list[list[Chunk]] = []
    place = number = 0
    while head := data[place]:
        number, place = _field_number(data, place, number)
        if number == _ROW_GROUPS and head & 15 == _LIST:
            _, size, place = _list_head(data, place)
            for _ in range(size):  # one group at a time, because a footer may have thousands
                fields, place = _read_struct(data, place, _DEPTH)
                groups.append([_chunk(column[3]) for column in fields[1]])
        else:
            _, place = _read_value(data, place, head & 15, _DEPTH)
    return groups


def _chunk(fields: Fields) -> Chunk:
    pages, dictionary = fields[9], fields.get(11) or fields[9]
    return Chunk(max(0, min(pages, dictionary)), fields[7], fields[6])


class _Page(NamedTuple):
    num_bytes: int
    num_values: int
    is_shared: bool


def read_claims(file: Arrow, chunk: Chunk, column: Arrow, number: int | None = None) -> Claims:
    """Read the headers of the pages of a column of a row group.

    Args:
        file: The open file.
        chunk: Where the column is.
        column: Its schema, of pyarrow.
        number: Read only so many pages; the first is the dictionary.

    Raises:
        OSError: A header is damaged.
    """
    pages = list(itertools.islice(_pages(file, chunk), number))
    # One row can have all values of a column of lists.
    is_list = column.max_repetition_level > 0
    sizes = [page.num_bytes + is_list * _VALUE_BYTES * page.num_values for page in pages]
    is_text = column.physical_type == 'BYTE_ARRAY'
    shared = max((page.num_bytes for page in pages if page.is_shared and is_text), default=0)
    return Claims(sum(sizes), sum(sorted(sizes)[-2:]), shared)


def _pages(file: Arrow, chunk: Chunk) -> Iterator[_Page]:
    """Yield what the header of each page of a column chunk says."""
    place = chunk.start
    end = min(place + chunk.compressed, file.size())
    while 0 <= place < end:
        header, length = _read_header(file, place, end)
        kind = next((number for number in _PAGES if isinstance(header.get(number), dict)), 0)
        inner = header[kind] if kind else {}  # a damaged header may have any field, also 0
        numbers = header.get(2), header.get(3), inner.get(1, 0), inner.get(_PAGES.get(kind, 0), 0)
        num_bytes, compressed, num_values, encoding = map(_as_size, numbers)
        yield _Page(num_bytes, num_values, kind == _DICTIONARY or encoding == _DELTA_BYTE_ARRAY)
        place += length + compressed


def _as_size(number: object) -> int:
    if type(number) is int and 0 <= number < 2**31:
        return number
    raise OSError('the header of a page is damaged')


def _read_header(file: Arrow, place: int, end: int) -> tuple[Fields, int]:
    """Read the header of a page: its fields, and how many bytes it has."""
    number_of_bytes = _HEAD_BYTES
    while True:
        data = file.read_at(min(number_of_bytes, end - place), place)
        try:
            return _read_struct(data, 0, _DEPTH)
        except (IndexError, struct.error):  # longer than what was read
            if number_of_bytes >= end - place:
                raise OSError(f'the header of the page at byte {place:,} is damaged') from None
            number_of_bytes *= 8


def _read_struct(data: bytes, place: int, depth: int) -> tuple[Fields, int]:
    """Read the fields of a struct that begins at a place, and where it ends."""
    if not depth:
        raise OSError('the metadata of the file is nested too deeply')
    fields: Fields = {}
    number = 0
    while head := data[place]:
        number, place = _field_number(data, place, number)
        fields[number], place = _read_value(data, place, head & 15, depth)
    return fields, place + 1


def _field_number(data: bytes, place: int, before: int) -> tuple[int, int]:
    """Read the number of the field at a place, after the field `before`."""
    step = data[place] >> 4
    return (before + step, place + 1) if step else _read_integer(data, place + 1)


def _read_value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _BOOLEANS:
        return kind == _BOOLEANS[0], place
    if kind == _BYTE:
        return data[place], place + 1
    if kind in _INTEGERS:
        return _read_integer(data, place)
    if kind == _DOUBLE:
        return struct.unpack_from('<d', data, place)[0], place + 8
    if kind == _BINARY:
        size, place = _read_varint(data, place)
        if place + size > len(data):
            raise IndexError(place)
        return data[place : place + size], place + size
    if kind == _STRUCT:
        return _read_struct(data, place, depth - 1)
    if kind in (_LIST, _SET):
        return _read_list(data, place, depth)
    raise OSError(f'the metadata of the file has a field of type {kind}')  # none has a map


def _read_list(data: bytes, place: int, depth: int) -> tuple[list[Any], int]:
    kind, size, place = _list_head(data, place)
    values: list[Any] = []
    for _ in range(size):
        value, place = _read_value(data, place, _BYTE if kind in _BOOLEANS else kind, depth - 1)
        values.append(value)
    return values, place


def _list_head(data: bytes, place: int) -> tuple[int, int, int]:
    """Return the type and the number of the elements of a list, and the place of the first."""
    head, place = data[place], place + 1
    if head >> 4 < 15:
        return head & 15, head >> 4, place
    size, place = _read_varint(data, place)
    return head & 15, size, place


def _read_integer(data: bytes, place: int) -> tuple[int, int]:
    value, place = _read_varint(data, place)
    return value >> 1 ^ -(value & 1), place


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise OSError('the metadata of the file has a number of more than 64 bits')
