"""A column of Parquet and Arrow files, and datasets of Hugging Face on disk."""

import json
import tracemalloc

import pyarrow
import pytest
from pyarrow import ipc, parquet

from bert_jax.corpus.preparation import prepare
from bert_jax.errors import UserError
from bert_jax.text import arrow_tables
from bert_jax.text.sources import open_source
from tests.text.sources.reading import read, texts

TEXTS = ['Été.', 'One.\n\nTwo.', '\U0001f600 three.', 'Four.']


def make_table(values=TEXTS, kind=None, name='text'):
    return pyarrow.table({'label': list(range(len(values))), name: pyarrow.array(values, kind)})


def write_parquet(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=3)


def write_stream(path, table):
    path.parent.mkdir(parents=True, exist_ok=True)
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def write_file(path, table):
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


@pytest.mark.parametrize('write', [write_parquet, write_stream, write_file])
@pytest.mark.parametrize(
    'kind',
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.binary(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    ],
    ids=str,
)
def test_every_row_is_a_document(write, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_tables, 'ROWS', 2)
    values = [text.encode() for text in TEXTS] if kind == pyarrow.binary() else TEXTS
    write(tmp_path / 'a.table', make_table(values, kind))
    source, documents = read(f'parquet:{tmp_path}/*.table;language=fr')
    assert [document.text for document in documents] == TEXTS
    assert documents[3].name == f'{tmp_path}/a.table#3'
    assert (source.language, source.report['files']) == ('fr', 1)


def test_missing_texts_and_undecodable_bytes_are_counted(tmp_path):
    table = make_table([None, b'caf\xe9', b'Fine.'], pyarrow.binary(), name='body')
    write_parquet(tmp_path / 'a.parquet', table)
    source, documents = read(f'parquet:{tmp_path}/a.parquet;field=body')
    assert [document.text for document in documents] == ['caf\ufffd', 'Fine.']
    assert (source.report['missing_field'], source.report['undecodable_bytes']) == (1, 1)


def test_files_can_be_held_out_as_a_whole(tmp_path):
    write_parquet(tmp_path / 'a.parquet', make_table(['One.', None, 'Two.']))
    write_stream(tmp_path / 'b.arrow', make_table(['One. ', 'Two.']))
    _, documents = read(f'parquet:{tmp_path}/*;held_out_by=file')
    assert len({document.hash() for document in documents}) == 1  # copies without the null


def test_memory_does_not_grow_with_the_file(tmp_path):
    write_parquet(tmp_path / 'a.parquet', make_table(['word ' * 200] * 20_000))
    texts(f'parquet:{tmp_path}/a.parquet')[:1]  # imports
    tracemalloc.start()
    source, count = open_source(f'parquet:{tmp_path}/a.parquet'), 0
    for _ in source.documents():
        count += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    footer = int.from_bytes((tmp_path / 'a.parquet').read_bytes()[-8:-4], 'little')
    assert peak < 4_000_000 + footer  # the footer, of thousands of row groups here, is read at once


@pytest.mark.parametrize(
    ('content', 'field', 'message'),
    [
        (b'', 'text', 'cannot read .*a.parquet'),
        (b'PAR1 and then nothing', 'text', 'cannot read .*a.parquet'),
        (b'plain text', 'text', 'cannot read .*a.parquet'),
        (None, 'txet', "unknown column of .*a.parquet 'txet'; .*label, text"),
        (None, 'label', "column 'label' has values of type int64, not text"),
    ],
)
def test_bad_files_and_columns_are_an_error(content, field, message, tmp_path):
    path = tmp_path / 'a.parquet'
    write_parquet(path, make_table()) if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=rf'1 of 1 files \(100.0%\).*{message}') as info:
        read(f'parquet:{path};field={field}')
    assert '\n' not in str(info.value)


def save_to_disk(folder, table, split):
    """What `datasets` writes for one split in two files."""
    half = len(table) // 2
    names = [f'data-0000{number}-of-00002.arrow' for number in range(2)]
    for name, part in zip(names, (table[:half], table[half:]), strict=True):
        write_stream(folder / name, part)
    state = {'_data_files': [{'filename': name} for name in names], '_split': split}
    (folder / 'state.json').write_text(json.dumps(state))
    (folder / 'dataset_info.json').write_text(json.dumps({'license': 'cc0-1.0'}))


def test_a_saved_dataset_of_hugging_face(tmp_path):
    save_to_disk(tmp_path, make_table(), None)
    source, documents = read(f'hf:{tmp_path}')
    assert [document.text for document in documents] == TEXTS
    assert source.license == 'cc0-1.0'
    assert read(f'hf:{tmp_path};license=mine')[0].license == 'mine'


