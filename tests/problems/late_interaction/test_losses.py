"""Scores, losses and gradients equal those of sentence-transformers on the same vectors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bert_jax.metrics import late_scores
from bert_jax.models import late_interaction
from bert_jax.models.late_interaction import EMPTY, TokenVectors
from bert_jax.problems.late_interaction import LOSSES
from bert_jax.problems.late_interaction.losses import LateBatch

theirs = pytest.importorskip(
    'sentence_transformers.multi_vector_encoder.losses', reason='sentence-transformers is missing'
)
from sentence_transformers.multi_vector_encoder import scoring  # noqa: E402
from sentence_transformers.util.similarity import maxsim, mean_maxsim  # noqa: E402

B, N, L, K, E = 5, 3, 4, 6, 8
RNG = np.random.default_rng(0)


def unit(shape):
    vectors = RNG.normal(size=shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


QUERIES, DOCUMENTS = unit((B, L, E)), unit((B, N, K, E))
QUERY_MASK = np.arange(L) < np.array([4, 2, 3, 1, 4])[:, None]
DOCUMENT_MASK = RNG.uniform(size=(B, N, K)) < 0.6
DOCUMENT_MASK[:, :, 0] = True
EMPTY_MASK = DOCUMENT_MASK.copy()
EMPTY_MASK[2, 1] = EMPTY_MASK[4, 2] = False
TEACHER = RNG.normal(size=(B, N)).astype(np.float32) * 2


class Vectors(torch.nn.Module):
    """Stands for a model: the features hold the vectors that it would compute."""

    def forward(self, features, task=None):
        return {'token_embeddings': features['vectors'], 'attention_mask': features['mask']}


def of_theirs(make, mask, labels=None):
    queries, documents = (torch.tensor(x, requires_grad=True) for x in (QUERIES, DOCUMENTS))
    features = [{'vectors': queries, 'mask': torch.tensor(QUERY_MASK)}]
    for place in range(N):
        own = torch.tensor(mask[:, place])
        features.append({'vectors': documents[:, place], 'mask': own})
    loss = make(Vectors())(features, None if labels is None else torch.tensor(labels))
    loss.backward()
    return float(loss.detach()), queries.grad.numpy(), documents.grad.numpy()


def batch_of(queries, documents, mask, scores=None) -> LateBatch:
    texts = np.arange(B * (N + 1)).reshape(B, N + 1, 1).repeat(2, axis=2).astype(np.int32)
    return LateBatch(
        TokenVectors(queries, jnp.asarray(QUERY_MASK)),
        TokenVectors(documents, jnp.asarray(mask)),
        np.ones((B, N + 1), bool),
        texts,
        np.zeros((B, 0), np.float32) if scores is None else scores,
    )


def of_ours(name, mask, scores=None, **options):
    loss = LOSSES[name](**options)
    value, gradients = jax.value_and_grad(
        lambda vectors: loss(batch_of(*vectors, mask, scores)).astype(jnp.float32)
    )((jnp.asarray(QUERIES), jnp.asarray(DOCUMENTS)))
    return float(value), *map(np.asarray, gradients)


def check(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    for own, other in zip(found[1:], expected[1:], strict=True):
        assert np.abs(other).max() > 1e-4
        np.testing.assert_allclose(own, other, atol=1e-5 * np.abs(other).max())


ALL = {
    'maxsim': scoring.colbert_scores,
    'meanmaxsim': scoring.mean_colbert_scores,
    'xtr': scoring.XTRScores(top_k=7),
}
OWN = {
    'maxsim': scoring.colbert_kd_scores,
    'meanmaxsim': scoring.mean_colbert_kd_scores,
    'xtr': scoring.XTRKDScores(top_k=7),
}
PAIRS = {
    'maxsim': scoring.colbert_scores_pairwise,
    'meanmaxsim': scoring.mean_colbert_scores_pairwise,
    'xtr': functools.partial(scoring.xtr_scores_pairwise, top_k=7),
}


@pytest.mark.parametrize('mask', [DOCUMENT_MASK, EMPTY_MASK], ids=['full', 'empty'])
@pytest.mark.parametrize('name', ALL)
def test_contrastive(name, mask):
    options = dict(scale=2.5, similarity_fct=ALL[name])
    expected = of_theirs(
        lambda model: theirs.MultiVectorMultipleNegativesRankingLoss(model, **options), mask
    )
    options = dict(scoring=name, scale=2.5, top_k=7, mask_equal_texts=False)
    check(of_ours('contrastive', mask, **options), expected)


@pytest.mark.parametrize('mask', [DOCUMENT_MASK, EMPTY_MASK], ids=['full', 'empty'])
@pytest.mark.parametrize('name', OWN)
def test_distillation_with_temperatures(name, mask):
    options = dict(student_temperature=0.7, teacher_temperature=1.5, similarity_fct=OWN[name])
    expected = of_theirs(
        lambda model: theirs.MultiVectorDistillKLDivLoss(model, **options), mask, TEACHER
    )
    options = dict(scoring=name, temperature=0.7, teacher_temperature=1.5, top_k=7)
    check(of_ours('distill_kl', mask, TEACHER, **options), expected)


@pytest.mark.parametrize('labels', [TEACHER, TEACHER[:, :2]], ids=['scores', 'margins'])
@pytest.mark.parametrize('name', PAIRS)
def test_margins(name, labels):
    expected = of_theirs(
        lambda model: theirs.MultiVectorMarginMSELoss(model, similarity_fct=PAIRS[name]),
        DOCUMENT_MASK,
        labels,
    )
    check(of_ours('margin_mse', DOCUMENT_MASK, labels, scoring=name, top_k=7), expected)


def test_scores_without_padding_are_those_with_it():
    queries = [query[own] for query, own in zip(QUERIES, QUERY_MASK, strict=True)]
    flat, masks = DOCUMENTS.reshape(-1, K, E), EMPTY_MASK.reshape(-1, K)
    documents = [document[own] for document, own in zip(flat, masks, strict=True)]
    expected = maxsim(
        torch.tensor(QUERIES),
        torch.tensor(flat),
        a_mask=torch.tensor(QUERY_MASK),
        b_mask=torch.tensor(masks),
    ).numpy()
    assert (expected == EMPTY).sum() == 2 * B
    assert (expected < 0).any()
    padded = late_interaction.max_similarities(
        TokenVectors(jnp.asarray(QUERIES), jnp.asarray(QUERY_MASK)),
        TokenVectors(jnp.asarray(flat), jnp.asarray(masks)),
    )
    for found in (late_scores.of_texts(queries, documents), padded):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    number_B1 = QUERY_MASK.sum(1, keepdims=True)
    mean = mean_maxsim([torch.tensor(q) for q in queries], torch.tensor(flat), b_mask=masks)
    filled = expected / number_B1
    np.testing.assert_allclose(mean.numpy(), filled, rtol=1e-5, atol=1e-6)


def test_a_query_without_tokens_has_the_score_0():
    documents = [unit((length, E)) for length in (3, 0, 9)]
    queries = [unit((2, E)), np.zeros((0, E), np.float32)]
    assert late_scores.of_texts(queries, documents)[1].tolist() == [0, EMPTY, 0]
    assert late_scores.of_texts(queries[1:], documents)[0].tolist() == [0, EMPTY, 0]


def test_equal_texts_are_no_negatives():
    batch = batch_of(jnp.asarray(QUERIES), jnp.asarray(DOCUMENTS), DOCUMENT_MASK)
    texts = np.array(batch.texts_BN2)
    texts[1, 1] = texts[0, 1]  # two queries have the same document
    loss = LOSSES['contrastive']()
    assert float(loss(batch._replace(texts_BN2=texts))) < float(loss(batch))
    absent = np.ones((B, N + 1), bool)
    absent[0, 3] = False
    assert float(loss(batch._replace(is_present_BN=absent))) < float(loss(batch))
