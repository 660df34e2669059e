"""Every format of labeled files, written small: what must be read, and what must be refused."""

import gzip
import json

import pytest

from bert_jax.data.labeled import examples, loader, records
from bert_jax.data.labeled.examples import (
    Answer,
    Mark,
    MarkedExample,
    MultipleChoiceExample,
    QuestionExample,
    Span,
    TaggedExample,
    TextExample,
)
from bert_jax.errors import UserError
from bert_jax.tasks.problems import PROBLEMS
from tests.data.labeled.reading import config, everything, read


def write(path, *lines: str, encoding='utf-8'):
    path.write_bytes('\n'.join(lines).encode(encoding))
    return (str(path),)


def rows(path, *records):
    return write(path, *(json.dumps(record) for record in records))


# Tables


def test_csv_with_quotes_and_line_breaks(tmp_path):
    path = write(
        tmp_path / 'a.csv', 'id,text,label', '1,"One, ""two""\nthree",a', '', "2,plain 's,b", ''
    )
    assert everything('classification', {'id': 'id'}, train=path, format='csv') == [
        TextExample('1', ('One, "two"\nthree',), 'a'),
        TextExample('2', ("plain 's",), 'b'),
    ]


def test_tsv_keeps_quotes_and_has_numbers_for_columns(tmp_path):
    path = write(tmp_path / 'a.tsv', 'a\t"Quoted\tb "c\r', 'd\tx\ty\r', encoding='utf-8-sig')
    columns = {'text': '1', 'text2': '-1', 'label': '0'}
    found = everything('classification', columns, train=path, header=False)
    assert [one.texts for one in found] == [('"Quoted', 'b "c'), ('x', 'y')]
    assert [one.label for one in found] == ['a', 'd']
    assert [one.id for one in found] == ['a.tsv:1', 'a.tsv:2']


def test_quotes_and_separators_can_be_set(tmp_path):
    path = write(tmp_path / 'a.csv', 'text;label', '"a; b";x', 'c;y')
    found = everything('classification', train=path, format='csv', separator=';')
    assert [one.texts for one in found] == [('a; b',), ('c',)]
    path = write(tmp_path / 'b.tsv', 'text\tlabel', '"a\tb"\tx', 'c\ty')
    found = everything('classification', train=path, quotes='yes')
    assert [one.texts for one in found] == [('a\tb',), ('c',)]


def test_latin_1_gzip_and_several_files(tmp_path):
    (tmp_path / 'a.tsv.gz').write_bytes(gzip.compress('text\tlabel\ncafé\t1\n'.encode('latin-1')))
    write(tmp_path / 'b.tsv', 'label\ttext', '2\tthé', encoding='latin-1')
    found = everything(
        'classification',
        train=(f'{tmp_path}/*.gz', f'{tmp_path}/b.tsv'),
        encoding='latin-1',
        rename_labels=('1=one',),
    )
    assert [(one.texts[0], one.label) for one in found] == [('café', 'one'), ('thé', '2')]


def test_wrong_encoding_is_counted(tmp_path):
    path = write(tmp_path / 'a.tsv', 'text\tlabel', 'café\t1', 'tea\t2', encoding='latin-1')
    with pytest.raises(
        UserError,
        match='1 of 2 records are malformed: .*a.tsv:2: the text cannot .* set data.encoding',
    ):
        read('classification', train=path)


def test_half_a_surrogate_pair_is_counted(tmp_path):
    path = write(tmp_path / 'a.jsonl', '{"text": "\\ud83d", "label": "x"}')
    with pytest.raises(UserError, match='a.jsonl:1: the text cannot be decoded'):
        read('classification', train=path, format='jsonl')


def test_json_lines(tmp_path):
    path = rows(
        tmp_path / 'a.jsonl',
        {'a': {'text': 'One.'}, 'label': True, 'n': 7},
        {'a': {'text': 'Two.'}, 'label': 0, 'n': 8},
    )
    found = everything('classification', {'text': 'a.text', 'id': 'n'}, train=path, format='jsonl')
    assert found == [TextExample('7', ('One.',), 'true'), TextExample('8', ('Two.',), '0')]


