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
from bert_jax.inference.sparse_vectors import SparseSearch, TermEncoder
from bert_jax.inference.text_collection import Hit, TextCollection
from bert_jax.inference.vector_search import TextEncoder, VectorSearch


class Answered(NamedTuple):
    """A query and the documents that are known to answer it."""

    query: str
    positives: tuple[str, ...]


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


def known_answers(pairs: Sequence[Answered]) -> dict[str, list[str]]:
    """Return each query → all its known answers, in the order in which they are first named."""
    known: dict[str, dict[str, None]] = {}
    for query, positives in pairs:
        known.setdefault(query, {}).update(dict.fromkeys(positives))
    return {query: list(answers) for query, answers in known.items()}


def mine(
    collection: TextCollection,
    encoder: TextEncoder | TermEncoder,
    pairs: Sequence[Answered],
    options: MiningOptions,
    counts: Counter[str],
) -> Iterator[Mined]:
    """Yield each different query with each of its known answers, and with the query's negatives.

    A document is a known answer, or the query itself, if its text is the same apart from spaces;
    of equal documents, the first counts.

    Args:
        counts: counts the queries with fewer negatives than asked for.
    """
    known = known_answers(pairs)
    queries = list(known)
    most = max(map(len, known.values()), default=0)
    found = _without_copies(collection).search(queries, options.last_rank + most + 1)
    query_ND = encoder.encode_queries(queries)
    for number, (query, hits) in enumerate(zip(queries, found, strict=True)):
        vectors_PD = encoder.encode_documents(known[query])
        scores_P = encoder.products(query_ND[number], vectors_PD)
        answers = [Hit('', score, text) for score, text in zip(scores_P, known[query], strict=True)]
        others = _others(hits, [query, *known[query]])
        limit = options.limit(min(scores_P))
        ranked = others[options.first_rank - 1 : options.last_rank]
        chosen = _draw([hit for hit in ranked if hit.score <= limit], options, number)
        if len(chosen) < options.negatives:
            counts[f'queries with fewer than {options.negatives} negatives'] += 1
        for answer in answers:
            yield Mined(query, answer, chosen)


def _without_copies(collection: TextCollection) -> TextCollection:
    """Leave out documents whose text occurs before."""
    first = {_spaced(one.text): number for number, one in reversed([*enumerate(collection.texts)])}
    numbers, index = sorted(first.values()), collection.index
    assert isinstance(index, VectorSearch | SparseSearch)
    if len(numbers) == len(collection.texts):
        return collection
    texts = [collection.texts[number] for number in numbers]
    return TextCollection(texts, index.subset(numbers))


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
