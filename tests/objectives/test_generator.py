"""The generator of replaced token detection: its samples, and which loss trains which part."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.generator import (
    DELTAS,
    SEEDS,
    generator_architecture,
    gumbel_samples,
    put_samples,
)
from bert_jax.objectives.mlm import MaskedLanguageModel
from bert_jax.objectives.rtd import ReplacedTokenDetection
from tests.training import synthetic

ARCHITECTURE = dataclasses.replace(synthetic.ARCHITECTURE, num_layers=1)
TIED = ReplacedTokenDetection(
    generator_width=0.5, generator_depth=0.5, sharing='tied', temperature=1.0
)
DISENTANGLED = dataclasses.replace(TIED, sharing='disentangled')
GDES = dataclasses.replace(TIED, sharing='gdes')


def test_samples_follow_the_softmax():
    rng = np.random.default_rng(0)
    logits_V = np.append(rng.normal(0, 2, 12), -1e9).astype(np.float32)
    rows, slots, temperature = 400, 100, 1.5
    logits = jnp.broadcast_to(logits_V, (rows, slots, 13))
    samples = np.asarray(gumbel_samples(logits, temperature, jnp.arange(rows, dtype=jnp.uint32)))
    p = np.exp(logits_V / temperature)
    expected = p / p.sum() * samples.size
    observed = np.bincount(samples.ravel(), minlength=13)
    assert observed[-1] == 0
    chi_square = ((observed - expected)[:-1] ** 2 / expected[:-1]).sum()
    assert chi_square < 31.3  # p = 0.001, 11 degrees of freedom
    # Neighboring slots and rows are independent: they agree as often as chance says.
    equal = ((p / p.sum()) ** 2).sum()
    assert np.mean(samples[:, 1:] == samples[:, :-1]) == pytest.approx(equal, abs=0.01)
    assert np.mean(samples[1:] == samples[:-1]) == pytest.approx(equal, abs=0.01)


def test_samples_depend_on_their_example_alone_and_are_greedy_at_temperature_zero():
    logits = jax.random.normal(jax.random.key(0), (6, 8, 50))
    seeds = jax.random.bits(jax.random.key(1), (6,))
    whole = gumbel_samples(logits, 1.0, seeds)
    np.testing.assert_array_equal(whole[2:4], gumbel_samples(logits[2:4], 1.0, seeds[2:4]))
    assert (whole != gumbel_samples(logits, 1.0, seeds + 1)).mean() > 0.5
    np.testing.assert_array_equal(gumbel_samples(logits, 0.0, seeds), logits.argmax(-1))


def test_samples_equal_to_the_original_count_as_original():
    original = np.array([[1, 7, 8, 9, 2], [1, 7, 8, 9, 2]], np.int32)
    ids = np.array([[1, 4, 8, 4, 2], [1, 7, 5, 9, 2]], np.int32)
    targets = Targets(
        np.array([[3, 1, 0], [2, 0, 4]], np.int32),
        np.array([[9, 7, 1], [8, 1, 2]], np.int32),
        np.array([[1, 1, 0], [1, 0, 0]], np.float32),
    )
    masked = Rows(ids, np.ones_like(ids), targets=targets)
    ids = put_samples(masked, np.array([[9, 6, 5], [8, 5, 5]], np.int32)).input_ids_BT
    np.testing.assert_array_equal(ids, [[1, 6, 8, 9, 2], [1, 7, 8, 9, 2]])
    assert (ids != original).sum() == 1  # what the discriminator must find


@pytest.fixture(
    scope='module', params=[TIED, DISENTANGLED, GDES], ids=lambda options: options.sharing
)
def gradients(request):
    """Return the sharing, parameters, gradients of each mean loss, and the losses of a batch."""
    chosen = (MaskedLanguageModel(), request.param)
    model = objectives.build_model(ARCHITECTURE, Compute(), chosen)
    clean = Rows.of(synthetic.batch(0))
    ids = clean.input_ids_BT
    positions = np.tile(np.arange(1, 5, dtype=np.int32), (len(ids), 1))
    labels = np.take_along_axis(ids, positions, 1)
    hidden = ids.copy()
    hidden[:, 1:5] = 4
    targets = Targets(positions, labels, np.ones(labels.shape, np.float32))
    seeds = {SEEDS: np.arange(len(ids), dtype=np.uint32)}
    masked = clean.replace(input_ids_BT=hidden, targets=targets, labels=seeds)

    @jax.jit
    def run(key):
        params = nn.unbox(model.init(key, masked)['params'])
        params = jax.tree.map(
            lambda p: p + 0.05 * jnp.sin(jnp.arange(p.size)).reshape(p.shape), params
        )

        def losses(params):
            output = model.apply({'params': params}, masked)
            terms = objectives.compute_terms(chosen, output, clean)
            means = {name: mean(term) for name, term in terms.items()}
            return {name: means[name] for name in ('mlm_loss', 'rtd_loss')}, means

        gradients, means = jax.jacrev(losses, has_aux=True)(params)
        return params, gradients, means

    return request.param.sharing, *jax.device_get(run(jax.random.key(0)))


def size(tree):
    return max(np.abs(leaf).max() for leaf in jax.tree.leaves(tree))


def test_generator_and_discriminator_do_not_train_each_other(gradients):
    _, params, grads, losses = gradients
    assert 0 < losses['rtd_share'] < 0.5
    for name in ('encoder', 'head'):
        assert size(grads['rtd_loss']['generator'][name]) == 0
        assert size(grads['mlm_loss']['generator'][name]) > 1e-4
    assert size(grads['mlm_loss']['rtd']) == 0
    layers = [name for name in params['encoder'] if name.startswith('layers')]
    for name in layers:
        assert size(grads['mlm_loss']['encoder'][name]) == 0
        assert size(grads['rtd_loss']['encoder'][name]) > 1e-5


def test_embeddings_are_trained_by_both_losses_or_the_generator_alone(gradients):
    sharing, params, grads, _ = gradients
    by_mlm, by_rtd = (grads[name]['encoder']['embeddings'] for name in ('mlm_loss', 'rtd_loss'))
    separated = {'tied': (), 'disentangled': ('token',), 'gdes': ('token', 'position')}[sharing]
    for part in ('token', 'position'):
        assert size(by_mlm[part]) > 1e-4
        if part in separated:
            assert size(by_rtd[part]) == 0
            assert size(grads['rtd_loss']['generator'][DELTAS[part]]) > 1e-5
            assert size(grads['mlm_loss']['generator'][DELTAS[part]]) == 0
        else:
            assert size(by_rtd[part]) > 1e-5
            assert DELTAS[part] not in params['generator']
    own = {'projection', 'norm', 'type'} if sharing == 'gdes' else {'projection'}
    assert params['generator']['encoder']['embeddings'].keys() == own
    for part in ('norm', 'type'):
        assert size(by_rtd[part]) > 1e-5
        assert (size(by_mlm[part]) == 0) == (part in own)


def test_the_generator_has_no_embeddings_of_its_own_and_delta_is_zero():
    chosen = (MaskedLanguageModel(), DISENTANGLED)
    model = objectives.build_model(ARCHITECTURE, Compute(), chosen)
    clean, slots = Rows.of(synthetic.batch(0, size=1)), np.zeros((1, 1), np.int32)
    seeds = {SEEDS: np.zeros(1, np.uint32)}
    masked = clean.replace(targets=Targets(slots, slots, slots), labels=seeds)
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0), masked)['params'])
    assert sorted(params) == ['encoder', 'generator', 'rtd']  # no mlm: the generator has its head
    assert not params['generator']['delta'].any()
    assert sorted(params['generator']['encoder']['embeddings']) == ['projection']


def test_a_narrow_generator_cannot_have_a_mask_decoder():
    large = architectures.build('deberta_v3_base', positions='mask_decoder')
    with pytest.raises(UserError, match='rtd.generator_width is 0.25'):
        generator_architecture(large, ReplacedTokenDetection(0.25, 0.5, 'tied', 1.0))
    assert (
        generator_architecture(large, ReplacedTokenDetection(1.0, 0.5, 'tied', 1.0)).num_layers == 6
    )


@pytest.mark.parametrize('name', ['electra_small', 'bert_base', 'modernbert_base', 'albert_base'])
def test_generators_of_published_architectures_are_smaller(name):
    large = architectures.build(name)
    generation = ReplacedTokenDetection(0.25, 0.5, 'tied', 1.0)
    small = generator_architecture(large, generation)
    assert small.hidden_size == pytest.approx(large.hidden_size / 4, rel=0.05)
    assert small.num_layers == round(large.num_layers / 2)
    assert small.embedding_width == large.embedding_width
    mlm = MaskedLanguageModel()
    model = objectives.build_model(large, Compute(), (mlm, generation))
    alone = objectives.build_model(large, Compute(), (mlm,)).flops_per_token(128, 0)
    assert alone < model.flops_per_token(128, 20) < 1.5 * alone
