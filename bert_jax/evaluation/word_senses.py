"""Word senses by nearest neighbors: most frequent sense, nearest centroid, nearest instance.

Candidates are the senses that the lemma and part of speech of a word have in the training data.
Sources: Peters et al. 2018, section 5.3 (centroids); Loureiro and Jorge 2019, section 3 (back-off
along WordNet); Wiedemann et al. 2019 (nearest instance).
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.wordnet import Synset, WordNet
from bert_jax.evaluation import intervals, isotropy
from bert_jax.evaluation.scores import Table

BASELINE = 'most frequent sense'
Lemma = tuple[str, str]  # lemma and part of speech
Senses = tuple[str, ...]
Guesses = dict[str, Sequence[str | None]]  # method → sense of each test word
_COLUMNS = ('method', 'all', 'interval', 'seen', 'ambiguous', 'interval of ambiguous')


@dataclasses.dataclass(frozen=True)
class WordVectors:
    """The vectors of words, kept in half the memory and computed as they are read.

    Attributes:
        states_ND: float16.
        scale: z-scores the vectors; None: they stay as they are.
        rows: the rows of `states_ND` that are the words; None: all.
    """

    states_ND: np.ndarray
    scale: isotropy.Scale | None = None
    rows: np.ndarray | None = None

    def __getitem__(self, words: list[int]) -> np.ndarray:
        """The vectors of some words, float32 [W, D]."""
        rows = words if self.rows is None else self.rows[words]
        vectors_WD = self.states_ND[rows].astype(np.float32)
        return vectors_WD if self.scale is None else self.scale.standardize(vectors_WD)


class Words(NamedTuple):
    """Labeled words.

    Attributes:
        lemmas: of each word.
        senses: of each word, at least one.
        vectors: of each word, float32 [N, D].
    """

    lemmas: Sequence[Lemma]
    senses: Sequence[Senses]
    vectors: WordVectors | np.ndarray


class Labeled(NamedTuple):
    """The labeled words of some documents, with the number of the document of each."""

    lemmas: list[Lemma]
    senses: list[Senses]
    documents: np.ndarray

    def take(self, rows: Sequence[int]) -> 'Labeled':
        """The words in these rows."""
        lemmas, senses = [self.lemmas[row] for row in rows], [self.senses[row] for row in rows]
        return Labeled(lemmas, senses, self.documents[rows])


def count_senses(words: Words | Labeled) -> dict[Lemma, Counter[str]]:
    """How often each lemma has each of its senses."""
    counts: dict[Lemma, Counter[str]] = defaultdict(Counter)
    for lemma, senses in zip(words.lemmas, words.senses, strict=True):
        counts[lemma].update(senses)
    return dict(counts)


def most_frequent(
    lemmas: Sequence[Lemma], counts: Mapping[Lemma, Counter[str]]
) -> list[str | None]:
    """The most frequent sense of each lemma; None for lemmas without training words."""
    best = {lemma: own.most_common(1)[0][0] for lemma, own in counts.items()}
    return [best.get(lemma) for lemma in lemmas]


def centroids(words: Words) -> dict[str, np.ndarray]:
    """Sense → the mean of the vectors of its words, float32 [D]."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, senses in enumerate(words.senses):
        for sense in senses:
            rows[sense].append(row)
    return {sense: words.vectors[own].mean(0) for sense, own in rows.items()}


def nearest_centroid(
    words: Words,
    candidates: Callable[[Lemma], Sequence[str]],
    centroid: Callable[[str], np.ndarray | None],
) -> list[str | None]:
    """The candidate whose centroid has the largest cosine with each word.

    Args:
        words: their senses are not read.
        candidates: lemma → its senses.
        centroid: sense → vector [D], or None, which is never the nearest.

    Returns:
        A sense for each word; None if no candidate has a centroid.
    """
    found: list[str | None] = [None] * len(words.lemmas)
    for lemma, rows in _by_lemma(words.lemmas):
        vectors = {sense: centroid(sense) for sense in candidates(lemma)}
        known = {sense: own for sense, own in vectors.items() if own is not None}
        if known:
            names, means_SD = list(known), unit(np.array(list(known.values())))
            cosines = unit(words.vectors[rows]) @ means_SD.T
            for row, best in zip(rows, cosines.argmax(1), strict=True):
                found[row] = names[best]
    return found


def nearest_instance(words: Words, train: Words) -> list[str | None]:
    """The sense of the training word of the same lemma with the largest cosine; None if none."""
    found: list[str | None] = [None] * len(words.lemmas)
    rows_of_train = dict(_by_lemma(train.lemmas))
    for lemma, rows in _by_lemma(words.lemmas):
        if lemma in rows_of_train:
            others = rows_of_train[lemma]
            cosines = unit(words.vectors[rows]) @ unit(train.vectors[others]).T
            for row, best in zip(rows, cosines.argmax(1), strict=True):
                found[row] = train.senses[others[best]][0]
    return found


