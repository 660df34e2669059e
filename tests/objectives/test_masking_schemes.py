"""Masking schemes by their statistics on real text with fixed keys, in three vocabularies."""

import functools
import math
from typing import NamedTuple

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.objectives import masking, masking_schemes
from bert_jax.objectives.words import find_words
from tests.objectives.real_rows import CONVENTIONS, RealRows, Special, real_rows

LENGTH, ROOM, TIGHT = 256, 56, 38  # tokens a row; predictions: with room, and just enough
BY_WORDS = {
    'whole_words': {'scheme': 'whole_words'},
    'spans': {'scheme': 'spans', 'last_span': 'whole'},
    'cut spans': {'scheme': 'spans', 'last_span': 'cut'},
    'ngrams': {'scheme': 'ngrams'},
}
GEOMETRIC_MEAN = 3.797  # Σ ℓ .8^(ℓ−1) / Σ .8^(ℓ−1), ℓ ≤ 10


class Outcome(NamedTuple):
    """rows, settings, masked: what went in and came out; chosen: bool [N, T]; word: int [N, T] a
    number for each word, −1 for special tokens; spans, num_kept: for spans and n-grams what was
    drawn in each row, and for spans how many were kept."""

    rows: RealRows
    settings: masking.Masking
    masked: masking.Masked
    chosen: np.ndarray
    word: np.ndarray
    spans: masking_schemes.Spans | None
    num_kept: np.ndarray | None


def make_masking(rows, **changes):
    settings = {
        'rate': 0.15,
        'mask': 0.8,
        'random': 0.1,
        'replacement': 'uniform',
        'mask_id': rows.special.mask,
        'special_ids': rows.special,
        'unigram_counts': rows.counts,
        'is_word_start': rows.is_word_start,
    }
    return masking.Masking(**(settings | changes))


@functools.cache
def outcome(folder, convention, scheme, num_predictions=ROOM, **changes) -> Outcome:
    rows = real_rows(folder, convention, LENGTH)
    settings = make_masking(rows, **(BY_WORDS[scheme] | changes))

    def draws(key, ids_T, mask_T):
        """What the scheme draws for the same key."""
        can_choose_T = (mask_T > 0) & ~masking.is_special(ids_T, settings)
        words = find_words(ids_T, can_choose_T, rows.is_word_start)
        choice_key = jax.random.split(key)[0]
        if scheme == 'ngrams':
            lengths = masking_schemes.ngram_lengths(settings)
            return masking_schemes.draw_spans(choice_key, words, lengths, 2 * num_predictions), None
        draw_key, stop_key = jax.random.split(choice_key)
        lengths = masking_schemes.span_lengths(settings)
        spans = masking_schemes.draw_spans(draw_key, words, lengths, 2 * num_predictions)
        first_T = masking_schemes.first_to_cover(spans, LENGTH)
        n = masking_schemes.num_in_spans(can_choose_T, settings.rate, num_predictions)
        return spans, masking_schemes.num_spans(stop_key, spans, first_T, n, num_predictions)

    @jax.jit
    def run(keys, ids, mask):
        masked = masking.mask_tokens(settings, keys, ids, mask, num_predictions)
        drawn = scheme in ('spans', 'ngrams')
        return masked, jax.vmap(draws)(keys, ids, mask) if drawn else (None, None)

    keys = jax.random.split(jax.random.key(0), len(rows.input_ids))
    masked, (spans, num_kept) = jax.device_get(run(keys, *rows[:2]))
    chosen = np.zeros(rows.input_ids.shape, bool)
    np.put_along_axis(chosen, masked.positions, masked.weights > 0, 1)
    return Outcome(rows, settings, masked, chosen, words_of(rows), spans, num_kept)


def words_of(rows):
    """int [N, T]: a number for each word, by a loop over tokens; −1 for special tokens."""
    word = np.full(rows.input_ids.shape, -1)
    for row, ids in enumerate(rows.input_ids):
        number, before = -1, False
        for t, token in enumerate(ids):
            inside = token not in rows.special
            if inside:
                number += bool(rows.is_word_start[token]) or not before
                word[row, t] = number
            before = inside
    return word


