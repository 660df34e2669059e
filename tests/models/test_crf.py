"""CRF sums and maxima agree with brute force over all tag sequences."""

import itertools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import architectures, crf
from bert_jax.models.architecture import Compute
from bert_jax.models.heads.linear_chain import LinearChain

TAGS = 4
LENGTHS = (1, 2, 3, 4, 5, 0)
LABELS = ('B-x', 'I-x', 'B-y', 'I-y', 'O')
ARCHITECTURE = architectures.build('bert_tiny')


def random_scores(rng, size=TAGS):
    return crf.TransitionScores(*(rng.normal(size=shape) for shape in ((size, size), size, size)))


def rows_of(chains, length):
    """Emissions and link marks of chains, each spread over positions with gaps between links."""
    emissions = np.full((length, chains[0].shape[1]), 99.0)  # must not matter except at links
    is_link, segment_ids, place = np.zeros(length, bool), np.zeros(length, np.int32), 0
    for number, chain in enumerate(chains):
        start, place = place, place + 1  # [CLS]
        for gap, emission in enumerate(chain):
            emissions[place], is_link[place] = emission, True
            place += 1 + gap % 2
        segment_ids[start : place + 1] = number + 1
        place += 1  # [SEP]
    assert place <= length
    return emissions, is_link, segment_ids


def every_path(scores, chain):
    """Tag sequences [N, n] of a chain and their scores [N], float64."""
    paths = np.array(list(itertools.product(range(chain.shape[1]), repeat=len(chain))), int)
    total = chain[np.arange(len(chain)), paths].sum(1)
    total += scores.transition_CC[paths[:, :-1], paths[:, 1:]].sum(1)
    return paths, total + scores.start_C[paths[:, 0]] + scores.end_C[paths[:, -1]]


def log_sum(values):
    return values.max() + np.log(np.exp(values - values.max()).sum())


@jax.jit
def everything(scores, emissions_BTC, tags_BT, is_link_BT, segment_ids_BT):
    chains = crf.find_chains(is_link_BT, segment_ids_BT)
    return {
        'log_partition': crf.log_partition(scores, emissions_BTC, chains),
        'gradient': jax.grad(lambda s: crf.log_partition(s, emissions_BTC, chains).sum())(scores),
        'marginals': crf.marginals(scores, emissions_BTC, chains),
        'viterbi': crf.viterbi(scores, emissions_BTC, chains),
        'log_likelihood': crf.log_likelihood(scores, emissions_BTC, tags_BT, chains),
    }


@pytest.fixture(scope='module')
def case():
    """One row per chain of length 0 to 5, and a row that holds all of them."""
    rng = np.random.default_rng(0)
    scores = random_scores(rng)
    chains = [2 * rng.normal(size=(length, TAGS)) for length in LENGTHS]
    rows = [rows_of([chain], 40) for chain in chains] + [rows_of(chains, 40)]
    emissions, is_link, segment_ids = map(np.stack, zip(*rows, strict=True))
    tags = rng.integers(TAGS, size=is_link.shape)
    tags[-1][is_link[-1]] = np.concatenate([tags[i][is_link[i]] for i in range(len(chains))])
    found = everything(scores, emissions, tags, is_link, segment_ids)
    return scores, chains, is_link, tags, jax.tree.map(np.asarray, found)


def test_all_results_agree_with_brute_force(case):
    scores, chains, is_link, tags, found = case
    counts = crf.TransitionScores(np.zeros((TAGS, TAGS)), np.zeros(TAGS), np.zeros(TAGS))
    for number, chain in enumerate(chains[:-1]):
        paths, totals = every_path(scores, chain)
        log_partition = log_sum(totals)
        np.testing.assert_allclose(found['log_partition'][number], log_partition, rtol=1e-5)
        here, weights = is_link[number], np.exp(totals - log_partition)
        wanted = np.stack([weights @ (paths == tag) for tag in range(TAGS)], axis=1)
        np.testing.assert_allclose(found['marginals'][number][here], wanted, atol=1e-5)
        assert not found['marginals'][number][~here].any()
        np.testing.assert_array_equal(found['viterbi'][number][here], paths[totals.argmax()])
        gold = (paths == tags[number][here]).all(1)
        wanted = totals[gold][0] - log_partition
        np.testing.assert_allclose(found['log_likelihood'][number], wanted, rtol=1e-4)
        for path, weight in zip(paths, weights, strict=True):
            np.add.at(counts.transition_CC, (path[:-1], path[1:]), weight)
            counts.start_C[path[0]] += weight
            counts.end_C[path[-1]] += weight
    # The gradient is the expected count. Each chain occurs twice: alone, and in the packed row.
    for gradient, count in zip(found['gradient'], counts, strict=True):
        np.testing.assert_allclose(gradient, 2 * count, rtol=1e-4)


def test_a_row_without_links_contributes_nothing(case):
    found = case[-1]
    empty = len(LENGTHS) - 1
    assert found['log_partition'][empty] == found['log_likelihood'][empty] == 0


