"""Files of annotation tools: Label Studio, WebAnno and INCEpTION, Prodigy, spaCy, GLiNER."""

import json

import pytest

from bert_jax.errors import UserError
from tests.labels.reading import read, write_json_lines, write_lines

TEXT = '😀 Anna met Bell in New York.'
SPANS = [{'start': 2, 'end': 6, 'text': 'Anna', 'labels': ['PER']}]
LONG = {'start': 19, 'end': 27, 'text': 'New York', 'labels': ['LOC', 'CITY']}


def spans_of(train, columns=None, **settings):
    """The spans of each row as (text, label), and the report."""
    splits = read('spans', columns, train=train, dev_fraction=0.0, **settings)
    found = [[(one.text[a:b], label) for a, b, label in one.spans] for one in splits.train]
    return found, splits.report


def write_json(path, value):
    path.write_text(json.dumps(value))
    return (str(path),)


def test_rows_without_the_column_of_spans_have_none(tmp_path):
    rows = [
        {'text': TEXT, 'label': [*SPANS, LONG]},
        {'text': 'Rain.'},
        {'text': 'x', 'label': None},
    ]
    found, report = spans_of(write_json(tmp_path / 'a.json', rows), {'spans': 'label'})
    assert found == [[('Anna', 'PER'), ('New York', 'LOC'), ('New York', 'CITY')], [], []]
    assert report['rows_without_spans'] == 2
    with pytest.raises(UserError, match=r"data.columns.spans names column 'spans', but .* text"):
        spans_of(write_json(tmp_path / 'b.json', rows[1:2]))


def task(text, *annotations, **more):
    return {'id': 1, 'data': {'text': text}, 'annotations': list(annotations), **more}


def annotation(*values, name='label', kind='labels', **more):
    results = [{'from_name': name, 'to_name': 'text', 'type': kind, 'value': v} for v in values]
    return {'result': [*results, {'type': 'relation', 'from_id': 'a', 'to_id': 'b'}], **more}


@pytest.mark.parametrize('suffix', ['json', 'jsonl'])
def test_tasks_of_label_studio_have_a_row_for_each_annotation(suffix, tmp_path):
    tasks = [
        task(TEXT, annotation(*SPANS), annotation(LONG), annotation(was_cancelled=True)),
        task('Nothing here.', annotation()),
        task('Not annotated.'),
        task('Skipped.', annotation(was_cancelled=True)),
    ]
    write = write_json if suffix == 'json' else lambda path, rows: write_json_lines(path, *rows)
    found, report = spans_of(write(tmp_path / f'a.{suffix}', tasks), {'spans': 'label'})
    assert found == [[('Anna', 'PER')], [('New York', 'LOC'), ('New York', 'CITY')], []]
    assert report['not_annotated'] == report['not_accepted_by_the_annotator'] == 1


def test_choices_of_label_studio_are_classes(tmp_path):
    rows = [
        task('Good.', annotation({'choices': ['a']}, name='mood', kind='choices')),
        task('So so.', annotation({'choices': ['a', 'b']}, name='mood', kind='choices')),
    ]
    train = write_json(tmp_path / 'a.json', rows)
    splits = read('multi_label', {'label': 'mood'}, train=train, dev_fraction=0.0)
    assert [one.label for one in splits.train] == [('a',), ('a', 'b')]
    train = write_json(tmp_path / 'b.json', rows[:1])
    splits = read(
        'classification', {'label': 'mood', 'text': 'data.text'}, train=train, dev_fraction=0.0
    )
    assert [(one.texts, one.label) for one in splits.train] == [(('Good.',), 'a')]


def test_the_text_of_a_span_tells_whether_offsets_count_utf_16(tmp_path):
    shifted = [one | {'start': one['start'] + 1, 'end': one['end'] + 1} for one in (*SPANS, LONG)]
    train = write_json(tmp_path / 'a.json', [{'text': TEXT, 'spans': shifted}])
    found, report = spans_of(train)
    assert found == [[('Anna', 'PER'), ('New York', 'LOC'), ('New York', 'CITY')]]
    assert report['spans_with_offsets_of_UTF-16'] == 2
    train = write_json(
        tmp_path / 'b.json', [{'text': TEXT, 'spans': [SPANS[0] | {'text': 'Bell'}]}]
    )
    with pytest.raises(UserError, match=r"misplaced: .*the text at 2 is 'Anna', not 'Bell'"):
        spans_of(train)
    broken = {'text': 'New\nYork', 'spans': [{**LONG, 'start': 0, 'end': 8, 'text': 'New\\nYork'}]}
    assert spans_of(write_json(tmp_path / 'c.json', [broken]))[0][0][0] == ('New\nYork', 'LOC')


