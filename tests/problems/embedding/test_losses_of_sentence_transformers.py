"""Every loss and its gradient equal those of sentence-transformers on the same vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bert_jax.problems.embedding import LOSSES
from tests.problems.embedding.test_losses import batch_of

losses = pytest.importorskip(
    'sentence_transformers.sentence_transformer.losses', reason='sentence-transformers is missing'
)
from sentence_transformers import util  # noqa: E402  (after the check that it is installed)

B, D = 8, 12
RNG = np.random.default_rng(0)
VECTORS_BND = RNG.normal(size=(B, 4, D)).astype(np.float32)
GUIDE_BND = (VECTORS_BND + RNG.normal(size=(B, 4, D))).astype(np.float32)
SCORES = np.round(RNG.uniform(size=B), 1).astype(np.float32)
BINARY = np.array([1, 0, 1, 0, 1, 1, 0, 0], np.float32)
LISTS = RNG.normal(size=(B, 3)).astype(np.float32)
CLASSES = np.array([0, 0, 1, 1, 2, 2, 0, 0], np.int64)


class Vectors(torch.nn.Module):
    """Stands for a model: the features hold the vectors that it would compute."""

    tokenizer = None

    def forward(self, features):
        return {'sentence_embedding': features['vectors'], **features}


class Guided(losses.GISTEmbedLoss):
    """The loss without its check of vocabularies, with the guide's vectors in the features."""

    def __init__(self, **options):
        torch.nn.Module.__init__(self)
        self.model, self.guide = Vectors(), lambda one: {'sentence_embedding': one['guide']}
        self.temperature, self.similarity_fct = 0.01, torch.nn.CosineSimilarity(dim=-1)
        self.margin_strategy, self.margin = options['strategy'], options['margin']
        self.contrast_anchors = self.contrast_positives = True
        self.gather_across_devices = self.must_retokenize = False
        self.cross_entropy_loss = torch.nn.CrossEntropyLoss()


def theirs(make, num_texts, labels=None, guide=None):
    """The loss of sentence-transformers, and its gradient, [B, N, D]."""
    vectors = torch.tensor(VECTORS_BND[:, :num_texts], requires_grad=True)
    features = [{'vectors': vectors[:, place]} for place in range(num_texts)]
    for place, one in enumerate(features if guide is not None else ()):
        one['guide'] = torch.tensor(guide[:, place])
    loss = make(Vectors())(features, None if labels is None else torch.tensor(labels))
    loss.backward()
    return float(loss.detach()), vectors.grad.numpy()


def ours(name, num_texts, options, **fields):
    loss = LOSSES[name](**options)
    value, gradient = jax.value_and_grad(
        lambda vectors: loss(batch_of(vectors, **fields)).astype(jnp.float32)
    )(jnp.asarray(VECTORS_BND[:, :num_texts]))
    return float(value), np.asarray(gradient)


def check(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=2e-6)
    largest = np.abs(expected[1]).max()
    assert largest > 1e-4
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5 * largest)


RANKING = losses.MultipleNegativesRankingLoss
WAYS = {'query_to_document': 'query_to_doc', 'document_to_query': 'doc_to_query'}
ALL = WAYS | {'query_to_query': 'query_to_query', 'document_to_document': 'doc_to_doc'}


@pytest.mark.parametrize('num_texts', [2, 3, 4])
@pytest.mark.parametrize(
    ('options', 'their_options'),
    [
        ({}, {}),
        (
            {'scale': 1.0, 'similarity': 'dot'},
            {'scale': 1.0, 'similarity_fct': util.dot_score},
        ),
        (
            {'directions': (*WAYS,), 'partition': 'per_direction'},
            {'directions': (*WAYS.values(),), 'partition_mode': 'per_direction'},
        ),
        ({'directions': (*ALL,)}, {'directions': (*ALL.values(),)}),
        (
            {'hardness': 5.0, 'hardness_of': 'hard'},
            {'hardness_mode': 'hard_negatives', 'hardness_strength': 5.0},
        ),
        (
            {'hardness': 9.0, 'hardness_of': 'in_batch'},
            {'hardness_mode': 'in_batch_negatives', 'hardness_strength': 9.0},
        ),
    ],
)
def test_in_batch_negatives(num_texts, options, their_options):
    if options.get('hardness_of') == 'hard' and num_texts == 2:
        pytest.skip('without hard negatives')
    expected = theirs(lambda model: RANKING(model, **their_options), num_texts)
    check(ours('in_batch', num_texts, options), expected)