def test_json_list_with_words_and_marks(tmp_path):
    record = {'token': ['Al', 'runs', 'Ox', 'Ltd'], 's': 0, 't': 0, 'o': 2, 'p': 3, 'relation': 'r'}
    (tmp_path / 'a.json').write_text(json.dumps([record, 'x', record]))
    columns = {'text': 'token', 'label': 'relation', 'marks': ('s:t', 'o:p')}
    settings = dict(train=(f'{tmp_path}/a.json',), format='json', ends='inclusive')
    with pytest.raises(
        UserError, match='1 of 3 records are malformed: .*a.json:2: not a JSON object'
    ):
        read('relation', columns, **settings)
    found = everything('relation', columns, malformed_fraction=0.5, **settings)
    marks = (Mark(0, 0, 2), Mark(0, 8, 14))
    assert found[0] == MarkedExample('a.json:1', ('Al runs Ox Ltd',), marks, 'r')
    for text, message in (('{', 'a.json is not valid JSON'), ('{}', 'a.json is not a JSON list')):
        (tmp_path / 'a.json').write_text(text)
        with pytest.raises(UserError, match=message):
            read('relation', columns, **settings)


def test_one_class_a_file_or_folder(tmp_path):
    write(tmp_path / 'x.pos', 'Good.', '', ' Fine. ')
    write(tmp_path / 'x.neg', 'Bad.')
    found = everything('classification', train=(f'{tmp_path}/x.*',), format='lines')
    assert [(one.texts[0], one.label) for one in found] == [
        ('Bad.', 'neg'), ('Good.', 'pos'), ('Fine.', 'pos')
    ]  # fmt: skip
    for name in ('pos', 'neg'):
        (tmp_path / name).mkdir()
        write(tmp_path / name / '1.txt', f'Text\n\nof {name}')
    found = everything(
        'classification', train=(f'{tmp_path}/*/*.txt',), format='files', label_from='folder'
    )
    assert {(one.texts[0], one.label) for one in found} == {
        ('Text\n\nof pos', 'pos'),
        ('Text\n\nof neg', 'neg'),
    }
    assert {one.id for one in found} == {'pos/1.txt', 'neg/1.txt'}


def test_scores_and_empty_scores(tmp_path):
    path = write(tmp_path / 'a.tsv', '1.5\ta\tb', '\tc\td', '3\te\tf')
    columns = {'text': '1', 'text2': '2', 'label': '0'}
    splits = read(
        'regression', columns, train=path, header=False, skip_labels=('',), dev_fraction=0.5
    )
    assert sorted(one.label for one in splits.train + splits.dev) == [1.5, 3.0]
    assert splits.report['skipped_by_label'] == 1
    assert f'skipped by label: 1 ({path[0]}:2)' in splits.report.lines()
    with pytest.raises(
        UserError, match=r"a.tsv:2: column '0' has an empty label; data.skip_labels"
    ):
        read('regression', columns, train=path, header=False)
    path = write(tmp_path / 'b.tsv', 'nan\ta\tb', 'high\ta\tb')
    with pytest.raises(UserError, match=r"2 of 2 .*'nan' is not a finite number.*'high' is not"):
        read('regression', columns, train=path, header=False)


@pytest.mark.parametrize(
    ('columns', 'record', 'first', 'label'),
    [
        (('a', 'b', 'c'), {'label': 2}, 1, 1),
        (('a', 'b', 'c'), {'label': 'c'}, 0, 2),
        (('a', 'b', 'c'), {'label': 'two'}, 0, 1),
        (('all',), {'label': '2'}, 0, 2),
    ],
)
def test_choice(tmp_path, columns, record, first, label):
    record |= {'text': 'How many?', 'a': 'one', 'b': 'two', 'c': 'three'}
    record['all'] = ['one', 'two', 'three']
    path = rows(tmp_path / 'a.jsonl', record, record)
    found = everything(
        'multiple_choice', {'choices': columns}, train=path, format='jsonl', first_choice=first
    )
    assert found[0] == MultipleChoiceExample(
        'a.jsonl:1', 'How many?', ('one', 'two', 'three'), label
    )


# Marked places


