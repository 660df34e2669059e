"""Minimal pairs: an acceptable and an unacceptable sentence that differ in one phenomenon.

By default the columns are those of BLiMP (Warstadt et al. 2020).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.labeled import named_rows
from bert_jax.data.labeled.named_rows import Columns
from bert_jax.errors import UserError

COLUMNS = Columns(
    {'good': 'sentence_good', 'bad': 'sentence_bad'},
    {'phenomenon': 'linguistics_term', 'paradigm': 'UID'},
)
_ALL = 'all pairs'  # the paradigm and phenomenon of files without such columns
_MIRRORED = 0.5  # least similarity of one paradigm's edits and the other's undone edits


class MinimalPair(NamedTuple):
    """An acceptable and an unacceptable sentence, and what kind of pair they are."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str


def read(patterns: Sequence[str], changes: Iterable[str] = ()) -> list[MinimalPair]:
    """Read pairs, sorted by phenomenon and paradigm.

    Args:
        patterns: files or globs of CSV, TSV or JSON.
        changes: of the names of columns, such as 'good=acceptable'.

    Raises:
        UserError: see `named_rows.read`, or a sentence is empty.
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
    """Evenly spaced pairs of each paradigm, at most `per_paradigm` of each."""
    found: dict[str, list[MinimalPair]] = {}
    for pair in pairs:
        found.setdefault(pair.paradigm, []).append(pair)
    return [
        own[index]
        for own in found.values()
        for index in np.linspace(0, len(own) - 1, min(per_paradigm, len(own))).round().astype(int)
    ]


def mirrored(pairs: Iterable[MinimalPair]) -> Iterator[tuple[str, str]]:
    """Yield paradigms that are mirror images: what makes one acceptable spoils the other.

    A model that prefers one word everywhere is right in one of them and wrong in the other; only
    their mean says what it knows. Two paradigms are mirrored if the words by which their pairs
    differ are similarly distributed (cosine) once those of one are exchanged, and not before.
    """
    edits: dict[str, Counter] = {}
    for pair in pairs:
        good, bad = Counter(pair.good.lower().split()), Counter(pair.bad.lower().split())
        edit = tuple(sorted((good - bad).elements())), tuple(sorted((bad - good).elements()))
        if edit[0] != edit[1]:  # else only the order differs
            edits.setdefault(pair.paradigm, Counter())[edit] += 1
    names = list(edits)
    undone = {
        name: Counter({(bad, good): n for (good, bad), n in edits[name].items()}) for name in names
    }
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            similarity = _cosine(undone[first], edits[second])
            if similarity >= _MIRRORED > _cosine(edits[first], edits[second]):
                yield first, second


def _cosine(a: Counter, b: Counter) -> float:
    product = sum(number * b[key] for key, number in a.items())
    norms = [sum(n * n for n in own.values()) ** 0.5 for own in (a, b)]
    return product / (norms[0] * norms[1])
