"""Folders of three libraries give the vectors and scores of sentence-transformers; ours too."""

import json
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.interop import huggingface_export, loading

pytest.importorskip('sentence_transformers.multi_vector_encoder')
from tests.problems.late_interaction import folders
from tests.problems.late_interaction.folders import DOCUMENTS, QUERIES, of_theirs

LAYOUTS = {
    'sentence-transformers': folders.sentence_transformers,
    'mean, no expansion': lambda folder: folders.sentence_transformers(
        folder, 'meanmaxsim', query_expansion=None, query_length=7
    ),
    'longer queries stay': lambda folder: folders.sentence_transformers(
        folder, query_expansion={'strategy': 'min', 'length': 9, 'attend': True, 'token': '[SEP]'}
    ),
    'pooled': lambda folder: folders.sentence_transformers(folder, pool_factor=2.0),
    'pylate': folders.pylate,
    'pylate without expansion': lambda folder: folders.pylate(
        folder, do_query_expansion=False, skiplist_words=['the']
    ),
    'stanford': folders.stanford,
    'stanford, attended': lambda folder: folders.stanford(
        folder, attend_to_mask_tokens=True, mask_punctuation=False
    ),
}


@pytest.fixture(scope='module', params=LAYOUTS)
def folder(request, tmp_path_factory):
    return LAYOUTS[request.param](tmp_path_factory.mktemp('late') / 'model')


def compare(found, expected):
    for own, other in zip(found, expected, strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, atol=1e-5)


def test_vectors_and_scores_are_those_of_sentence_transformers(folder):
    queries, documents, scores = of_theirs(folder)
    model = bert_jax.load(str(folder))
    compare(model.embed_late(QUERIES, 'query'), queries)
    compare(model.embed_late(DOCUMENTS), documents)
    np.testing.assert_allclose(model.similarity(QUERIES, DOCUMENTS), scores, atol=1e-5)


def test_exported_folders_open_there_with_the_same_scores(folder, tmp_path):
    model = loading.load_any(str(folder), allow_missing=('^encoder/pooler/',))
    huggingface_export.save(model, tmp_path / 'exported')
    queries, documents, scores = of_theirs(folder)
    found_queries, found_documents, found = of_theirs(tmp_path / 'exported')
    compare(found_queries, queries)
    compare(found_documents, documents)
    np.testing.assert_allclose(found, scores, atol=1e-5)
    again = bert_jax.load(str(tmp_path / 'exported'))
    np.testing.assert_allclose(again.similarity(QUERIES, DOCUMENTS), scores, atol=1e-5)


@pytest.fixture(scope='module')
def small(tmp_path_factory):
    return folders.sentence_transformers(tmp_path_factory.mktemp('late') / 'model')


def changed(small, tmp_path, file, **values):
    """A copy of a folder with other values in a file."""
    copy = tmp_path / 'copy'
    shutil.copytree(small, copy)
    content = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps(content | values))
    return str(copy)


SETTINGS, GENERAL = 'sentence_bert_config.json', 'config_sentence_transformers.json'
EXPANSION = {'strategy': 'fixed', 'length': 10}


@pytest.mark.parametrize(
    ('file', 'values', 'message'),
    [
        (SETTINGS, dict(query_length=9), 'query_length is 9, but queries are filled up to 10'),
        (SETTINGS, dict(query_length='9'), "query_length is '9', expected a whole number"),
        (SETTINGS, dict(query_expansion=EXPANSION | dict(strategy='odd')), "strategy 'odd'; known"),
        (SETTINGS, dict(query_expansion=EXPANSION | dict(length='x')), "length is 'x', expected a"),
        (GENERAL, dict(similarity_fn_name='cosine'), "'cosine'; known: maxsim, meanmaxsim"),
    ],
)
def test_settings_that_are_not_valid_are_refused(small, tmp_path, file, values, message):
    with pytest.raises(UserError, match=message):
        bert_jax.load(changed(small, tmp_path, file, **values))


@pytest.mark.parametrize(
    ('file', 'values', 'message'),
    [
        (SETTINGS, dict(document_length=2), 'document_length is 2, but a text has 2 special'),
        (
            SETTINGS,
            dict(query_expansion=EXPANSION | dict(token='taxi')),
            "expansion_token is 'taxi', which is no token of the vocabulary",
        ),
        ('2_MultiVectorMask/config.json', dict(keep_only_token_ids=[1]), 'keep_only_token_ids'),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(small, tmp_path, file, values, message):
    model = bert_jax.load(changed(small, tmp_path, file, **values))
    with pytest.raises(UserError, match=message):
        model.embed_late(QUERIES, 'query')


def test_a_folder_of_stanford_has_its_projection(tmp_path):
    folder = folders.stanford(tmp_path / 'model')
    import safetensors.numpy

    weights = safetensors.numpy.load_file(folder / 'model.safetensors')
    del weights['linear.weight']
    safetensors.numpy.save_file(weights, folder / 'model.safetensors', metadata={'format': 'pt'})
    with pytest.raises(UserError, match='lack the matrix linear.weight'):
        bert_jax.load(str(folder))


def test_other_models_say_how_to_get_vectors_of_tokens(small):
    dense = bert_jax.load(str(small.with_name('encoder')))
    with pytest.raises(UserError, match='was not trained for late interaction'):
        dense.embed_late(QUERIES)
    late = bert_jax.load(str(small))
    with pytest.raises(UserError, match='makes a vector for each token: use embed_late'):
        late.embed(QUERIES)
    with pytest.raises(UserError, match="prompt of late interaction 'passage'"):
        late.embed_late(QUERIES, 'passage')
    assert late.embed(QUERIES, 'mean').shape == (4, 32)