def test_a_split_of_a_saved_dataset(tmp_path):
    save_to_disk(tmp_path / 'train', make_table(), 'train')
    save_to_disk(tmp_path / 'test', make_table(['Last.', 'Most.']), 'test')
    (tmp_path / 'dataset_dict.json').write_text('{"splits": ["train", "test"]}')
    assert texts(f'hf:{tmp_path}') == TEXTS
    assert texts(f'hf:{tmp_path};split=test') == ['Last.', 'Most.']
    assert texts(f'hf:{tmp_path}/test;split=test') == ['Last.', 'Most.']
    for folder, split in ((tmp_path, 'dev'), (tmp_path / 'test', 'validation')):
        with pytest.raises(UserError, match=f"unknown split of {folder} '{split}'.*test"):
            read(f'hf:{folder};split={split}')


@pytest.mark.parametrize('layout', ['data/{}-0000{}-of-00002.parquet', '{}/000{}.parquet'])
def test_a_folder_as_on_the_hub(layout, tmp_path):
    for split, values in (('train', TEXTS), ('test', ['Last.', 'Most.'])):
        for number in range(2):
            part = make_table(values)[number * len(values) // 2 :][: len(values) // 2]
            write_parquet(tmp_path / layout.format(split, number), part)
    assert texts(f'hf:{tmp_path}') == TEXTS
    assert texts(f'hf:{tmp_path};split=test') == ['Last.', 'Most.']
    with pytest.raises(UserError, match="no Parquet file of split 'dev'.*; it has .*parquet"):
        read(f'hf:{tmp_path};split=dev')


def test_subsets_must_be_named_and_a_folder_must_exist(tmp_path):
    for subset in ('de', 'fr'):
        write_parquet(tmp_path / subset / 'train-00000-of-00001.parquet', make_table([subset]))
    with pytest.raises(UserError, match=f'several folders: name one of {tmp_path}/de, '):
        read(f'hf:{tmp_path}')
    assert texts(f'hf:{tmp_path}/fr') == ['fr']
    with pytest.raises(UserError, match='there is no folder'):
        read(f'hf:{tmp_path}/none')
    (tmp_path / 'empty').mkdir()
    with pytest.raises(UserError, match="no Parquet file of split 'train'.* in .*/empty$"):
        read(f'hf:{tmp_path}/empty')


def test_text_json_lines_parquet_and_hugging_face_give_the_same_corpus(tmp_path):
    values = [f'{word} old dog went home. It slept.' for word in ('The', 'My', 'One', 'Your') * 5]
    lines = '\n'.join(json.dumps({'text': value}) for value in values).encode()
    (tmp_path / 'a.txt').write_text('\n'.join(values))
    (tmp_path / 'b.jsonl.zst').write_bytes(pyarrow.Codec('zstd').compress(lines, asbytes=True))
    write_parquet(tmp_path / 'c.parquet', make_table(values))
    save_to_disk(tmp_path / 'd', make_table(values), 'train')
    specs = ('text:{}/a.txt;documents=line', 'jsonl:{}/b.*', 'parquet:{}/c.*', 'hf:{}/d')
    fingerprints = set()
    for number, spec in enumerate(specs):
        output = tmp_path / f'corpus{number}'
        corpus = prepare([spec.format(tmp_path)], 'train:wordpiece:70', output, workers=0)
        fingerprints.add(corpus.fingerprint)
    assert len(fingerprints) == 1


@pytest.mark.parametrize('write', [write_parquet, write_stream, write_file])
def test_a_text_inside_an_object_is_named_with_a_dot(write, tmp_path):
    rows = [{'body': {'text': text}} if text else None for text in (*TEXTS, None)]
    table = pyarrow.table({'meta': rows, 'a.b': ['x'] * len(rows)})
    write(tmp_path / 'a.parquet', table)
    source, found = read(f'parquet:{tmp_path}/a.parquet;field=meta.body.text')
    assert [document.text for document in found] == TEXTS
    assert source.report['missing_field'] == 1
    assert texts(f'parquet:{tmp_path}/a.parquet;field=a.b') == ['x'] * 5
    with pytest.raises(UserError, match=r'unknown column of .*meta.title'):
        texts(f'parquet:{tmp_path}/a.parquet;field=meta.title')
    with pytest.raises(UserError, match=r"column 'meta.body' has values of type struct"):
        texts(f'parquet:{tmp_path}/a.parquet;field=meta.body')


@pytest.mark.parametrize('write', [write_parquet, write_stream, write_file])
def test_columns_that_are_not_read_are_named(write, tmp_path):
    write(tmp_path / 'a.parquet', pyarrow.table({'url': ['u'], 'm': [{'text': 'x', 'b': 1}]}))
    source, _ = read(f'parquet:{tmp_path}/a.parquet;field=m.text')
    assert source.unread_fields() == ['url']
    (tmp_path / 'b.parquet').write_bytes(b'PAR1')
    assert open_source(f'parquet:{tmp_path}/b.parquet').unread_fields() == []  # a bad file
