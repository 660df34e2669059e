"""From files to examples: what is read, refused, warned about and counted."""

import json

import numpy as np
import pytest

from bert_jax import main
from bert_jax.errors import UserError
from bert_jax.problems import read
from bert_jax.tasks import make_task
from tests.problems.embedding.small import config_of, rows, task_of


def test_lists_of_negatives_and_vectors_are_read(tmp_path):
    path = tmp_path / 'a.jsonl'
    records = [
        {'q': 'a b', 'd': 'c', 'n': ['d', 'e f'][: 1 + number % 2], 'v': [0.5, 1], 's': [2, 1]}
        for number in range(4)
    ]
    path.write_text(''.join(json.dumps(record) + '\n' for record in records))
    config = config_of(tmp_path, [['text1'], ['x']])
    config.data.update(train=(str(path),), dev=(str(path),))
    config.data.columns.update(texts=('q', 'd', 'n'), vectors=('v', 'v'), scores=('s',))
    splits = read(config.data, 'embedding')
    assert [example.texts for example in splits.train[:2]] == [
        ('a b', 'c', 'd'),
        ('a b', 'c', 'd', 'e f'),
    ]
    assert splits.train[0].vectors == ((0.5, 1.0), (0.5, 1.0))
    assert splits.train[0].scores == (2.0, 1.0)
    config.data.columns.update(vectors=(), scores=('absent',))
    config.training.batch_size = 4
    task = make_task(config)
    assert task.splits.report['rows_without_scores'] == 8
    present = [bool(row) for row in task.source.batch(0)['is_present'].ravel()]
    assert present.count(True) > 0
    batch = task.problem.loss.collect(
        np.zeros((*task.source.batch(0)['class'].shape, 3)), {**task.source.batch(0)}
    )
    assert batch.vectors_BND.shape == (4, 4, 3)
    assert np.asarray(batch.is_present_BN).sum() == 4 * 3 + 2


NAMES = ['text1', 'text2', 'score']


def scored(*scores):
    return [
        NAMES,
        *([*row, score] for row, score in zip(rows(len(scores), 2), scores, strict=True)),
    ]


@pytest.mark.parametrize(
    ('lines', 'keys', 'message'),
    [
        ([['text1'], *rows(9, 1)], {}, '1 text, but problem.loss=in_batch needs at least 2'),
        (
            [NAMES[:2], *rows(9, 2)],
            {'problem__loss': 'triplet'},
            '2 texts, but problem.loss=triplet needs 3',
        ),
        (
            [NAMES[:2], *rows(9, 2)],
            {'problem__loss': 'cosent'},
            'no scores, but problem.loss=cosent needs them; set data.columns.scores',
        ),
        (
            scored(*'123456789'),
            {'problem__loss': 'cosine', 'data__columns__scores': ('score',)},
            'the score 2, but a cosine is at most 1; set problem.highest_score',
        ),
        (
            scored(*'0101010103'),
            {'problem__loss': 'contrastive', 'data__columns__scores': ('score',)},
            'the score 3, must be 0 or 1',
        ),
        (
            [NAMES[:2], *rows(9, 2)],
            {'training__batch_size': 1},
            'a batch has 1 examples, but problem.loss=in_batch compares at least 2',
        ),
        (
            [NAMES[:2], *rows(9, 2)],
            {'problem__directions': ('document_to_query',)},
            "add 'query_to_document'",
        ),
        (
            [NAMES[:2], *rows(9, 2)],
            {'problem__directions': ('query_to_document', 'query_to_dokument')},
            'did you mean query_to_document',
        ),
        (
            [NAMES[:2], *rows(9, 2)],
            {'problem__dimensions': (8, 4), 'problem__dimension_weights': (1.0,)},
            'has 1 values, but problem.dimensions has 2',
        ),
        (
            [NAMES[:2], ['one', ' '], *rows(9, 2)],
            {},
            "column 'text2' has an empty text",
        ),
    ],
)
def test_data_that_a_loss_cannot_learn_from_is_refused_in_one_line(tmp_path, lines, keys, message):
    with pytest.raises(UserError, match=message) as caught:
        make_task(config_of(tmp_path, lines, **keys))
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        (['answer', 'question'], 'the first column is the query'),
        (['passages', 'query'], 'the first column is the query'),
        (['text', 'doc_id'], "'doc_id': an id would be embedded"),
        (['question', 'answer'], ''),
    ],
)
def test_names_of_columns_that_look_wrong_are_warned_about(tmp_path, names, message, capsys):
    config = config_of(tmp_path, [names, *rows(9, 2)])
    config.data.columns.texts = tuple(names)
    read(config.data, 'embedding')
    warnings = capsys.readouterr().err
    assert message in warnings if message else not warnings


