"""Word sense disambiguation: most frequent sense, nearest centroid, nearest instance.

The candidates for a word are the senses of its lemma and part of speech in the training data.
Sources: Peters et al. 2018, section 5.3 (centroids); Loureiro and Jorge 2019, section 3 (back-off
along WordNet); Wiedemann et al. 2019 (nearest instance).
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.analyze.measures import isotropy
from bert_jax.analyze.readers.wordnet import Synset, WordNet
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonObject, JsonRecord

BASELINE = 'most frequent sense'
Lemma = tuple[str, str]  # lemma and part of speech
Senses = tuple[str, ...]
Guesses = dict[str, Sequence[str | None]]  # method → predicted sense of each test word


@dataclasses.dataclass(frozen=True)
class WordVectors:
    """Vectors of words, stored as float16 and converted to float32 when they are read.

    Attributes:
        states_ND: float16.
        scale: for z-scores; None: vectors are not scaled.
        rows: the row of `states_ND` of each word; None: all rows.
    """

    states_ND: np.ndarray
    scale: isotropy.Scale | None = None
    rows: np.ndarray | None = None

    def __getitem__(self, words: list[int]) -> np.ndarray:
        """The vectors of the words with these numbers, float32 [W, D]."""
        rows = words if self.rows is None else self.rows[words]
        vectors_WD = self.states_ND[rows].astype(np.float32)
        return vectors_WD if self.scale is None else self.scale.standardize(vectors_WD)


class SenseWords(NamedTuple):
    """Labeled words.

    Attributes:
        lemmas: the lemma of each word.
        senses: the senses of each word, at least one.
        vectors: the vector of each word, float32 [N, D].
    """

    lemmas: Sequence[Lemma]
    senses: Sequence[Senses]
    vectors: WordVectors | np.ndarray


class Labeled(NamedTuple):
    """The lemma, the senses and the document number of each labeled word of a data set."""

    lemmas: list[Lemma]
    senses: list[Senses]
    documents: np.ndarray


def count_senses(words: SenseWords | Labeled) -> dict[Lemma, Counter[str]]:
    """Lemma → number of words with each sense."""
    counts: dict[Lemma, Counter[str]] = defaultdict(Counter)
    for lemma, senses in zip(words.lemmas, words.senses, strict=True):
        counts[lemma].update(senses)
    return dict(counts)


def most_frequent(
    lemmas: Sequence[Lemma], counts: Mapping[Lemma, Counter[str]]
) -> list[str | None]:
    """The most frequent sense of each lemma; None for lemmas without training words."""
    best = {lemma: senses.most_common(1)[0][0] for lemma, senses in counts.items()}
    return [best.get(lemma) for lemma in lemmas]


def centroids(words: SenseWords) -> dict[str, np.ndarray]:
    """Sense → the mean vector of the words with this sense, float32 [D]."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, senses in enumerate(words.senses):
        for sense in senses:
            rows_of[sense].append(row)
    return {sense: words.vectors[rows].mean(0) for sense, rows in rows_of.items()}


def nearest_centroid(
    words: SenseWords,
    candidates: Callable[[Lemma], Sequence[str]],
    centroid: Callable[[str], np.ndarray | None],
) -> list[str | None]:
    """For each word, the candidate sense whose centroid has the largest cosine with the word.

    Args:
        words: the words; their senses are ignored.
        candidates: lemma → candidate senses.
        centroid: sense → vector [D]; None excludes the sense.

    Returns:
        A sense for each word; None if no candidate has a centroid.
    """
    guesses: list[str | None] = [None] * len(words.lemmas)
    for lemma, rows in _rows_by_lemma(words.lemmas).items():
        vectors = {
            sense: vector for sense in candidates(lemma) if (vector := centroid(sense)) is not None
        }
        if vectors:
            senses, means_SD = list(vectors), unit(np.array(list(vectors.values())))
            cosines = unit(words.vectors[rows]) @ means_SD.T
            for row, best in zip(rows, cosines.argmax(1), strict=True):
                guesses[row] = senses[best]
    return guesses


def nearest_instance(words: SenseWords, train: SenseWords) -> list[str | None]:
    """The sense of the nearest training word of the same lemma, by cosine; None if none."""
    guesses: list[str | None] = [None] * len(words.lemmas)
    all_train_rows = _rows_by_lemma(train.lemmas)
    for lemma, rows in _rows_by_lemma(words.lemmas).items():
        if train_rows := all_train_rows.get(lemma):
            cosines = unit(words.vectors[rows]) @ unit(train.vectors[train_rows]).T
            for row, best in zip(rows, cosines.argmax(1), strict=True):
                guesses[row] = train.senses[train_rows[best]][0]
    return guesses


