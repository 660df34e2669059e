"""Choosing the sense of a word among all that WordNet has, with back-off."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.labeled import sense_corpora
from bert_jax.data.wordnet import WordNet
from bert_jax.errors import UserError
from bert_jax.evaluation import word_senses
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.word_senses import (
    BackOff,
    Guesses,
    Labeled,
    Lemma,
    Senses,
    Words,
    WordVectors,
)


class WithWordNet:
    """The same words, chosen among all senses that WordNet has for a lemma."""

    def __init__(self, net: WordNet, map_path: str | None, train: Labeled, test: Labeled) -> None:
        self._net = net
        to_keys = sense_corpora.read_map(map_path) if map_path else None
        (self._train, self._train_rows), (self._test, self._test_rows) = (
            self._mapped(part, to_keys) for part in (train, test)
        )
        self._shares = [len(self._train_rows) / len(train[0]), len(self._test_rows) / len(test[0])]
        if not len(self._train_rows) or not len(self._test_rows):
            raise UserError(
                'no sense of the words is a key of WordNet 3.0, such as bank%1:17:01::; give '
                '--sense_map'
            )
        first = [self._first_sense(lemma) for lemma in self._test.lemmas]
        counts = word_senses.count_senses(self._train)
        frequent = word_senses.most_frequent(self._test.lemmas, counts)
        self._first = first
        self._guesses: Guesses = {
            "WordNet's first sense": first,
            f'{word_senses.BASELINE}, else first': _or_else(frequent, first),
        }
        self._levels: dict[str, float] = {}

    def _mapped(self, part: Labeled, to_keys: Any) -> tuple[Labeled, np.ndarray]:
        """The words whose senses are in WordNet, with these as senses, and their rows."""
        keys = [
            tuple(key for key in _keys(senses, to_keys) if key in self._net.synset_of)
            for senses in part.senses
        ]
        rows = [row for row, own in enumerate(keys) if own]
        lemmas = [part.lemmas[row] for row in rows]
        found = Labeled(lemmas, [keys[row] for row in rows], part.documents[rows])
        return found, np.array(rows, np.int64)

    def _candidates(self, lemma: Lemma) -> list[str]:
        return self._net.keys_of.get((lemma[0].replace(' ', '_'), lemma[1]), [])

    def _first_sense(self, lemma: Lemma) -> str | None:
        return next(iter(self._candidates(lemma)), None)

    def add(self, name: str, train: WordVectors, test: WordVectors) -> None:
        """Choose by the vectors of all words of the training and test documents."""
        trained = Words(*self._train[:2], dataclasses.replace(train, rows=self._train_rows))
        tested = Words(*self._test[:2], dataclasses.replace(test, rows=self._test_rows))
        back_off = BackOff(self._net, word_senses.centroids(trained))
        nearest = word_senses.nearest_centroid(tested, self._candidates, back_off.vector)
        self._guesses[f'centroid with back-off, {name}'] = _or_else(nearest, self._first)
        instance = word_senses.nearest_instance(tested, trained)
        self._guesses[f'nearest instance, else first, {name}'] = _or_else(instance, self._first)
        levels = [back_off.level(senses[0]) for senses in self._test.senses]
        self._levels = {name: levels.count(name) / len(levels) for name in BackOff.LEVELS}

    def values(self) -> dict[str, Any]:
        """The results for programs."""
        num_senses = np.array([len(self._candidates(lemma)) for lemma in self._test.lemmas])
        return {
            'mapped': dict(zip(('train', 'test'), self._shares, strict=True)),
            'gold_sense_vector': self._levels,
            'methods': word_senses.score(self._guesses, self._test, num_senses),
        }

    def tables(self) -> dict[str, Table]:
        """The results for readers."""
        values = self.values()
        levels = [(name, share) for name, share in values['gold_sense_vector'].items()]
        return {
            'All senses of WordNet': word_senses.table(values['methods']),
            'Where the vector of the gold sense comes from': Table(('level', 'share'), levels),
        }


def _keys(senses: Senses, to_keys: Mapping[str, Senses] | None) -> Iterable[str]:
    """The keys of WordNet of senses, which are keys themselves without a map."""
    return senses if to_keys is None else (k for one in senses for k in to_keys.get(one, ()))


def _or_else(found: Sequence[str | None], other: Sequence[str | None]) -> list[str | None]:
    return [a if a is not None else b for a, b in zip(found, other, strict=True)]