def test_relation_with_signs_in_the_text(tmp_path):
    path = write(
        tmp_path / 'a.tsv',
        'text\tlabel',
        'The <e2>key</e2> of <e1>a door</e1>.\tpart',
        '<e1>a</e1><e2>b</e2>\tnone',
    )
    found = everything('relation', train=path, inline_marks=('<e1>', '</e1>', '<e2>', '</e2>'))
    assert found == [
        MarkedExample('a.tsv:2', ('The key of a door.',), (Mark(0, 11, 17), Mark(0, 4, 7)), 'part'),
        MarkedExample('a.tsv:3', ('ab',), (Mark(0, 0, 1), Mark(0, 1, 2)), 'none'),
    ]  # fmt: skip


def test_one_sign_in_each_of_two_texts(tmp_path):
    path = write(tmp_path / 'a.tsv', 'text\tu\tlabel', 'a *b*\t*c* d\tT', '*x*\ty *z*\tF')
    found = everything(
        'word_in_context', {'text2': 'u'}, train=path, inline_marks=('*', '*', '*', '*')
    )
    assert found[0].texts == ('a b', 'c d')
    assert found[0].marks == (Mark(0, 2, 3), Mark(1, 0, 1))


def test_relation_of_words_with_inclusive_ends(tmp_path):
    record = {'text': ['Ann', 'Lee', 'left', 'York'], 's': 0, 'e': 1, 'o': 3, 'p': 3, 'label': 'x'}
    path = rows(tmp_path / 'a.jsonl', record, record)
    found = everything(
        'relation', {'marks': ('s:e', 'o:p')}, train=path, format='jsonl', ends='inclusive'
    )
    assert found[0].texts == ('Ann Lee left York',)
    assert found[0].marks == (Mark(0, 0, 7), Mark(0, 13, 17))


def test_words_of_a_plain_text_by_number_and_text(tmp_path):
    record = {'text': 'Mark told Pete, he lied.', 'a': 2, 'b': 'Pete', 'c': 3, 'd': 'he'}
    path = rows(tmp_path / 'a.jsonl', record | {'label': 'true'}, record | {'label': 'false'})
    columns = {'marks': ('a+b', 'c+d')}
    found = everything('coreference', columns, train=path, format='jsonl', units='words')
    assert [found[0].texts[0][m.start : m.end] for m in found[0].marks] == ['Pete', 'he']


def test_candidates_become_examples_of_their_own(tmp_path):
    path = write(tmp_path / 'a.tsv', 'text\tp\ta\tb\tA\tB', 'I met her\t0\t6\t2\tF\tT', '')
    columns = {'marks': ('p+x', 'a:b')}
    with pytest.raises(
        UserError, match="data.columns.marks names column 'x', but .*a.tsv has columns text, p"
    ):
        read('coreference', columns, train=path)
    record = {'text': 'Al met Bo and he left', 'p': 14, 'q': 16, 'a': 0, 'b': 2, 'c': 7, 'd': 9}
    path = rows(tmp_path / 'a.jsonl', *[record | {'A': 'T', 'B': 'F'}] * 4)
    columns = {'marks': ('p:q', 'a:b', 'c:d'), 'candidate_labels': ('A', 'B')}
    splits = read('coreference', columns, train=path, format='jsonl', dev_fraction=0.5)
    assert len(splits.train) == len(splits.dev) == 4
    names = {one.id.rpartition('-')[0] for one in splits.train}
    assert names.isdisjoint({one.id.rpartition('-')[0] for one in splits.dev})
    first = sorted(splits.train)[0]
    assert [first.texts[0][m.start : m.end] for m in first.marks] == ['he', 'Al']
    assert [one.label for one in sorted(splits.train)] == ['T', 'F', 'T', 'F']


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('<a>one</a> <a>two</a> <b>three</b>', "the text has too many '<a>'"),
        ('<a>one</a> two', "no text between '<b>' and '</b>'"),
        ('<a></a><b>two</b>', "no text between '<a>' and '</a>'"),
        ('</a>one<a> <b>two</b>', "no text between '<a>' and '</a>'"),
    ],
)
def test_wrong_signs_in_the_text(tmp_path, text, message):
    path = write(tmp_path / 'a.tsv', 'text\tlabel', f'{text}\tx')
    with pytest.raises(UserError, match=f'1 of 1 records are misplaced: .*a.tsv:2: {message}'):
        read('relation', train=path, inline_marks=('<a>', '</a>', '<b>', '</b>'))


