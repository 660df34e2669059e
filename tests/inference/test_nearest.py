"""Exact search over vectors and over words, compared with NumPy and bm25s."""

import types

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference import lexical, nearest
from bert_jax.inference.vector_search import TextEncoder
from bert_jax.metrics import vectors

RNG = np.random.default_rng(0)
DOCUMENTS = RNG.normal(size=(5000, 24)).astype(np.float32)  # two blocks
QUERIES = RNG.normal(size=(70, 24)).astype(np.float32)  # two blocks


def test_the_nearest_are_those_of_a_full_sort():
    found = nearest.search(QUERIES, DOCUMENTS, 7)
    scores_QN = QUERIES.astype(np.float64) @ DOCUMENTS.T
    expected_QK = np.argsort(-scores_QN, axis=1)[:, :7]
    np.testing.assert_array_equal(found.documents_QK, expected_QK)
    expected = np.take_along_axis(scores_QN, expected_QK, axis=1)
    np.testing.assert_allclose(found.scores_QK, expected, rtol=1e-5)


def test_scores_do_not_depend_on_the_other_queries_and_documents():
    whole = nearest.search(QUERIES, DOCUMENTS, 5)
    for rows in (slice(0, 1), slice(66, 70)):
        part = nearest.search(QUERIES[rows], DOCUMENTS, 5)
        np.testing.assert_array_equal(part.scores_QK, whole.scores_QK[rows])
        np.testing.assert_array_equal(part.documents_QK, whole.documents_QK[rows])
    some = np.unique(whole.documents_QK[:3])
    part = nearest.search(QUERIES[:3], DOCUMENTS[some], 5)
    np.testing.assert_array_equal(part.scores_QK, whole.scores_QK[:3])
    np.testing.assert_array_equal(some[part.documents_QK], whole.documents_QK[:3])


def test_equal_documents_keep_their_order_and_few_documents_are_all_found():
    found = nearest.search(QUERIES[:2], np.repeat(DOCUMENTS[:2], 3, axis=0), 10)
    assert found.documents_QK.shape == (2, 6)
    assert all(sorted(row[:3]) == list(row[:3]) for row in found.documents_QK)
    assert nearest.search(QUERIES[:0], DOCUMENTS, 3).scores_QK.shape == (0, 3)


def test_vectors_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match='24 dimensions, those of the documents 23'):
        nearest.search(QUERIES, DOCUMENTS[:, :23], 1)
    with pytest.raises(UserError, match='no documents'):
        nearest.search(QUERIES, DOCUMENTS[:0], 1)


TEXTS = [
    'the cat sat on the mat',
    'a dog and a cat ran',
    'the dog barked at the mat the mat',
    'birds fly over the sea',
    'cat cat cat dog',
]
BM25S = {  # bm25s 0.3.16, method lucene, k1 1.2, b 0.75
    'cat mat': [0.63399523, 0.2415904, 0.49442247, 0.0, 0.41242477],
    'dog': [0.0, 0.2415904, 0.21208818, 0.0, 0.28062657],
    'The sea!': [0.33363712, 0.0, 0.35605693, 0.9274657, 0.0],
    'unknown': [0.0] * 5,
}


def test_bm25_has_the_scores_of_bm25s():
    found = lexical.BM25.of(TEXTS).search(list(BM25S), 9)
    for (query, scores), got, order in zip(BM25S.items(), *found, strict=True):
        expected = np.argsort(-np.array(scores), kind='stable')
        np.testing.assert_array_equal(order, expected, query)
        np.testing.assert_allclose(got, np.array(scores)[expected], rtol=1e-5, atol=1e-7)


def test_terms_are_words_or_characters_without_case():
    assert lexical.terms("The cat's MAT, 3.5 東京") == [
        'the',
        'cat',
        's',
        'mat',
        '3',
        '5',
        '東',
        '京',
    ]


def test_vectors_that_are_not_finite_are_refused():
    diverged = np.array([np.nan, 1.0], np.float32)
    model = types.SimpleNamespace(
        name='runs/diverged',
        prompts={},
        compared_by='cosine',
        architecture=types.SimpleNamespace(hidden_size=2),
        embed=lambda texts, *_, **__: [diverged for _ in texts],
    )
    with pytest.raises(UserError, match='runs/diverged computes vectors that are not finite'):
        TextEncoder(model).encode_documents(['a', 'b'])


def test_the_own_document_of_vectors_that_are_not_finite_is_the_last():
    texts = [('a', 'b'), ('c', 'd'), ('e', 'f')]
    diverged = [np.full((2, 4), np.nan, np.float32)] * 3
    assert vectors.ranks_of_own(diverged, texts).tolist() == [3, 3, 3]
