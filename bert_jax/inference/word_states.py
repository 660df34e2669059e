"""States of tokens and words, streamed: memory does not grow with the text."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from bert_jax.inference.predictor import Predictor

_STATE_BYTES = 2**27  # of the states in memory at a time, approximately
Item = TypeVar('Item')


def stream_tokens(
    predictor: Predictor,
    texts: Iterable[str],
    layer: int | str = -1,
    long_texts: str | None = None,
) -> Iterator[np.ndarray]:
    """Yield the states of the tokens of each text, without special tokens: float32 [T, …].

    Args:
        predictor: the model.
        texts: any number of texts.
        layer, long_texts: as for `Predictor.embed`.
    """
    for group in groups(texts, len, _items_in_memory(predictor, layer)):
        for states in predictor.embed(group, 'tokens', layer, long_texts):
            yield states[1:-1]


def groups(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Split items into lists of a total size of at most `limit`, or of a single item."""
    group: list[Item] = []
    total = 0
    for item in items:
        if group and total + size(item) > limit:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


def _items_in_memory(predictor: Predictor, layer: int | str) -> int:
    """The number of states of a group; characters are counted for them, so 3 times as many."""
    architecture = predictor.architecture
    factor = {'all': architecture.num_layers + 1, 'concat_last_4': 4}.get(str(layer), 1)
    return 3 * _STATE_BYTES // (4 * architecture.hidden_size * factor)