@pytest.mark.parametrize(
    ('record', 'message'),
    [
        ({'a': 0, 'b': 99}, 'span 0:99 is not inside the text of 4 characters'),
        ({'a': 2, 'b': 2}, 'span 2:2 is not inside'),
        ({'a': -1, 'b': 2}, 'span -1:2 is not inside'),
    ],
)
def test_marks_outside_the_text(tmp_path, record, message):
    path = rows(tmp_path / 'a.jsonl', record | {'text': 'Text', 'label': 'x'})
    with pytest.raises(UserError, match=f'1 of 1 records are misplaced: .*a.jsonl:1: {message}'):
        read('relation', {'marks': ('a:b', 'a:b')}, train=path, format='jsonl')


# Columns of words


def test_conll_documents_separators_and_schemes(tmp_path):
    path = write(
        tmp_path / 'a.conll',
        '-DOCSTART- -X- O O', '', 'EU NNP I-NP I-ORG', 'rejects VBZ I-VP O',
        'German JJ I-NP I-MISC', 'French JJ I-NP B-MISC', '', 'York NNP I-NP I-LOC', '',
        '-DOCSTART- -X- O O', '', 'Peter NNP I-NP I-PER', ''
    )  # fmt: skip
    found = everything('tagging', train=path, format='conll', scheme='iob1')
    found.sort(key=lambda one: len(one.text), reverse=True)
    assert found[0] == TaggedExample(
        'a.conll:3',
        'EU rejects German French',
        ((0, 2), (3, 10), (11, 17), (18, 24)),
        ('B-ORG', 'O', 'B-MISC', 'B-MISC'),
    )
    assert [one.text for one in found[1:]] == ['Peter', 'York']
    settings = dict(train=path, format='conll', scheme='iob1', tags_as='bioes', documents=True)
    found = everything('tagging', **settings)
    assert sorted(one.text for one in found) == ['EU rejects German French York', 'Peter']
    assert {one.tags for one in found} == {
        ('S-ORG', 'O', 'S-MISC', 'S-MISC', 'S-LOC'),
        ('S-PER',),
    }
    found = everything('tagging', {'tag': '1'}, train=path, format='conll', scheme='none')
    assert ('NNP', 'VBZ', 'JJ', 'JJ') in {one.tags for one in found}


def test_conll_repairs_comments_and_spans(tmp_path):
    path = write(
        tmp_path / 'a.conll', '# id 1\tx', 'a b\tI-X', 'c\tI-Y', '', '# id 2', '#\tO', 'd\tB-X'
    )
    splits = read('tagging', train=path, format='conll', comment='# id', dev_fraction=0.5)
    found = sorted(splits.train + splits.dev)
    assert [one.tags for one in found] == [('B-X', 'B-Y'), ('O', 'B-X')]
    assert found[0].words == ((0, 3), (4, 5))
    assert splits.report['repaired_tags'] == 2
    found = everything('spans', train=path, format='conll', comment='# id')
    assert [one.spans for one in found] == [
        (Span(0, 3, 'X'), Span(4, 5, 'Y')),
        (Span(2, 3, 'X'),),
    ]


@pytest.mark.parametrize('tag', ['S-PER', 'PER', 'b-PER', 'B-', '-'])
def test_tags_that_are_not_of_the_scheme(tmp_path, tag):
    path = write(tmp_path / 'a.conll', 'a O', '', 'b O', f'c {tag}')
    with pytest.raises(
        UserError, match=rf"a.conll:3: tag '{tag}' is not valid in data.scheme='bio'"
    ):
        read('tagging', train=path, format='conll')


def test_test_file_without_tags(tmp_path):
    train = write(tmp_path / 'a.conll', 'a O', '', 'b O')
    test = write(tmp_path / 'b.conll', 'a', 'b', '')
    splits = read('tagging', train=train, dev=train, test=test, format='conll')
    assert splits.test == [TaggedExample('b.conll:1', 'a b', ((0, 1), (2, 3)), None)]
    with pytest.raises(UserError, match=r"b.conll:1: only one column in 'a'"):
        read('tagging', train=test, format='conll')


