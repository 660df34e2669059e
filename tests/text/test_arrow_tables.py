"""Tables are read in batches of bounded size, and files that become too much are refused."""

import pathlib
from collections.abc import Callable

import pyarrow
import pytest
from pyarrow import ipc, parquet

from bert_jax import limits, problems
from bert_jax.errors import UserError
from bert_jax.text import arrow_tables, parquet_pages
from bert_jax.text.ipc_messages import Messages
from tests.labels import reading

TEXT = ['a', None, 'naïve', '', 'x' * 1000] * 120
TABLE = pyarrow.table(
    {
        'string': pyarrow.array(TEXT),
        'large': pyarrow.array(TEXT, pyarrow.large_string()),
        'view': pyarrow.array(TEXT, pyarrow.string_view()),
        'shared': pyarrow.array(TEXT).dictionary_encode(),
        'bytes': pyarrow.array([one and one.encode() for one in TEXT], pyarrow.binary()),
        'fixed': pyarrow.array([b'abc', None] * 300, pyarrow.binary(3)),
        'number': pyarrow.array([*range(599), None]),
        'lists': pyarrow.array([['a', None], [], None, ['b' * 9] * 5] * 150),
        'deep': pyarrow.array([{'a': {'b': 'c', 'd': [1, 2]}}, None, {'a': None}] * 200),
        'map': pyarrow.array([[('a', 'b')], [], None] * 200, pyarrow.map_('string', 'string')),
        'none': pyarrow.nulls(600),
    }
)


def write_parquet(table: pyarrow.Table, path: str, **options: object) -> None:
    options = {'row_group_size': 400, 'compression': 'zstd'} | options
    parquet.write_table(table, path, **options)


def write_arrow(table: pyarrow.Table, path: str, new: Callable = ipc.new_file) -> None:
    for_batches = ipc.IpcWriteOptions(compression='zstd' if new is ipc.new_file else None)
    with new(path, table.schema, options=for_batches) as writer:
        writer.write_table(table, max_chunksize=400)


def write_stream(table: pyarrow.Table, path: str) -> None:
    write_arrow(table, path, ipc.new_stream)


WRITERS = [write_parquet, write_arrow, write_stream]


def read(path: str, *arguments: object, **options: object) -> list[pyarrow.RecordBatch]:
    with pyarrow.OSFile(path) as file:
        _, batches = arrow_tables.open_table(file, *arguments, **options)
        return [batch for batch, _ in batches]


def rows(batches: list[pyarrow.RecordBatch]) -> list[dict]:
    return [row for batch in batches for row in batch.to_pylist()]


def decoded(row: dict) -> dict:
    return {
        name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()
    }


@pytest.mark.parametrize('write', WRITERS)
def test_batches_have_the_rows_of_the_table(write, tmp_path):
    write(TABLE, path := f'{tmp_path}/a')
    batches = read(path)
    assert [batch.num_rows for batch in batches] == [256, 144, 200]
    assert list(map(decoded, rows(batches))) == list(map(decoded, TABLE.to_pylist()))


@pytest.mark.parametrize('write', WRITERS)
def test_batches_have_few_bytes(write, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, 'BATCH_BYTES', 2000)
    table = TABLE.select(['string', 'shared', 'view'])
    write(table, path := f'{tmp_path}/a')
    batches = read(path)
    assert list(map(decoded, rows(batches))) == table.to_pylist()
    sizes = [
        sum(len(value or '') for row in batch.to_pylist() for value in row.values())
        for batch in batches
    ]
    numbers = [batch.num_rows for batch in batches]
    assert all(size <= 2000 or n == 1 for size, n in zip(sizes, numbers, strict=True))
    assert max(numbers) > 3 or write is write_parquet  # whose dictionary may be of any value


def test_columns_and_row_groups_are_chosen(tmp_path):
    write_parquet(TABLE, path := f'{tmp_path}/a')
    batches = read(path, ['deep.a.b'], lambda number: [number - 1])
    assert rows(batches) == [
        {'deep': row['deep'] and {'a': row['deep']['a'] and {'b': row['deep']['a']['b']}}}
        for row in TABLE.slice(400).to_pylist()
    ]


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'data_page_version': '2.0'},
        {'use_dictionary': False, 'compression': 'none'},
        {'data_page_size': 100, 'compression': 'zstd', 'write_batch_size': 10},
        {'use_dictionary': False, 'column_encoding': {'text': 'DELTA_BYTE_ARRAY'}},
        {'write_page_index': True, 'write_page_checksum': True},
    ],
)
def test_headers_of_pages_agree_with_the_metadata(options, tmp_path):
    table = pyarrow.table({'text': TEXT, 'number': list(range(600))})
    write_parquet(table, path := f'{tmp_path}/a', write_statistics=False, **options)
    assert list(map(decoded, rows(read(path)))) == table.to_pylist()
    metadata = parquet.read_metadata(path)
    with pyarrow.OSFile(path) as file:
        for group, chunks in enumerate(parquet_pages.read_footer(file)):
            for index, chunk in enumerate(chunks):
                column, schema = (
                    metadata.row_group(group).column(index),
                    metadata.schema.column(index),
                )
                starts = {column.data_page_offset, column.dictionary_page_offset or 2**63}
                assert chunk.start == min(starts)
                assert chunk.compressed == column.total_compressed_size
                claims = parquet_pages.read_claims(file, chunk, schema)
                declared = chunk.uncompressed  # counts headers as well
                assert declared == column.total_uncompressed_size
                pages = len(list(parquet_pages._pages(file, chunk)))
                assert declared - 100 * pages < claims.total < declared
                assert 0 < claims.at_once <= claims.total
                is_shared = 'use_dictionary' not in options or 'column_encoding' in options
                assert bool(claims.shared) == (is_shared and index == 0)
                first = parquet_pages.read_claims(file, chunk, schema, 1)
                assert 0 < first.total <= claims.total


