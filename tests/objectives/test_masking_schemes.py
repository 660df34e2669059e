"""Masking schemes: statistics on real text with fixed keys, in three kinds of vocabulary."""

import collections
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models.rows import Rows
from bert_jax.objectives import masking_schemes, ngram_masking, span_masking
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.masking import MaskedText
from bert_jax.objectives.masking_schemes import SCHEMES, find_scheme
from tests import jaxprs
from tests.objectives.real_rows import CONVENTIONS, RealRows, Special, real_rows

LENGTH, PREDICTIONS = 256, 56  # tokens per row; more predictions than any row needs
WORD_SCHEMES = ('whole_words', 'spans', 'ngrams')
OPTIONS = {
    'rate': 0.15,
    'mask': 0.8,
    'random': 0.1,
    'replacement': 'uniform',
    'per_sequence': True,
    'span_p': 0.2,
    'longest_span': 10,
    'longest_ngram': 3,
    'adapt_every': 200,
}
GEOMETRIC_MEAN = 3.797  # Σ ℓ 0.8^(ℓ−1) / Σ 0.8^(ℓ−1), ℓ ≤ 10


class Outcome(NamedTuple):
    """The result of a scheme on real rows.

    Attributes:
        rows: The clean rows.
        settings: The corruption.
        masked: The masked rows.
        chosen: bool [N, T], tokens that are predicted.
        word: int [N, T], number of each token's word in its row; −1 for special tokens.
        spans: The spans that were drawn; None for other schemes.
    """

    rows: RealRows
    settings: MaskedText
    masked: Rows
    chosen: np.ndarray
    word: np.ndarray
    spans: span_masking.DrawnSpans | None


def make_masking(rows, scheme, number=PREDICTIONS, **changes):
    """Mask at most `number` tokens of rows of any length."""
    options = OPTIONS | changes
    kind = find_scheme(scheme)
    return MaskedText(
        Vocabulary(
            rows.special.mask, rows.special.pad, rows.special, rows.counts, rows.is_word_start
        ),
        kind(**{name: options[name] for name in kind.options()}),
        collections.defaultdict(lambda: number),
        **{name: options[name] for name in ('mask', 'random', 'replacement')},
    )


@functools.cache
def outcome(folder, convention, scheme, **changes) -> Outcome:
    rows = real_rows(folder, convention, LENGTH)
    settings = make_masking(rows, scheme=scheme, **changes)

    def draw(key, ids_T, mask_T):
        """Repeat the draws of the scheme with the same key."""
        row = token_row(settings, ids_T, mask_T)
        key = jax.random.split(key)[0]
        return settings.scheme.draw(key, masking_schemes.find_words(row), row, PREDICTIONS)

    @jax.jit
    def run(keys, ids, mask):
        masked = settings(keys, Rows(ids, mask))
        return masked, jax.vmap(draw)(keys, ids, mask) if scheme == 'spans' else None

    keys = jax.random.split(jax.random.key(0), len(rows.input_ids))
    masked, spans = jax.device_get(run(keys, *rows[:2]))
    chosen = np.zeros(rows.input_ids.shape, bool)
    np.put_along_axis(chosen, masked.targets.positions_BP, masked.targets.weights_BP > 0, 1)
    return Outcome(rows, settings, masked, chosen, words_of(rows), spans)


def token_row(settings, ids_T, mask_T, segment_ids_T=None):
    """The row as a scheme sees it."""
    vocabulary = settings.vocabulary
    can_choose_T = (mask_T > 0) & ~vocabulary.is_special(ids_T)
    starts_T = jnp.asarray(vocabulary.is_word_start_V)[ids_T]
    return masking_schemes.TokenRow(ids_T, mask_T, can_choose_T, segment_ids_T, starts_T)


def words_of(rows):
    """Number the words of each row in a loop over its tokens; −1 for special tokens."""
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
    """Where a token and the next one belong to the same word, bool [N, T − 1]."""
    return (found.word[:, 1:] == found.word[:, :-1]) & (found.word[:, 1:] >= 0)


def num_text(rows):
    """Count the tokens of each row that are not special, int [N]."""
    return (~np.isin(rows.input_ids, rows.special)).sum(1)


conventions = pytest.mark.parametrize('convention', CONVENTIONS)
schemes = pytest.mark.parametrize('scheme', WORD_SCHEMES)


