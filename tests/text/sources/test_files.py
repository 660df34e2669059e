"""Text files and JSON lines: every character arrives, and every problem is counted."""

import bz2
import gzip
import json
import lzma
import os
import sys
import tracemalloc

import pyarrow
import pytest

from bert_jax.corpus.preparation import prepare
from bert_jax.errors import UserError
from bert_jax.text.sources import files, open_source
from tests.text.sources.reading import read, texts, write


def test_text_files_may_be_nested_gzipped_and_have_a_bom_and_crlf(tmp_path):
    write(tmp_path / 'b.txt', '\ufeffOne.\r\nTwo.\r\n\r\nThree.\r\n')
    write(tmp_path / 'deep' / 'er' / 'a.txt', 'Été.')
    (tmp_path / 'c.txt.gz').write_bytes(gzip.compress(b'Zip.\nZap.'))
    write(tmp_path / 'd.md', 'Not asked for.')
    source, documents = read(f'text:{tmp_path}/**/*.txt*;language=fr;license=CC0')
    assert [document.text.strip('\n') for document in documents] == [
        *('One.\nTwo.\n\nThree.', 'Zip.\nZap.', 'Été.'),
    ]
    assert [os.path.basename(document.name) for document in documents] == [
        *('b.txt', 'c.txt.gz', 'a.txt'),
    ]
    assert (source.language, source.license) == ('fr', 'CC0')
    assert source.report['documents'] == source.report['files'] == 3
    assert source.report['bytes'] == sum(len(d.text.encode()) for d in documents)


COMPRESSORS = {
    'gz': gzip.compress,
    'bz2': bz2.compress,
    'xz': lzma.compress,
    'zst': lambda text: pyarrow.Codec('zstd').compress(text, asbytes=True),
}


@pytest.mark.parametrize('suffix', COMPRESSORS)
def test_compressed_files_are_recognized_by_their_contents(suffix, tmp_path):
    content = COMPRESSORS[suffix]('Été.\n'.encode() * 9000)
    for name in ('a.txt', f'b.txt.{suffix}'):
        (tmp_path / name).write_bytes(content)
    (tmp_path / f'c.txt.{suffix}').write_bytes(content + content)  # parts may be concatenated
    (tmp_path / f'd.txt.{suffix}').write_text('BZh, not compressed.')
    found = texts(f'text:{tmp_path}/*')
    assert found[0] == found[1] == '\n'.join(['Été.'] * 9000)
    assert found[2] == found[0] + '\n' + found[0]
    assert found[3] == 'BZh, not compressed.'
    (tmp_path / 'a.txt').write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match='cannot read .*a.txt: ') as info:
        texts(f'text:{tmp_path}/a.txt')
    assert '\n' not in str(info.value)


def test_zeros_between_streams_of_xz_are_padding(tmp_path):
    one, two = lzma.compress('Été.\n'.encode()), lzma.compress(b'Two.\n' * 9000)
    path = tmp_path / 'a.txt.xz'
    for padding in (bytes(4), bytes(20_000)):
        path.write_bytes(one + padding + two + padding)
        assert texts(f'text:{path}') == ['\n'.join(['Été.'] + ['Two.'] * 9000)]
    path.write_bytes(one + bytes(4) + two[:-30])
    with pytest.raises(UserError, match='ends inside a stream of xz'):
        texts(f'text:{path}')


def long_frame(text, window=31):
    """A frame of zstd that is not compressed but asks for a window of 2^window bytes."""
    block = (len(text) << 3 | 1).to_bytes(3, 'little')  # the last block, raw
    return b'\x28\xb5\x2f\xfd\x00' + bytes([window - 10 << 3]) + block + text


def test_zstd_with_a_long_window_is_read_or_refused_with_advice(tmp_path, monkeypatch):
    path = tmp_path / 'a.txt.zst'
    path.write_bytes(long_frame(b'One.\n', 27))
    assert texts(f'text:{path}') == ['One.']
    path.write_bytes(long_frame(b'One.\n'))
    monkeypatch.setitem(sys.modules, 'zstandard', None)
    with pytest.raises(UserError, match=r'zstd --long .*134,217,728.*pip install zstandard'):
        texts(f'text:{path}')