def test_spans_in_cells_of_a_table(tmp_path):
    cell = json.dumps(SPANS).replace('"', '""')
    train = write_lines(tmp_path / 'a.csv', 'text,label', f'{TEXT},"{cell}"', 'Rain.,')
    assert spans_of(train, {'spans': 'label'})[0] == [[('Anna', 'PER')], []]
    train = write_lines(
        tmp_path / 'b.csv', 'tokens,spans', """"['Anna', 'met']","[[0, 1, 'PER']]\""""
    )
    assert spans_of(train)[0] == [[('Anna', 'PER')]]


@pytest.mark.parametrize(
    'rows',
    [
        ['tokens,tags', 'Anna met Bell,B-P O B-P', 'Rain ,O'],
        [
            'tokens,tags',
            """"['Anna', 'met', 'Bell']","['B-P', 'O', 'B-P']\"""",
            '"[""Rain""]","[""O""]"',
        ],
    ],
)
def test_words_and_tags_in_cells_of_a_table(rows, tmp_path):
    splits = read('tagging', train=write_lines(tmp_path / 'a.csv', *rows), dev_fraction=0.0)
    assert [(one.text, one.tags) for one in splits.train] == [
        ('Anna met Bell', ('B-P', 'O', 'B-P')),
        ('Rain', ('O',)),
    ]
    uneven = write_lines(tmp_path / 'b.csv', 'tokens,tags', 'Anna met,O')
    with pytest.raises(UserError, match=r"column 'tags' is not a list of 2 tags"):
        read('tagging', train=uneven)


KAGGLE = ['Sentence #,Word,Tag', '1,Anna,B-P', ',met,O', ',",",O', '2,Rain,O', '2,fell,O']


def test_a_table_with_a_word_in_each_row_needs_the_column_of_sentences(tmp_path):
    train = write_lines(tmp_path / 'a.csv', *KAGGLE)
    columns = {'tokens': 'Word', 'tags': 'Tag'}
    with pytest.raises(UserError, match=r'each row has one word.*set data.columns.sentence'):
        read('tagging', columns, train=train)
    columns['sentence'] = 'Sentence #'
    splits = read('tagging', columns, train=train, dev_fraction=0.0)
    assert [(one.id, one.text, one.tags) for one in splits.train] == [
        ('a.csv:2', 'Anna met ,', ('B-P', 'O', 'O')),
        ('a.csv:5', 'Rain fell', ('O', 'O')),
    ]
    train = write_lines(tmp_path / 'b.csv', *KAGGLE[:3], 'x', *KAGGLE[3:])
    splits = read('tagging', columns, train=train, dev_fraction=0.0, malformed_fraction=0.5)
    assert [one.text for one in splits.train] == ['Rain fell']
    assert splits.report['malformed'] == 1
    with pytest.raises(UserError, match="data.columns.sentence names column 'id'"):
        read('tagging', columns | {'sentence': 'id'}, train=train)


def test_words_of_conll_in_a_tsv_are_still_read(tmp_path):
    train = write_lines(tmp_path / 'train.tsv', 'Anna\tB-P', 'met\tO', '', 'Rain\tO')
    splits = read('tagging', train=train, dev_fraction=0.0)
    assert [one.tags for one in splits.train] == [('B-P', 'O'), ('O',)]
    train = write_lines(tmp_path / 'table.tsv', 'tokens\ttags', 'Anna met\tB-P O')
    splits = read('tagging', train=train, dev_fraction=0.0, format='tsv')
    assert [one.tags for one in splits.train] == [('B-P', 'O')]