def _rows_by_lemma(lemmas: Sequence[Lemma]) -> dict[Lemma, list[int]]:
    rows: dict[Lemma, list[int]] = defaultdict(list)
    for row, lemma in enumerate(lemmas):
        rows[lemma].append(row)
    return dict(rows)


def unit(vectors_ND: np.ndarray) -> np.ndarray:
    """Divide vectors by their norms; zero vectors stay zero."""
    norms_N = np.linalg.norm(vectors_ND, axis=-1, keepdims=True)
    return np.asarray(vectors_ND / np.maximum(norms_N, np.finfo(np.float32).tiny))


def score(guesses: Guesses, test: Labeled, num_senses: np.ndarray) -> dict[str, JsonRecord]:
    """Method → accuracy, interval and number of words, for all, seen and ambiguous words."""
    subsets = {'all': num_senses >= 0, 'seen': num_senses > 0, 'ambiguous': num_senses > 1}
    scored: dict[str, JsonRecord] = {}
    num_documents = int(test.documents.max()) + 1
    for method, senses in guesses.items():
        is_correct = np.array([a in b for a, b in zip(senses, test.senses, strict=True)])
        scored[method] = {}
        for name, is_counted in subsets.items():
            hits_G = np.bincount(test.documents, is_correct & is_counted, num_documents)
            totals_G = np.bincount(test.documents, is_counted, num_documents)
            total = int(totals_G.sum())
            scored[method][name] = {
                'accuracy': float(hits_G.sum() / total) if total else None,
                'interval': intervals.of_share(hits_G, totals_G),
                'words': total,
            }
    return scored


def table(scored: dict[str, JsonObject]) -> Table:
    """A row for each method; see `score`."""
    rows: list[tuple[object, ...]] = []
    for method, subsets in scored.items():
        overall, seen, ambiguous = (
            '–' if subset['accuracy'] is None else subset['accuracy'] for subset in subsets.values()
        )
        ends = [intervals.cell(subsets[name]['interval']) for name in ('all', 'ambiguous')]
        rows.append((method, overall, ends[0], seen, ambiguous, ends[1]))
    columns = ('method', 'all', 'interval', 'seen', 'ambiguous', 'interval of ambiguous')
    return Table(columns, rows)


class BackOff:
    """Vectors for all senses of WordNet, including senses without training words.

    A sense without training words gets the mean over the senses of its synset, else the mean of
    the synset's direct hypernyms, else the mean of the synsets in its lexicographer file that got a
    vector in one of these ways.
    """

    LEVELS = ('own', 'synset', 'hypernyms', 'file', 'none')

    def __init__(self, wordnet: WordNet, centroids: Mapping[str, np.ndarray]) -> None:
        """Compute the means from the centroid of each sense with training words."""
        self._wordnet, self._centroids = wordnet, centroids
        self._synsets: dict[Synset, np.ndarray] = {}
        for synset, keys in wordnet.keys_in.items():
            if vectors := [centroids[key] for key in keys if key in centroids]:
                self._synsets[synset] = np.mean(vectors, axis=0)
        sums: dict[str, np.ndarray] = {}
        counts: Counter[str] = Counter()
        for synset, file in wordnet.file_of.items():
            vector = self._of_synset(synset)
            if vector is not None:
                sums[file] = sums.get(file, 0) + vector
                counts[file] += 1
        self._files = {file: total / counts[file] for file, total in sums.items()}

    def _of_synset(self, synset: Synset) -> np.ndarray | None:
        if synset in self._synsets:
            return self._synsets[synset]
        hypernyms = self._wordnet.hypernyms.get(synset, ())
        vectors = [self._synsets[other] for other in hypernyms if other in self._synsets]
        return np.mean(vectors, axis=0) if vectors else None

    def vector(self, sense: str) -> np.ndarray | None:
        """The vector of a sense, float32 [D]; None if no synset of its file has a vector."""
        if sense in self._centroids:
            return self._centroids[sense]
        synset = self._wordnet.synset_of[sense]
        vector = self._of_synset(synset)
        return self._files.get(self._wordnet.file_of[synset]) if vector is None else vector

    def level(self, sense: str) -> str:
        """Where the vector of a sense comes from: one of LEVELS."""
        synset = self._wordnet.synset_of[sense]
        if sense in self._centroids:
            return 'own'
        if synset in self._synsets:
            return 'synset'
        if self._of_synset(synset) is not None:
            return 'hypernyms'
        return 'file' if self._wordnet.file_of[synset] in self._files else 'none'