CONLLU = """\
# newdoc id = d1
# sent_id = s1
# text = Don't go  du coup.
1-2	Don't	_	_	_	_	_	_	_	_
1	Do	do	AUX	VB	Number=Sing|Mood=Imp	_	_	_	_
2	n't	not	PART	RB	_	_	_	_	_
3	go	go	VERB	VB	_	_	_	_	_
3.1	there	there	ADV	RB	_	_	_	_	_
4-5	du	_	_	_	_	_	_	_	_
4	de	de	ADP	IN	_	_	_	_	_
5	le	le	DET	DT	_	_	_	_	_
6	coup	coup	NOUN	NN	Number=Sing	_	_	_	SpaceAfter=No
7	.	.	PUNCT	.	_	_	_	_	_

# sent_id = s2
# text = Something else.
1	New	new	ADJ	JJ	_	_	_	_	SpaceAfter=No
2	s	s	NOUN	NN	_	_	_	_	_

"""


def test_conllu(tmp_path):
    path = write(tmp_path / 'a.conllu', CONLLU)
    settings = dict(train=path, format='conllu', scheme='none', dev_fraction=0.5)
    splits = read('tagging', {'tag': 'upos'}, **settings)
    first, second = sorted(splits.train + splits.dev)
    assert (first.id, second.id) == ('s1', 's2')
    assert first.text == "Don't go  du coup."
    words = [first.text[start:end] for start, end in first.words]
    assert words == ['Do', "n't", 'go', 'du', 'coup', '.']
    assert first.tags == ('AUX', 'PART', 'VERB', 'ADP+DET', 'NOUN', 'PUNCT')
    assert second.text == 'News'
    assert second.words == ((0, 3), (3, 4))
    for name in ('empty_nodes', 'multiword_tokens_kept_whole', 'texts_made_of_words'):
        assert splits.report[name] == 1
    found = everything('tagging', {'tag': 'feats.Number'}, **settings)
    assert found[0].tags == ('Sing', '_', '_', '_+_', 'Sing', '_')
    with pytest.raises(
        UserError,
        match=r"data.columns.tag names column 'pos', but .* has columns id, form, lemma, upos",
    ):
        read('tagging', {'tag': 'pos'}, **settings)


def test_conllu_documents(tmp_path):
    path = write(tmp_path / 'a.conllu', CONLLU, CONLLU.replace('d1', 'd2'))
    settings = dict(train=path, format='conllu', scheme='none', dev_fraction=0.5)
    splits = read('tagging', {'tag': 'xpos'}, documents=True, **settings)
    (one,), (other,) = splits.train, splits.dev
    assert {one.id, other.id} == {'d1', 'd2'}
    assert one.text == "Don't go  du coup. News"
    words = [one.text[start:end] for start, end in one.words]
    assert words == ['Do', "n't", 'go', 'du', 'coup', '.', 'New', 's']
    splits = read('tagging', {'tag': 'xpos'}, group='document', **settings)
    assert [one.id for one in splits.train] == [one.id for one in splits.dev] == ['s1', 's2']


def test_lists_of_words_with_tags(tmp_path):
    path = rows(tmp_path / 'a.jsonl', *[{'tokens': ['Bo', 'sat'], 'ner': [1, 0]}] * 2)
    found = everything(
        'tagging', {'tags': 'ner'}, train=path, format='jsonl', rename_labels=('0=O', '1=B-PER')
    )
    assert found[0] == TaggedExample('a.jsonl:1', 'Bo sat', ((0, 2), (3, 6)), ('B-PER', 'O'))


# Spans


def test_spans_of_words_and_of_characters(tmp_path):
    path = rows(
        tmp_path / 'a.jsonl',
        {'tokens': ['The', 'king', 'of', 'Spain'], 'spans': [[0, 3, 'PER'], [3, 3, 'LOC']]},
        {'tokens': ['a', 'b'], 'spans': [[0, 1, 'X'], [0, 1, 'X']]},
    )
    splits = read('spans', train=path, format='jsonl', ends='inclusive', dev_fraction=0.5)
    found = sorted(splits.train + splits.dev)
    assert found[0].spans == (Span(0, 17, 'PER'), Span(12, 17, 'LOC'))
    assert found[1].spans == (Span(0, 3, 'X'),)
    assert splits.report['repeated_spans'] == 1
    path = rows(tmp_path / 'b.jsonl', *[{'text': 'Élan (Paris)', 'label': [[6, 11, 'LOC']]}] * 2)
    found = everything('spans', {'spans': 'label'}, train=path, format='jsonl')
    assert found[0].words == ((0, 4), (5, 6), (6, 11), (11, 12))
    assert found[0].spans == (Span(6, 11, 'LOC'),)