WEBANNO = """#FORMAT=WebAnno TSV 3.3
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS|PosValue
#T_RL=de.tudarmstadt.ukp.dkpro.core.api.syntax.type.dependency.Dependency|DependencyType|BT_POS
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


#Text=😀 Anna Bell saw A\\tB .
1-1\t0-2\t😀\t_\t_\t_\t_\t_\t
1-2\t3-7\tAnna\tNN\t_\t_\t*[1]\tPER[1]\t
1-3\t8-12\tBell\tNN\t_\t_\t*[1]|*[2]\tPER[1]|LAST\\_NAME[2]\t
1-4\t13-16\tsaw\t_\t_\t_\t_\t_\t
1-4.1\t13-14\ts\t_\t_\t_\t_\t_\t
1-5\t17-20\tA\\tB\t_\t_\t_\t*\tORG|*\t
1-6\t21-22\t.\t_\t_\t_\t_\t_\t

#Text=Rain .
2-1\t23-27\tRain\t_\t_\t_\t_\t_\t
2-2\t28-29\t.\t_\t_\t_\t_\t_\t
"""


def test_spans_of_webanno_have_offsets_of_utf_16(tmp_path):
    train = write_lines(tmp_path / 'a.tsv', *WEBANNO.split('\n'))
    found, report = spans_of(train, {'spans': 'value'})
    assert found == [
        [('Anna Bell', 'PER'), ('Bell', 'LAST_NAME'), ('A\tB', 'ORG')],
        [],
    ]
    assert report['spans_without_a_value'] == 1
    found, _ = spans_of(train, {'spans': 'PosValue'})
    assert found[0] == [('Anna', 'NN'), ('Bell', 'NN')]
    message = 'values of the features PosValue, value: set data.columns.spans to one'
    with pytest.raises(UserError, match=message):
        spans_of(train)
    without = WEBANNO.replace('NN', '_').split('\n')
    assert (
        spans_of(write_lines(tmp_path / 'b.tsv', *without))[0]
        == spans_of(train, {'spans': 'value'})[0]
    )
    with pytest.raises(UserError, match='is not WebAnno TSV 3'):
        spans_of(write_lines(tmp_path / 'c.tsv', 'a\tb'), format='webanno')


GLINER = [{'tokenized_text': ['New', 'York', 'Press', '.'], 'ner': [[0, 2, 'org'], [0, 1, 'city']]}]


def test_ends_of_gliner_are_inclusive(tmp_path):
    train = write_json(tmp_path / 'a.json', GLINER)
    columns = {'tokens': 'tokenized_text', 'spans': 'ner'}
    found, report = spans_of(train, columns)
    assert found == [[('New York Press', 'org'), ('New York', 'city')]]
    assert report['rows_with_inclusive_ends_as_in_GLiNER'] == 1
    found, _ = spans_of(train, columns, ends='exclusive')
    assert found == [[('New York', 'org'), ('New', 'city')]]
    other = [{'tokens': GLINER[0]['tokenized_text'], 'spans': [[1, 1, 'x']]}]
    with pytest.raises(UserError, match='misplaced: .*is empty; .* set data.ends=inclusive'):
        spans_of(write_json(tmp_path / 'b.json', other))


def test_cats_of_spacy_are_classes(tmp_path):
    rows = [
        {'text': 'x', 'cats': {'a': 1.0, 'b': 0.0}},
        ['y', {'cats': {'a': False, 'b': True}}],
    ]
    train = write_json(tmp_path / 'a.json', rows)
    settings = {'train': train, 'dev_fraction': 0.0}
    found = read('classification', {'label': 'cats'}, **settings).train
    assert [(one.texts, one.label) for one in found] == [(('x',), 'a'), (('y',), 'b')]
    found = read('multi_label', {'label': 'cats'}, **settings).train
    assert [one.label for one in found] == [('a',), ('b',)]
    rows[0]['cats'] = {'a': 1, 'b': 1}
    write_json(tmp_path / 'a.json', rows)
    assert read('multi_label', {'label': 'cats'}, **settings).train[0].label == ('a', 'b')
    with pytest.raises(UserError, match=r"column 'cats' has 2 classes of 1; multi_label reads"):
        read('classification', {'label': 'cats'}, **settings)


def test_entities_of_spacy_are_spans(tmp_path):
    rows = [['Anna met', {'entities': [[0, 4, 'PER']]}], ['Rain', {'entities': []}]]
    found, _ = spans_of(write_json(tmp_path / 'a.json', rows), {'spans': 'entities'})
    assert found == [[('Anna', 'PER')], []]