def inside_words(found):
    """bool [N, T − 1]: where a token and the next are of one word."""
    return (found.word[:, 1:] == found.word[:, :-1]) & (found.word[:, 1:] >= 0)


def num_text(rows):
    """int [N]: the tokens of each row that are not special."""
    return (~np.isin(rows.input_ids, rows.special)).sum(1)


each = pytest.mark.parametrize
real_schemes = each('scheme', BY_WORDS)
conventions = each('convention', CONVENTIONS)


@conventions
def test_the_tokenizer_marks_word_starts_by_its_convention(real_data, convention):
    rows = real_rows(real_data, convention, LENGTH)
    for index in np.unique(rows.input_ids):
        starts = rows.vocab[index].startswith(convention) != (convention == '##')
        assert rows.is_word_start[index] == (starts and index not in rows.special)


@conventions
@real_schemes
def test_rate_and_limits(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    rows = found.rows
    assert rows.attention_mask.sum() > 100_000
    assert found.chosen.sum() / rows.attention_mask.sum() == pytest.approx(0.15, abs=0.005)
    assert not np.isin(rows.input_ids[found.chosen], rows.special).any()
    assert not found.chosen[rows.attention_mask == 0].any()
    assert (found.masked.weights.sum(1) == found.chosen.sum(1)).all()  # distinct positions
    chosen_first = np.diff(found.masked.weights, axis=1) <= 0
    assert chosen_first.all()


@conventions
@each('scheme', [name for name in BY_WORDS if name != 'cut spans'])
def test_no_word_is_chosen_in_part(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    same = inside_words(found)
    assert same.sum() > 3000  # words of several tokens there are
    assert (found.chosen[:, 1:] == found.chosen[:, :-1])[same].all()


@conventions
def test_a_cut_leaves_at_most_one_word_a_row_in_part(real_data, convention):
    found = outcome(real_data, convention, 'cut spans')
    parted = (found.chosen[:, 1:] != found.chosen[:, :-1]) & inside_words(found)
    assert parted.sum() > 5
    assert parted.sum(1).max() == 1
    expected = [math.ceil(0.15 * number) for number in num_text(found.rows)]
    np.testing.assert_array_equal(found.chosen.sum(1), expected)


@each('rate', [0.1, 0.15, 0.2, 0.3])
def test_the_number_of_tokens_in_spans_is_rounded_up_exactly(rate):
    numbers = np.arange(600)
    tokens = np.arange(600) < numbers[:, None]
    found = jax.vmap(lambda can_choose: masking_schemes.num_in_spans(can_choose, rate, 150))(tokens)
    expected = [min(150, math.ceil(round(rate * n, 9))) for n in numbers]
    np.testing.assert_array_equal(found, expected)


@conventions
def test_whole_words_fill_the_count_with_whatever_still_fits(real_data, convention):
    found = outcome(real_data, convention, 'whole_words')
    word = found.word
    lengths = found.rows.attention_mask.sum(1)
    left = np.clip(np.round(0.15 * lengths), 1, ROOM) - found.chosen.sum(1)
    for row in np.flatnonzero(left):
        free = word[row][~found.chosen[row] & (word[row] >= 0)]
        assert np.bincount(free)[np.unique(free)].min() > left[row]
    assert left.min() == 0
    assert left.mean() < 0.02


@conventions
def test_every_word_is_as_likely_whatever_its_place(real_data, convention):
    found = outcome(real_data, convention, 'whole_words')
    full = found.rows.attention_mask.all(1)
    share = found.chosen[full].mean(0)
    inner = np.delete(share, [0, LENGTH // 3, LENGTH // 2, LENGTH - 1])
    error = np.sqrt(0.15 * 0.85 / full.sum())
    assert np.abs(inner - inner.mean()).max() < 4.5 * error


@conventions
@real_schemes
def test_eighty_ten_ten(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    new = found.masked.input_ids[found.chosen]
    old = found.rows.input_ids[found.chosen]
    assert np.mean(new == found.rows.special.mask) == pytest.approx(0.8, abs=0.01)
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


@conventions
@each(('scheme', 'shared'), [('spans', True), ('cut spans', True), ('whole_words', False)])
def test_a_span_has_one_fate_and_words_one_for_each_token(real_data, convention, scheme, shared):
    found = outcome(real_data, convention, scheme)
    mixed = several = 0
    for row, start, stop in runs_of(found.chosen):
        hidden = found.masked.input_ids[row, start:stop] == found.rows.special.mask
        several += len(hidden) > 1
        mixed += hidden.any() and not hidden.all()
    assert several > 1000
    assert (mixed == 0) if shared else (mixed > 0.2 * several)


@conventions
def test_span_lengths_are_the_renormalized_geometric(real_data, convention):
    found = outcome(real_data, convention, 'spans')
    is_kept = np.arange(2 * ROOM) < found.num_kept[:, None]
    lengths = found.spans.num_words_C[is_kept]
    p = 0.8 ** np.arange(10)
    expected = p / p.sum() * len(lengths)
    observed = np.bincount(lengths, minlength=11)[1:]
    assert observed.sum() == len(lengths) > 3500
    assert ((observed - expected) ** 2 / expected).sum() < 27.9  # p = .001 for 9 degrees
    assert lengths.mean() == pytest.approx(GEOMETRIC_MEAN, abs=0.1)


@conventions
def test_what_is_chosen_are_the_spans_kept_and_each_has_its_number_of_words(real_data, convention):
    found = outcome(real_data, convention, 'spans')
    word = found.word
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
    assert (found.chosen[:, 1:] == found.chosen[:, :-1])[inside_words(found)].all()
    roomy = outcome(real_data, '##', 'spans')
    assert roomy.chosen.sum(1).max() > TIGHT


def slow_ngrams(found, row):
    """The n-grams of a row that hold, one by one, and whether the last was shortened: first token
    and one past the last of each."""
    left = np.clip(np.round(0.15 * found.rows.attention_mask[row].sum()), 1, ROOM)
    taken, kept = set(), []
    for start, stop in zip(found.spans.start_C[row], found.spans.stop_C[row], strict=True):
        tokens = range(start, stop)
        if taken & set(tokens):
            continue
        while len(tokens) > left:  # without its last word
            tokens = [t for t in tokens if found.word[row, t] < found.word[row, tokens[-1]]]
        left -= len(tokens)
        taken |= set(tokens)
        kept.append(len(np.unique(found.word[row, tokens])) if tokens else 0)
        if len(tokens) < stop - start or not left:
            break
    return taken, kept


@conventions
def test_ngrams_are_apart_and_the_last_is_shortened(real_data, convention):
    found = outcome(real_data, convention, 'ngrams')
    assert masking_schemes.ngram_lengths(found.settings) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    numbers, wrong = [], 0
    for row, chosen in enumerate(found.chosen):
        taken, kept = slow_ngrams(found, row)
        wrong += set(np.flatnonzero(chosen)) != taken
        numbers += kept[:-1]  # the last may be shortened
    assert wrong == 0
    share = np.bincount(numbers, minlength=4)[1:4] / len(numbers)
    # Longer ones meet others a little more often.
    np.testing.assert_allclose(share, [6 / 11, 3 / 11, 2 / 11], atol=0.03)
    assert share[0] > 6 / 11


@conventions
def test_unigram_replacement_in_spans_follows_the_frequencies(real_data, convention):
    found = outcome(real_data, convention, 'spans', mask=0.0, random=1.0, replacement='unigram')
    new = found.masked.input_ids[found.chosen]
    expected = found.rows.counts / found.rows.counts.sum() * len(new)
    frequent = expected > 20
    observed = np.bincount(new, minlength=len(expected))
    chi_square = ((observed - expected)[frequent] ** 2 / expected[frequent]).sum()
    assert frequent.sum() > 50
    assert chi_square < frequent.sum() + 4 * np.sqrt(2 * frequent.sum())


def test_texts_without_a_word_are_left_alone():
    rows = RealRows(
        np.array([[0, 4, 1, 2], [0, 1, 2, 2]], np.int32),
        np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
        np.array([False] * 5 + [True] * 5),
        np.ones(10, int),
        Special(cls=0, sep=1, pad=2, mask=3, unk=4),
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
    rows = RealRows(None, None, starts, np.ones(10, int), Special(*range(5)))
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
    rows = RealRows(None, None, np.ones(10, bool), np.ones(10, int), Special(*range(5)))
    with pytest.raises(UserError, match=word):
        make_masking(rows, **change)