def test_a_run_that_replaces_another_warns_once(tmp_path, capsys):
    config = config_of(tmp_path, [['answer', 'question'], *rows(9, 2)])
    config.data.columns.texts = ('answer', 'question')
    main._delete_run(config, ())  # builds the task, which the run does again
    assert not capsys.readouterr().err
    make_task(config)
    assert 'the first column is the query' in capsys.readouterr().err


def test_a_dev_split_with_scores_for_some_pairs_only_is_refused(tmp_path):
    pairs, dev = rows(3, 2), tmp_path / 'dev.jsonl'
    records = [
        {'text1': first, 'text2': second} | ({'score': 0.5} if number else {})
        for number, (first, second) in enumerate(pairs)
    ]
    dev.write_text(''.join(json.dumps(record) + '\n' for record in records))
    config = config_of(tmp_path, [NAMES[:2], *rows(9, 2)], data__dev=(str(dev),))
    config.data.columns.scores = ('score',)
    with pytest.raises(UserError, match='not a pair with a score, but 2 of 3 evaluated examples'):
        make_task(config)
    config.data.columns.scores = ()
    make_task(config)


def test_sizes_above_that_of_the_vectors_are_refused(tmp_path):
    task = task_of(tmp_path, columns=2, problem__dimensions=(64, 8))
    loss, batch = task.problem.loss, {**task.source.batch(0)}
    vectors = loss.collect(np.zeros((*batch['class'].shape, 32)), batch)
    with pytest.raises(UserError, match='has 64, but the vectors of the model have 32 numbers'):
        loss.of_sizes(vectors)


def test_a_key_of_another_loss_has_no_effect(tmp_path):
    from bert_jax import config_keys

    config = config_of(tmp_path, [NAMES[:2], *rows(9, 2)], problem__margin=1.0)
    with pytest.raises(UserError, match=r"problem.margin is 1.0, but problem.loss is 'in_batch'"):
        config_keys.check_used(config, ['problem.margin'])


LAYOUTS = {
    'FlagEmbedding': (
        {'query': 'q', 'pos': ['a', 'b'], 'neg': ['n', 'm']},
        ('query', 'pos', 'neg'),
    ),
    'Tevatron': (
        {
            'query': 'q',
            'positive_passages': [{'docid': '1', 'text': 'a'}, {'docid': '2', 'text': 'b'}],
            'negative_passages': [{'docid': 3, 'title': '', 'text': 'n'}, {'text': 'm'}],
        },
        ('query', 'positive_passages', 'negative_passages'),
    ),
    'DPR': (
        {
            'question': 'q',
            'answers': ['of no use here'],
            'positive_ctxs': [{'title': '', 'text': 'a'}, {'title': '', 'text': 'b', 'score': 9}],
            'negative_ctxs': [],
            'hard_negative_ctxs': [{'text': 'n', 'title': ''}, {'text': 'm', 'title': ''}],
        },
        ('question', 'positive_ctxs', 'hard_negative_ctxs'),
    ),
}


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('kind', ['embedding', 'sparse_embedding', 'reranking'])
def test_a_second_document_that_answers_is_never_a_negative(tmp_path, kind, layout):
    record, columns = LAYOUTS[layout]
    splits = splits_of(tmp_path, kind, [record] * 3, columns)
    if kind == 'reranking':
        assert [one.texts for one in splits.train[:1]] == [('q', 'a', 'b', 'n', 'm')]
        assert splits.train[0].scores == (1.0, 1.0, 0.0, 0.0)
        return
    assert [one.texts for one in splits.train[:2]] == [('q', 'a', 'n', 'm'), ('q', 'b', 'n', 'm')]
    assert splits.report['examples_of_further_documents_that_answer_a_query'] == 3


