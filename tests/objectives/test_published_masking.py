"""Masking schemes have the statistics of the published algorithms, rendered slowly in NumPy."""

import math
import random

import jax
import numpy as np
import pytest

from bert_jax.models.rows import Rows
from tests.objectives.real_rows import CONVENTIONS, RealRows, real_rows, unspaced_rows
from tests.objectives.test_masking_schemes import make_masking

REPEATS = 6  # masks per row
TOKENS = 60_000


def statistics(rows: RealRows, chosen: np.ndarray) -> dict[str, tuple]:
    """Shares, and the number of observations of each."""
    length = rows.attention_mask.sum(1)
    budget = np.maximum(1, np.round(0.15 * length))
    edge = np.diff(np.pad(chosen.astype(int), ((0, 0), (1, 1))))
    runs = np.nonzero(edge == -1)[1] - np.nonzero(edge == 1)[1]
    row, position = np.nonzero(chosen)
    return {
        'masked tokens': (chosen.sum() / length.sum(), length.sum()),
        'rows without a masked token': (np.mean(~chosen.any(1)), len(chosen)),
        'rows with fewer than the budget': (np.mean(chosen.sum(1) < budget), len(chosen)),
        'masked tokens that start a word': (
            rows.is_word_start[rows.input_ids[chosen]].mean(),
            len(row),
        ),
        'masked tokens in the first half': (np.mean(position < length[row] / 2), len(row)),
    } | {f'runs of {n} masked tokens': (np.mean(runs == n), len(runs)) for n in (1, 2, 3, 4)}


def ours(rows: RealRows, scheme: str) -> np.ndarray:
    """Mask every row REPEATS times; return the chosen tokens, bool [REPEATS · N, T]."""
    number = rows.input_ids.shape[1]
    mask = jax.jit(make_masking(rows, scheme, number))
    chosen = []
    for seed in range(REPEATS):
        keys = jax.random.split(jax.random.key(seed), len(rows.input_ids))
        masked = jax.device_get(mask(keys, Rows(rows.input_ids, rows.attention_mask)))
        positions, _, weights = masked.targets
        chosen.append(np.zeros(rows.input_ids.shape, bool))
        np.put_along_axis(chosen[-1], positions, weights > 0, 1)
    return np.concatenate(chosen)


def slow(rows: RealRows, algorithm) -> np.ndarray:
    """The same with an algorithm for one row: (ids, is_word_start, special, rng) → chosen."""
    rng, chosen = random.Random(0), []
    for _ in range(REPEATS):
        for ids, mask in zip(rows.input_ids, rows.attention_mask, strict=True):
            chosen.append(np.zeros(len(ids), bool))
            found = algorithm(ids[: mask.sum()].tolist(), rows.is_word_start, rows.special, rng)
            chosen[-1][list(found)] = True
    return np.array(chosen)


def words_in(ids, is_word_start, special) -> list[list[int]]:
    """The positions of each word; special tokens are in none and end the word before them."""
    words, before = [], False
    for position, token in enumerate(ids):
        inside = token not in special
        if inside and before and not is_word_start[token]:
            words[-1].append(position)
        elif inside:
            words.append([position])
        before = inside
    return words


def albert(ids, is_word_start, special, rng, longest=3) -> set[int]:
    """google-research/albert create_pretraining_data.py, create_masked_lm_predictions."""
    words = words_in(ids, is_word_start, special)
    budget = max(1, round(0.15 * len(ids)))
    lengths = list(range(1, longest + 1))
    order = list(range(len(words)))
    rng.shuffle(order)
    taken: set[int] = set()
    for start in order:
        if len(taken) >= budget:
            break
        (n,) = rng.choices(lengths, [1 / length for length in lengths])
        tokens = sum(words[start : start + n], [])
        while len(taken) + len(tokens) > budget and n > 1:
            n -= 1
            tokens = sum(words[start : start + n], [])
        if len(taken) + len(tokens) <= budget and not taken & set(tokens):
            taken |= set(tokens)
    return taken


def whole_words(ids, is_word_start, special, rng) -> set[int]:
    """google-research/bert create_pretraining_data.py with do_whole_word_mask."""
    return albert(ids, is_word_start, special, rng, longest=1)


def anchored_spans(ids, is_word_start, special, rng) -> set[int]:
    """facebookresearch/SpanBERT data/masking.py, on the text between special tokens."""
    words = words_in(ids, is_word_start, special)
    word_of = {position: number for number, word in enumerate(words) for position in word}
    if not words:
        return set()
    budget = math.ceil(round(0.15 * len(word_of), 9))
    lengths = range(1, 11)
    taken: set[int] = set()
    while len(taken) < budget:
        (length,) = rng.choices(lengths, [0.2 * 0.8 ** (n - 1) for n in lengths])
        anchor = rng.choice(list(word_of))
        if anchor in taken:
            continue
        first = last = word_of[anchor]
        while last + 1 < len(words) and last + 1 - first < length:
            if words[last][-1] + 1 != words[last + 1][0]:  # a special token in between
                break
            last += 1
        for position in sum(words[first : last + 1], []):
            if len(taken) < budget:
                taken.add(position)
    return taken


ALGORITHMS = {'ngrams': albert, 'whole_words': whole_words, 'anchored_spans': anchored_spans}


# The quick ones differ most: marked continuations, and no marks of words at all.
QUICK = ('##', 'unspaced')


@pytest.mark.parametrize(
    'convention',
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name in [*CONVENTIONS, 'unspaced']
    ],
)
@pytest.mark.parametrize('length', [24, 160])
@pytest.mark.parametrize('scheme', ALGORITHMS)
def test_masks_have_the_statistics_of_the_published_algorithm(
    real_data, convention, length, scheme
):
    if convention == 'unspaced':
        rows = unspaced_rows(length, 'subwords')
    else:
        rows = real_rows(real_data, convention, length)
    few = slice(0, TOKENS // (length * REPEATS))
    rows = rows._replace(input_ids=rows.input_ids[few], attention_mask=rows.attention_mask[few])
    found = statistics(rows_repeated(rows), ours(rows, scheme))
    expected = statistics(rows_repeated(rows), slow(rows, ALGORITHMS[scheme]))
    for name, (share, number) in found.items():
        published = expected[name][0]
        noise = np.sqrt(2 * published * (1 - published) / number)
        assert share == pytest.approx(published, abs=max(0.01, 4.5 * noise)), name


def rows_repeated(rows: RealRows) -> RealRows:
    repeat = lambda array: np.tile(array, (REPEATS, 1))  # noqa: E731
    return rows._replace(
        input_ids=repeat(rows.input_ids), attention_mask=repeat(rows.attention_mask)
    )