def test_zstd_with_a_long_window_is_read_by_zstandard(tmp_path):
    pytest.importorskip('zstandard')
    path = tmp_path / 'a.txt.zst'
    path.write_bytes(long_frame(b'One.\n') * 2)
    assert texts(f'text:{path}') == ['One.\nOne.']


def test_a_skipped_frame_of_zstd_comes_first_in_files_of_pzstd(tmp_path):
    path = tmp_path / 'a.txt.zst'
    skipped = b'\x50\x2a\x4d\x18' + (4).to_bytes(4, 'little') + b'size'
    path.write_bytes(skipped + pyarrow.Codec('zstd').compress(b'One.', asbytes=True))
    assert texts(f'text:{path}') == ['One.']


def test_documents_between_blank_lines(tmp_path):
    path = write(tmp_path / 'a.txt', '\n\nOne.\nMore.\n \t\nTwo.\n\n\n\nThree.')
    assert texts(f'text:{path};documents=blank_line') == ['One.\nMore.', 'Two.', 'Three.']


def test_every_line_is_a_document(tmp_path):
    path = write(tmp_path / 'a.txt', '\n一行。两句。\r\n \n二行\n')
    source, documents = read(f'text:{path};documents=line')
    assert [document.text for document in documents] == ['一行。两句。', '二行']
    assert [document.name for document in documents] == [f'{path}#0', f'{path}#1']
    assert source.report['documents'] == 2


RETURNS = 'One — été.\rTwo.\r\rThree. Four.\r'


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16', 'utf-16-le', 'cp1252'])
@pytest.mark.parametrize('compress', [bytes, gzip.compress])
def test_lines_end_at_carriage_returns_if_there_are_no_line_feeds(compress, encoding, tmp_path):
    path = tmp_path / 'a.txt'
    for repeats in (1, 2000):  # shorter and longer than the part that is looked at first
        path.write_bytes(compress((RETURNS * repeats).encode(encoding)))
        spec = f'text:{path};encoding={encoding.removesuffix("-sig")}'
        assert texts(f'{spec};documents=line') == ['One — été.', 'Two.', 'Three. Four.'] * repeats
        blank_lines = texts(f'{spec};documents=blank_line')
        assert len(blank_lines) == repeats + 1
        assert blank_lines[0] == 'One — été.\nTwo.'


@pytest.mark.parametrize('line', ['a\rb', 'a\r' * 9000 + 'b'])
def test_a_carriage_return_in_a_line_does_not_end_it(line, tmp_path):
    path = write(tmp_path / 'a.txt', f'{line}\nsecond\n')
    assert texts(f'text:{path};documents=line') == [line, 'second']


def test_json_lines_of_an_old_mac(tmp_path):
    lines = [json.dumps({'text': f'{number}\u2028\x85\x1c\x0c', 'n': '\r'}) for number in range(3)]
    path = write(tmp_path / 'a.json', '\r'.join(lines))
    assert texts(f'jsonl:{path}') == [f'{number}\u2028\x85\x1c\x0c' for number in range(3)]


@pytest.mark.parametrize('separator', ['\u2028', '\u2029', '\x85', '\x0b', '\x0c', '\x1e'])
def test_other_separators_do_not_end_lines(separator, tmp_path):
    text = f'One{separator}two and many other words after this one, so that it looks like text.'
    write(tmp_path / 'a.txt', f'{text}\n{text}\r\n')
    raw = json.dumps({'text': text}, ensure_ascii=False)
    write(tmp_path / 'a.jsonl', f'{raw}\n{raw}\n')
    assert texts(f'text:{tmp_path}/a.txt;documents=line') == [text] * 2
    if separator >= '\x80':  # JSON escapes control characters
        assert raw.count(separator) == 1
    assert texts(f'jsonl:{tmp_path}/a.jsonl') == [text] * 2


