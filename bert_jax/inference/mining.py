"""Hard negatives: documents near a query that are not known answers to it.

Sources: Xiong et al. 2021 (ANCE) for mining by nearest neighbors; Moreira et al. 2024
(NV-Retriever) for margins relative to the score of the positive.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax import sampling
from bert_jax.inference.encoders import VectorEncoder
from bert_jax.inference.lexical import BM25
from bert_jax.inference.reranking import TwoStages
from bert_jax.inference.text_collection import Hit, TextCollection


class Answered(NamedTuple):
    """A query, the documents that are known to answer it, and its number among the queries."""

    query: str
    positives: tuple[str, ...]
    number: int = 0


@dataclasses.dataclass(frozen=True)
class MiningOptions:
    """Which of the nearest documents are negatives.

    Attributes:
        negatives: how many are taken for each query, at most.
        first_rank, last_rank: ranks, from 1, among the documents that are not known answers.
        absolute_margin: negatives score at least so much less than the lowest known answer.
        relative_margin: the same, as a share of the absolute value of that score.
        highest_score: negatives score at most so much.
        choice: 'top', those of the highest scores, or 'random'.
        seed: of 'random'.
    """

    negatives: int = 3
    first_rank: int = 1
    last_rank: int = 100
    absolute_margin: float | None = None
    relative_margin: float | None = None
    highest_score: float | None = None
    choice: str = 'top'
    seed: int = 0

    def limit(self, positive: float) -> float:
        """Return the highest score of a negative, given the lowest score of a known answer."""
        limits = [np.inf]
        if self.absolute_margin is not None:
            limits.append(positive - self.absolute_margin)
        if self.relative_margin is not None:
            limits.append(positive - abs(positive) * self.relative_margin)
        if self.highest_score is not None:
            limits.append(self.highest_score)
        return min(limits)


class Mined(NamedTuple):
    """A known answer of a query, and the negatives of the query, best first unless drawn."""

    query: str
    positive: Hit
    negatives: list[Hit]


def mine(
    collection: TextCollection,
    encoder: VectorEncoder,
    queries: Sequence[Answered],
    options: MiningOptions,
    counts: Counter[str],
) -> Iterator[Mined]:
    """Yield each query with each of its known answers, and with the query's negatives.

    A document is a known answer, or the query itself, if its text is the same apart from spaces.

    Args:
        collection: the documents, each text once (`without_copies`).
        encoder: makes the vectors of queries and known answers.
        queries: different ones.
        options: which of the nearest documents are negatives.
        counts: counts the queries with fewer negatives than asked for.
    """
    most = max((len(one.positives) for one in queries), default=0)
    texts = [one.query for one in queries]
    found = collection.search(texts, options.last_rank + most + 1)
    query_ND = encoder.encode_queries(texts)
    for row, (one, hits) in enumerate(zip(queries, found, strict=True)):
        vectors_PD = encoder.encode_documents(one.positives)
        scores_P = encoder.products(query_ND[row], vectors_PD)
        answers = [
            Hit('', score, text) for score, text in zip(scores_P, one.positives, strict=True)
        ]
        others = _others(hits, [one.query, *one.positives])
        limit = options.limit(min(scores_P))
        ranked = others[options.first_rank - 1 : options.last_rank]
        chosen = _draw([hit for hit in ranked if hit.score <= limit], options, one.number)
        if len(chosen) < options.negatives:
            counts[f'queries with fewer than {options.negatives} negatives'] += 1
        for answer in answers:
            yield Mined(one.query, answer, chosen)


def without_copies(collection: TextCollection) -> TextCollection:
    """Leave out documents whose text occurs before, apart from spaces."""
    first = {_spaced(one.text): number for number, one in reversed([*enumerate(collection.texts)])}
    numbers, index = sorted(first.values()), collection.index
    assert not isinstance(index, TwoStages | BM25)
    if len(numbers) == len(collection.texts):
        return collection
    texts = [collection.texts[number] for number in numbers]
    return dataclasses.replace(collection, texts=texts, index=index.subset(numbers))


def _others(hits: Sequence[Hit], known: Sequence[str]) -> list[Hit]:
    """The hits with texts that are not known."""
    texts = set(map(_spaced, known))
    return [hit for hit in hits if _spaced(hit.text) not in texts]


def _draw(hits: list[Hit], options: MiningOptions, number: int) -> list[Hit]:
    """Choose the negatives of the query with a number."""
    if options.choice == 'random' and hits:
        key = sampling.key(options.seed, number)
        order_N = sampling.permute(np.arange(len(hits)), len(hits), key)
        hits = [hits[place] for place in order_N]
    return hits[: options.negatives]


def _spaced(text: str) -> str:
    return ' '.join(text.split())
