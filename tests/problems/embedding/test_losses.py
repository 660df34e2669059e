"""Losses on fixed vectors: published formulas, sentence-transformers, properties."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.problems.embedding import LOSSES
from bert_jax.problems.embedding.base import VectorBatch

i, j = np.arange(4)[:, None], np.arange(6)
VECTORS_BND = np.stack(
    [np.sin(0.9 * i**2 + 0.7 * j * (c + 1) + c) for c in range(3)], axis=1
).astype(np.float32)
SCORES = np.array([1, 0.3, 0.3, 0], np.float32)
BINARY = np.array([1, 0, 1, 0], np.float32)
CLASSES = np.array([1, 1, 2, 2], np.int32)


def batch_of(vectors_BND, scores=None, classes=None, teacher=None, texts=None) -> VectorBatch:
    number, num_texts = vectors_BND.shape[:2]
    if texts is None:
        texts = np.arange(number * num_texts).reshape(number, num_texts)
    return VectorBatch(
        jnp.asarray(vectors_BND),
        np.ones((number, num_texts), bool),
        np.stack([texts, texts], axis=-1).astype(np.int32),
        np.zeros((number, 0)) if scores is None else np.reshape(scores, (number, -1)),
        np.zeros(number, np.int32) if classes is None else classes,
        np.zeros((number, num_texts, 0)) if teacher is None else teacher,
    )


def loss_of(name, num_texts, scores=None, classes=None, **options):
    batch = batch_of(VECTORS_BND[:, :num_texts], scores, classes)
    return float(LOSSES[name](**options)(batch))


BOTH_WAYS = ('query_to_document', 'document_to_query')
ALL_WAYS = (*BOTH_WAYS, 'query_to_query', 'document_to_document')


@pytest.mark.parametrize(
    ('name', 'num_texts', 'options', 'expected'),
    [
        ('in_batch', 2, {}, 14.46217),
        ('in_batch', 3, {}, 14.63510),
        ('in_batch', 2, dict(directions=BOTH_WAYS, partition='per_direction'), 14.65555),
        ('in_batch', 3, dict(directions=BOTH_WAYS, partition='per_direction'), 14.74201),
        ('in_batch', 2, dict(directions=ALL_WAYS), 21.03853),
        ('in_batch', 3, dict(directions=ALL_WAYS), 21.04688),
        ('in_batch', 3, dict(hardness=5.0), 16.28207),
        ('mega_batch_margin', 2, {}, 1.25433),
        ('cosine', 2, dict(scores=SCORES), 0.761883),
        ('cosent', 2, dict(scores=SCORES), 2.19675),
        ('angle', 2, dict(scores=SCORES), 1.72012),
        ('contrastive', 2, dict(scores=BINARY), 0.487876),
        ('online_contrastive', 2, dict(scores=BINARY), 3.90301),
        ('triplet', 3, {}, 5.31388),
        ('triplet', 3, dict(distance='cosine', margin=0.5), 0.767182),
        ('batch_all', 1, dict(classes=CLASSES), 4.64418),
        ('batch_hard', 1, dict(classes=CLASSES), 5.16556),
        ('batch_hard_soft', 1, dict(classes=CLASSES), 0.880247),
        ('batch_semi_hard', 1, dict(classes=CLASSES), 4.34393),
        ('margin_mse', 3, dict(scores=SCORES), 1.86063),
        ('distill_kl', 3, dict(scores=np.stack([SCORES, 1 - SCORES], 1)), 0.158227),
        (
            'distill_kl',
            3,
            dict(scores=np.stack([SCORES, 1 - SCORES], 1), temperature=2.0),
            0.168733,
        ),
    ],
)
def test_losses_have_the_published_values(name, num_texts, options, expected):
    assert loss_of(name, num_texts, **options) == pytest.approx(expected, rel=2e-5)
