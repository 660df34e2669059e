"""XML, HTML-like files, and brat's standoff annotations."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import MultipleChoiceExample, Span, TextExample
from tests.labels.reading import read, read_all, write_lines

RTE = {'id': 'id', 'text': 't', 'text2': 'h', 'label': 'entailment'}


@pytest.mark.parametrize('ampersand', ['&amp;', '&'])
def test_columns_are_attributes_and_children_also_where_xml_is_not_well_formed(tmp_path, ampersand):
    path = write_lines(
        tmp_path / 'rte.xml',
        '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE corpus SYSTEM "rte.dtd"><corpus>',
        f'<pair id="1" entailment="YES"><t>A {ampersand} B\u00a0ran.</t><h>B ran.</h></pair>',
        '<pair id="2" entailment="NO"><t>No.</t><h><b>Yes</b>.</h></pair>',
        '</corpus>',
    )
    assert sorted(read_all('classification', RTE, train=path)) == [
        TextExample('1', ('A & B\u00a0ran.', 'B ran.'), 'YES'),
        TextExample('2', ('No.', 'Yes.'), 'NO'),
    ]


def test_elements_of_one_name_are_a_list_and_namespaces_are_ignored(tmp_path):
    path = write_lines(
        tmp_path / 'a.xml',
        '<items xmlns="http://example.org/a"><note/>',
        *['<item label="2"><p>It rained.</p><a>It was wet.</a><a>It was dry.</a></item>'] * 3,
        '</items>',
    )
    columns = {'text': 'p', 'choices': ('a',)}
    found = read_all('multiple_choice', columns, train=path, record='item', first_choice=1)
    choices = ('It was wet.', 'It was dry.')
    assert found[0] == MultipleChoiceExample('a.xml:1', 'It rained.', choices, 1)
    with pytest.raises(
        UserError, match='a.xml has no elements <pair>; it has a, item, items, note'
    ):
        read('multiple_choice', columns, train=path, record='pair')


def test_words_and_tags_are_read_from_sgml_without_quotes_or_root(tmp_path):
    path = write_lines(
        tmp_path / 'a.sgml',
        '<s snum=1><WF pos=DT>The</WF><wf pos=NN>dog</wf></s>',
        '<s snum=2><wf pos=NN>Rain</wf><wf pos=VB>fell</wf></s>',
    )
    columns = {'tokens': 'wf.text', 'tags': 'wf.pos', 'id': 'snum'}
    found = read_all('tagging', columns, train=path, scheme='none')
    assert [(one.id, one.text, one.tags) for one in found] == [
        ('1', 'The dog', ('DT', 'NN')),
        ('2', 'Rain fell', ('NN', 'VB')),
    ]


def test_elements_inside_a_text_are_its_spans(tmp_path):
    path = write_lines(
        tmp_path / 'a.xml',
        '<doc><s>The <ORG>University of <LOC>Leeds</LOC></ORG> & more.</s>',
        '<s><e label="PER">Anna</e> slept.<br></s></doc>',
    )
    found = read_all('spans', train=path, record='s')
    assert [(one.text, one.spans) for one in found] == [
        ('The University of Leeds & more.', (Span(4, 23, 'org'), Span(18, 23, 'loc'))),
        ('Anna slept.', (Span(0, 4, 'PER'),)),
    ]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('', 'a.xml has no elements inside the root; it has file'),
        ('just text', 'set data.record or data.format'),
        ('<a>' * 100_000 + '</a>', 'nested more than 100 deep'),
        ('<a><![foo[</a>', 'cannot be read as XML|has no elements'),
        ('<a>\udcff</a>', 'the text cannot be decoded'),
        ('<a><b/></a>', "names column 'label', but .*a.xml has columns spans, text"),
    ],
)
def test_a_file_that_is_not_markup_is_one_line(tmp_path, text, message):
    (tmp_path / 'a.xml').write_bytes(text.encode('utf-8', 'surrogateescape'))
    with pytest.raises(UserError, match=message):
        read('classification', train=(str(tmp_path / 'a.xml'),))


def write_brat(folder, text: str, *annotations: str):
    (folder / 'a.txt').write_bytes(text.encode())
    return write_lines(folder / 'a.ann', *annotations)


def test_brat_annotations_are_spans_of_lines_or_documents(tmp_path):
    path = write_brat(
        tmp_path,
        'The mayor of Leeds spoke.\r\n\r\nAnna left.\r\n',
        'T1\tPER 0 18\tThe mayor of Leeds',
        'T2\tLOC 13 18\tLeeds',
        'T3\tPER 29 33\tAnna',
        'R1\tof Arg1:T1 Arg2:T2',
        '#1\tAnnotatorNotes T1\tsure',
    )
    splits = read('spans', train=path, dev_fraction=0.0)
    assert [(one.id, one.text, one.spans) for one in splits.train] == [
        ('a.txt:1', 'The mayor of Leeds spoke.', (Span(0, 18, 'PER'), Span(13, 18, 'LOC'))),
        ('a.txt:3', 'Anna left.', (Span(0, 4, 'PER'),)),
    ]
    assert splits.report['annotations_other_than_spans'] == 2
    (one,) = read('spans', train=path, documents=True, dev_fraction=0.0).train
    assert one.spans[2] == Span(29, 33, 'PER')


@pytest.mark.parametrize(
    ('annotation', 'message'),
    [
        ('T1\tPER 0 4;6 9\tAnna and', 'misplaced: .*a.ann:1: the span is discontinuous'),
        ('T1\tPER 1 5\tAnna', "misplaced: .*the text at 1 is 'nna ', not 'Anna'"),
        ('T1\tPER 5 14\tleft. Tom', 'misplaced: .*crosses lines; set data.documents=True'),
        ('T1\tPER 11 99\tTom', 'misplaced: .*the text at 11'),
        ('T1 PER 0 4 Anna', 'malformed: .*not a span, ID<tab>LABEL START END<tab>TEXT'),
        ('T1\tPER 0 3\tAnn', 'misplaced|does not start and end at word boundaries'),
    ],
)
def test_spans_that_do_not_fit_are_reported_with_their_line(tmp_path, annotation, message):
    path = write_brat(tmp_path, 'Anna left.\nTom stayed.\n', annotation)
    with pytest.raises(UserError, match=message):
        read('spans', train=path)


def test_brat_needs_the_text_beside_the_annotations(tmp_path):
    path = write_lines(tmp_path / 'a.ann', 'T1\tPER 0 4\tAnna')
    with pytest.raises(UserError, match='cannot read .*a.txt'):
        read('spans', train=path)
    (tmp_path / 'a.txt').write_text('Anna')
    with pytest.raises(UserError, match='a.txt is not a file of annotations; set data.train to'):
        read('spans', train=(f'{tmp_path}/a.txt',), format='brat')
