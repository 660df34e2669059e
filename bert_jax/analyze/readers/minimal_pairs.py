"""Minimal pairs: an acceptable and an unacceptable sentence that differ in one phenomenon.

By default the columns are named as in BLiMP (Warstadt et al. 2020).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bert_jax.errors import UserError
from bert_jax.labels import named_rows
from bert_jax.labels.named_rows import Columns

COLUMNS = Columns(
    {'good': 'sentence_good', 'bad': 'sentence_bad'},
    {'phenomenon': 'linguistics_term', 'paradigm': 'UID'},
)
_ALL = 'all pairs'  # the paradigm and phenomenon of files without such columns
# The words of each sentence of a pair that the other lacks.
Edit: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
_MIRRORED = 0.5  # least similarity of one paradigm's edits and the other's undone edits


class MinimalPair(NamedTuple):
    """An acceptable and an unacceptable sentence, with the phenomenon and paradigm of the pair."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str


def read(patterns: Sequence[str], changes: Iterable[str] = ()) -> list[MinimalPair]:
    """Read pairs, sorted by phenomenon and paradigm.

    Args:
        patterns: Files or globs of CSV, TSV or JSON.
        changes: Renamed columns, such as 'good=acceptable'.

    Raises:
        UserError: See `named_rows.read`, or a sentence is empty.
    """
    pairs = []
    for row in named_rows.read(patterns, COLUMNS.renamed(changes)):
        if not row['good'].strip() or not row['bad'].strip():
            raise UserError(f'{row["place"]}: a sentence of the pair is empty')
        phenomenon = row['phenomenon'] or _ALL
        paradigm = row['paradigm'] or phenomenon
        pairs.append(MinimalPair(row['good'], row['bad'], phenomenon, paradigm))
    return sorted(pairs, key=lambda pair: (pair.phenomenon, pair.paradigm))


def sample(pairs: Iterable[MinimalPair], per_paradigm: int) -> list[MinimalPair]:
    """Return at most `per_paradigm` evenly spaced pairs of each paradigm."""
    paradigms: dict[str, list[MinimalPair]] = {}
    for pair in pairs:
        paradigms.setdefault(pair.paradigm, []).append(pair)
    chosen = []
    for group in paradigms.values():
        indices = np.linspace(0, len(group) - 1, min(per_paradigm, len(group)))
        chosen += [group[index] for index in indices.round().astype(int)]
    return chosen


def mirrored(pairs: Iterable[MinimalPair]) -> Iterator[tuple[str, str]]:
    """Yield pairs of mirrored paradigms: the edit that makes one acceptable spoils the other.

    A model that prefers one word everywhere is right in one paradigm and wrong in the other; only
    their mean shows what it knows. An edit is the words by which the sentences of a pair differ.
    Two paradigms are mirrored if the distributions of their edits are similar (cosine) after the
    edits of one paradigm are reversed, and not before.
    """
    edits: dict[str, Counter[Edit]] = {}
    for pair in pairs:
        good, bad = Counter(pair.good.lower().split()), Counter(pair.bad.lower().split())
        edit = tuple(sorted((good - bad).elements())), tuple(sorted((bad - good).elements()))
        if edit[0] != edit[1]:  # otherwise only the order of the words differs
            edits.setdefault(pair.paradigm, Counter())[edit] += 1
    for first, second in itertools.combinations(edits, 2):
        undone = Counter({(bad, good): n for (good, bad), n in edits[first].items()})
        similarity = _cosine(undone, edits[second])
        if similarity >= _MIRRORED > _cosine(edits[first], edits[second]):
            yield first, second


def _cosine(a: Counter[Edit], b: Counter[Edit]) -> float:
    product = sum(number * b[key] for key, number in a.items())
    norms = [sum(n * n for n in counter.values()) ** 0.5 for counter in (a, b)]
    return float(product / (norms[0] * norms[1]))