def test_documents_by_title(tmp_path):
    text = ' \n = Birds = \n\n They fly . \n\n = = Food = = \n Seeds . \n = Fish = \n They swim .\n'
    path = write(tmp_path / 'a.txt', text)
    found = texts(f'text:{path};documents=title:^ = [^=].* = $')
    assert [text.split()[1] for text in found] == ['Birds', 'Fish']
    assert 'Seeds' in found[0]
    assert found[0].startswith(' = Birds')


def test_undecodable_bytes_are_replaced_counted_and_located(tmp_path):
    write(tmp_path / 'a.txt', 'Fine – really.')
    (tmp_path / 'b.txt').write_bytes(b'Caf\xe9 \xff\xfe and \xc3\xa9.\nNext.')
    source, documents = read(f'text:{tmp_path}/*.txt')
    assert documents[1].text.startswith('Caf\ufffd \ufffd\ufffd and é.')
    assert source.report['undecodable_bytes'] == 3
    assert source.first_place['undecodable_bytes'].endswith('b.txt')
    assert '3 undecodable bytes (first in' in source.summary()
    assert '2 documents' in source.summary()
    documents[1].text.encode()


def test_the_option_encoding(tmp_path):
    path = write(tmp_path / 'a.txt', 'Café.', 'latin-1')
    assert texts(f'text:{path};encoding=latin-1') == ['Café.']


def test_every_pass_restarts_the_report(tmp_path):
    (tmp_path / 'a.txt').write_bytes(b'One \xff.')
    source, first = read(f'text:{tmp_path}/a.txt')
    report = dict(source.report)
    assert list(source.documents()) == first
    assert dict(source.report) == report


def test_a_huge_document_is_split_at_blank_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(files, 'MAX_DOCUMENT_CHARACTERS', 1000)
    paragraph = 'Words of a line.\n' * 20
    path = write(tmp_path / 'a.txt', '\n'.join([paragraph] * 50))
    source, documents = read(f'text:{path}')
    assert len(documents) > 10
    assert all(1000 < len(document.text) < 1500 for document in documents[:-1])
    assert all(document.text.count('\n\n') >= 2 for document in documents[:-1])
    assert source.report['cut_documents'] == len(documents) - 1
    assert len({document.name for document in documents}) == len(documents)
    assert ' '.join(d.text for d in documents).split() == path.read_text().split()


def test_a_huge_line_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr(files, 'MAX_DOCUMENT_CHARACTERS', 1000)
    path = write(tmp_path / 'a.txt', 'é' * 10_000)
    source, documents = read(f'text:{path}')
    assert max(len(document.text) for document in documents) <= 4000
    assert sum(document.text.count('é') for document in documents) == 10_000
    assert source.report['cut_documents'] == len(documents) - 1 > 0


def test_a_large_file_needs_little_memory(tmp_path, monkeypatch):
    """Reading 8 MB of text takes the memory of a few documents."""
    monkeypatch.setattr(files, 'MAX_DOCUMENT_CHARACTERS', 2**16)
    path = tmp_path / 'big.txt'
    path.write_text(('A line of some words that is as long as lines are.\n' * 20 + '\n') * 8_000)
    source = open_source(f'text:{path}')
    tracemalloc.start()
    total = sum(len(document.text) for document in source.documents())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 8e6
    assert peak < 1e6


