"""The documents and the report of a source do not depend on how it is divided into units."""

import gzip
import json
import random

import pyarrow
import pytest
from pyarrow import ipc, parquet

from bert_jax.errors import UserError
from bert_jax.text.sources import open_source, parse_source

RNG = random.Random(0)


def random_text(lines=400):
    """Lines with accents, blank lines of all kinds, titles, long lines, undecodable bytes."""
    kinds = [
        b'',
        b' \t',
        'été \u3000'.encode(),
        '\u3000'.encode(),
        b'= Title =',
        b'\xff\xc3',
        b'\r',
    ]
    weights = [4, 1, 5, 1, 2, 1, 1]
    chosen = RNG.choices(kinds, weights, k=lines)
    numbered = [line + b'word %d' % i if line.endswith(b'\x80') else line * 9 for i, line in
                enumerate(chosen)]  # fmt: skip
    return '\ufeff'.encode() + b'\n'.join(numbered)


def write_texts(folder):
    for number in range(4):
        (folder / f'{number}.txt').write_bytes(random_text())
    (folder / '5.txt').write_bytes(gzip.compress(random_text()))  # without the suffix
    (folder / '6.txt.gz').write_bytes(gzip.compress(random_text())[:-300])
    (folder / '7.txt').write_bytes(b'%PDF-1.7' + b'x\n' * 3000)
    (folder / '8.txt').symlink_to(folder / '1.txt')
    (folder / '9.txt').write_bytes(b'A title. A line.\r\rAnother line.\r' * 200)  # of an old Mac


def write_json(folder):
    for number in range(4):
        lines = [json.dumps({'text': f'Été {i}. ' * RNG.randrange(9)}) for i in range(300)]
        lines[7 * number] = '{malformed'
        lines[100] = ''
        lines[200] = '{"other": 1}'
        (folder / f'{number}.jsonl').write_text('\n'.join(lines) + '\n' * (number % 2))
    many = ['{malformed' if i % 5 == 0 else json.dumps({'text': f'{i}.'}) for i in range(2000)]
    (folder / '4.jsonl').write_text('\n'.join(many))


def write_tables(folder):
    rows = [None if i % 17 == 3 else f'Row {i}. ' * 20 for i in range(3000)]
    table = pyarrow.table({'text': rows})
    parquet.write_table(table, folder / '1.parquet', row_group_size=100)
    with ipc.new_file(str(folder / '2.arrow'), table.schema) as file:
        file.write_table(table, max_chunksize=70)
    with ipc.new_stream(str(folder / '3.arrow'), table.schema) as stream:
        stream.write_table(table, max_chunksize=70)
    parquet.write_table(pyarrow.table({'text': ['Short.']}), folder / '4.parquet')
    content = (folder / '1.parquet').read_bytes()
    middle = len(content) // 2
    (folder / '5.parquet').write_bytes(content[:middle] + b'?' * 2000 + content[middle + 2000 :])


def write_data_set(folder):
    table = pyarrow.table({'text': [f'Row {i}. ' * 20 for i in range(900)]})
    parquet.write_table(table, folder / 'train-00000-of-00001.parquet', row_group_size=50)
    (folder / 'dataset_info.json').write_text('{"license": "CC0"}')


CASES = {
    'text:*.txt*': write_texts,
    'text:*.txt*;held_out_by=file;documents=line': write_texts,
    'text:*.txt*;documents=line': write_texts,
    'text:*.txt*;documents=blank_line': write_texts,
    'text:*.txt*;documents=title:^= .* =': write_texts,
    'text:*.txt*;documents=line;encoding=latin-1': write_texts,
    'text:[0-4].txt;documents=line;encoding=utf-16-le': write_texts,
    'jsonl:*.jsonl': write_json,
    'parquet:*': write_tables,
    'hf:': write_data_set,
    'canaries:3': lambda folder: None,
}


def read_units(spec, size):
    """The documents, report and largest number of units of a file; as a cluster reads them."""
    source = open_source(spec)
    source.max_bad_share = 0.6
    units = source.units(size)
    documents, states = [], []
    for unit in units:
        own = parse_source(spec)
        own.max_bad_share = 0.6
        documents.append([(d.text, d.file_hash) for d in own.documents_of(unit)])
        states.append(json.loads(json.dumps(own.state())))
    kept = source.merge(units, states)
    found = [document for own, is_kept in zip(documents, kept, strict=True) if is_kept
             for document in own]  # fmt: skip
    return found, source.describe(), units


@pytest.mark.parametrize('spec', CASES)
def test_units_have_the_documents_and_the_report_of_the_source(spec, tmp_path):
    CASES[spec](tmp_path)
    kind, _, rest = spec.partition(':')
    spec = f'{kind}:{tmp_path}/{rest}' if kind != 'canaries' else spec
    source = open_source(spec)
    source.max_bad_share = 0.6
    expected = [(d.text, d.file_hash) for d in source.documents()], source.describe()
    assert len(expected[0]) > 1
    for size in (10**9, 3000, 500, 97):
        *found, units = read_units(spec, size)
        assert (*found,) == expected
    can_divide = kind != 'canaries' and 'line' in spec or 'title' in spec or 'jsonl' in spec
    if can_divide and 'by=file' not in spec and 'utf-16' not in spec:
        assert len(units) > 50


def test_a_document_that_is_longer_than_a_unit_is_read_once(tmp_path):
    (tmp_path / 'a.txt').write_text('= A =\nword word\n' + 'word\n' * 2000 + '= B =\nend')
    found, _, units = read_units(f'text:{tmp_path}/a.txt;documents=title:^=', 100)
    assert [len(text) for text, _ in found] == [10015, 9]
    assert len(units) == 101


def test_small_files_are_grouped(tmp_path):
    for number in range(100):
        (tmp_path / f'{number:02d}.txt').write_text('Ten bytes.')
    units = open_source(f'text:{tmp_path}/*.txt').units(100)
    assert [len(unit) for unit in units] == [10] * 10
    assert all(piece.is_whole for unit in units for piece in unit)


@pytest.mark.parametrize('change', ['other', 'gone'])
def test_a_machine_that_sees_other_files_is_an_error(change, tmp_path):
    path = tmp_path / 'a.txt'
    path.write_text('One.')
    (unit,) = open_source(f'text:{path}').units(100)
    path.write_text('Another.') if change == 'other' else path.unlink()
    source = parse_source(f'text:{path}')
    with pytest.raises(UserError, match=r'a.txt (has 8 bytes instead of 4|is missing) on .*same'):
        list(source.documents_of(unit))
