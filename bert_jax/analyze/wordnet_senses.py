"""Word sense disambiguation among all senses of a lemma in WordNet, with back-off."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.analyze.measures import word_senses
from bert_jax.analyze.measures.word_senses import (
    BackOff,
    Guesses,
    Labeled,
    Lemma,
    Senses,
    SenseWords,
    WordVectors,
)
from bert_jax.analyze.readers import sense_corpora
from bert_jax.analyze.readers.wordnet import WordNet
from bert_jax.errors import UserError
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonRecord


class WordNetSenses:
    """Guesses for the words whose gold senses are in WordNet, among all WordNet senses."""

    def __init__(self, net: WordNet, map_path: str | None, train: Labeled, test: Labeled) -> None:
        self._net = net
        keys_of_sense = sense_corpora.read_map(map_path) if map_path else None
        self._train, self._train_rows = self._mapped(train, keys_of_sense)
        self._test, self._test_rows = self._mapped(test, keys_of_sense)
        if not len(self._train_rows) or not len(self._test_rows):
            raise UserError(
                'no sense of the words is a WordNet 3.0 key such as bank%1:17:01::; add --sense_map'
            )
        self._shares = {
            'train': len(self._train_rows) / len(train.lemmas),
            'test': len(self._test_rows) / len(test.lemmas),
        }
        self._first = [next(iter(self._candidates(lemma)), None) for lemma in self._test.lemmas]
        counts = word_senses.count_senses(self._train)
        frequent = word_senses.most_frequent(self._test.lemmas, counts)
        self._guesses: Guesses = {
            "WordNet's first sense": self._first,
            f'{word_senses.BASELINE}, else first': self._else_first(frequent),
        }
        self._levels: dict[str, float] = {}

    def _mapped(
        self, words: Labeled, keys_of_sense: Mapping[str, Senses] | None
    ) -> tuple[Labeled, np.ndarray]:
        """The words with senses in WordNet, labeled by WordNet keys, and their rows.

        Without `keys_of_sense`, the senses are WordNet keys already.
        """
        rows, keys = [], []
        for row, senses in enumerate(words.senses):
            if keys_of_sense is not None:
                senses = tuple(key for sense in senses for key in keys_of_sense.get(sense, ()))
            if known := tuple(key for key in senses if key in self._net.synset_of):
                rows.append(row)
                keys.append(known)
        lemmas = [words.lemmas[row] for row in rows]
        return Labeled(lemmas, keys, words.documents[rows]), np.array(rows, np.int64)

    def _candidates(self, lemma: Lemma) -> list[str]:
        return self._net.keys_of.get((lemma[0].replace(' ', '_'), lemma[1]), [])

    def _else_first(self, guesses: Sequence[str | None]) -> list[str | None]:
        """Replace missing guesses by WordNet's first sense."""
        return [
            first if guess is None else guess
            for guess, first in zip(guesses, self._first, strict=True)
        ]

    def add(self, name: str, train: WordVectors, test: WordVectors) -> None:
        """Add the guesses by vectors; `train` and `test` have the vectors of all words."""
        train_words = SenseWords(
            *self._train[:2], dataclasses.replace(train, rows=self._train_rows)
        )
        test_words = SenseWords(*self._test[:2], dataclasses.replace(test, rows=self._test_rows))
        back_off = BackOff(self._net, word_senses.centroids(train_words))
        by_centroid = word_senses.nearest_centroid(test_words, self._candidates, back_off.vector)
        by_instance = word_senses.nearest_instance(test_words, train_words)
        self._guesses |= {
            f'centroid with back-off, {name}': self._else_first(by_centroid),
            f'nearest instance, else first, {name}': self._else_first(by_instance),
        }
        levels = [back_off.level(senses[0]) for senses in self._test.senses]
        self._levels = {level: levels.count(level) / len(levels) for level in BackOff.LEVELS}

    def results(self) -> tuple[JsonRecord, dict[str, Table]]:
        """The values and the tables of the results."""
        num_senses = np.array([len(self._candidates(lemma)) for lemma in self._test.lemmas])
        scored = word_senses.score(self._guesses, self._test, num_senses)
        values = {'mapped': self._shares, 'gold_sense_vector': self._levels, 'methods': scored}
        levels = Table(('level', 'share'), list(self._levels.items()))
        return values, {
            'All senses of WordNet': word_senses.table(scored),
            'Where the vector of the gold sense comes from': levels,
        }
