"""Compact vectors: memory, recall after the best are scored again, and exact scores."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference import compact_vectors, nearest
from bert_jax.inference.compact_vectors import CompactVectors
from tests.end_to_end.test_search import inputs, model, refuse, search  # noqa: F401

RNG = np.random.default_rng(0)
N, D, K = 6000, 256, 10  # two blocks


def clustered(number):
    """Unit vectors around 200 centers, as near to each other as vectors of texts."""
    vectors = CENTERS[RNG.integers(0, len(CENTERS), number)] + RNG.normal(size=(number, D))
    return nearest.normalize(vectors.astype(np.float32))


CENTERS = RNG.normal(size=(200, D))
DOCUMENTS, QUERIES = clustered(N), clustered(50)
WHOLE = nearest.search(QUERIES, DOCUMENTS, K)


@pytest.mark.parametrize(
    ('precision', 'share', 'recall'), [('int8', 0.26, 0.99), ('binary', 0.04, 0.95)]
)
def test_memory_and_recall_after_scoring_four_times_as_many_again(precision, share, recall):
    compact = CompactVectors.of(DOCUMENTS, precision)
    assert compact.nbytes <= share * DOCUMENTS.nbytes
    assert (len(compact), compact.shape) == (N, (N, D))
    found = compact_vectors.search(QUERIES, compact, DOCUMENTS, K, 4 * K)
    pairs = zip(found.documents_QK, WHOLE.documents_QK, strict=True)
    assert np.mean([np.isin(own, other).mean() for own, other in pairs]) >= recall
    scores = np.einsum('QKD,QD->QK', DOCUMENTS[found.documents_QK], QUERIES)
    np.testing.assert_allclose(found.scores_QK, scores, atol=1e-6)
    assert (np.diff(found.scores_QK, axis=1) <= 0).all()


def test_all_documents_as_candidates_give_the_exact_result():
    compact = CompactVectors.of(DOCUMENTS, 'binary')
    found = compact_vectors.search(QUERIES, compact, DOCUMENTS, K, N)
    np.testing.assert_array_equal(found.documents_QK, WHOLE.documents_QK)
    with pytest.raises(UserError, match='4 candidates are fewer than the 5 documents'):
        compact_vectors.search(QUERIES, compact, DOCUMENTS, 5, 4)


def test_blocks_are_the_vectors_nearly():
    odd = DOCUMENTS[:9, :13]  # not a whole number of bytes
    np.testing.assert_allclose(CompactVectors.of(odd, 'int8')[0:9], odd, atol=2e-3)
    signs = CompactVectors.of(odd, 'binary')
    np.testing.assert_array_equal(signs[2:9], np.where(odd[2:] > 0, 1, -1))


def test_the_command_finds_the_same_with_exact_scores(model, inputs):  # noqa: F811
    whole = search(model, inputs, top=2)
    for flags in (dict(precision='int8'), dict(precision='binary', rescored=5)):
        found = search(model, inputs, top=2, **flags)
        for own, other in zip(found, whole, strict=True):
            assert [hit['id'] for hit in own['results']] == [hit['id'] for hit in other['results']]
            scores = [[hit['score'] for hit in one['results']] for one in (own, other)]
            np.testing.assert_allclose(*scores, atol=1e-6)


def test_flags_that_do_not_fit_are_refused(model, inputs, capsys):  # noqa: F811
    line = refuse(capsys, model, inputs, precision='float16')
    assert '--precision=float16 is not for vectors of texts; set it to one of float32' in line
    assert '--rescored needs --precision=int8' in refuse(capsys, model, inputs, rescored=3)
