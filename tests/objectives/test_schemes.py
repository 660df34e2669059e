"""Masking schemes by their statistics on real text with fixed keys, in three vocabularies."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.objectives import masking, schemes
from bert_jax.objectives.words import find_words
from tests.objectives.real_rows import (
    CONVENTIONS,
    MASK,
    SPECIAL_IDS,
    UNK,
    RealRows,
    real_rows,
)

LENGTH, ROOM, TIGHT = 256, 56, 38  # tokens a row; predictions: with room, and just enough
BY_WORDS = {
    'whole_words': {'scheme': 'whole_words'},
    'spans': {'scheme': 'spans', 'last_span': 'whole'},
    'cut spans': {'scheme': 'spans', 'last_span': 'cut'},
    'ngrams': {'scheme': 'ngrams'},
}
GEOMETRIC_MEAN = 3.797  # Σ ℓ .8^(ℓ−1) / Σ .8^(ℓ−1), ℓ ≤ 10


class Outcome(NamedTuple):
    """rows, settings, masked: what went in and came out; chosen: bool [N, T]; spans, num_kept: for
    spans what was drawn in each row, and how many were kept."""

    rows: RealRows
    settings: masking.Masking
    masked: masking.Masked
    chosen: np.ndarray
    spans: schemes.Spans | None
    num_kept: np.ndarray | None


def make_masking(rows, **changes):
    settings = {
        'rate': 0.15,
        'mask': 0.8,
        'random': 0.1,
        'replacement': 'uniform',
        'mask_id': MASK,
        'special_ids': SPECIAL_IDS,
        'unigram_counts': rows.counts,
        'is_word_start': rows.is_word_start,
    }
    return masking.Masking(**(settings | changes))


@functools.cache
def outcome(folder, convention, scheme, num_predictions=ROOM, **changes) -> Outcome:
    rows = real_rows(folder, convention, LENGTH)
    settings = make_masking(rows, **(BY_WORDS[scheme] | changes))

    def draws(key, ids_T, mask_T):
        """What schemes.choose_spans draws for the same key."""
        can_choose_T = (mask_T > 0) & ~masking.is_special(ids_T, settings)
        words = find_words(ids_T, can_choose_T, rows.is_word_start)
        draw_key, stop_key = jax.random.split(jax.random.split(key)[0])
        lengths = schemes.span_lengths(settings)
        spans = schemes.draw_spans(draw_key, words, lengths, 2 * num_predictions)
        first_T = schemes.first_to_cover(spans, LENGTH)
        n = schemes.num_to_choose(mask_T, settings.rate, num_predictions)
        return spans, schemes.num_spans(stop_key, spans, first_T, n, num_predictions)

    @jax.jit
    def run(keys, ids, mask):
        masked = masking.mask_tokens(settings, keys, ids, mask, num_predictions)
        return masked, jax.vmap(draws)(keys, ids, mask) if scheme == 'spans' else (None, None)

    keys = jax.random.split(jax.random.key(0), len(rows.input_ids))
    masked, (spans, num_kept) = jax.device_get(run(keys, *rows[:2]))
    chosen = np.zeros(rows.input_ids.shape, bool)
    np.put_along_axis(chosen, masked.positions, masked.weights > 0, 1)
    return Outcome(rows, settings, masked, chosen, spans, num_kept)


def words_of(rows):
    """int [N, T]: a number for each word, by a loop over tokens; −1 for special tokens."""
    word = np.full(rows.input_ids.shape, -1)
    for row, ids in enumerate(rows.input_ids):
        number, before = -1, False
        for t, token in enumerate(ids):
            inside = token not in SPECIAL_IDS
            if inside:
                number += bool(rows.is_word_start[token]) or not before
                word[row, t] = number
            before = inside
    return word


each = pytest.mark.parametrize
real_schemes = each('scheme', BY_WORDS)
conventions = each('convention', CONVENTIONS)


@conventions
@real_schemes
def test_rate_and_limits(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    rows = found.rows
    assert rows.attention_mask.sum() > 100_000
    assert found.chosen.sum() / rows.attention_mask.sum() == pytest.approx(0.15, abs=0.005)
    assert not np.isin(rows.input_ids[found.chosen], SPECIAL_IDS).any()
    assert not found.chosen[rows.attention_mask == 0].any()
    assert (found.masked.weights.sum(1) == found.chosen.sum(1)).all()  # distinct positions
    chosen_first = np.diff(found.masked.weights, axis=1) <= 0
    assert chosen_first.all()


@conventions
@each('scheme', [name for name in BY_WORDS if name != 'cut spans'])
def test_no_word_is_chosen_in_part(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    word = words_of(found.rows)
    same = (word[:, 1:] == word[:, :-1]) & (word[:, 1:] >= 0)
    assert same.sum() > 3000  # words of several tokens there are
    assert (found.chosen[:, 1:] == found.chosen[:, :-1])[same].all()


def test_a_cut_leaves_at_most_one_word_a_row_in_part(real_data):
    found = outcome(real_data, '##', 'cut spans')
    word = words_of(found.rows)
    same = (word[:, 1:] == word[:, :-1]) & (word[:, 1:] >= 0)
    parted = (found.chosen[:, 1:] != found.chosen[:, :-1]) & same
    assert parted.sum() > 5
    assert parted.sum(1).max() == 1
    lengths = found.rows.attention_mask.sum(1)
    expected = np.clip(np.round(0.15 * lengths), 1, ROOM)
    np.testing.assert_array_equal(found.chosen.sum(1), expected)


def test_whole_words_fill_the_count_with_whatever_still_fits(real_data):
    found = outcome(real_data, 'Ġ', 'whole_words')
    word = words_of(found.rows)
    lengths = found.rows.attention_mask.sum(1)
    left = np.clip(np.round(0.15 * lengths), 1, ROOM) - found.chosen.sum(1)
    for row in np.flatnonzero(left):
        free = word[row][~found.chosen[row] & (word[row] >= 0)]
        assert np.bincount(free)[np.unique(free)].min() > left[row]
    assert left.min() == 0
    assert left.mean() < 0.02


def test_every_word_is_as_likely_whatever_its_place(real_data):
    found = outcome(real_data, '##', 'whole_words')
    full = found.rows.attention_mask.all(1)
    share = found.chosen[full].mean(0)
    inner = np.delete(share, [0, LENGTH // 3, LENGTH // 2, LENGTH - 1])
    error = np.sqrt(0.15 * 0.85 / full.sum())
    assert np.abs(inner - inner.mean()).max() < 4.5 * error


@each('scheme', ['spans', 'cut spans', 'whole_words'])
def test_eighty_ten_ten(real_data, scheme):
    found = outcome(real_data, '##', scheme)
    new = found.masked.input_ids[found.chosen]
    old = found.rows.input_ids[found.chosen]
    assert np.mean(new == MASK) == pytest.approx(0.8, abs=0.01)
    assert np.mean(new == old) == pytest.approx(0.1, abs=0.01)
    untouched = ~found.chosen
    np.testing.assert_array_equal(
        found.masked.input_ids[untouched], found.rows.input_ids[untouched]
    )


def runs_of(chosen):
    """(row, start, stop) of the maximal runs of chosen tokens."""
    edge = np.diff(np.pad(chosen.astype(int), ((0, 0), (1, 1))))
    rows, starts = np.nonzero(edge == 1)
    return zip(rows, starts, np.nonzero(edge == -1)[1], strict=True)


@each(('scheme', 'shared'), [('spans', True), ('whole_words', False)])
def test_a_span_has_one_fate_and_words_one_for_each_token(real_data, scheme, shared):
    found = outcome(real_data, '##', scheme)
    mixed = several = 0
    for row, start, stop in runs_of(found.chosen):
        hidden = found.masked.input_ids[row, start:stop] == MASK
        several += len(hidden) > 1
        mixed += hidden.any() and not hidden.all()
    assert several > 1000
    assert (mixed == 0) if shared else (mixed > 0.2 * several)


def test_span_lengths_are_the_renormalised_geometric(real_data):
    found = outcome(real_data, '##', 'spans')
    is_kept = np.arange(2 * ROOM) < found.num_kept[:, None]
    lengths = found.spans.num_words_C[is_kept]
    p = 0.8 ** np.arange(10)
    expected = p / p.sum() * len(lengths)
    observed = np.bincount(lengths, minlength=11)[1:]
    assert observed.sum() == len(lengths) > 4000
    assert ((observed - expected) ** 2 / expected).sum() < 27.9  # p = .001 for 9 degrees
    assert lengths.mean() == pytest.approx(GEOMETRIC_MEAN, abs=0.1)


def test_what_is_chosen_are_the_spans_kept_and_each_has_its_number_of_words(real_data):
    found = outcome(real_data, '##', 'spans')
    word = words_of(found.rows)
    starts = []
    for row in range(len(word)):
        expected = np.zeros(LENGTH, bool)
        for span in range(found.num_kept[row]):
            start, stop = found.spans.start_C[row, span], found.spans.stop_C[row, span]
            if start == stop:  # no place was long enough
                continue
            inside = word[row, start:stop]
            assert (inside >= 0).all()
            assert inside[-1] - inside[0] + 1 == found.spans.num_words_C[row, span]
            expected[start:stop] = True
            starts.append(start)
        np.testing.assert_array_equal(found.chosen[row], expected)
    thirds = np.histogram(starts, [1, 86, 171, 256])[0] / len(starts)
    np.testing.assert_allclose(thirds, 1 / 3, atol=0.06)  # short rows have no last third


def test_a_span_that_exceeds_the_predictions_is_left_out_whole(real_data):
    found = outcome(real_data, '##', 'spans', TIGHT)
    assert found.chosen.sum(1).max() <= TIGHT
    word = words_of(found.rows)
    same = (word[:, 1:] == word[:, :-1]) & (word[:, 1:] >= 0)
    assert (found.chosen[:, 1:] == found.chosen[:, :-1])[same].all()
    roomy = outcome(real_data, '##', 'spans')
    assert roomy.chosen.sum(1).max() > TIGHT


def test_ngrams_have_one_to_three_words_the_shorter_the_likelier(real_data):
    found = outcome(real_data, '##', 'ngrams')
    word = words_of(found.rows)
    assert schemes.ngram_lengths(found.settings) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    numbers = [len(np.unique(word[row, start:stop])) for row, start, stop in runs_of(found.chosen)]
    share = np.bincount(numbers, minlength=4)[1:4] / len(numbers)
    # With a sixth chosen about a quarter of the runs are several n-grams side by side.
    assert share[0] > share[1] > share[2] > 0.1
    assert np.mean(numbers) == pytest.approx(2.1, abs=0.3)


def test_unigram_replacement_in_spans_follows_the_frequencies(real_data):
    found = outcome(real_data, '##', 'spans', mask=0.0, random=1.0, replacement='unigram')
    new = found.masked.input_ids[found.chosen]
    expected = found.rows.counts / found.rows.counts.sum() * len(new)
    frequent = expected > 20
    observed = np.bincount(new, minlength=len(expected))
    chi_square = ((observed - expected)[frequent] ** 2 / expected[frequent]).sum()
    assert frequent.sum() > 50
    assert chi_square < frequent.sum() + 4 * np.sqrt(2 * frequent.sum())


def test_texts_without_a_word_are_left_alone():
    rows = RealRows(
        np.array([[0, UNK, 1, 2], [0, 1, 2, 2]], np.int32),
        np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
        np.array([False] * 5 + [True] * 5),
        np.ones(10, int),
    )
    keys = jax.random.split(jax.random.key(0), 2)
    for changes in BY_WORDS.values():
        settings = make_masking(rows, **changes)
        mask = jax.jit(masking.mask_tokens, static_argnums=(0, 4))
        masked = mask(settings, keys, *rows[:2], 2)
        np.testing.assert_array_equal(masked.input_ids, rows.input_ids)
        assert not masked.weights.any()


@each('starts', [None, np.zeros(10, bool)])
@each('scheme', ['whole_words', 'spans', 'ngrams'])
def test_words_are_refused_where_the_vocabulary_marks_none(scheme, starts):
    rows = RealRows(None, None, starts, np.ones(10, int))
    with pytest.raises(UserError, match=f"scheme '{scheme}'.*does not mark"):
        make_masking(rows, scheme=scheme)
    make_masking(rows, scheme='tokens')


@each(
    ('change', 'word'),
    [
        ({'scheme': 'sentences'}, 'tokens, .*whole_words'),
        ({'span_p': 1.0}, 'masking.span_p'),
        ({'longest_span': 0}, 'masking.longest_span'),
        ({'longest_ngram': 0}, 'masking.longest_ngram'),
        ({'last_span': 'burst'}, 'cut, whole'),
    ],
)
def test_settings_out_of_range_are_refused(change, word):
    rows = RealRows(None, None, np.ones(10, bool), np.ones(10, int))
    with pytest.raises(UserError, match=word):
        make_masking(rows, **change)
