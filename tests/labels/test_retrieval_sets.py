"""Test sets of retrieval: what is read, and what is refused with its line."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import judgments, retrieval_sets
from tests.labels import beir


def test_a_folder_in_the_layout_of_beir_is_read(tmp_path):
    folder = beir.write(tmp_path / 'set')
    found = retrieval_sets.read(str(folder), 'test')
    assert found.name == 'set'
    assert found.documents['d2'] == 'cow the barn and the milk'
    assert found.documents['d1'] == beir.DOCUMENTS['d1'][1]
    assert list(found.queries) == ['q1', 'q2', 'q3', 'q4']  # nobody judged q5
    assert found.relevance['q3'] == {'d3': 1, 'd5': 0}
    assert found.shared_ids == []


def test_documents_without_text_are_counted_and_queries_with_their_ids_are_known(tmp_path):
    documents = beir.DOCUMENTS | {'q1': ('', ''), 'q2': ('', 'milk')}
    found = retrieval_sets.read(str(beir.write(tmp_path, documents)), 'test')
    assert found.report.lines() == ['documents without text: 1']
    assert found.shared_ids == ['q1', 'q2']


@pytest.mark.parametrize(
    ('file', 'line', 'message'),
    [
        ('corpus.jsonl', '{"_id": "d9"}', 'line 7: no text'),
        ('corpus.jsonl', '{"_id": "d9", "text": 3}', 'line 7: title or text is not a string'),
        ('corpus.jsonl', '{"text": "x"}', 'line 7: _id is None'),
        ('corpus.jsonl', '{"_id": "d9", "text": "x"', '1 malformed lines; line 7: not valid JSON'),
        ('corpus.jsonl', '[]', 'line 7: not a JSON object'),
        ('corpus.jsonl', '{"_id": "d1", "text": "x"}', "line 7: the id 'd1' occurs twice"),
        ('queries.jsonl', '{"_id": "q1", "text": "x"}', "line 6: the id 'q1' occurs twice"),
        ('qrels/test.tsv', 'q1\td3', 'line 9: 2 columns instead of 3'),
        ('qrels/test.tsv', 'q1 d3 1', 'line 9: 1 columns'),
        ('qrels/test.tsv', 'q1\td3\thigh', "line 9: the score 'high' is not an integer"),
        ('qrels/test.tsv', 'q1\td3\t0.5', "line 9: the score '0.5' is not an integer"),
        ('qrels/test.tsv', 'q1\td3\tinf', "line 9: the score 'inf' is not an integer"),
        ('qrels/test.tsv', 'q1\td1\t2', "'q1' and document 'd1' have two scores, 1 and 2"),
        ('qrels/test.tsv', 'q99\td1\t1', '1 of 5 queries are not in queries.jsonl'),
    ],
)
def test_a_malformed_line_is_refused_with_its_place(file, line, message, tmp_path):
    path = beir.write(tmp_path) / file
    path.write_text(path.read_text() + line + '\n')
    with pytest.raises(UserError) as error:
        retrieval_sets.read(str(tmp_path), 'test')
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert '\n' not in str(error.value)


HEADER = 'query-id\tcorpus-id\tscore'
LINES = 'q1\td2\t1\nq1\t3\t0\nq2\t3\t2\n'
FORMS = {
    'BEIR': f'{HEADER}\n{LINES}',
    'no header': LINES,
    'byte order mark': f'\ufeff{LINES}',
    'carriage returns': f'{HEADER}\n{LINES}'.replace('\n', '\r\n'),
    'other header': f'question\tanswer\tgood\n{LINES}',
    'other order': 'score\tdocid\tqid\n1\td2\tq1\n0\t3\tq1\n2\t3\tq2\n',
    'quotes': f'{HEADER}\n{LINES}'.replace('q1', '"q1"').replace('score', '"score"'),
    'fourth column': f'{HEADER}\tsplit\n' + LINES.replace('\n', '\ttest\n'),
    'fourth column of numbers': LINES.replace('\n', '\t7\n'),
    'index of pandas': f'\t{HEADER}\n' + '0\tq1\td2\t1\n1\tq1\t3\t0\n2\tq2\t3\t2.0\n',
    'commas': f'{HEADER}\n{LINES}'.replace('\t', ','),
    'TREC': 'q1 0 d2 1\nq1 0 3 0\n\nq2 0  3 2\n',
    'TREC with tabs': 'q1\tQ0\td2\t1\nq1\tQ0\t3\t0\nq2\tQ0\t3\t2\n',
    'spaces': LINES.replace('\t', ' '),
}


@pytest.mark.parametrize('form', FORMS)
def test_judgments_in_other_forms_are_the_same(form, tmp_path):
    path = tmp_path / 'test.tsv'
    path.write_bytes(FORMS[form].encode())
    assert judgments.read(path) == {'q1': {'d2': 1, '3': 0}, 'q2': {'3': 2}}


def test_judgments_of_mteb_are_json_lines(tmp_path):
    path = beir.write(tmp_path) / 'qrels/test.tsv'
    path.unlink()
    rows = [{'query-id': q, 'corpus-id': d, 'score': float(s)} for q, d, s in beir.JUDGMENTS]
    path = path.with_suffix('.jsonl')
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    assert retrieval_sets.read(str(tmp_path), 'test').relevance['q1'] == {'d1': 1, 'd4': 2}
    path.write_text('{"query-id": "q1", "corpus-id": "d1"}\n[]\n')
    with pytest.raises(UserError, match='line 1: no query, document and .*line 2: not a JSON obj'):
        retrieval_sets.read(str(tmp_path), 'test')


def test_a_first_line_of_a_judged_query_is_no_header(tmp_path):
    path = tmp_path / 'test.tsv'
    path.write_text('q1\td1\thigh\nq1\td2\t1\n')
    with pytest.raises(UserError, match="line 1: the score 'high' is not an integer"):
        judgments.read(path)


def test_judgments_of_missing_documents_are_counted_and_score_as_never_found(tmp_path):
    added = [('q2', 'gone', 1), ('q5', 'd1', 0)]
    folder = beir.write(tmp_path, judgments=[*beir.JUDGMENTS, *added])
    found = retrieval_sets.read(str(folder), 'test')
    assert found.relevance['q2'] == {'d2': 1, 'gone': 1}
    assert found.report.lines() == [
        'judgments of documents that are not in corpus.jsonl: 1 (gone)',
        'queries without a relevant document, which count as 0: 1',
    ]
    absent = [(query, f'{name}x', grade) for query, name, grade in beir.JUDGMENTS]
    beir.write(tmp_path, judgments=absent)
    with pytest.raises(UserError, match=r'7 of 7 judgments name a document that is not in corpus'):
        retrieval_sets.read(str(folder), 'test')


def test_missing_files_and_splits_are_named(tmp_path):
    beir.write(tmp_path)
    with pytest.raises(UserError, match=r'no qrels/dev.tsv; its splits are test'):
        retrieval_sets.read(str(tmp_path), 'dev')
    (tmp_path / 'queries.jsonl').unlink()
    with pytest.raises(UserError, match=r'queries.jsonl does not exist'):
        retrieval_sets.read(str(tmp_path), 'test')


def test_a_query_without_text_is_refused(tmp_path):
    beir.write(tmp_path, queries=beir.QUERIES | {'q1': ' '})
    with pytest.raises(UserError, match="the query 'q1' has no text"):
        retrieval_sets.read(str(tmp_path), 'test')