def test_json_lines_are_documents_and_invalid_lines_are_counted(tmp_path):
    lines = [
        json.dumps({'text': 'One.\n\nTwo.', 'id': 3}),
        '{"text": "cut off',
        '{"text": ' + '[' * 100_000,
        '',
        json.dumps({'body': 'No text here.'}),
        '["text"]',
        json.dumps({'text': None}),
        json.dumps({'text': 'Dvě \ud800.'}),
        json.dumps({'text': '  '}),
    ]
    write(tmp_path / 'a.jsonl', '\n'.join(lines))
    (tmp_path / 'b.jsonl.gz').write_bytes(gzip.compress(b'{"text": "Caf\xe9."}\r\n'))
    source, documents = read(f'jsonl:{tmp_path}/*.jsonl*', max_bad_share=0.5)
    assert [d.text for d in documents] == ['One.\n\nTwo.', 'Dvě \ufffd.', 'Caf\ufffd.']
    counted = {'malformed_lines': 3, 'missing_field': 2, 'lone_surrogates': 1, 'empty_documents': 1}
    assert {key: source.report[key] for key in counted} == counted
    assert source.report['undecodable_bytes'] == 1
    assert source.first_place['malformed_lines'].endswith('a.jsonl:2')
    assert source.first_place['missing_field'].endswith('a.jsonl:5')
    assert documents[1].name.endswith('a.jsonl:8')
    _, documents = read(f'jsonl:{tmp_path}/a.jsonl;field=body', max_bad_share=0.5)
    assert [d.text for d in documents] == ['No text here.']


def test_a_text_inside_an_object_of_json_is_named_with_a_dot(tmp_path):
    rows = [{'a': {'b': {'c': 'One.'}}}, {'a.b.c': 'Two.'}, {'a': {'b.c': 'Three.'}}, {'a': [1]}]
    path = write(tmp_path / 'a.jsonl', '\n'.join(map(json.dumps, rows)))
    source, found = read(f'jsonl:{path};field=a.b.c')
    assert [document.text for document in found] == ['One.', 'Two.', 'Three.']
    assert source.report['missing_field'] == 1


def test_a_line_of_json_that_is_too_long_makes_its_file_bad(tmp_path, monkeypatch):
    monkeypatch.setattr(files, 'MAX_LINE_CHARACTERS', 100)
    write(tmp_path / 'a.jsonl', '{"text": "One."}\n' + '{"text": "' + 'x' * 100 + '"}\n')
    with pytest.raises(UserError, match='a.jsonl has a line of 100 characters or more'):
        texts(f'jsonl:{tmp_path}/a.jsonl')


def test_empty_and_unreadable_files_are_errors(tmp_path):
    path = write(tmp_path / 'a.txt', ' \n\n')
    with pytest.raises(UserError, match='has no text'):
        read(f'text:{path}')
    path = write(tmp_path / 'b.jsonl', 'no\nno\n')
    with pytest.raises(UserError, match=r'b.jsonl: 2 of 2 lines \(100.0%\) are not JSON'):
        read(f'jsonl:{path}')
    whole = gzip.compress(os.urandom(10_000).hex().encode())
    for name, content in (('c.gz', whole[:9]), ('d.gz', whole[:5000])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f'cannot read .*{name}'):
            read(f'text:{tmp_path}/{name}')


def test_novels_are_read_without_problems(real_data):
    source, documents = read(f'text:{real_data}/english_novels/*_*.txt')
    assert len(documents) == 25
    assert source.report['undecodable_bytes'] == source.report['cut_documents'] == 0
    assert not any('\r' in d.text or d.text.startswith('\ufeff') for d in documents)


def test_wikitext_titles_separate_articles(real_data):
    spec = f'text:{real_data}/wikitext2_valid/valid.txt;documents=title:^ = [^=].* = $'
    assert len(texts(spec)) == 60


WIKI = (
    '<doc id="7" url="https://en.wikipedia.org/wiki?curid=7" title="Ships">\nShips\n\n'
    'A ship is large.\n\n</doc>\n'
    '<doc id="8" revid="3" url="https://en.wikipedia.org/wiki?curid=8" title="&quot;Cow&quot;">\n'
    'Cow\n\nA cow eats.\nA <doc> is no line.\n\n</doc>\n'
)


