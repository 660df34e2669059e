"""States of any number of words and tokens, a limited amount of memory at a time."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from bert_jax.inference import vectors
from bert_jax.inference.computation import Layers
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.word_states import Located
from bert_jax.training import runtime

_STATE_BYTES = 2**26  # approximate size of the states in memory at a time
Item = TypeVar('Item')


def stream_attention(
    predictor: Predictor, sentences: Iterable[Located]
) -> Iterator[np.ndarray | None]:
    """Yield the attention between the words of each sentence; see `attention_of_words`."""
    architecture = predictor.architecture
    limit = _STATE_BYTES // (4 * architecture.num_layers * architecture.num_heads)
    # About 4 characters per token, plus special tokens.
    for group in groups(sentences, lambda sentence: (len(sentence[0]) // 4 + 2) ** 2, limit):
        texts, spans = zip(*group, strict=True)
        yield from predictor.attention_of_words(texts, spans)


def stream_words(
    predictor: Predictor,
    sentences: Iterable[Located],
    pooling: str = 'mean',
    layer: Layers = 'last',
) -> Iterator[np.ndarray]:
    """Yield the vectors of the words of each sentence, float32 [W, …].

    Args:
        sentences: any number of texts with the characters of their words.
        pooling, layer: as for `Predictor.embed_words`.
    """
    limit = _characters_in_memory(predictor, layer)
    for group in groups(sentences, lambda sentence: len(sentence[0]), limit):
        texts, spans = zip(*group, strict=True)
        yield from predictor.embed_words(texts, spans, pooling=pooling, layer=layer)


def stream_tokens(
    predictor: Predictor,
    texts: Iterable[str],
    layer: Layers,
    long_texts: str | None,
) -> Iterator[np.ndarray]:
    """Yield the states of the tokens of each text, without special tokens: float32 [T, …].

    Args:
        texts: any number of texts.
        layer, long_texts: as for `Predictor.embed`.
    """
    for group in groups(texts, len, _characters_in_memory(predictor, layer)):
        for states_TX in predictor.embed(group, 'tokens', layer, long_texts):
            yield states_TX[1:-1]


def groups(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Split items into lists of a total size of at most `limit`, or of a single item.

    Between two lists, freed memory is returned to the system.
    """
    group: list[Item] = []
    total = 0
    for item in items:
        if group and total + size(item) > limit:
            yield group
            runtime.return_freed_memory()
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


def _characters_in_memory(predictor: Predictor, layer: Layers) -> int:
    """The number of characters of a group, at three characters per token."""
    found = vectors.layers(predictor, layer)
    if found == 'all':
        found = (*range(predictor.architecture.num_layers + 1),)
    layers = found if isinstance(found, tuple) else (found,)
    return 3 * _STATE_BYTES // (4 * vectors.width(predictor, layers) * len(layers))