@pytest.mark.parametrize(('strategy', 'margin'), [('absolute', 0.1), ('relative', 0.2)])
@pytest.mark.parametrize('num_texts', [2, 3])
def test_a_guide(strategy, margin, num_texts):
    expected = theirs(
        lambda model: Guided(strategy=strategy, margin=margin), num_texts, guide=GUIDE_BND
    )
    options = {'margin': margin, 'margin_kind': strategy}
    found = ours('gist', num_texts, options, teacher=GUIDE_BND[:, :num_texts])
    check(found, expected)
    without = ours('gist', num_texts, {'margin': -3.0}, teacher=GUIDE_BND[:, :num_texts])
    assert without[0] != pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize(
    ('name', 'make', 'num_texts', 'options', 'fields', 'labels'),
    [
        (
            'mega_batch_margin',
            lambda model: losses.MegaBatchMarginLoss(model, use_mini_batched_version=False),
            2,
            {},
            {},
            None,
        ),
        ('cosine', losses.CosineSimilarityLoss, 2, {}, {'scores': SCORES}, SCORES),
        ('cosent', losses.CoSENTLoss, 2, {}, {'scores': SCORES}, SCORES),
        ('angle', losses.AnglELoss, 2, {}, {'scores': SCORES}, SCORES),
        ('contrastive', losses.ContrastiveLoss, 2, {}, {'scores': BINARY}, BINARY),
        ('online_contrastive', losses.OnlineContrastiveLoss, 2, {}, {'scores': BINARY}, BINARY),
        (
            'online_contrastive',
            losses.OnlineContrastiveLoss,
            2,
            {},
            {'scores': np.ones(B, np.float32)},
            np.ones(B, np.float32),
        ),
        ('triplet', losses.TripletLoss, 3, {}, {}, None),
        (
            'triplet',
            lambda model: losses.TripletLoss(
                model, losses.TripletDistanceMetric.MANHATTAN, triplet_margin=2.0
            ),
            3,
            {'distance': 'manhattan', 'margin': 2.0},
            {},
            None,
        ),
        ('batch_all', losses.BatchAllTripletLoss, 1, {}, {'classes': CLASSES + 1}, CLASSES),
        ('batch_hard', losses.BatchHardTripletLoss, 1, {}, {'classes': CLASSES + 1}, CLASSES),
        (
            'batch_hard_soft',
            losses.BatchHardSoftMarginTripletLoss,
            1,
            {},
            {'classes': CLASSES + 1},
            CLASSES,
        ),
        (
            'batch_semi_hard',
            losses.BatchSemiHardTripletLoss,
            1,
            {},
            {'classes': CLASSES + 1},
            CLASSES,
        ),
        ('margin_mse', losses.MarginMSELoss, 3, {}, {'scores': SCORES}, SCORES),
        ('margin_mse', losses.MarginMSELoss, 4, {}, {'scores': LISTS}, LISTS),
        (
            'distill_kl',
            lambda model: losses.DistillKLDivLoss(model, temperature=2.0),
            4,
            {'temperature': 2.0},
            {'scores': LISTS},
            LISTS,
        ),
        ('teacher_vectors', losses.EmbedDistillLoss, 2, {}, {'teacher': GUIDE_BND[:, :2]}, None),
        (
            'teacher_vectors',
            lambda model: losses.EmbedDistillLoss(model, 'mse'),
            2,
            {'target': 'mse'},
            {'teacher': GUIDE_BND[:, :2]},
            None,
        ),
        (
            'teacher_vectors',
            lambda model: losses.EmbedDistillLoss(model, 'l2'),
            1,
            {'target': 'l2'},
            {'teacher': GUIDE_BND[:, :1]},
            None,
        ),
    ],
)
def test_other_losses(name, make, num_texts, options, fields, labels):
    labels = fields.get('teacher', labels)
    check(ours(name, num_texts, options, **fields), theirs(make, num_texts, labels))


def test_every_loss_is_compared():
    # SimCSE is in_batch on two copies; test_denoising.py compares tsdae.
    compared = {'in_batch', 'simcse', 'gist', 'tsdae'}
    (mark,) = test_other_losses.pytestmark
    assert compared | {case[0] for case in mark.args[1]} == {*LOSSES}