@pytest.mark.parametrize(
    ('span', 'message'),
    [
        ([1, 3, 'X'], 'misplaced: .*words 1 to 3 are not in a sentence of 2 words'),
        ([1, 1, 'X'], 'misplaced: .*words 1 to 1 are'),
        ([0, 1], r'malformed: .*span \[0, 1\] is not \[start, end, label\]'),
        (['x', 1, 'X'], "malformed: .*'x' is not an integer"),
    ],
)
def test_spans_that_do_not_fit(tmp_path, span, message):
    good = {'tokens': ['a', 'b'], 'spans': []}
    path = rows(tmp_path / 'a.jsonl', good, good, good | {'spans': [span]}, good)
    with pytest.raises(UserError, match=f'1 of 4 records are {message}'):
        read('spans', train=path, format='jsonl')
    splits = read(
        'spans',
        train=path,
        format='jsonl',
        malformed_fraction=0.25,
        misplaced_fraction=0.25,
        dev_fraction=0.3,
    )
    assert splits.report['malformed'] + splits.report['misplaced'] == 1
    assert len(splits.train + splits.dev) == 3


def test_characters_within_a_word(tmp_path):
    path = rows(tmp_path / 'a.jsonl', {'text': 'Parisian', 'spans': [[0, 5, 'LOC']]})
    with pytest.raises(UserError, match='span 0:5 does not start and end at word boundaries'):
        read('spans', train=path, format='jsonl')


# Questions


def squad(path, *questions, context='Ann was born in York in 1900.'):
    paragraphs = [{'context': context, 'qas': list(questions)}]
    path.write_text(json.dumps({'data': [{'title': 't', 'paragraphs': paragraphs}]}))
    return (str(path),)


def test_squad(tmp_path):
    path = squad(
        tmp_path / 'a.json',
        {'id': 'a', 'question': 'Where?', 'answers': [{'text': 'York', 'answer_start': 16}] * 2},
        {'id': 'b', 'question': 'Why?', 'answers': [], 'is_impossible': True},
        {'id': 'c', 'question': 'When?', 'answers': [{'text': '1900', 'answer_start': 24}]},
    )
    found = everything('question_answering', train=path, format='squad')
    answers = {one.id: one.answers for one in found}
    assert answers == {'a': (Answer('York', 16),) * 2, 'b': (), 'c': (Answer('1900', 24),)}
    raw = squad(tmp_path / 'b.json', {'id': 'd', 'question': 'Who?'})
    splits = read('question_answering', train=path, dev=path, test=raw, format='squad')
    assert [one.answers for one in splits.test] == [None]
    with pytest.raises(UserError, match="question d: the question has no 'answers'"):
        read('question_answering', train=raw, format='squad')


def test_answer_that_is_not_in_the_context(tmp_path):
    answer = {'text': 'Leeds', 'answer_start': 16}
    path = squad(tmp_path / 'a.json', {'id': 'a', 'question': 'Where?', 'answers': [answer]})
    message = "question a: the context at 16 is 'York ', not the answer 'Leeds'"
    with pytest.raises(UserError, match=message):
        read('question_answering', train=path, format='squad')
    path = rows(tmp_path / 'a.jsonl', {'question': 'Where?', 'context': 'York', 'answers': 'Rome'})
    with pytest.raises(UserError, match="a.jsonl:1: answer 'Rome' is not in the context"):
        read('question_answering', train=path, format='jsonl')


def test_files_that_are_not_squad(tmp_path):
    for text in ('no json', '[]', '{"data": [{"paragraphs": [{"qas": []}, {"qas": [1]}]}]}'):
        (tmp_path / 'a.json').write_text(text)
        with pytest.raises(UserError, match=r'a.json is not in the format of SQuAD'):
            read('question_answering', train=(f'{tmp_path}/a.json',), format='squad')


