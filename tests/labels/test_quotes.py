"""Quotes and escapes in CSV and TSV, also stray ones."""

import csv
import random

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import tabular
from bert_jax.labels.records import Remark
from tests.labels.reading import config, read, read_all, write_lines

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


LETTER = '\n'.join(f'line number {number} of the letter,' for number in range(14))


@pytest.mark.parametrize(('quotes', 'remarks'), [('auto', 1), ('yes', 0)])
def test_a_quoted_text_whose_lines_look_like_rows_is_one_field(tmp_path, quotes, remarks):
    rows = [f'a film number {number},{"pos" if number % 2 else "neg"}' for number in range(30)]
    rows.insert(15, f'"{LETTER}",pos')
    path = write_lines(tmp_path / 'a.csv', 'text,label', *rows)
    with open(path[0], newline='') as file:
        wanted = [(row['text'], row['label']) for row in csv.DictReader(file, strict=True)]
    splits = read('classification', train=path, dev_fraction=0.0, quotes=quotes)
    assert [(one.texts[0], one.label) for one in splits.train] == wanted
    assert splits.report['quoted_fields_whose_lines_look_like_rows'] == remarks


@pytest.mark.parametrize('quotes', ['auto', 'yes'])
def test_any_file_that_the_csv_module_reads_strictly_has_its_rows(tmp_path, quotes):
    pieces = [
        'a',
        'b ',
        ',',
        ',',
        '"',
        '"',
        '\n',
        '\r\n',
        '\r',
        '""',
        '\u2028',
        '\n"x",',
        'a,b,c\n' * 11,
    ]
    path, num_read = tmp_path / 'a.csv', 0
    for seed in range(300):
        draw = random.Random(seed)
        text = 'h1,h2,h3\n' + ''.join(draw.choice(pieces) for _ in range(draw.randrange(40)))
        path.write_bytes(text.encode())
        try:
            with open(path, newline='', encoding='utf-8') as file:
                wanted = list(csv.reader(file, strict=True))
        except csv.Error:
            continue
        num_read += 1
        found = tabular.read_table(str(path), config(header=True, quotes=quotes), 'csv')
        contents = [record.content for record in found if not is_remark(record.content)]
        wanted = [row for row in wanted[1:] if any(field.strip() for field in row)]
        assert len(contents) == len(wanted)
        for content, row in zip(contents, wanted, strict=True):
            if len(row) == 3:
                assert list(content.values.values()) == row
            else:
                assert f'{len(row)} columns instead of 3' in str(content)
    assert num_read > 50


def is_remark(content) -> bool:
    return isinstance(content, Remark)


def test_rows_of_spreadsheets_without_any_value_are_counted(tmp_path):
    path = write_lines(tmp_path / 'a.csv', 'text,label', 'a,x', ',', '', 'b,y')
    report = read('classification', train=path, dev_fraction=0.0).report
    assert (report['empty_rows'], report['malformed']) == (1, 0)


def test_doubled_quotes_that_are_kept_in_tsv_are_counted(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', '"said ""hi"" to"\tx', 'b\ty', '"c"\ty')
    for quotes, first, count in (('auto', '"said ""hi"" to"', 1), ('yes', 'said "hi" to', 0)):
        splits = read('classification', train=path, dev_fraction=0.0, quotes=quotes)
        assert splits.train[0].texts == (first,)
        assert splits.report['doubled_quotes_kept_because_data.quotes_is_not_yes'] == count


def test_an_unclosed_quote_is_refused_where_quotes_are_set(tmp_path):
    path = write_lines(tmp_path / 'a.csv', 'text,label', 'a,x', '"b,y', 'c,x')
    with pytest.raises(UserError, match=r'a.csv:3: the quote that opens a field here is never clo'):
        read('classification', train=path, quotes='yes', malformed_fraction=0.5)


def test_a_quoted_separator_in_tsv_leads_to_the_setting(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'text\tlabel', '"tab\there"\tx', 'b\ty')
    with pytest.raises(UserError, match=r'a.tsv:2: 3 columns instead of 2; data.quotes=yes reads'):
        read('classification', train=path)
    found = read_all('classification', train=path, quotes='yes')
    assert {one.texts[0] for one in found} == {'b', 'tab\there'}


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
