"""Losses and regularizer equal sentence-transformers' on the same vectors, with gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bert_jax.problems import PROBLEMS
from bert_jax.problems.sparse_embedding import LOSSES, losses
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.problems.embedding.test_losses import VECTORS_BND, batch_of
from tests.problems.embedding.test_losses_of_sentence_transformers import Vectors, check
from tests.tasks import small_problems

theirs = pytest.importorskip(
    'sentence_transformers.sparse_encoder.losses', reason='sentence-transformers is missing'
)
RNG = np.random.default_rng(0)
B, V = 8, 30
SPARSE_BNV = np.log1p(np.maximum(RNG.normal(-1, 2, (B, 4, V)), 0)).astype(np.float32)
TEACHER = RNG.normal(size=(B, 3)).astype(np.float32)


def test_values_that_were_published():
    vectors = np.log1p(np.maximum(VECTORS_BND, 0))
    documents = vectors[:, 1:].reshape(-1, 6)
    present = np.ones(8, bool)
    assert float(losses.flops(documents, present)) == pytest.approx(0.383324, rel=1e-5)
    assert float(losses.flops(documents, present, 2)) == pytest.approx(0.145417, rel=1e-5)
    assert float(LOSSES['in_batch']()(batch_of(vectors))) == pytest.approx(2.20669, rel=1e-5)


def of_theirs(make, num_texts, labels=None, **options):
    vectors = torch.tensor(SPARSE_BNV[:, :num_texts], requires_grad=True)
    features = [{'vectors': vectors[:, place]} for place in range(num_texts)]
    model = Vectors()
    loss = theirs.SpladeLoss(model, make(model), **options)
    parts = loss(features, None if labels is None else torch.tensor(labels))
    total = sum(parts.values())
    total.backward()
    return float(total.detach()), vectors.grad.numpy()


def of_ours(name, num_texts, scores=None, **settings):
    """The loss of the problem with these settings, and its gradient."""
    kind = PROBLEMS['sparse_embedding']
    settings = kind.settings | {'loss': name} | settings
    layout = SpecialTokenLayout(small_problems.tokenizer(), 64, 2)
    training = small_problems.problem_of(kind.load(), settings, layout).loss

    def value(vectors_BNV):
        return sum(training.weighted_values(batch_of(vectors_BNV, scores)).values())

    found, gradient = jax.value_and_grad(value)(jnp.asarray(SPARSE_BNV[:, :num_texts]))
    return float(found), np.asarray(gradient)


@pytest.mark.parametrize('num_texts', [2, 4])
def test_infonce_with_both_regularizers(num_texts):
    expected = of_theirs(
        theirs.SparseMultipleNegativesRankingLoss,
        num_texts,
        query_regularizer_weight=0.5,
        document_regularizer_weight=0.3,
    )
    check(of_ours('in_batch', num_texts, query_weight=0.5, document_weight=0.3), expected)


@pytest.mark.parametrize(
    ('name', 'make', 'scores'),
    [
        ('margin_mse', theirs.SparseMarginMSELoss, TEACHER[:, :2]),
        ('distill_kl', theirs.SparseDistillKLDivLoss, TEACHER),
    ],
)
def test_distillation_with_a_threshold_and_documents_alone(name, make, scores):
    options = dict(document_regularizer_weight=0.1, document_regularizer_threshold=9)
    expected = of_theirs(make, 4, scores, use_document_regularizer_only=True, **options)
    settings = dict(document_weight=0.1, documents_only=True, active_threshold=9)
    check(of_ours(name, 4, scores, **settings), expected)


def test_absent_texts_are_not_part_of_the_mean():
    vectors = SPARSE_BNV[:, 1]
    present = np.arange(B) < 5
    expected = np.sum(np.mean(vectors[:5], axis=0) ** 2)
    assert float(losses.flops(vectors, present)) == pytest.approx(float(expected), rel=1e-6)
    active = np.count_nonzero(vectors[:5]) / 5
    assert float(losses.mean_active(vectors, present)) == pytest.approx(active)


@pytest.mark.parametrize('kind', ['quadratic', 'linear'])
def test_the_warm_up_is_that_of_the_callback(kind):
    from sentence_transformers.sparse_encoder.callbacks import splade_callbacks

    loss = theirs.SpladeLoss(Vectors(), theirs.SparseMarginMSELoss(Vectors()), 0.7, 0.2)
    callback = splade_callbacks.SpladeRegularizerWeightSchedulerCallback(loss, kind)
    state = type('State', (), {'max_steps': 30, 'global_step': 0})()
    callback.on_train_begin(None, state, None)
    for state.global_step in range(30):
        callback.on_step_begin(None, state, None)
        factor = float(losses.warmup(kind, 1 / 3, jnp.float32(state.global_step / 30)))
        assert 0.7 * factor == pytest.approx(loss.document_regularizer_weight, abs=1e-6)
    assert factor == 1
    assert float(losses.warmup(kind, 0, 0.0)) == 1