def test_questions_in_rows(tmp_path):
    path = write(
        tmp_path / 'a.tsv',
        'question\tcontext\tanswers',
        'Where?\tIn York or York.\tYork',
        'Why?\tIn York.\t',
    )
    splits = read('question_answering', train=path, dev_fraction=0.5)
    assert sorted(splits.train + splits.dev) == [
        QuestionExample('a.tsv:2', 'Where?', 'In York or York.', (Answer('York', 3),)),
        QuestionExample('a.tsv:3', 'Why?', 'In York.', ()),
    ]
    assert splits.report['answers_found_several_times'] == 1
    answers = {'text': ['York', 'York'], 'start': [3, 11]}
    record = {'question': 'Where?', 'context': 'In York or York.', 'answers': answers}
    path = rows(tmp_path / 'a.jsonl', record, record)
    columns = {'answers': ('answers.text',), 'answer_starts': ('answers.start',)}
    found = everything('question_answering', columns, train=path, format='jsonl')
    assert found[0].answers == (Answer('York', 3), Answer('York', 11))


def test_answers_as_words_of_contexts_elsewhere(tmp_path):
    contexts = write(tmp_path / 'c.tsv', 's1\tAnn was born in York .', 's2\tBo sat .')
    path = write(tmp_path / 'a.tsv', 's1\tWhere?\t4\t7:3 4', 's1\tWho?\t0\t7:0 2')
    columns = {'context': '0', 'question': '1', 'answers': ('2', '3')}
    settings = dict(contexts=contexts[0], header=False, units='words', dev_fraction=0.5)
    splits = read('question_answering', columns, train=path, **settings)
    found = sorted(splits.train + splits.dev)
    assert found[0].answers == (Answer('York', 16), Answer('in York', 13))
    assert found[1].answers == (Answer('Ann', 0), Answer('Ann was born', 0))
    assert splits.report['answers_with_gaps'] == 1
    path = write(tmp_path / 'a.tsv', 's1\tWhere?\t9\t7:3 4')
    with pytest.raises(
        UserError, match='misplaced: .*words 9 to 10 are not in a sentence of 6 words'
    ):
        read('question_answering', columns, train=path, **settings)
    path = write(tmp_path / 'a.tsv', 's3\tWhere?\t9\t7:3 4')
    with pytest.raises(UserError, match="context 's3' is not in the file data.contexts"):
        read('question_answering', columns, train=path, **settings)


# Splits, counts, mistakes


def test_malformed_rows_are_counted_and_named(tmp_path):
    path = write(tmp_path / 'a.tsv', 'text\tlabel', *['good\ta'] * 196, 'bad', 'a\tb\tc', '\ta', '')
    with pytest.raises(UserError) as caught:
        read('classification', train=path)
    assert str(caught.value) == (
        f'3 of 199 records are malformed: {path[0]}:198: 1 columns instead of 2; {path[0]}:199: '
        f"3 columns instead of 2; {path[0]}:200: column 'text' has an empty text "
        '(raise data.malformed_fraction=0.01 to leave out more)'
    )
    splits = read('classification', train=path, malformed_fraction=0.02)
    assert splits.report['malformed'] == 3
    assert len(splits.train + splits.dev) == 196
    assert any('a.tsv:198: 1 columns' in line for line in splits.report.lines())


def test_seeded_fractions(tmp_path):
    path = write(tmp_path / 'a.tsv', 'text\tlabel', *[f'text {n}\tg{n % 10}' for n in range(100)])
    settings = dict(train=path, dev_fraction=0.2, test_fraction=0.1)
    splits = read('classification', **settings)
    assert [len(split) for split in splits[:3]] == [72, 18, 10]
    assert splits == read('classification', **settings)
    everyone = {one.id for split in splits[:3] for one in split}
    assert len(everyone) == 100
    other = read('classification', split_seed=1, **settings)
    assert {one.id for one in other.dev} != {one.id for one in splits.dev}
    grouped = read('classification', group='label', **settings)
    assert [len(split) for split in grouped[:3]] == [70, 20, 10]
    few = read('classification', train_examples=7, **settings)
    assert len(few.train) == 7
    assert few.dev == splits.dev
    assert set(few.train) < set(splits.train)
    with pytest.raises(
        UserError, match=r"data.group names column 'topic', but .* has columns text, label"
    ):
        read('classification', group='topic', **settings)


