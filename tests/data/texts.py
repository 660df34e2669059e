"""Texts whose token ids identify the tokens: token i of a text has the id i + FIRST."""

import dataclasses

import numpy as np

FIRST = 10


class Tokenizer:
    pad_id, cls_id, sep_id = 0, 1, 2


@dataclasses.dataclass
class Shard:
    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


@dataclasses.dataclass
class Split:
    shards: list


def make_split(documents: list[list[int]], num_shards: int = 1) -> Split:
    """A split with the given sentence lengths of each document."""
    shards, token = [], FIRST
    for part in np.array_split(np.arange(len(documents)), num_shards):
        lengths = [length for number in part for length in documents[number]]
        shards.append(
            Shard(
                np.arange(token, token + sum(lengths), dtype=np.uint32),
                np.cumsum([0, *lengths], dtype=np.int64),
                np.cumsum([0, *(len(documents[number]) for number in part)], dtype=np.int64),
            )
        )
        token += sum(lengths)
    return Split(shards)


def some_documents(count=40, seed=0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [list(rng.integers(1, 15, size=rng.integers(1, 30))) for _ in range(count)]