@pytest.mark.parametrize('documents', ['file', 'title:^<doc', 'title:^(?=Cow|Ships)'])
def test_articles_of_wikiextractor_are_documents_without_their_tags(documents, tmp_path):
    for name, compress in (('wiki_00', bytes), ('wiki_01.bz2', bz2.compress)):
        (tmp_path / name).write_bytes(compress(WIKI.encode()))
    source, found = read(f'text:{tmp_path}/*;documents={documents}')
    texts = ['Ships\n\nA ship is large.', 'Cow\n\nA cow eats.\nA <doc> is no line.']
    assert [document.text.strip() for document in found] == texts * 2
    assert source.report['article_tags'] == 8
    assert not source.report['files_with_markup']
    assert not source.report['cut_documents']


def test_articles_of_wikiextractor_in_units_of_lines(tmp_path):
    path = write(tmp_path / 'wiki_00', WIKI)
    lines = ['Ships', 'A ship is large.', 'Cow', 'A cow eats.', 'A <doc> is no line.']
    assert texts(f'text:{path};documents=line') == lines
    source = open_source(f'text:{path};documents=line')
    in_units = [d.text for unit in source.units(60) for d in source.documents_of(unit)]
    assert in_units == lines
    assert texts(f'text:{path};documents=blank_line') == [*lines[:3], '\n'.join(lines[3:])]


MARKED = {
    'table.csv.gz': 'id,text\n1,Good.\n',
    'rows': 'id,text\n1,"Good, old"\n2,Bad.\n3,"So\nso"\n4,Fair.\n',
    'rows.txt': 'id;text\n1;Good.\n2;Bad.\n3;Fair.\n',
    'words.txt': '<s>\nThe\tDT\ncat\tNN\nsat\tVBD\n.\t.\n</s>\n',
    'c4.json.gz': '{"text": "One.", "url": "u"}\n{"text": "Two.", "url": "v"}\n',
    'dolma': '{"id": "1", "text": "One."}\n',
    'list': '[\n  {"text": "One."}\n]\n',
    'page': '\ufeff<!DOCTYPE html>\n<html><body>One.</body></html>\n',
    'dump.bz2': '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n<page>\n',
    'news': '<DOC>\n<DOCNO> AP-1 </DOCNO>\n<TEXT>\nOne.\n</TEXT>\n</DOC>\n',
}
PROSE = {
    'cc100.txt.xz': 'One line, of text.\nAnother, of text.\n\nA third, one.\n',
    'oscar.txt': '{{Infobox}} and so on, here.\n<3 you all.\n[1] A note.\n',
    'list.txt': 'Anna, Bell\nCarl, Dunn\nEve, Ford\nGus, Hall\nIda, Jones\n',
    'verse.txt': '\tOne, two,\n\tThree, four,\n\tFive, six,\n\tSeven, eight,\n\tNine, ten,\n',
    'play.txt': '[Enter Hamlet]\nTo be, or not to be.\n<i>Exit</i>\n',
}


@pytest.mark.parametrize('name', [*MARKED, *PROSE])
def test_markup_is_recognized_by_the_first_lines(name, tmp_path):
    compress = {'.gz': gzip.compress, '.bz2': bz2.compress, '.xz': lzma.compress}
    content = (MARKED | PROSE)[name].encode()
    (tmp_path / name).write_bytes(compress.get(os.path.splitext(name)[1], bytes)(content))
    source, _ = read(f'text:{tmp_path}/{name}')
    assert source.report['files_with_markup'] == (name in MARKED)


def test_fields_of_json_lines_that_are_not_read_are_named(tmp_path, capsys):
    lines = [json.dumps({'url': f'u{i}', 'text': f'Text {i}.', 'language': 'en'}) for i in range(9)]
    write(tmp_path / 'a.jsonl', '\n'.join(lines))
    prepare([f'jsonl:{tmp_path}/a.jsonl'], 'train:wordpiece:70', tmp_path / 'corpus', workers=0)
    assert '\n  fields that are not read: url, language\n' in capsys.readouterr().out
    write(tmp_path / 'bad.jsonl', 'no JSON\n')
    assert open_source(f'jsonl:{tmp_path}/bad.jsonl').unread_fields() == []
