"""The noise of BART on texts whose tokens rise by one, so that each can be traced.

Expected statistics: fairseq's data/denoising_dataset.py, run on 600 texts of the same lengths.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.objectives import noise
from bert_jax.objectives.corruption import Vocabulary

MASK, FIRST, VOCAB, SLOTS = 4, 10, 2000, 128
VOCABULARY = Vocabulary(MASK, 0, range(5), np.ones(VOCAB, int))
SPANS = noise.BartNoise(0.3, 3.0, 1, False, 0.0, 0.0, 0.0, 0.0)
NONE = dataclasses.replace(SPANS, mask=0.0)


def apply(bart, lengths, slots=SLOTS, vocabulary=VOCABULARY, starts=None):
    """Return for each text its source, its target, and the number of tokens that were cut."""
    sentences = None if starts is None else jnp.asarray(starts)

    def one(key, length):
        return bart(key, noise.Text(FIRST + jnp.arange(slots), length, sentences), vocabulary)

    keys = jax.random.split(jax.random.key(0), len(lengths))
    made = jax.device_get(jax.jit(jax.vmap(one))(keys, jnp.asarray(lengths, jnp.int32)))
    sources, targets = (
        [ids[:n].tolist() for ids, n in zip(text.ids_N, text.length, strict=True)]
        for text in (made.source, made.target)
    )
    assert all(len(ids) <= bart.source_slots(slots) for ids in sources)
    return sources, targets, made.num_cut


def clean(length):
    return list(range(FIRST, FIRST + length))


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(token in rest for token in part)


@pytest.mark.parametrize(
    ('slots', 'settings', 'hidden', 'masks', 'longest'),
    [
        (510, {}, 0.267, 42.3, 434),
        (510, {'poisson_lambda': 3.5}, 0.266, 35.7, 430),
        (510, {'mask': 0.35, 'poisson_lambda': 3.5}, 0.305, 40.2, 420),
        (126, {}, 0.268, 10.95, 114),
    ],
)
def test_masks_as_often_as_fairseq(slots, settings, hidden, masks, longest):
    bart = dataclasses.replace(SPANS, **settings)
    sources, _, cut = apply(bart, [slots] * 1000, slots)
    num_masks = np.mean([ids.count(MASK) for ids in sources])
    length = np.mean([len(ids) for ids in sources])
    assert 1 - (length - num_masks) / slots == pytest.approx(hidden, abs=0.004)
    assert num_masks == pytest.approx(masks, abs=0.6)
    assert length == pytest.approx(slots * (1 - hidden) + masks, abs=3)
    assert max(map(len, sources)) < longest + 10
    assert not cut.any()


def test_words_are_hidden_as_a_whole():
    is_start_V = np.arange(VOCAB) % 2 == 0
    vocabulary = dataclasses.replace(VOCABULARY, is_word_start_V=is_start_V)
    bart = dataclasses.replace(SPANS, whole_words=True)
    sources, _, _ = apply(bart, [510] * 400, 510, vocabulary)
    kept = [np.array([token for token in ids if token != MASK]) for ids in sources]
    assert np.mean([len(ids) for ids in kept]) / 510 == pytest.approx(1 - 0.269, abs=0.004)
    assert np.mean([ids.count(MASK) for ids in sources]) == pytest.approx(21.5, abs=0.6)
    for ids in kept:  # both tokens of a word, or neither
        assert (ids[::2] % 2 == 0).all()
        assert (ids[1::2] == ids[::2] + 1).all()


def test_lengths_of_spans_fill_the_budget_exactly():
    probabilities = noise.poisson_probabilities(3.0)
    assert probabilities @ np.arange(len(probabilities)) == pytest.approx(3, abs=1e-5)
    assert probabilities[0] == pytest.approx(np.exp(-3), abs=1e-6)

    def draw(key, budget):
        return noise.draw_lengths_until(key, SLOTS, budget, 3.0)

    budgets = np.arange(SLOTS + 1).repeat(40)
    keys = jax.random.split(jax.random.key(0), len(budgets))
    lengths, used = jax.device_get(jax.jit(jax.vmap(draw))(keys, budgets))
    np.testing.assert_array_equal((lengths * used).sum(1), budgets)
    assert not lengths[~used].any()
    assert (lengths[used] == 0).mean() == pytest.approx(0.05, abs=0.005)
    drawn = lengths[:, : SLOTS // 8][budgets > 100]  # before the last, which is cut off
    assert drawn.mean() == pytest.approx(3, abs=0.05)


@pytest.mark.parametrize('replace_length', [1, 0, -1])
@pytest.mark.parametrize('poisson_lambda', [3.0, 0.0])
def test_hidden_spans(replace_length, poisson_lambda):
    bart = dataclasses.replace(SPANS, replace_length=replace_length, poisson_lambda=poisson_lambda)
    lengths = np.arange(400) % (SLOTS + 1)
    sources, targets, cut = apply(bart, lengths)
    assert not cut.any() or replace_length < 0
    for length, source, target in zip(lengths, sources, targets, strict=True):
        assert target == clean(length)
        kept = [token for token in source if token != MASK]
        assert is_subsequence(kept, target)
        hidden, masks = length - len(kept), len(source) - len(kept)
        assert (hidden > 0) == (length > 0) or poisson_lambda
        assert hidden <= np.ceil(0.3 * length - 1e-4)
        if not poisson_lambda:
            assert hidden == np.ceil(0.3 * length - 1e-4)
            assert masks == (0 if replace_length == 0 else hidden)
        if replace_length < 0:
            assert masks >= hidden


def test_masks_of_overlapping_spans_merge_and_touching_ones_stay():
    starts = jnp.array([2, 4, 9, 11])
    spans = noise.DrawnSpans(None, starts, jnp.array([6, 7, 11, 12]))
    owner = noise.first_to_cover(spans, 14)
    is_mask = (owner < 4) & (starts[jnp.minimum(owner, 3)] == jnp.arange(14))
    assert np.flatnonzero(is_mask).tolist() == [2, 9, 11]


def test_random_tokens_replace_masks():
    bart = dataclasses.replace(SPANS, mask_random=0.5, poisson_lambda=16.0)
    sources, _, _ = apply(bart, [100] * 500)
    plain, _, _ = apply(dataclasses.replace(bart, mask_random=0.0), [100] * 500)
    masks, all_masks = (sum(ids.count(MASK) for ids in texts) for texts in (sources, plain))
    assert masks / all_masks == pytest.approx(0.5, abs=0.05)


def test_specials_in_a_text_stay_and_end_spans():
    is_special = np.arange(FIRST, FIRST + SLOTS) % 16 == 0
    specials = (*range(5), *np.arange(FIRST, FIRST + SLOTS)[is_special].tolist())
    vocabulary = dataclasses.replace(VOCABULARY, special_ids=specials)
    sources, _, _ = apply(dataclasses.replace(SPANS, mask=0.9), [SLOTS] * 200, SLOTS, vocabulary)
    for source in sources:
        assert [token for token in source if token in specials[5:]] == list(specials[5:])


def test_insertion():
    bart = dataclasses.replace(NONE, insert=0.2, mask_random=0.25)
    lengths = np.arange(400) % (SLOTS + 1)
    sources, _, cut = apply(bart, lengths)
    assert not cut.any()
    first = unexpected = 0
    for length, source in zip(lengths, sources, strict=True):
        number = int(np.ceil(0.2 * (length + 2) - 1e-4)) if length else 0
        assert len(source) == length + number
        assert is_subsequence(clean(length), source)
        unexpected += source.count(MASK) != number - np.ceil(0.25 * number)
        first += bool(source and source[0] == MASK)
    assert unexpected < 10  # a random token can be a mask
    assert 20 < first < 120  # anywhere, also before the first token


def test_rotation():
    sources, _, _ = apply(dataclasses.replace(NONE, rotate=0.5), [50] * 1000)
    shifts = [source[0] - FIRST for source in sources]
    for shift, source in zip(shifts, sources, strict=True):
        assert source == clean(50)[shift:] + clean(50)[:shift]
    # Two of the 51 starts leave the text as it is: the first token, and behind the last.
    assert np.mean(np.array(shifts) > 0) == pytest.approx(0.5 * 49 / 51, abs=0.05)
    assert len({*shifts}) == 50


@pytest.mark.parametrize('share', [1.0, 0.5])
def test_sentences_change_places(share):
    starts = np.arange(SLOTS) % 10 == 0
    starts[15] = True
    lengths = [97] * 600
    sources, _, _ = apply(
        dataclasses.replace(NONE, permute_sentences=share), lengths, starts=starts
    )
    bounds = [*np.flatnonzero(starts[:97]).tolist(), 97]
    sentences = [clean(97)[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    at_home = []
    for source in sources:
        assert sorted(source) == clean(97)
        order = [i for token in source for i, s in enumerate(sentences) if s[0] == token]
        assert [token for i in order for token in sentences[i]] == source
        at_home.append(sum(i == place for place, i in enumerate(order)))
    number = len(sentences)
    chosen = np.ceil(share * number)
    assert np.mean(at_home) == pytest.approx(number - chosen + 1, abs=0.25)  # one by chance
    if share == 1:
        firsts = np.bincount([source[0] - FIRST for source in sources], minlength=97)
        assert (firsts[bounds[:-1]] > 600 / number / 2).all()


def test_all_five_together_on_every_length():
    bart = noise.BartNoise(0.3, 3.0, -1, False, 0.1, 1.0, 0.1, 0.5)
    lengths = np.arange(3 * (SLOTS + 1)) % (SLOTS + 1)
    sources, targets, _ = apply(bart, lengths, starts=np.arange(SLOTS) % 7 == 3)
    for length, source, target in zip(lengths, sources, targets, strict=True):
        assert target == clean(length)
        assert bool(source) == bool(target)
        assert max(source, default=0) < VOCAB