@pytest.mark.parametrize('write', [write_arrow, write_stream])
def test_messages_say_what_they_become(write, tmp_path):
    write(TABLE, path := f'{tmp_path}/a')
    with pyarrow.OSFile(path) as file:
        file.seek(5)
        messages = Messages(file)
        if write is write_arrow:
            sizes = [messages.dictionary_bytes + messages.batch_bytes(0), messages.batch_bytes(1)]
        else:
            sizes = [messages.next_bytes(), messages.next_bytes()]
            assert messages.next_bytes() == 0
        assert file.tell() == 5
    for size, batch in zip(sizes, TABLE.combine_chunks().to_batches(400), strict=True):
        in_memory = sum(
            buffer.size for column in batch.columns for buffer in column.buffers() if buffer
        )
        assert 0 < size < 2 * in_memory


@pytest.mark.parametrize('write', WRITERS)
def test_values_that_many_rows_share_count_for_each(write, tmp_path, monkeypatch):
    table = pyarrow.table({'text': pyarrow.array(['x' * 1000] * 2000).dictionary_encode()})
    write(table, path := f'{tmp_path}/a')
    assert len(rows(read(path))) == 2000
    monkeypatch.setattr(limits, 'EXPANDED', 10**6)
    monkeypatch.setattr(limits, 'EXPANSION', 10)
    with pytest.raises(OSError, match='expand to 1,0.* or more; the limit is 1,000,000'):
        read(path)


@pytest.mark.parametrize('write', [write_parquet, write_arrow])
def test_compressed_parts_that_become_long_are_refused_unread(write, tmp_path, monkeypatch):
    table = pyarrow.table({'text': ['x' * 10**6 for _ in range(5)]})
    write(
        table,
        path := f'{tmp_path}/a',
        **({'compression': 'zstd'} if write is write_parquet else {}),
    )
    assert len(rows(read(path))) == 5
    monkeypatch.setattr(limits, 'PART_BYTES', 10**5)
    with pytest.raises(OSError, match='or more; the limit is 100,000'):
        read(path)


@pytest.mark.parametrize('write', WRITERS)
def test_rows_without_values_count_too(write, tmp_path, monkeypatch):
    write(pyarrow.table({'text': pyarrow.nulls(9000, pyarrow.string())}), path := f'{tmp_path}/a')
    monkeypatch.setattr(limits, 'EXPANDED', 10**4)
    monkeypatch.setattr(limits, 'EXPANSION', 1)
    with pytest.raises(OSError, match='expand to'):
        read(path)


def test_rows_that_can_share_lists_are_refused(tmp_path):
    views = pyarrow.array([['a']] * 3, pyarrow.list_view(pyarrow.string()))
    ends = pyarrow.RunEndEncodedArray.from_arrays([3], ['a'])
    for column in (views, ends):
        write_stream(pyarrow.table({'text': column}), path := f'{tmp_path}/a')
        with pytest.raises(OSError, match='not supported: their rows may share values'):
            read(path)


def test_values_outside_their_buffers_are_refused():
    offsets = pyarrow.array([0, 5, 3, 6], pyarrow.int32()).buffers()[1]
    column = pyarrow.Array.from_buffers(
        pyarrow.string(), 3, [None, offsets, pyarrow.py_buffer(b'abcdef')]
    )
    batch = pyarrow.RecordBatch.from_arrays([column], ['text'])
    with pytest.raises(pyarrow.ArrowInvalid):
        arrow_tables._validated(batch)


@pytest.mark.parametrize('write', WRITERS)
def test_text_that_is_not_utf8_is_a_fault_of_its_row(write, tmp_path):
    texts = pyarrow.array([b'good', b'bad \xff', b'fine'], pyarrow.binary()).view(pyarrow.string())
    labels = pyarrow.array(['a', 'b', 'a'])
    suffix = 'parquet' if write is write_parquet else 'arrow'
    path = f'{tmp_path}/a.{suffix}'
    write(pyarrow.table({'text': texts, 'label': labels}), path)
    config = reading.config(train=(path,), malformed_fraction=0.5, dev_fraction=0.0)
    assert len(problems.read(config, 'classification').train) == 2


@pytest.mark.parametrize('write', WRITERS)
def test_files_that_end_early_are_one_line(write, tmp_path):
    suffix = 'parquet' if write is write_parquet else 'arrow'
    path = pathlib.Path(f'{tmp_path}/a.{suffix}')
    write(pyarrow.table({'text': TEXT, 'label': ['a', 'b'] * 300}), str(path))
    content = path.read_bytes()
    for length in (3, 7, 20, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match='cannot read .* as Parquet or Arrow'):
            problems.read(reading.config(train=(str(path),)), 'classification')