def _by_lemma(lemmas: Sequence[Lemma]) -> Iterator[tuple[Lemma, list[int]]]:
    rows: dict[Lemma, list[int]] = defaultdict(list)
    for row, lemma in enumerate(lemmas):
        rows[lemma].append(row)
    yield from rows.items()


def unit(vectors_ND: np.ndarray) -> np.ndarray:
    """Vectors divided by their length; zero vectors stay zero."""
    norms_N = np.linalg.norm(vectors_ND, axis=-1, keepdims=True)
    return vectors_ND / np.maximum(norms_N, np.finfo(np.float32).tiny)


def score(guesses: Guesses, test: Labeled, num_senses: np.ndarray) -> dict[str, dict[str, Any]]:
    """Method → accuracies, with intervals, on all, seen and ambiguous words."""
    subsets = {'all': num_senses >= 0, 'seen': num_senses > 0, 'ambiguous': num_senses > 1}
    scored: dict[str, dict[str, Any]] = {}
    num_documents = int(test.documents.max()) + 1
    for method, own in guesses.items():
        is_right = np.array([a in b for a, b in zip(own, test.senses, strict=True)])
        columns = [
            (
                np.bincount(test.documents, is_right & chosen, num_documents),
                np.bincount(test.documents, chosen, num_documents),
            )
            for chosen in subsets.values()
        ]
        hits_GK, totals_GK = (np.stack(one, axis=1) for one in zip(*columns, strict=True))
        found = intervals.of_shares(hits_GK, totals_GK)
        scored[method] = {}
        for column, name in enumerate(subsets):
            total = totals_GK[:, column].sum()
            ends = None if found is None else [float(end[column]) for end in found]
            accuracy = float(hits_GK[:, column].sum() / total) if total else None
            scored[method][name] = {'accuracy': accuracy, 'interval': ends, 'words': int(total)}
    return scored


def table(scored: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for method, own in scored.items():
        cells = [own[name]['accuracy'] for name in ('all', 'seen', 'ambiguous')]
        every, seen, ambiguous = ('–' if cell is None else cell for cell in cells)
        ends = [intervals.cell(own[name]['interval']) for name in ('all', 'ambiguous')]
        rows.append((method, every, ends[0], seen, ambiguous, ends[1]))
    return Table(_COLUMNS, rows)


class BackOff:
    """Vectors for all senses of WordNet, also for those without training words.

    A sense without words has the mean of the senses of its synset, else the mean of the synsets
    directly above, else the mean of all synsets of its lexicographer file that have a vector by
    then.
    """

    LEVELS = ('own', 'synset', 'hypernyms', 'file', 'none')

    def __init__(self, wordnet: WordNet, centroids: Mapping[str, np.ndarray]) -> None:
        """Prepare the means; `centroids` has the vector of each sense with words."""
        self._wordnet, self._own = wordnet, centroids
        self._synsets: dict[Synset, np.ndarray] = {}
        for synset, keys in wordnet.keys_in.items():
            own = [centroids[key] for key in keys if key in centroids]
            if own:
                self._synsets[synset] = np.mean(own, axis=0)
        sums: dict[str, np.ndarray] = {}
        numbers: Counter[str] = Counter()
        for synset, file in wordnet.file_of.items():
            vector = self._of_synset(synset)
            if vector is not None:
                sums[file] = sums.get(file, 0) + vector
                numbers[file] += 1
        self._files = {file: total / numbers[file] for file, total in sums.items()}

    def _of_synset(self, synset: Synset) -> np.ndarray | None:
        if synset in self._synsets:
            return self._synsets[synset]
        above = [self._synsets.get(other) for other in self._wordnet.hypernyms.get(synset, ())]
        known = [vector for vector in above if vector is not None]
        return np.mean(known, axis=0) if known else None

    def vector(self, sense: str) -> np.ndarray | None:
        """The vector of a sense, float32 [D]; None if its whole file has none."""
        if sense in self._own:
            return self._own[sense]
        synset = self._wordnet.synset_of[sense]
        vector = self._of_synset(synset)
        return self._files.get(self._wordnet.file_of[synset]) if vector is None else vector

    def level(self, sense: str) -> str:
        """Where the vector of a sense comes from: one of LEVELS."""
        synset = self._wordnet.synset_of[sense]
        if sense in self._own:
            return 'own'
        if synset in self._synsets:
            return 'synset'
        if self._of_synset(synset) is not None:
            return 'hypernyms'
        return 'file' if self._wordnet.file_of[synset] in self._files else 'none'