@conventions
def test_the_tokenizer_marks_word_starts(real_data, convention):
    rows = real_rows(real_data, convention, LENGTH)
    for index in np.unique(rows.input_ids):
        starts = rows.vocab[index].startswith(convention) != (convention == '##')
        markers = {*rows.special} - {rows.special.unk}  # an unknown word is a word
        assert rows.is_word_start[index] == (starts and index not in markers)


@conventions
@schemes
def test_the_rate_is_met_and_special_tokens_are_never_chosen(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    rows = found.rows
    assert rows.attention_mask.sum() > 100_000
    assert found.chosen.sum() / rows.attention_mask.sum() == pytest.approx(0.15, abs=0.005)
    assert not np.isin(rows.input_ids[found.chosen], rows.special).any()
    assert not found.chosen[rows.attention_mask == 0].any()
    weights = found.masked.targets.weights_BP
    assert (weights.sum(1) == found.chosen.sum(1)).all()  # distinct positions
    chosen_first = np.diff(weights, axis=1) <= 0
    assert chosen_first.all()


@conventions
@pytest.mark.parametrize('scheme', ['whole_words', 'ngrams'])
def test_words_are_never_split(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    same = inside_words(found)
    assert same.sum() > 3000  # the text has words of several tokens
    assert (found.chosen[:, 1:] == found.chosen[:, :-1])[same].all()


@conventions
def test_spans_have_the_exact_number_of_tokens_and_split_at_most_one_word(real_data, convention):
    found = outcome(real_data, convention, 'spans')
    split = (found.chosen[:, 1:] != found.chosen[:, :-1]) & inside_words(found)
    assert split.sum() > 5
    assert split.sum(1).max() == 1
    expected = [math.ceil(0.15 * number) for number in num_text(found.rows)]
    np.testing.assert_array_equal(found.chosen.sum(1), expected)


@pytest.mark.parametrize('rate', [0.1, 0.15, 0.2, 0.3])
def test_the_number_of_tokens_in_spans_is_rounded_up(rate):
    numbers = np.arange(600)
    tokens = np.arange(600) < numbers[:, None]
    found = jax.vmap(lambda can_choose: span_masking.num_in_spans(can_choose, rate, 150))(tokens)
    expected = [min(150, math.ceil(round(rate * n, 9))) for n in numbers]
    np.testing.assert_array_equal(found, expected)


@conventions
def test_whole_words_are_added_while_any_of_them_fits(real_data, convention):
    found = outcome(real_data, convention, 'whole_words')
    word = found.word
    lengths = found.rows.attention_mask.sum(1)
    left = np.clip(np.round(0.15 * lengths), 1, PREDICTIONS) - found.chosen.sum(1)
    for row in np.flatnonzero(left):
        free = word[row][~found.chosen[row] & (word[row] >= 0)]
        assert np.bincount(free)[np.unique(free)].min() > left[row]
    assert left.min() == 0
    assert left.mean() < 0.02


@conventions
def test_words_are_equally_likely_at_every_position(real_data, convention):
    found = outcome(real_data, convention, 'whole_words')
    full = found.rows.attention_mask.all(1)
    share = found.chosen[full].mean(0)
    inner = np.delete(share, [0, LENGTH // 3, LENGTH // 2, LENGTH - 1])
    error = np.sqrt(0.15 * 0.85 / full.sum())
    assert np.abs(inner - inner.mean()).max() < 4.5 * error


@conventions
@schemes
def test_chosen_tokens_are_masked_replaced_or_kept_at_80_10_10(real_data, convention, scheme):
    found = outcome(real_data, convention, scheme)
    new = found.masked.input_ids_BT[found.chosen]
    old = found.rows.input_ids[found.chosen]
    assert np.mean(new == found.rows.special.mask) == pytest.approx(0.8, abs=0.01)
    assert np.mean(new == old) == pytest.approx(0.1, abs=0.01)
    untouched = ~found.chosen
    np.testing.assert_array_equal(
        found.masked.input_ids_BT[untouched], found.rows.input_ids[untouched]
    )


def runs_of(chosen):
    """Yield (row, start, stop) of the maximal runs of chosen tokens."""
    edge = np.diff(np.pad(chosen.astype(int), ((0, 0), (1, 1))))
    rows, starts = np.nonzero(edge == 1)
    return zip(rows, starts, np.nonzero(edge == -1)[1], strict=True)


@conventions
@pytest.mark.parametrize(('scheme', 'shared'), [('spans', True), ('whole_words', False)])
def test_only_spans_share_one_draw_of_the_replacement(real_data, convention, scheme, shared):
    found = outcome(real_data, convention, scheme)
    mixed = several = 0
    for row, start, stop in runs_of(found.chosen):
        hidden = found.masked.input_ids_BT[row, start:stop] == found.rows.special.mask
        several += len(hidden) > 1
        mixed += hidden.any() and not hidden.all()
    assert several > 1000
    assert (mixed == 0) if shared else (mixed > 0.2 * several)


@conventions
def test_span_lengths_are_the_renormalized_geometric(real_data, convention):
    lengths = outcome(real_data, convention, 'spans').spans.num_words_C.ravel()
    p = 0.8 ** np.arange(10)
    expected = p / p.sum() * len(lengths)
    observed = np.bincount(lengths, minlength=11)[1:]
    assert observed.sum() == len(lengths) > 3500
    assert ((observed - expected) ** 2 / expected).sum() < 27.9  # p = 0.001, 9 degrees of freedom
    assert lengths.mean() == pytest.approx(GEOMETRIC_MEAN, abs=0.1)


@conventions
def test_spans_of_whole_words_are_taken_in_order_and_the_last_is_cut_off(real_data, convention):
    found = outcome(real_data, convention, 'spans')
    starts = []
    for row, word in enumerate(found.word):
        left = math.ceil(0.15 * (word >= 0).sum())
        expected = np.zeros(LENGTH, bool)
        spans = (found.spans.start_C[row], found.spans.stop_C[row], found.spans.num_words_C[row])
        for start, stop, num_words in zip(*spans, strict=True):
            if left == 0:
                break
            if start == stop:  # no place was long enough
                continue
            inside = word[start:stop]
            assert (inside >= 0).all()
            assert inside[-1] - inside[0] + 1 == num_words
            new = [t for t in range(start, stop) if not expected[t]][:left]
            expected[new] = True
            left -= len(new)
            starts.append(start)
        np.testing.assert_array_equal(found.chosen[row], expected)
    thirds = np.histogram(starts, [1, 86, 171, 256])[0] / len(starts)
    np.testing.assert_allclose(thirds, 1 / 3, atol=0.06)  # short rows have no last third


@conventions
def test_unigram_replacement_in_spans_follows_the_frequencies(real_data, convention):
    found = outcome(real_data, convention, 'spans', mask=0.0, random=1.0, replacement='unigram')
    new = found.masked.input_ids_BT[found.chosen]
    expected = found.rows.counts / found.rows.counts.sum() * len(new)
    frequent = expected > 20
    observed = np.bincount(new, minlength=len(expected))
    chi_square = ((observed - expected)[frequent] ** 2 / expected[frequent]).sum()
    assert frequent.sum() > 50
    assert chi_square < frequent.sum() + 4 * np.sqrt(2 * frequent.sum())


@conventions
def test_ngrams_have_the_published_lengths(real_data, convention):
    scheme = outcome(real_data, convention, 'ngrams').settings.scheme
    assert scheme.probabilities() == pytest.approx([6 / 11, 3 / 11, 2 / 11])


def test_ngrams_reach_across_segments_but_not_across_packed_sequences():
    ids = np.array([[2, 5, 3, 6, 3, 2, 7, 3]] * 300, np.int32)  # [CLS] a [SEP] b [SEP] [CLS] c …
    segments = np.array([[1, 1, 1, 1, 1, 2, 2, 2]] * 300, np.int32)
    rows = RealRows(ids, None, np.ones(9, bool), np.ones(9, int), Special(2, 3, 0, 4, 1))
    settings = make_masking(rows, 'ngrams', 2, rate=0.25, per_sequence=False)  # two tokens
    keys = jax.random.split(jax.random.key(0), len(ids))

    def pairs(segment_ids):
        rows = settings(keys, Rows(ids, np.ones_like(ids), segment_ids_BT=segment_ids))
        positions, _, weights = rows.targets
        return {tuple(sorted(row)) for row in positions.tolist()}, weights.sum()

    choices, total = pairs(segments)
    assert choices == {(1, 3), (1, 6), (3, 6)}
    assert total == 600
    # An n-gram of two words from b can only reach c if the row is one sequence.
    lengths, draws = jnp.full(8, 2), jnp.array([0.5, 0.1, 0.9, 1, 1, 1, 1, 1])  # b first

    @jax.jit
    def take(segment_ids):
        row = token_row(settings, ids[0], np.ones(8, int), segment_ids)
        tokens = ngram_masking.ngram_tokens(lengths, masking_schemes.find_words(row), row, 3)
        return ngram_masking.take_ngrams(draws, tokens, jnp.zeros(8, int), jnp.full(8, 2))

    assert (take(np.zeros(8, np.int32)) < 8).tolist()[:3] == [False, True, True]
    assert (take(segments[0]) < 8).tolist()[:3] == [True, True, False]


@pytest.mark.parametrize('scheme', ['tokens', 'whole_words', 'ngrams'])
def test_every_sequence_of_a_packed_row_has_its_own_share(scheme):
    lengths = [4, 12, 40, 20, 20]  # at 15 %: 1, 2, 6, 3, 3
    segments = np.repeat(np.arange(1, 6), lengths)[None].repeat(50, 0).astype(np.int32)
    ids = np.random.default_rng(0).integers(5, 30, segments.shape).astype(np.int32)
    ids[:, np.cumsum([0, *lengths[:-1]])] = 2  # [CLS]
    starts = np.arange(30) % 3 > 0
    rows = RealRows(ids, None, starts, np.ones(30, int), Special(2, 3, 0, 4, 1))
    keys = jax.random.split(jax.random.key(0), 50)

    def counts(**changes):
        mask = jax.jit(make_masking(rows, scheme, 15, **changes))
        targets = mask(keys, Rows(ids, np.ones_like(ids), segment_ids_BT=segments)).targets
        chosen = np.take_along_axis(segments, targets.positions_BP, 1) * (targets.weights_BP > 0)
        return np.array([(chosen == number).sum(1) for number in range(1, 6)])

    most = np.array([1, 2, 6, 3, 3])[:, None]
    found = counts()
    assert (found <= most).all()
    assert found.sum() >= 0.93 * 50 * 15  # a word of several tokens may not fit
    if scheme == 'tokens':
        assert (found == most).all()
    of_rows = counts(per_sequence=False)
    assert (of_rows.sum(0) <= 14).all()  # round(0.15 · 96)
    assert len(set(of_rows[2])) > 2


def test_no_array_grows_faster_than_the_length_of_a_row():
    """Neither for each pair of draws nor for each draw and token; T log T numbers at most."""
    length, predictions = 4096, 1228
    ids = jax.ShapeDtypeStruct((1, length), np.int32)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    rows = RealRows(None, None, np.arange(30) % 3 > 0, np.ones(30, int), Special(2, 3, 0, 4, 1))
    for scheme in SCHEMES:
        mask = make_masking(rows, scheme, predictions, rate=0.3)
        traced = jax.make_jaxpr(mask)(keys, Rows(ids, ids, segment_ids_BT=ids))
        assert max(map(math.prod, jaxprs.shapes(traced.jaxpr))) <= 16 * length


def test_the_first_span_that_covers_a_token_is_found():
    rng = np.random.default_rng(0)
    start = rng.integers(0, 100, (20, 30))
    stop = np.minimum(start + rng.integers(0, 1 + 5 ** rng.integers(0, 4, (20, 30))), 100)
    spans = span_masking.DrawnSpans(None, start, stop)
    found = jax.vmap(lambda spans: span_masking.first_to_cover(spans, 100))(spans)
    t = np.arange(100)
    covers = (start[..., None] <= t) & (t < stop[..., None])
    np.testing.assert_array_equal(found, np.where(covers.any(1), covers.argmax(1), 30))


@pytest.mark.parametrize('per_sequence', [False, True])
def test_ngrams_are_taken_as_by_an_algorithm_that_tries_one_after_another(per_sequence):
    length, longest = 60, 3
    rng = np.random.default_rng(0)
    rows = RealRows(None, None, np.arange(30) % 5 > 1, np.ones(30, int), Special(2, 3, 0, 4, 1))
    settings = make_masking(rows, 'ngrams', rate=0.3, per_sequence=per_sequence)
    ids = rng.integers(2, 30, (40, length)).astype(np.int32)
    segments = np.sort(rng.integers(1, 5, ids.shape), axis=1).astype(np.int32)
    draws, lengths = rng.random(ids.shape), rng.integers(1, longest + 1, ids.shape)

    @jax.vmap
    def take(ids_T, segments_T, draws_W, lengths_W):
        row = token_row(settings, ids_T, ids_T * 0 + 1, segments_T)
        words = masking_schemes.find_words(row)
        left_T = jnp.broadcast_to(settings.scheme.num_to_choose(row, 99), length)
        tokens_NW = ngram_masking.ngram_tokens(lengths_W, words, row, longest)
        budget_ids_T = segments_T if per_sequence else segments_T * 0
        budgets = (budget_ids_T[words.first_W], left_T[words.first_W])
        return ngram_masking.take_ngrams(draws_W, tokens_NW, *budgets) < length, words, left_T

    found, words, left = jax.device_get(jax.jit(take)(ids, segments, draws, lengths))
    for row in range(len(ids)):
        first, stop = words.first_W[row], words.stop_W[row]
        expected, budget = np.zeros(length, bool), {}
        for w in np.argsort(draws[row]):
            if w >= words.number[row]:
                continue
            sequence = segments[row, first[w]]
            key = sequence if per_sequence else 0
            budget.setdefault(key, left[row, first[w]])
            own = [w + n for n in range(lengths[row, w]) if w + n < words.number[row]]
            own = [v for v in own if segments[row, first[v]] == sequence]
            while sum(stop[own] - first[own]) > budget[key]:
                own = own[:-1]
            if own and not expected[own].any():
                expected[own] = True
                budget[key] -= sum(stop[own] - first[own])
        np.testing.assert_array_equal(found[row], expected)


def test_shares_that_exceed_the_limit_together_are_cut_at_a_word():
    lengths = [3] * 20  # [CLS] and a word of two tokens: each sequence takes its word
    segments = np.repeat(np.arange(1, 21), lengths)[None].repeat(20, 0).astype(np.int32)
    ids = np.tile([2, 6, 5], (20, 20)).astype(np.int32)
    starts = np.arange(30) == 6
    rows = RealRows(ids, None, starts, np.ones(30, int), Special(2, 3, 0, 4, 1))
    mask = make_masking(rows, 'whole_words', 15, rate=0.7)
    keys = jax.random.split(jax.random.key(0), 20)
    masked = mask(keys, Rows(ids, np.ones_like(ids), segment_ids_BT=segments))
    positions, _, weights = masked.targets
    assert (weights.sum(1) == 14).all()
    chosen = np.zeros(ids.shape, bool)
    np.put_along_axis(chosen, positions, weights > 0, 1)
    assert (chosen[:, 1::3] == chosen[:, 2::3]).all()
    assert chosen.any(0)[1::3].all()  # no sequence is always left out


def test_rows_without_a_word_are_not_masked():
    rows = RealRows(
        np.array([[0, 4, 1, 2], [0, 1, 2, 2]], np.int32),
        np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
        np.array([False] * 5 + [True] * 5),
        np.ones(10, int),
        Special(cls=0, sep=1, pad=2, mask=3, unk=4),
    )
    keys = jax.random.split(jax.random.key(0), 2)
    for scheme in WORD_SCHEMES:
        masked = jax.jit(make_masking(rows, scheme, 2))(keys, Rows(*rows[:2]))
        np.testing.assert_array_equal(masked.input_ids_BT, rows.input_ids)
        assert not masked.targets.weights_BP.any()


@schemes
@pytest.mark.parametrize('starts', [None, np.zeros(10, bool)])
def test_word_schemes_need_a_vocabulary_that_marks_words(scheme, starts):
    rows = RealRows(None, None, starts, np.ones(10, int), Special(*range(5)))
    with pytest.raises(UserError, match=f"scheme '{scheme}'.*does not mark"):
        make_masking(rows, scheme=scheme)
    make_masking(rows, scheme='tokens')


def test_an_unknown_scheme_is_rejected():
    rows = RealRows(None, None, np.ones(10, bool), np.ones(10, int), Special(*range(5)))
    with pytest.raises(UserError, match='tokens, .*whole_words'):
        make_masking(rows, scheme='sentences')
