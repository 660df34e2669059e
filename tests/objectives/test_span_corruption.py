"""Span corruption and prefixes, on texts whose tokens rise by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.objectives import noise, span_corruption
from bert_jax.objectives.corruption import Vocabulary

FIRST, VOCAB = 10, 3000
SENTINELS = tuple(range(VOCAB - 1, VOCAB - 101, -1))
VOCABULARY = Vocabulary(-1, 0, (0, 1), np.ones(VOCAB, int), sentinel_ids=SENTINELS)
T5 = span_corruption.SpanCorruption(0.15, 3.0)


def apply(method, slots, lengths):
    def one(key, length):
        return method(key, noise.Text(FIRST + jnp.arange(slots), length), VOCABULARY)

    keys = jax.random.split(jax.random.key(0), len(lengths))
    made = jax.device_get(jax.jit(jax.vmap(one))(keys, jnp.asarray(lengths, jnp.int32)))
    return [
        [ids[:n].tolist() for ids, n in zip(text.ids_N, text.length, strict=True)]
        for text in (made.source, made.target)
    ]


@pytest.mark.parametrize(
    ('slots', 'source', 'target'),
    [(568, 512, 114), (141, 128, 29), (70, 64, 14), (284, 256, 58), (1137, 1024, 229)],
)
def test_published_lengths(slots, source, target):
    """The values of t5's `random_spans_helper`, with </s>."""
    assert (T5.source_slots(slots) + 1, T5.target_slots(slots) + 1) == (source, target)


def test_counts_are_those_of_t5():
    hidden, spans = T5.counts(600)
    for length in range(2, 601):
        product = np.float32(length) * np.float32(0.15)
        number = min(max(int(np.round(product)), 1), length - 1)
        assert hidden[length] == number
        assert spans[length] == max(int(np.round(np.float32(number) / np.float32(3))), 1)


@pytest.mark.parametrize('method', [T5, span_corruption.SpanCorruption(0.6, 1.5)])
def test_interleaving_source_and_target_gives_the_text_back(method):
    slots = 150
    lengths = np.arange(2 * slots + 2) % (slots + 1)
    hidden, spans = method.counts(slots)
    for length, source, target in zip(lengths, *apply(method, slots, lengths), strict=True):
        assert len(source) == length - hidden[length] + spans[length]
        assert len(target) == hidden[length] + spans[length]
        parts = {}
        for token in target:
            if token in SENTINELS:
                parts[token] = []
            else:
                parts[[*parts][-1]].append(token)
        assert tuple(parts) == SENTINELS[: spans[length]]
        assert all(parts.values())
        merged = [t for token in source for t in parts.get(token, [token])]
        assert merged == list(range(FIRST, FIRST + length))
        if length > 1:  # begins with a kept token and ends with a hidden one
            assert source[0] == FIRST
            assert source[-1] in SENTINELS


def test_compositions_are_equally_probable():
    keys = jax.random.split(jax.random.key(1), 6000)
    draw = jax.vmap(lambda key: span_corruption.composition(key, jnp.int32(5), jnp.int32(3), 8))
    ways, counts = np.unique(jax.jit(draw)(keys), axis=0, return_counts=True)
    assert (ways[:, :3] > 0).all()
    assert not ways[:, 3:].any()
    assert (ways.sum(1) == 5).all()
    assert len(ways) == 6  # 4 over 2
    assert counts == pytest.approx(1000, abs=130)


def test_prefix():
    lengths = [0, 1] + [6] * 2000
    sources, targets = apply(span_corruption.PrefixNoise(), 9, lengths)
    for length, source, target in zip(lengths, sources, targets, strict=True):
        assert source + target == list(range(FIRST, FIRST + length))
    cuts = np.bincount([len(source) for source in sources[2:]], minlength=7)
    assert cuts[1:6] == pytest.approx(400, abs=80)
    assert cuts[6] == 0
