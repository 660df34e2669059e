"""Reads Parquet and Arrow files in batches of bounded size.

A small file can hold a table of any size: compressed, as one value that many rows share, or by
sizes that it only claims. What a table becomes is limited as what a compressed text becomes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from bert_jax import limits
from bert_jax.text import ipc_messages, parquet_pages
from bert_jax.text.ipc_messages import Messages

Arrow: TypeAlias = Any  # an object of pyarrow, which ships no types
Batches: TypeAlias = Iterator[tuple[Arrow, float]]  # with the share of the file that is then read

ROWS = 256  # of a batch
_WALKED_BYTES = 2**22  # pages of longer chunks in a bucket would be downloaded twice


def open_table(
    file: Arrow,
    columns: Sequence[str] | None = None,
    choose: Callable[[int], Sequence[int]] = range,
    is_first: bool = True,
) -> tuple[Arrow, Batches]:
    """Open a Parquet file, an Arrow file (Feather) or an Arrow stream.

    Args:
        file: The file, open for pyarrow.
        columns: Names of the columns to read, of a Parquet file; None for all. a.b is field b of a.
        choose: The number of row groups or record batches → the indices of those to read.
        is_first: Whether to read the batches of a stream, which cannot be chosen.

    Returns:
        The schema, and batches of at most 256 rows and `limits.BATCH_BYTES`, or of one row. Columns
        of texts are of a type of bytes: one that is not UTF-8 is not a fault of the others.

    Raises:
        OSError or pyarrow.ArrowException, also while the batches are read: the file is damaged, or
            it becomes more than the limits allow.
    """
    from pyarrow import ipc

    head = file.read(len(ipc_messages.MAGIC))
    file.seek(0)
    expansion = _Expansion(file.size())
    if head.startswith(b'PAR1'):
        opened = _Parquet(file, columns)
        return opened.schema, _bounded(opened.batches(choose, expansion), expansion)
    messages = Messages(file)
    if head == ipc_messages.MAGIC:
        reader = ipc.open_file(file)
        expansion.check_at_once(messages.dictionary_bytes)
        indices = choose(reader.num_record_batches)
        return reader.schema, _bounded(_of_file(reader, messages, indices, expansion), expansion)
    stream = ipc.open_stream(file)  # the format that `datasets` writes
    batches = _of_stream(file, stream, messages, expansion) if is_first else iter(())
    return stream.schema, _bounded(batches, expansion)


class _Expansion:
    """What a file has become so far, and what it may become.

    Methods raise OSError above a limit.
    """

    def __init__(self, size: int):
        self._size, self._total = size, 0

    def check_at_once(self, num_bytes: int) -> None:
        """Check what a part of the file becomes that is in memory at a time."""
        self._compare(num_bytes, max(limits.PART_BYTES, limits.PART_EXPANSION * self._size))

    def check(self, num_bytes: int) -> None:
        """Check what a part of the file becomes."""
        self._compare(num_bytes, max(limits.EXPANDED, limits.EXPANSION * self._size))

    def add(self, num_bytes: int) -> None:
        """Count what was read, and check what all becomes."""
        self._total += num_bytes
        self.check(self._total)

    def _compare(self, num_bytes: int, limit: int) -> None:
        if num_bytes > limit:
            raise OSError(
                f'its {self._size:,} bytes expand to {num_bytes:,} or more; the limit is {limit:,}'
            )


class _Parquet:
    """A Parquet file and the columns of it that are read."""

    def __init__(self, file: Arrow, columns: Sequence[str] | None):
        from pyarrow import parquet

        self._file, self._names = file, columns
        self._table = parquet.ParquetFile(file)
        self._metadata = self._table.metadata
        number = self._metadata.num_columns
        stored = list(map(self._metadata.schema.column, range(number)))
        self._columns = [
            index
            for index, column in enumerate(stored)
            if columns is None or any(f'{column.path}.'.startswith(f'{one}.') for one in columns)
        ]
        self._longest = max((stored[index].length or 0 for index in self._columns), default=0)
        self._stored = stored
        self._groups = parquet_pages.read_footer(file)
        self.schema = self._table.schema_arrow

    def batches(self, choose: Callable[[int], Sequence[int]], expansion: _Expansion) -> Batches:
        rows, all_rows = 0, max(1, self._metadata.num_rows)
        for group in choose(self._metadata.num_row_groups):  # a damaged group may follow others
            at_once = self._check(group, expansion)
            for batch in self._table.iter_batches(at_once, [group], self._names, use_threads=False):
                rows += batch.num_rows
                yield batch, rows / all_rows

    def _check(self, group: int, expansion: _Expansion) -> int:
        """Compare what a row group becomes with the limits; return how many rows to read."""
        import pyarrow

        try:
            chunks = {index: self._groups[group][index] for index in self._columns}
        except IndexError:
            raise OSError(f'row group {group} lacks a column') from None
        num_bytes = sum(chunk.compressed for chunk in chunks.values())
        is_walked = isinstance(self._file, pyarrow.OSFile) or num_bytes <= _WALKED_BYTES
        number = None if is_walked else 1
        claims = [
            parquet_pages.read_claims(self._file, chunk, self._stored[index], number)
            for index, chunk in chunks.items()
        ]
        declared = sum(chunk.uncompressed for chunk in chunks.values())
        expansion.check(max(declared, sum(claim.total for claim in claims)))
        expansion.check_at_once(sum(claim.at_once for claim in claims))
        longest = max((claim.shared for claim in claims), default=0)
        return max(1, min(ROWS, limits.BATCH_BYTES // max(1, longest, self._longest)))


def _of_file(
    reader: Arrow, messages: Messages, indices: Sequence[int], expansion: _Expansion
) -> Batches:
    for index in indices:
        expansion.check_at_once(messages.batch_bytes(index))
        yield _validated(reader.get_batch(index)), (index + 1) / reader.num_record_batches


def _of_stream(file: Arrow, stream: Arrow, messages: Messages, expansion: _Expansion) -> Batches:
    while True:
        expansion.check_at_once(messages.next_bytes())
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        yield _validated(batch), file.tell() / file.size()


def _validated(batch: Arrow) -> Arrow:
    """A batch whose values are inside its buffers, which pyarrow does not check itself."""
    import pyarrow

    columns = [_as_bytes(column) for column in batch.columns]
    for column in columns:
        column.validate(full=True)
    return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names)


def _as_bytes(column: Arrow) -> Arrow:
    import pyarrow

    kinds = {
        pyarrow.string(): pyarrow.binary(),
        pyarrow.large_string(): pyarrow.large_binary(),
        pyarrow.string_view(): pyarrow.binary_view(),
    }
    return column.view(kinds[column.type]) if column.type in kinds else column


def _bounded(batches: Batches, expansion: _Expansion) -> Batches:
    """Divide batches until each has few rows and bytes, and count what they become."""
    for batch, share in batches:
        start = 0
        while start < batch.num_rows:
            rows = min(ROWS, batch.num_rows - start)
            size = _num_bytes(batch.slice(start, rows))
            while size > limits.BATCH_BYTES and rows > 1:
                rows //= 2
                size = _num_bytes(batch.slice(start, rows))
            expansion.add(size + rows)
            yield _plain(batch.slice(start, rows)), share
            start += rows


def _plain(batch: Arrow) -> Arrow:
    """A batch with bytes for texts and for dictionaries of texts; those in lists stay."""
    import pyarrow

    columns = [
        column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pyarrow.RecordBatch.from_arrays(list(map(_as_bytes, columns)), batch.schema.names)


def _num_bytes(batch: Arrow) -> int:
    return sum(map(_value_bytes, batch.columns))


def _value_bytes(array: Arrow) -> int:
    """The bytes of the values of an array, those that several rows share counted for each."""
    import pyarrow
    from pyarrow import compute, types

    kind = array.type
    if isinstance(array, pyarrow.ExtensionArray):
        return _value_bytes(array.storage)
    if types.is_dictionary(kind):
        lengths = _lengths(array.dictionary)
        return 8 * len(array) + int(compute.sum(lengths.take(array.indices)).as_py() or 0)
    if types.is_struct(kind):
        return len(array) + sum(map(_value_bytes, array.flatten()))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 8 * len(array) + _value_bytes(array.flatten())
    if types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        parts = (array.keys, array.items)
        return 8 * len(array) + sum(_value_bytes(one.slice(first, last - first)) for one in parts)
    if types.is_nested(kind) or types.is_run_end_encoded(kind):
        raise OSError(f'columns of type {kind} are not supported: their rows may share values')
    return 8 * len(array) + int(compute.sum(_lengths(array)).as_py() or 0)


def _lengths(array: Arrow) -> Arrow:
    """The bytes of each value that is not nested, int64."""
    import numpy as np
    import pyarrow
    from pyarrow import compute, types

    kind = array.type
    if types.is_binary_view(kind) or types.is_string_view(kind):
        views = np.frombuffer(array.buffers()[1], '<i4').reshape(-1, 4)[array.offset :]
        return pyarrow.array(views[: len(array), 0].astype(np.int64))
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if is_text or types.is_binary(kind) or types.is_large_binary(kind):
        return compute.binary_length(array).cast(pyarrow.int64())
    if types.is_fixed_size_binary(kind):
        return pyarrow.array(np.full(len(array), kind.byte_width, np.int64))
    if types.is_nested(kind):  # of a dictionary
        raise OSError(f'dictionaries of type {kind} are not supported')
    return pyarrow.array(np.zeros(len(array), np.int64))
