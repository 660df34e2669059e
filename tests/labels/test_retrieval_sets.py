"""Test sets of retrieval: what is read, and what is refused with its line."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import retrieval_sets
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
        ('qrels/test.tsv', 'q1\td3', 'line 9: 2 columns separated by tabs instead of 3'),
        ('qrels/test.tsv', 'q1 d3 1', 'line 9: 1 columns'),
        ('qrels/test.tsv', 'q1\td3\thigh', "line 9: the score 'high' is not an integer"),
        ('qrels/test.tsv', 'q1\td3\t0.5', "line 9: the score '0.5' is not an integer"),
        ('qrels/test.tsv', 'q1\td3\tinf', "line 9: the score 'inf' is not an integer"),
        ('qrels/test.tsv', 'q1\td1\t2', "'q1' and document 'd1' have two scores, 1 and 2"),
        ('qrels/test.tsv', 'q1\td99\t1', '1 of 8 judgments name a document that is not in'),
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
