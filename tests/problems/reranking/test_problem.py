"""The reranking problem: lists in packed rows, training, answers, and CrossEncoder folders."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder

import bert_jax
from bert_jax import averages, export, main, predict
from bert_jax.errors import UserError
from bert_jax.export_formats import samples
from bert_jax.problems.reranking import LOSSES
from bert_jax.problems.reranking.base import ScoreBatch
from bert_jax.tasks import make_task
from tests.interop import published
from tests.problems.reranking import small
from tests.random_parameters import random_parameters

pytestmark = pytest.mark.usefixtures('no_loader_process')
QUERY = 'the ship'
DOCUMENTS = ['the ship near the wave', 'a cow', 'the moon and the ship', 'ship']


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """The folder of a short run with the binary loss."""
    folder = tmp_path_factory.mktemp('reranking')
    main.run(small.config_of(folder))
    return folder / 'run'


def test_the_loss_of_packed_rows_is_that_of_the_lists(tmp_path):
    task = make_task(small.config_of(tmp_path, problem__loss='lambda'))
    batch = task.source.batch(0)
    assert np.max(batch['segment_ids']) > 4  # several queries share a row
    params = random_parameters(task.model.model, task.model.rows(batch), deviation=0.2)
    outputs = jax.jit(task.model.outputs)(params, batch)
    found = task.problem.loss.terms(outputs, batch)['reranking']
    logits_RS = np.asarray(outputs['logits'])[..., 0]
    lists = []
    for row, place_S in enumerate(batch['place']):
        for slot in np.flatnonzero(batch['first_positions'][row] >= 0):
            if place_S[slot] == 0:
                lists.append([])
            lists[-1].append((logits_RS[row, slot], batch['label'][row, slot]))
    assert len(lists) == 6
    size = max(map(len, lists))
    padded = np.array([own + [(0, 0)] * (size - len(own)) for own in lists], np.float32)
    present = np.arange(size) < np.array([len(own) for own in lists])[:, None]
    given = ScoreBatch(jnp.array(padded[..., 0]), jnp.array(padded[..., 1]), jnp.array(present))
    expected = LOSSES['lambda']()(given)
    np.testing.assert_allclose(averages.mean(found), averages.mean(expected), rtol=1e-5)
    assert float(found.count) == float(expected.count)


def test_a_run_scores_the_order_and_its_answers_are_probabilities(run):
    results = json.loads((run / 'dev/metrics.json').read_text())
    assert list(results['metrics'])[:3] == ['ndcg@10', 'mrr@10', 'map']
    assert results['intervals'].keys() >= {'ndcg@10', 'spearman'}
    model = bert_jax.load(run)
    assert model.tasks[-1] == 'rerank'
    (found,) = model.rerank([QUERY], [DOCUMENTS])
    logits = [one['logit'] for one in found['results']]
    assert logits == sorted(logits, reverse=True)
    for one in found['results']:
        assert one['score'] == pytest.approx(1 / (1 + np.exp(-one['logit'])), abs=1e-6)
        assert one['text'] == DOCUMENTS[one['document']]


def test_the_exported_folder_opens_as_cross_encoder_with_the_same_scores(run, tmp_path):
    export.main([f'--model={run}', f'--output={tmp_path}/out'])
    config = json.loads((tmp_path / 'out/config.json').read_text())
    assert config['sentence_transformers']['activation_fn'].endswith('Sigmoid')
    theirs = CrossEncoder(str(tmp_path / 'out'), device='cpu')
    scores = theirs.predict([(QUERY, document) for document in DOCUMENTS])
    for folder in (run, tmp_path / 'out'):
        (found,) = bert_jax.load(folder).rerank([QUERY], [DOCUMENTS])
        ours = {one['document']: one['score'] for one in found['results']}
        np.testing.assert_allclose([ours[n] for n in range(4)], scores, atol=1e-6)


@pytest.mark.parametrize('activation', [torch.nn.Sigmoid(), torch.nn.Identity()])
@pytest.mark.parametrize('version', ['new', 'old'])
def test_published_cross_encoders_rerank(version, activation, tmp_path):
    folder = published.folder(tmp_path / 'x', 'BertForSequenceClassification', num_labels=1)
    if version == 'new':
        made = CrossEncoder(str(folder), device='cpu', activation_fn=activation)
        made.save_pretrained(str(folder))
    else:
        name = f'{type(activation).__module__}.{type(activation).__name__}'
        config = json.loads((folder / 'config.json').read_text())
        config['sentence_transformers'] = {'activation_fn': name, 'version': '4.1.0'}
        (folder / 'config.json').write_text(json.dumps(config))
    theirs = CrossEncoder(str(folder), device='cpu')
    expected = theirs.rank(QUERY, DOCUMENTS)
    (found,) = bert_jax.load(folder).rerank([QUERY], [DOCUMENTS])
    assert [one['document'] for one in found['results']] == [one['corpus_id'] for one in expected]
    scores = [one['score'] for one in found['results']]
    np.testing.assert_allclose(scores, [one['score'] for one in expected], atol=1e-5)


def test_the_command_reads_lines_and_objects(run, tmp_path, capsys):
    line = {'id': 7, 'query': QUERY, 'documents': DOCUMENTS}
    (tmp_path / 'in').write_text('\t'.join([QUERY, *DOCUMENTS]) + '\n' + json.dumps(line) + '\n')
    predict.main([f'--model={run}', '--task=rerank', f'--input={tmp_path}/in', '--output=-'])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first['results'] == second['results']
    assert (first['id'], second['id']) == ('input 1', 7)


@pytest.mark.parametrize(
    ('row', 'keys', 'message'),
    [
        ({'scores': [1]}, {}, '1 scores, but 2 documents'),
        ({'scores': [1, 2]}, {}, 'the label 2, must be from 0 to 1 (problem.loss=binary)'),
        ({'documents': ['x'], 'scores': [1]}, {'problem__loss': 'lambda'}, 'needs at least 2'),
        ({'scores': [1, -2]}, {'problem__loss': 'lambda'}, 'the label -2, must be a relevance'),
        ({'scores': [500, 0]}, {'problem__loss': 'lambda'}, 'the label 500, must be a relevance'),
        (
            {'documents': ['x']},
            {'data__columns__scores': ()},
            'no document that does not answer the query; set data.columns.scores',
        ),
    ],
)
def test_queries_that_cannot_be_learned_from_are_refused(row, keys, message, tmp_path):
    given = {'query': 'q', 'documents': ['a', 'b'], 'scores': [1, 0]} | row
    with pytest.raises(UserError) as error:
        make_task(
            small.config_of(tmp_path, [*small.rows(3), given], data__dev_fraction=0.0, **keys)
        )
    assert message in str(error.value)


def test_queries_without_an_order_are_counted_or_refused_by_losses_of_pairs(tmp_path):
    equal = [{'query': 'q', 'documents': ['a', 'b'], 'scores': [0, 0]}] * 2
    keys = {'problem__loss': 'ranknet', 'data__dev_fraction': 0.0}
    task = make_task(small.config_of(tmp_path, [*small.rows(3), *equal], **keys))
    assert (
        '2 queries whose labels are all equal, from which problem.loss=ranknet learns nothing'
    ) in task.describe()
    with pytest.raises(
        UserError, match='the labels of each of the 2 training queries are all equal'
    ):
        make_task(small.config_of(tmp_path, equal, **keys))
    make_task(small.config_of(tmp_path, equal, **keys | {'problem__loss': 'listnet'}))


@pytest.mark.parametrize(
    ('row', 'message'),
    [
        ({'scores': [1]}, '1 scores, but 2 documents'),
        ({'documents': [], 'scores': []}, 'queries without a document: 1'),
    ],
)
def test_dev_queries_that_cannot_be_scored_are_refused(row, message, tmp_path):
    given = {'query': 'q', 'documents': ['a', 'b'], 'scores': [1, 0]} | row
    dev = tmp_path / 'dev.jsonl'
    dev.write_text(json.dumps(given) + '\n')
    with pytest.raises(UserError) as error:
        make_task(
            small.config_of(tmp_path, small.rows(3), data__dev=(str(dev),), data__dev_fraction=0.0)
        )
    assert message in str(error.value)


def test_an_input_without_documents_is_one_line(run, tmp_path, capsys):
    (tmp_path / 'in').write_text('only a query\n')
    with pytest.raises(SystemExit):
        predict.main([f'--model={run}', '--task=rerank', f'--input={tmp_path}/in', '--output=-'])
    assert "input 1: 'documents' must be a list of at least one string" in capsys.readouterr().err


def test_other_formats_have_samples_of_pairs(run):
    found = samples.rows_of_problem(bert_jax.load(run).problem, None, 24)
    assert np.max(found.batch['token_type_ids']) == 1  # a query and a document


@pytest.mark.parametrize(
    ('documents', 'message'),
    [
        ([DOCUMENTS, DOCUMENTS], 'queries has 1 entries, but documents has 2'),
        (['the first document'], "expected a list of texts, not 'the first document'"),
        ('the first document', 'expected a list of texts'),
        ([[3]], 'text 1 is 3, not a string'),
    ],
)
def test_documents_that_are_not_a_list_for_each_query_are_refused(run, documents, message):
    with pytest.raises(UserError) as error:
        bert_jax.load(run).rerank([QUERY], documents)
    assert message in str(error.value)