def test_dev_and_test_files(tmp_path):
    train = write(tmp_path / 'a.tsv', 'text\tlabel', 'a\tx', 'b\ty')
    dev = write(tmp_path / 'b.tsv', 'label\ttext', 'y\tc')
    test = write(tmp_path / 'c.tsv', 'text', 'd')
    splits = read('classification', train=train, dev=dev, test=test)
    assert [one.texts[0] for split in splits[:3] for one in split] == ['a', 'b', 'c', 'd']
    assert splits.test[0].label is None
    assert not any(map(examples.is_labeled, splits.test))
    assert all(map(examples.is_labeled, splits.train + splits.dev))
    assert splits.report.lines() == []


def test_text_to_predict_on(tmp_path):
    path = write(tmp_path / 'a.tsv', 'text', 'a', 'b')
    data, readers = config({'label': ''}), PROBLEMS['classification'].readers
    found = loader.read_files(
        path, data, 'classification', readers, records.ReadingReport(), labeled=False
    )
    assert [one.example.label for one in found] == [None, None]
    with pytest.raises(UserError, match='no label column; set data.columns.label'):
        read('classification', {'label': ''}, train=path)


@pytest.mark.parametrize(
    ('kind', 'columns', 'settings', 'message'),
    [
        (
            'classification',
            {'label': 'class'},
            {},
            "data.columns.label names column 'class', but .*a.tsv has columns text, label",
        ),
        (
            'classification',
            {'text2': 'b'},
            {},
            "data.columns.text2 names column 'b', but .*a.tsv has columns text, label",
        ),
        ('classification', {}, {'dev_fraction': 0.0}, 'the dev split is empty'),
        ('classification', {}, {'train': ('{}/*.csv',)}, 'no file matches .*csv'),
        ('classification', {}, {'train': ()}, 'set data.train to files or data.dataset'),
        ('classification', {}, {'train': ('{}/empty.tsv',)}, 'the train split is empty'),
        ('classification', {}, {'format': 'xml'}, "unknown data.format 'xml'; known: conll, "),
        (
            'classification',
            {},
            {'format': 'conll'},
            "'conll' cannot hold classification examples; set it to one of csv",
        ),
        ('classification', {}, {'encoding': 'utf-9'}, "unknown data.encoding 'utf-9'"),
        ('classification', {}, {'quotes': 'maybe'}, 'set it to auto, yes or no'),
        ('classification', {}, {'ends': 'open'}, "set it to one of 'exclusive', 'inclusive'"),
        ('classification', {}, {'units': 'bytes'}, "set it to one of '', 'characters', 'words'"),
        ('classification', {}, {'rename_labels': ('a',)}, "set it to pairs \\('old=new', …\\)"),
        ('sorting', {}, {}, "unknown kind of problem 'sorting'; known: classification, "),
        ('multiple_choice', {}, {}, 'data.columns.choices is empty'),
        ('relation', {}, {}, 'data.columns.marks has 0 ranges; set it to two'),
        (
            'relation',
            {'marks': ('a', 'b')},
            {},
            "marks has 'a'; write 'START:END' or 'START\\+TEXT'",
        ),
        ('classification', {}, {'train': ('{}/twice.tsv',)}, 'two columns have the same name'),
    ],
)
def test_mistakes(tmp_path, kind, columns, settings, message):
    write(tmp_path / 'a.tsv', 'text\tlabel', *['t\ta'] * 5)
    write(tmp_path / 'empty.tsv', 'text\tlabel')
    write(tmp_path / 'twice.tsv', 'text\ttext', 'a\tb')
    settings = {'train': ('{}/a.tsv',)} | settings
    settings['train'] = tuple(pattern.format(tmp_path) for pattern in settings['train'])
    with pytest.raises(UserError, match=message) as caught:
        read(kind, columns, **settings)
    assert '\n' not in str(caught.value)


def test_unreadable_file(tmp_path):
    (tmp_path / 'a.tsv.gz').write_bytes(b'not zipped')
    with pytest.raises(UserError, match=r'cannot read .*a.tsv.gz'):
        read('classification', train=(f'{tmp_path}/a.tsv.gz',))
