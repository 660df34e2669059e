"""Quotes and escapes in CSV and TSV, also stray ones."""

import csv

import pytest

from bert_jax.errors import UserError
from tests.data.labeled.reading import read, read_all, write_lines

TEXTS = ['plain', 'with, comma', 'with "quotes"', 'two{}lines', '5" disk', '7', 'back\\slash']
QUOTING = {
    'minimal': dict(quoting=csv.QUOTE_MINIMAL),
    'all': dict(quoting=csv.QUOTE_ALL),
    'nonnumeric': dict(quoting=csv.QUOTE_NONNUMERIC),
    'escaped': dict(quoting=csv.QUOTE_MINIMAL, doublequote=False, escapechar='\\'),
    'none': dict(quoting=csv.QUOTE_NONE, escapechar='\\'),
}


@pytest.mark.parametrize('line_end', ['\n', '\r\n', '\r'])
@pytest.mark.parametrize('name', QUOTING)
def test_every_quoting_of_the_csv_module_is_read_back(tmp_path, name, line_end):
    path, options = tmp_path / 'a.csv', QUOTING[name]
    texts = [text.format(line_end) for text in TEXTS]
    with open(path, 'w', newline='', encoding='utf-8-sig') as file:
        writer = csv.writer(file, lineterminator=line_end, **options)
        writer.writerows([('text', 'label'), *((text, 'x') for text in texts)])
    settings = dict(quotes='no' if name == 'none' else 'auto', escape=options.get('escapechar', ''))
    found = read_all('classification', train=(str(path),), **settings)
    assert sorted(one.texts[0] for one in found) == sorted(texts)
    assert {one.label for one in found} == {'x'}


def texts_of(splits):
    return [one.texts[0] for one in splits.train + splits.dev]


@pytest.mark.parametrize(
    ('first', 'second', 'message'),
    [
        (
            '"stray,x',
            'stray",x',
            'is not closed before line 902',
        ),  # one field, were it not for rows
        ('"stray,x', 'a "stray" one,x', 'is not closed before line 902'),
        ('"stray,x', 'no quote,x', 'is never closed'),
        ('"said" he,x', 'no quote,x', 'text follows the quote that closes a field'),
    ],
)
def test_a_stray_quote_costs_its_row_and_is_reported_with_its_line(
    tmp_path, first, second, message
):
    rows = [f'text {number},x' for number in range(1000)]
    rows[1], rows[900] = first, second
    path = write_lines(tmp_path / 'a.csv', 'text,label', *rows)
    splits = read('classification', train=path)
    assert len(splits.train + splits.dev) == 999
    assert {f'text {number}' for number in range(2, 900)} <= set(texts_of(splits))
    (line,) = [line for line in splits.report.lines() if 'malformed' in line]
    assert line.startswith('malformed: 1 ')
    assert 'a.csv:3: ' in line
    assert message in line


def test_a_long_text_with_line_breaks_is_one_field_up_to_the_limit(tmp_path):
    text = '\n'.join(f'Verse {number},' for number in range(50))
    path = write_lines(tmp_path / 'a.csv', 'id,text,label', f'1,"{text}",x', '2,b,y')
    assert text in [one.texts[0] for one in read_all('classification', train=path)]
    with pytest.raises(UserError, match=r'a.csv:2: the field whose quote .* data.field_limit=100 '):
        read('classification', train=path, field_limit=100)


def test_quotes_of_tsv_are_text_unless_the_header_is_quoted(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', '"stray\tx', 'a "b" c\ty')
    assert {one.texts[0] for one in read_all('classification', train=path)} == {'"stray', 'a "b" c'}
    path = write_lines(tmp_path / 'b.tsv', '"text"\t"label"', '"a\tb ""c"""\t"x"', '"d"\t"y"')
    assert {one.texts[0] for one in read_all('classification', train=path)} == {'a\tb "c"', 'd'}


def test_separators_are_one_character_where_quotes_are_read(tmp_path):
    path = write_lines(tmp_path / 'a.csv', 'text::label', 'a::x', 'b::y')
    found = read_all('classification', train=path, separator='::', quotes='no')
    assert {one.texts[0] for one in found} == {'a', 'b'}
    with pytest.raises(UserError, match="data.separator is '::' .* set one character each"):
        read('classification', train=path, separator='::')
    path = write_lines(tmp_path / 'b.csv', 'text\tlabel', 'a\tx', 'b\ty')
    assert len(read_all('classification', train=path, separator='\\t')) == 2
