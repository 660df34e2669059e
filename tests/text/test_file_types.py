"""Files that are not the text they should be: the error says what they are, and what to set."""

import gzip
import io
import tarfile
import zipfile

import pytest

from bert_jax.answers import find, input_rows
from bert_jax.errors import UserError
from bert_jax.labels import data_keys, tabular
from bert_jax.text import text_files
from bert_jax.text.sources import open_source

CSV = 'text,label\nIt is good.,1\nIt is bad.,0\n'


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, 'application/epub+zip' if name == 'mimetype' else '<a/>' * 99)
    return file.getvalue()


def tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w') as archive:
        archive.addfile(tarfile.TarInfo('a.csv'), io.BytesIO())
    return file.getvalue()


XLSX = zipped('[Content_Types].xml', '_rels/.rels', 'xl/workbook.xml')
FILES = {
    'a.xlsx': (XLSX, 'an Excel workbook, not text: save it as CSV'),
    'named.csv': (XLSX, 'an Excel workbook'),
    'zipped.csv.gz': (gzip.compress(XLSX), 'an Excel workbook'),
    'other.xlsx': (zipped('first'), 'an Excel workbook'),
    'a.docx': (zipped('[Content_Types].xml', 'word/document.xml'), 'a Word document'),
    'a.epub': (zipped('mimetype', 'a.xhtml'), 'an EPUB book'),
    'a.pdf': (b'%PDF-1.7\n%', 'a PDF file, not text: save it as plain text'),
    'a.xls': (b'\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1' + bytes(99), 'a file of Microsoft Office'),
    'a.csv': (zipped('b.csv'), 'a zip archive, not text: unpack it'),
    'a.tar.gz': (gzip.compress(tar()), 'a tar archive'),
    'b.xlsx': (CSV.encode(), "named like an Excel workbook, but is text .*'text,label"),
    'b.pdf': (CSV.encode(), 'named like a PDF file, but is text'),
}


def read_source(path, **settings):
    options = ''.join(f';{key}={value}' for key, value in settings.items())
    return list(open_source(f'text:{path}{options}').documents())


def read_labels(path, encoding='utf-8'):
    data = data_keys.make_config()
    data.encoding = encoding
    return list(tabular.read_table(str(path), data, 'csv'))


def read_input(path, encoding='utf-8'):
    return list(input_rows.read_lines(str(path), encoding))


READERS = {'source': read_source, 'labels': read_labels, 'input': read_input}


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize('reader', READERS)
def test_the_error_says_what_the_file_is(tmp_path, name, reader):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f'{name} is {message}') as caught:
        READERS[reader](tmp_path / name)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize('encoding', ['utf-16', 'utf-16-le', 'utf-16-be', 'utf-32'])
@pytest.mark.parametrize(
    ('reader', 'option'),
    [('source', ';encoding'), ('labels', 'data.encoding'), ('input', '--encoding')],
)
def test_the_error_names_the_encoding_and_its_option(tmp_path, encoding, reader, option):
    path = tmp_path / 'a.csv'
    path.write_bytes(CSV.encode(encoding))
    message = f'a.csv is {encoding} text, not utf-8 text: set {option}={encoding} or convert'
    with pytest.raises(UserError, match=message):
        READERS[reader](path)
    assert READERS[reader](path, encoding=encoding)
    with pytest.raises(UserError, match=f'a.csv is {encoding} text, not utf-8 text: convert it'):
        text_files.read_text(str(path), 'utf-8')


def test_a_table_of_predict_names_its_option(tmp_path):
    (tmp_path / 'a.csv').write_bytes(CSV.encode('utf-16'))
    data, fields = data_keys.make_config(), find('classify').fields
    with pytest.raises(UserError, match='set --encoding=utf-16 '):
        list(input_rows.read(f'{tmp_path}/a.csv', 'auto', fields, data, 'classify'))


def test_short_and_empty_texts_are_text(tmp_path):
    for content in (b'', b'\xef\xbb\xbf', b'a', b'PAR1 is a word', b'PK is a word', b'{}'):
        (tmp_path / 'a').write_bytes(content)
        text_files.read_text(f'{tmp_path}/a', 'utf-8')
