"""Logits of spans agree with NumPy, one span at a time, also in packed rows."""

import jax
import numpy as np
import pytest
import scipy.special
from flax import linen as nn

from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.heads.spans import SpanClassificationHead
from bert_jax.models.rows import Rows

ARCHITECTURE = architectures.build('bert', hidden_size=8, num_heads=2, num_layers=1)
LENGTH, WORDS, WIDTH, LABELS = 17, 3, 5, 4
# Subwords per word: the first sequence has 4 words, the second 2 and the third 3.
PIECES = [[1, 3, 1, 2], [2, 1], [1, 1, 4]]


def spans_of(pieces):
    """int32 [n, L] sizes of the spans of these words, between two special tokens."""
    first = np.cumsum([1, *pieces])
    sizes = np.zeros((first[-1] + 1, WORDS), np.int32)
    for word in range(len(pieces)):
        for number in range(min(WORDS, len(pieces) - word)):
            sizes[first[word], number] = first[word + number + 1] - first[word]
    return sizes


def batches():
    """Span sizes [B, T, L] of one sequence per row and of packed rows, and the rows' layout."""
    alone, rows = np.zeros((3, LENGTH, WORDS), np.int32), np.zeros((2, LENGTH, WORDS), np.int32)
    places = [(0, 0), (0, 9), (1, 3)]
    segments = np.zeros((2, LENGTH), np.int32)
    for number, (pieces, (row, offset)) in enumerate(zip(PIECES, places, strict=True)):
        sizes = spans_of(pieces)
        alone[number, : len(sizes)] = sizes
        rows[row, offset : offset + len(sizes)] = sizes
        segments[row, offset : offset + len(sizes)] = number + 1
    return alone, rows, segments, places


def rows_of(span_sizes, segments=None):
    ids = span_sizes[..., 0]
    return Rows(ids, np.ones_like(ids), None, segments, labels={'span_sizes': span_sizes})


def make(summary, boundary):
    head = SpanClassificationHead(ARCHITECTURE, Compute(), LABELS, WIDTH, summary, boundary)
    rng = np.random.default_rng(0)
    hidden = EncoderOutput(np.zeros((2, LENGTH, 8), np.float32), None)
    sizes = np.zeros((2, LENGTH, WORDS), np.int32)
    shapes = jax.eval_shape(lambda: nn.unbox(head.init(jax.random.key(0), hidden, rows_of(sizes))))
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    return head, params


def gelu(x):
    return np.asarray(jax.nn.gelu(x, approximate=False), np.float64)


def of_one_span(p, states, summary, boundary):
    """The logits of the span with these states [n, D], from its concatenated parts."""
    first, last = states[0], states[-1]
    if boundary == 'ffn':
        first = gelu(first @ p['start_ffn']['kernel'] + p['start_ffn']['bias'])
        last = gelu(last @ p['end_ffn']['kernel'] + p['end_ffn']['bias'])
    weights = np.ones(len(states))
    if summary == 'attention':
        weights = np.exp(4 * np.tanh(states @ p['attention']['kernel'][:, 0]))
    if summary == 'self_attention':  # equation 11.20: the mean over the queries
        queries, keys = (states @ p[name]['kernel'] for name in ('query', 'key'))
        weights = scipy.special.softmax(queries @ keys.T / WIDTH**0.5, axis=-1).mean(0)
    middle = weights @ states / weights.sum()
    kernel = np.concatenate([p[part]['kernel'] for part in ('start', 'end', 'inside')])
    hidden = gelu(np.concatenate([first, last, middle]) @ kernel + p['bias'])
    return hidden @ p['output']['kernel'] + p['output']['bias']


@pytest.mark.parametrize(
    ('summary', 'boundary'),
    [('mean', 'ffn'), ('mean', 'state'), ('attention', 'ffn'), ('self_attention', 'ffn')],
)
def test_logits_agree_with_one_span_at_a_time(summary, boundary):
    head, params = make(summary, boundary)
    alone, rows, segments, places = batches()
    hidden = np.random.default_rng(1).normal(size=(2, LENGTH, 8)).astype(np.float32)
    apart = np.random.default_rng(2).normal(size=(3, LENGTH, 8)).astype(np.float32)
    for number, (row, offset) in enumerate(places):
        length = sum(PIECES[number]) + 2
        apart[number, :length] = hidden[row, offset : offset + length]

    @jax.jit
    def both(params):
        packed = head.apply(params, EncoderOutput(hidden, None), rows_of(rows, segments))
        return head.apply(params, EncoderOutput(apart, None), rows_of(alone)), packed

    single, packed = both(params)
    p = jax.tree.map(lambda leaf: leaf.astype(np.float64), params['params'])
    assert packed.shape == (2, LENGTH, WORDS, LABELS)
    assert np.isfinite(packed).all()
    checked = 0
    for number, (row, offset) in enumerate(places):
        for t, n in zip(*np.nonzero(alone[number]), strict=True):
            size = alone[number, t, n]
            states = apart[number, t : t + size].astype(np.float64)
            expected = of_one_span(p, states, summary, boundary)
            for logits in (single[number, t, n], packed[row, offset + t, n]):
                np.testing.assert_allclose(logits, expected, rtol=2e-4, atol=2e-4)
            checked += 1
    assert checked == 9 + 3 + 6


@pytest.mark.parametrize('summary', ['mean', 'attention', 'self_attention'])
def test_a_span_depends_only_on_its_own_positions(summary):
    """Earlier positions cancel up to rounding; other sequences contribute exactly nothing."""
    head, params = make(summary, 'ffn')
    _, rows, segments, _ = batches()
    hidden = np.random.default_rng(1).normal(size=(2, LENGTH, 8)).astype(np.float32)

    @jax.jit
    def gradient(hidden, t, n):
        def total(hidden):
            encoded = EncoderOutput(hidden, None)
            logits = head.apply(params, encoded, rows_of(rows, segments))
            return logits[0, t, n].sum()

        return jax.grad(total)(hidden)

    for t, n in ((2, 1), (10, 1)):
        moved = np.abs(gradient(hidden, t, n)).max(-1)
        size = rows[0, t, n]
        assert (moved[0, t : t + size] > 1e-3).all()
        assert (np.delete(moved[0], slice(t, t + size)) < 1e-4 * moved.max()).all()
        assert not moved[0, segments[0] != segments[0, t]].any()
        assert not moved[1].any()


def test_dropout_changes_the_logits():
    head, params = make('mean', 'state')
    _, rows, segments, _ = batches()
    encoded = EncoderOutput(np.ones((2, LENGTH, 8), np.float32), None)
    clean = head.apply(params, encoded, rows_of(rows, segments))
    seeds = np.arange(2, dtype=np.uint32)
    noisy = head.apply(params, encoded, rows_of(rows, segments), seeds)
    assert not np.allclose(clean, noisy)


def test_initial_kernels_have_the_standard_deviation_of_their_width():
    """After truncation, not before: the first steps of training depend on it."""
    architecture = architectures.build('bert', hidden_size=256, num_heads=2, num_layers=1)
    head = SpanClassificationHead(architecture, Compute(), 128, 128)
    hidden = EncoderOutput(np.zeros((1, 2, 256), np.float32), None)
    sizes = np.ones((1, 2, 1), np.int32)
    params = nn.unbox(head.init(jax.random.key(0), hidden, rows_of(sizes)))['params']
    kernels = [leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 2]
    assert len(kernels) == 6
    for kernel in kernels:
        assert kernel.std() == pytest.approx(kernel.shape[0] ** -0.5, rel=0.02)