def splits_of(folder, kind, records, columns, **keys):
    from configs import finetune

    path = folder / 'train.jsonl'
    path.write_text(''.join(json.dumps(record) + '\n' for record in records))
    data = finetune.get_config(kind).data
    data.update(train=(str(path),), dev_fraction=0.0)
    data.columns.update(texts=columns, **keys)
    return read(data, kind)


@pytest.mark.parametrize('kind', ['embedding', 'sparse_embedding'])
def test_scores_say_which_documents_of_one_column_answer(tmp_path, kind):
    columns, ranked = ('q', 'docs'), {'q': 'q', 'docs': ['a', 'b', 'c'], 's': [1, 3, 2]}
    (example,) = splits_of(tmp_path, kind, [ranked], columns, scores=('s',)).train
    assert (example.texts, example.scores) == (('q', 'b', 'c', 'a'), (3.0, 2.0, 1.0))
    assert example.is_ranked
    own = {'q': 'q', 'pos': ['a', 'b'], 'neg': ['n'], 'p': [3, 2], 'm': [1]}
    found = splits_of(tmp_path, kind, [own], ('q', 'pos', 'neg'), scores=('p', 'm')).train
    assert [(one.texts, one.scores) for one in found] == [
        (('q', 'a', 'n'), (3.0, 1.0)),
        (('q', 'b', 'n'), (2.0, 1.0)),
    ]


@pytest.mark.parametrize(
    ('record', 'keys', 'message'),
    [
        ({'q': ['a', 'b'], 'd': ['c']}, {}, "column 'q' has 2 texts, must have one query"),
        ({'q': 'a', 'd': []}, {}, 'queries without a document: 1'),
        ({'q': 'a', 'd': ['b', 'c'], 's': [1]}, {'scores': ('x',)}, '2 documents, but 0 scores'),
        (
            {'q': 'a', 'd': ['b', 'c'], 'v': [1]},
            {'vectors': ('v', 'v')},
            "column 'd' has 2 texts, but data.columns.vectors has one vector for the column",
        ),
    ],
)
def test_rows_whose_documents_are_not_told_apart_are_refused(tmp_path, record, keys, message):
    with pytest.raises(UserError, match=message):
        splits_of(tmp_path, 'embedding', [record], ('q', 'd'), **keys)


def test_documents_that_only_scores_tell_apart_are_not_for_a_loss_without_scores(tmp_path):
    path = tmp_path / 'ranked.jsonl'
    path.write_text('{"q": "a", "d": ["b", "c"], "s": [0, 1]}\n' * 9)
    config = config_of(tmp_path, [['text1'], ['x']], data__train=(str(path),))
    config.data.columns.update(texts=('q', 'd'), scores=('s',))
    with pytest.raises(UserError, match='only their scores say which of them answer the query'):
        make_task(config)


def test_titles_of_passages_are_joined_with_their_texts(tmp_path):
    record = {'q': 'a', 'd': [{'title': 'Moonfleet', 'text': 'Smugglers.'}, {'text': 'b'}]}
    found = splits_of(tmp_path, 'embedding', [record], ('q', 'd')).train
    assert [one.texts for one in found] == [('a', 'Moonfleet Smugglers.'), ('a', 'b')]
