"""The methods that mteb calls, with its arguments; and mteb itself where it is installed."""

import enum

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.mteb_model import MTEBModel
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy

CORPUS = [
    {'id': 'd1', 'title': 'the ship', 'text': 'near the wave'},
    {'id': 'd2', 'text': 'a cow'},
    {'id': 'd3', 'title': None, 'text': 'the moon and the star'},
]
QUERIES = [{'id': 'q1', 'text': 'the ship'}, {'id': 'q2', 'text': 'milk'}]
TEXTS = ['the ship near the wave', 'a cow', 'the moon and the star']


class PromptType(enum.Enum):
    query = 'query'
    document = 'document'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    bert = published.folder(tmp_path_factory.mktemp('model') / 'bert', 'BertModel')
    return add_modules(bert, legacy('mean'), ['Normalize'])


def test_search_has_the_similarities_of_the_model(folder):
    model, reference = MTEBModel(str(folder), None, device='cpu'), bert_jax.load(str(folder))
    model.index(CORPUS, task_metadata=None, hf_split='test', encode_kwargs={}, num_proc=None)
    found = model.search(QUERIES, top_k=2, task_metadata=None, encode_kwargs={}, num_proc=None)
    scores_QN = reference.similarity(['the ship', 'milk'], TEXTS)
    for query, own in zip(found, scores_QN, strict=True):
        best = np.argsort(-own)[:2]
        assert list(found[query]) == [CORPUS[n]['id'] for n in best]
        np.testing.assert_allclose(list(found[query].values()), own[best], atol=1e-5)
    ranked = model.search(QUERIES, top_k=2, top_ranked={'q1': ['d2', 'd3'], 'q2': ['d1']})
    assert [list(own) for own in ranked.values()] == [['d2', 'd3'], ['d1']]
    assert ranked['q1']['d3'] == pytest.approx(float(scores_QN[0, 2]), abs=1e-5)


def test_vectors_and_their_similarities(folder):
    model = MTEBModel(str(folder))
    batches = [{'text': TEXTS[:2]}, {'text': TEXTS[2:]}]
    vectors_ND = model.encode(batches, prompt_type=PromptType.document, batch_size=2)
    np.testing.assert_allclose(vectors_ND, bert_jax.load(str(folder)).embed(TEXTS), atol=1e-6)
    scores_NN = model.similarity(vectors_ND, vectors_ND)
    np.testing.assert_allclose(np.diagonal(scores_NN), 1, atol=1e-5)
    pairs_N = model.similarity_pairwise(vectors_ND, vectors_ND[::-1])
    np.testing.assert_allclose(pairs_N, scores_NN[np.arange(3), [2, 1, 0]], atol=1e-6)


def test_a_reranker_scores_candidates_only(tmp_path):
    name = published.folder(tmp_path / 'pairs', 'BertForSequenceClassification', num_labels=1)
    model = MTEBModel(str(name))
    model.index(CORPUS)
    ranked = model.search(QUERIES, top_k=2, top_ranked={'q1': ['d3', 'd1'], 'q2': ['d2']})
    expected = bert_jax.load(str(name)).similarity(['the ship'], [TEXTS[2], TEXTS[0]])[0]
    np.testing.assert_allclose(list(ranked['q1'].values()), expected, atol=1e-5)
    with pytest.raises(UserError, match='is a reranker; choose a task of reranking'):
        model.search(QUERIES, top_k=2)


def test_mteb_takes_it_for_a_searcher_and_an_encoder(folder):
    models = pytest.importorskip('mteb.models')
    model = MTEBModel(str(folder))
    assert isinstance(model, models.SearchProtocol)
    assert isinstance(model, models.EncoderProtocol)
    assert model.mteb_model_meta.name == 'bert_jax/bert'
