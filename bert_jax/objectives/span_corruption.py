"""Span corruption of T5, and the prefix language model.

Sources: Raffel et al. 2020, arXiv 1910.10683, sections 3.1.4 and 3.2.3;
google-research/text-to-text-transfer-transformer, t5/data/preprocessors.py. Local letters: N slots
of a text, K spans.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.noise import Noised, Text, random_ranks
from bert_jax.types import Key


@dataclasses.dataclass(frozen=True)
class SpanCorruption:
    """The noise of T5: each span becomes a sentinel, and the target lists sentinels and spans.

    A text begins with a kept span and ends with a hidden one. The numbers of hidden tokens and of
    spans depend on the length alone; the lengths of spans are random compositions.

    Attributes:
        density: Share of the tokens to hide.
        mean_span: Mean length of a span in tokens.
    """

    density: float
    mean_span: float

    def counts(self, slots: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of hidden tokens and of spans of a text of n tokens: int32 [slots + 1].

        Products are float32, and halves are rounded to even numbers, as by TensorFlow. A text of
        one token is kept.
        """
        length_N = np.arange(slots + 1)
        hidden_N = np.round(length_N.astype(np.float32) * np.float32(self.density))
        hidden_N = np.minimum(np.maximum(hidden_N, 1), np.maximum(length_N - 1, 0))
        spans_N = np.maximum(np.round(hidden_N / np.float32(self.mean_span)), 1)
        spans_N = np.minimum(spans_N, np.minimum(hidden_N, length_N - hidden_N))
        return hidden_N.astype(np.int32), spans_N.astype(np.int32)

    def source_slots(self, slots: int) -> int:
        """Return the slots of the source of texts of up to N tokens."""
        hidden_N, spans_N = self.counts(slots)
        return int((np.arange(slots + 1) - hidden_N + spans_N).max())

    def target_slots(self, slots: int) -> int:
        """Return the slots of the target of texts of up to N tokens."""
        hidden_N, spans_N = self.counts(slots)
        return int((hidden_N + spans_N).max())

    def num_sentinels(self, slots: int) -> int:
        """Return how many sentinels texts of up to N tokens need."""
        return int(self.counts(slots)[1].max())

    def __call__(self, key: Key, text: Text, vocabulary: Vocabulary) -> Noised:
        """Divide a text into source and target."""
        slots = len(text.ids_N)
        hidden_N, spans_N = map(jnp.asarray, self.counts(slots))
        is_hidden_N = hidden_spans(
            key, text.length, hidden_N[text.length], spans_N[text.length], slots
        )
        is_kept_N = ~is_hidden_N & text.is_token_N
        source = _with_sentinels(text, is_hidden_N, vocabulary)
        target = _with_sentinels(text, is_kept_N & (hidden_N[text.length] > 0), vocabulary)
        target = target._replace(length=jnp.where(hidden_N[text.length] > 0, target.length, 0))
        return Noised(
            _fit(source, self.source_slots(slots)),
            _fit(target, self.target_slots(slots)),
            jnp.int32(0),
        )


@dataclasses.dataclass(frozen=True)
class PrefixNoise:
    """The text is divided at a random token: the target continues the source."""

    def source_slots(self, slots: int) -> int:
        """Return the slots of the source of a text of N slots."""
        return slots

    def target_slots(self, slots: int) -> int:
        """Return the slots of the target of a text of N slots."""
        return slots

    def __call__(self, key: Key, text: Text, vocabulary: Vocabulary) -> Noised:
        """Divide a text so that neither part is empty; a text of one token is all source."""
        length = jax.random.randint(key, (), 1, jnp.maximum(text.length, 2))
        length = jnp.minimum(length, text.length)
        index_N = jnp.arange(len(text.ids_N))
        target_N = text.ids_N[jnp.minimum(index_N + length, len(index_N) - 1)]
        return Noised(Text(text.ids_N, length), Text(target_N, text.length - length), jnp.int32(0))


def hidden_spans(
    key: Key, length: jax.Array, num_hidden: jax.Array, num_spans: jax.Array, slots: int
) -> jax.Array:
    """Hide spans of a text that begins with a kept span and ends with a hidden one: bool [N]."""
    keys = jax.random.split(key)
    parts = (length - num_hidden, num_hidden)
    lengths_K2 = jnp.stack(
        [composition(k, n, num_spans, slots) for k, n in zip(keys, parts, strict=True)], axis=1
    )
    ends_X = jnp.cumsum(lengths_K2.reshape(-1))
    index_N = jnp.arange(slots)
    span_N = jnp.searchsorted(ends_X, index_N, side='right')
    return (span_N % 2 == 1) & (index_N < length)


def composition(key: Key, total: jax.Array, parts: jax.Array, slots: int) -> jax.Array:
    """Divide a number into positive parts, all ways equally probable: int32 [N], 0 behind them.

    The starts of the parts behind the first are drawn without replacement.
    """
    index_N = jnp.arange(slots)
    can_start_N = (index_N > 0) & (index_N < total)
    starts_N = random_ranks(key, can_start_N) < parts - 1
    part_N = jnp.cumsum(starts_N)
    return jax.ops.segment_sum((index_N < total).astype(jnp.int32), part_N, slots)


def _with_sentinels(text: Text, is_hidden_N: jax.Array, vocabulary: Vocabulary) -> Text:
    """Replace each run of hidden tokens by the next sentinel."""
    is_first_N = is_hidden_N & ~jnp.pad(is_hidden_N[:-1], (1, 0))
    sentinels = jnp.array(vocabulary.sentinel_ids)
    run_N = jnp.minimum(jnp.cumsum(is_first_N) - 1, len(sentinels) - 1)
    ids_N = jnp.where(is_first_N, sentinels[jnp.maximum(run_N, 0)], text.ids_N)
    return Text(ids_N, text.length).take(~is_hidden_N | is_first_N)


def _fit(text: Text, slots: int) -> Text:
    """Give a text this many slots, which hold it."""
    ids_N = text.ids_N[:slots]
    return Text(jnp.pad(ids_N, (0, slots - len(ids_N))), text.length)