def test_packing_chains_into_one_row_does_not_change_them(case):
    _, chains, is_link, _, found = case
    for name in ('log_partition', 'log_likelihood'):
        np.testing.assert_allclose(found[name][-1], found[name][:-1].sum(), rtol=1e-5)
    alone = range(len(chains))
    for name in ('marginals', 'viterbi'):
        wanted = np.concatenate([found[name][i][is_link[i]] for i in alone])
        np.testing.assert_allclose(found[name][-1][is_link[-1]], wanted, atol=1e-5)


def test_start_and_end_scores_do_not_apply_where_a_window_was_cut():
    rng = np.random.default_rng(1)
    scores, chain = random_scores(rng), rng.normal(size=(3, TAGS))
    emissions, is_link, segment_ids = (x[None] for x in rows_of([chain], 10))
    ends = np.zeros_like(is_link)
    chains = crf.find_chains(is_link, segment_ids, starts_BT=ends, ends_BT=ends)
    _, totals = every_path(scores._replace(start_C=np.zeros(TAGS), end_C=np.zeros(TAGS)), chain)
    found = crf.log_partition(scores, emissions, chains)
    np.testing.assert_allclose(found[0], log_sum(totals), rtol=1e-5)


def test_the_log_partition_of_a_long_chain_is_accurate():
    """With uniform scores the log partition of n links is n · log C."""
    scores = crf.TransitionScores(jnp.zeros((3, 3)), jnp.zeros(3), jnp.zeros(3))
    ones = jnp.ones((1, 2000), bool)
    chains = crf.find_chains(ones, jnp.ones((1, 2000), jnp.int32))
    found = crf.log_partition(scores, jnp.zeros((1, 2000, 3)), chains)
    np.testing.assert_allclose(found, 2000 * np.log(3), rtol=2e-6)


def is_allowed(tags, closed):
    """Check a tag sequence from left to right."""
    open_label = None
    for tag in [*tags, 'O']:
        kind, _, label = tag.partition('-')
        if kind in ('I', 'E'):
            if open_label != label:
                return False
        elif closed and open_label:
            return False
        open_label = label if kind in ('B', 'I') else None
    return True


@pytest.mark.parametrize('labels', [LABELS, ('B-x', 'E-x', 'I-x', 'O', 'S-x'), ('NOUN', 'VERB')])
def test_allowed_sequences_are_those_of_the_tagging_scheme(labels):
    rules = crf.allowed_tags(labels)
    closed = any(label[:2] in ('E-', 'S-') for label in labels)
    for length in (1, 2, 3):
        for path in itertools.product(range(len(labels)), repeat=length):
            allowed = rules.start_C[path[0]] and rules.end_C[path[-1]]
            allowed &= all(rules.transition_CC[a, b] for a, b in itertools.pairwise(path))
            assert allowed == is_allowed([labels[i] for i in path], closed), path


def test_inside_tags_without_a_tag_that_begins_may_stand_anywhere():
    rules = crf.allowed_tags(('O', 'I-x', 'I-y'))
    assert all(values.all() for values in rules)


def test_thousands_of_tags_are_compared_in_a_moment():
    started = time.process_time()
    tags = [f'{prefix}-{number}' for prefix in 'BI' for number in range(1500)]
    rules = crf.allowed_tags(tags)
    assert rules.transition_CC.sum() == 1500 * 3000 + 2 * 1500  # any B, and I after its own B or I
    assert time.process_time() - started < 5


def test_bilou_allows_the_sequences_of_bioes():
    bioes = ('B-x', 'E-x', 'I-x', 'O', 'S-x')
    found = crf.allowed_tags([tag.translate({69: 'L', 83: 'U'}) for tag in bioes])
    for values, wanted in zip(found, crf.allowed_tags(bioes), strict=True):
        np.testing.assert_array_equal(values, wanted)


def test_disallowed_sequences_have_no_probability_and_are_never_chosen():
    rng = np.random.default_rng(2)
    module = LinearChain(ARCHITECTURE, Compute(), LABELS)
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32),
        module.init(jax.random.key(0), method='scores'),
    )
    chain = 3 * rng.normal(size=(4, len(LABELS)))
    emissions, is_link, segment_ids = (x[None] for x in rows_of([chain], 12))
    scores = module.apply(params, method='scores')
    free = LinearChain(ARCHITECTURE, Compute(), LABELS, constrained=False).apply(
        params, method='scores'
    )
    paths, totals = every_path(jax.tree.map(np.asarray, free), chain)
    fine = np.array([is_allowed([LABELS[i] for i in path], False) for path in paths])
    assert not fine[totals.argmax()]  # otherwise the test proves nothing
    found = everything(scores, emissions, np.zeros(is_link.shape, int), is_link, segment_ids)
    np.testing.assert_allclose(found['log_partition'][0], log_sum(totals[fine]), rtol=1e-5)
    best = paths[fine][totals[fine].argmax()]
    np.testing.assert_array_equal(found['viterbi'][0][is_link[0]], best)
    for gradient in found['gradient']:
        assert np.isfinite(gradient).all()
    never = ~crf.allowed_tags(LABELS).transition_CC
    assert not np.asarray(found['gradient'].transition_CC)[never].any()
    np.testing.assert_allclose(found['marginals'][0][is_link[0]].sum(1), 1, rtol=1e-5)
