"""Sizes that the pages of a Parquet file claim, checked before pyarrow allocates them.

A page is compressed, and its header says how long it becomes and how many values it has; the file's
metadata says so too, but nothing makes the two agree.

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
_BYTE, _DOUBLE, _BINARY, _STRUCT = 3, 7, 8, 12


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


class _Page(NamedTuple):
    num_bytes: int
    num_values: int
    is_shared: bool


def read_claims(
    file: Arrow, metadata: Arrow, group: int, column: int, number: int | None = None
) -> Claims:
    """Read the headers of the pages of a column of a row group.

    Args:
        file: The open file.
        metadata: Its metadata.
        group: Index of the row group.
        column: Index of the column.
        number: Read only so many pages; the first is the dictionary.

    Raises:
        OSError: A header is damaged.
    """
    chunk = metadata.row_group(group).column(column)
    pages = list(itertools.islice(_pages(file, chunk), number))
    # One row can have all values of a column of lists.
    is_list = metadata.schema.column(column).max_repetition_level > 0
    sizes = [page.num_bytes + is_list * _VALUE_BYTES * page.num_values for page in pages]
    is_text = metadata.schema.column(column).physical_type == 'BYTE_ARRAY'
    shared = max((page.num_bytes for page in pages if page.is_shared and is_text), default=0)
    return Claims(sum(sizes), sum(sorted(sizes)[-2:]), shared)


def _pages(file: Arrow, column: Arrow) -> Iterator[_Page]:
    """Yield what the header of each page of a column chunk says."""
    place = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        place = min(place, column.dictionary_page_offset)
    end = min(place + column.total_compressed_size, file.size())
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
        raise OSError('the header of a page is nested too deeply')
    fields: Fields = {}
    number = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _read_integer(data, place)
        fields[number], place = _read_value(data, place, head & 15, depth)
    return fields, place + 1


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
    raise OSError(f'the header of a page has a field of type {kind}')  # none has a list


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
            raise OSError('the header of a page has a number of more than 64 bits')
