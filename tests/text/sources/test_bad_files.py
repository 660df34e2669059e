"""Files that are linked twice, broken, or not text: read once, listed and left out, or an error."""

import gzip
import json
import lzma
import os

import numpy as np
import pytest

from bert_jax.corpus import corpus_warnings
from bert_jax.errors import UserError
from tests.text.sources.reading import read, texts, write

COPIES = {
    'hard link': os.link,
    'symbolic link': os.symlink,
}


@pytest.mark.parametrize('kind', COPIES)
def test_a_file_is_read_once_whatever_links_lead_to_it(kind, tmp_path):
    path = write(tmp_path / 'b.txt', 'One.')
    COPIES[kind](path, tmp_path / 'c.txt')
    source, documents = read(f'text:{tmp_path}/*.txt')
    assert [document.text for document in documents] == ['One.']
    assert source.report['files_matched_again'] == 1
    assert source.first_place['files_matched_again'].endswith('c.txt')


def test_symbolic_links_in_circles_are_followed_once(tmp_path):
    write(tmp_path / 'deep/er/a.txt', 'One.')
    write(tmp_path / 'b.txt', 'Two.')
    write(tmp_path / '.hidden/c.txt', 'Three.')
    for number in range(3):  # 3^40 paths
        (tmp_path / f'deep/er/up{number}').symlink_to(tmp_path)
    assert texts(f'text:{tmp_path}/**/*.txt') == ['Two.', 'One.']
    assert texts(f'text:{tmp_path}/**/er/**/a*') == ['One.']
    assert texts(f'text:{tmp_path}/deep/**') == ['One.', 'Two.']


def test_a_link_to_nothing_is_a_bad_file(tmp_path):
    write(tmp_path / 'a.txt', 'One.')
    (tmp_path / 'b.txt').symlink_to(tmp_path / 'none')
    with pytest.raises(UserError, match=r'1 of 2 files \(50.0%\).*cannot read .*b.txt: .*No such'):
        read(f'text:{tmp_path}/*.txt')


CYRILLIC = 'Он помог им. Потом они ушли домой. ' * 40
NOT_TEXT = {
    'parquet': b'PAR1\x15\x04' + b'Text in a column. ' * 100 + b'PAR1',
    'zip': b'PK\x03\x04\x14' + b'stored text ' * 100,
    'numbers in xz': lzma.compress(np.arange(10_000).tobytes()),
    'png': b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02' + bytes(range(256)) * 8,
    'numbers': np.arange(10_000).tobytes(),
    'utf-16': 'Plain words.'.encode('utf-16'),
    'koi8-r': CYRILLIC.encode('koi8-r'),
}


@pytest.mark.parametrize('kind', NOT_TEXT)
def test_files_that_are_not_text_are_bad(kind, tmp_path):
    (tmp_path / 'a.txt').write_bytes(NOT_TEXT[kind])
    with pytest.raises(UserError, match=r'1 of 1 files \(100.0%\).*a.txt is .*not .*text') as info:
        read(f'text:{tmp_path}/a.txt')
    assert '\n' not in str(info.value)
    for number in range(20):
        write(tmp_path / f'b{number}.txt', 'Fine.')
    source, documents = read(f'text:{tmp_path}/*.txt', max_bad_share=0.05)
    assert len(documents) == 20
    assert source.report['bad_files'] == 1
    assert 'a.txt is ' in source.describe()['bad_files'][0]


def test_text_in_other_encodings_is_text(tmp_path):
    for encoding, text in (('koi8-r', CYRILLIC), ('utf-16', CYRILLIC), ('cp1252', 'Été “là”.')):
        path = write(tmp_path / 'a.txt', text, encoding)
        assert texts(f'text:{path};encoding={encoding}') == [text]
    accents = 'Les élèves étaient très fâchés, où ça ?'
    path = write(tmp_path / 'b.txt', accents, 'latin-1')  # a few undecodable bytes: counted
    assert read(f'text:{path}')[0].report['undecodable_bytes'] == 8


def test_bad_files_are_left_out_up_to_a_share(tmp_path):
    whole = gzip.compress(os.urandom(30_000).hex().encode())
    for number in range(20):
        (tmp_path / f'{number:02d}.txt.gz').write_bytes(gzip.compress(b'Good.'))
    (tmp_path / '03.txt.gz').write_bytes(whole[:5000])
    source, documents = read(f'text:{tmp_path}/*.gz', max_bad_share=0.05)
    assert len(documents) == 19
    assert source.report['bad_files'] == 1
    assert 'bad files (first in' in source.summary()
    (tmp_path / '11.txt.gz').write_bytes(whole[:-4])
    seen = []
    with pytest.raises(UserError, match=r'2 of 20 files \(10.0%\) .*03.*; .*11.* above 0.05'):
        seen.extend(source.documents())
    assert len(read(f'text:{tmp_path}/*.gz', max_bad_share=0.1)[1]) == 18


def test_files_with_many_malformed_lines_are_bad(tmp_path):
    good = json.dumps({'text': 'One.'})
    path = write(tmp_path / 'a.jsonl', '\n'.join([good] * 94 + ['no'] * 6))
    with pytest.raises(UserError, match=r'a.jsonl: 6 of 100 lines \(6.0%\) are not JSON'):
        read(f'jsonl:{path}', max_bad_share=0.05)
    write(tmp_path / 'a.jsonl', '\n'.join([good] * 95 + ['no'] * 5))
    source, documents = read(f'jsonl:{path}', max_bad_share=0.05)
    assert (len(documents), source.report['malformed_lines']) == (95, 5)
    write(tmp_path / 'a.jsonl', good + '\n{"cut": "of')  # a single one is always left out
    assert len(read(f'jsonl:{path}', max_bad_share=0.05)[1]) == 1


def test_tables_that_are_read_as_plain_text_are_counted_and_warned_about(tmp_path):
    write(tmp_path / 'reviews.CSV', 'id,text\n1,Good.\n')
    write(tmp_path / 'book.txt', 'One.')
    source, _ = read(f'text:{tmp_path}/*')
    assert source.report['files_with_markup'] == 1
    (line,) = corpus_warnings._markup([source])
    assert str(tmp_path / 'reviews.CSV') in line
    assert list(corpus_warnings._markup([read(f'text:{tmp_path}/*.txt')[0]])) == []
