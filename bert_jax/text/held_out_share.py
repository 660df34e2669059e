"""Keeps the held-out share of the tokens near the requested fraction.

The rule in `held_out` chooses documents by the hash of their text alone. With few distinct
documents it may choose one that, with its copies, is most of the text. Such documents are returned
to training, and the documents with the next hashes are held out instead. If documents are short
compared to the fraction but happen to be too many or too few, the first ones by their hashes are
held out. Corpora whose share is not far from the fraction keep the split of the rule.
"""

import bisect
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.text.held_out import LEAST, HeldOutRule
from bert_jax.types import JsonObject, JsonRecord

FACTOR = 3  # a larger multiple of the requested fraction is too much,
FEW = 8  # unless it is this many documents of average size
MOST_HELD_OUT = 0.5  # too much for any number of documents
NEAR = 2  # short documents are held out to at least the fraction / NEAR and at most NEAR times it
MOST_CHANGED = 2**10  # documents that change sides for it: each slows `HeldOutRule` down
MOST_COUNTED = 2**18  # bounds memory: further documents below the limit are not looked at


def largest_share(fraction: float) -> float:
    """Return the largest acceptable share of held-out tokens, if there are not few documents."""
    return min(FACTOR * fraction, (1 + fraction) / 2)


class Counted(NamedTuple):
    """The documents of a language that may be held out.

    Attributes:
        tokens: Hash of a document → tokens of all its copies, in the order of the hashes.
        most: The largest acceptable number of held-out tokens.
        asked: The number of held-out tokens that the fraction asks for.
        total: The tokens of all documents.
    """

    tokens: dict[int, int]
    most: float
    asked: float
    total: int

    def is_heavy(self, value: int) -> bool:
        """Whether a document is more than half of the largest acceptable number."""
        return self.tokens[value] > self.most / 2

    def held_out(self, rule: HeldOutRule) -> list[int]:
        """Return the documents that a rule holds out."""
        hashes = np.array(list(self.tokens), np.uint64)
        return [*map(int, hashes[rule.is_held_out(hashes)])]

    def num_held_out(self, rule: HeldOutRule) -> int:
        """Return the number of tokens that a rule holds out."""
        return sum(self.tokens[value] for value in self.held_out(rule))

    def is_near(self, number: float) -> bool:
        """Whether a number of held-out tokens is near what the fraction asks for."""
        return self.asked / NEAR <= number <= self.asked * NEAR


class HeldOutCandidates:
    """Counts the tokens of the documents of a language that may be held out.

    These are the documents below the limit of the rule and those with the next hashes. The result
    does not depend on the order of the documents, or how they are divided among machines.
    """

    def __init__(self, fraction: float):
        self._fraction, self._limit = fraction, int(fraction * 2.0**64)
        # Enough to find LEAST documents that are not heavy, and to know if there are few documents.
        self._wanted = min(math.ceil(FEW / (FACTOR * fraction)) + LEAST, MOST_COUNTED)
        self._total = 0
        self._tokens: dict[int, int] = {}
        self._bound = 2**64 - 1  # larger hashes were dropped
        self._full = 2 * self._wanted

    def add(self, hashes: np.ndarray, tokens: np.ndarray) -> None:
        """Add documents: their hashes, uint64 [N], and lengths in tokens, int64 [N]."""
        is_near = hashes <= np.uint64(self._bound)
        self._add(int(tokens.sum()), hashes[is_near].tolist(), tokens[is_near].tolist())

    def merge(self, state: JsonObject) -> None:
        """Add the documents of other candidates, as returned by `state`."""
        self._add(state['total'], state['hashes'], state['tokens'])

    def state(self) -> JsonRecord:
        """Return the candidates as JSON values."""
        self._drop()
        hashes = list(self._tokens)
        return {'total': self._total, 'hashes': hashes, 'tokens': list(self._tokens.values())}

    def counted(self) -> Counted:
        """Return the candidates of all documents that were added."""
        self._drop()
        number = len(self._tokens)
        few = FEW / number if 0 < number < self._wanted else 0.0
        share = max(largest_share(self._fraction), min(few, MOST_HELD_OUT))
        asked = self._fraction * self._total
        return Counted(self._tokens, share * self._total, asked, self._total)

    def _add(self, total: int, hashes: list[int], tokens: list[int]) -> None:
        self._total += total
        for value, number in zip(hashes, tokens, strict=True):
            self._tokens[value] = self._tokens.get(value, 0) + number
        if len(self._tokens) > self._full:
            self._drop()

    def _drop(self) -> None:
        """Sort the documents, and drop those that cannot become candidates any more."""
        hashes = sorted(self._tokens)
        below = bisect.bisect_left(hashes, self._limit)
        kept = hashes[: min(max(below, self._wanted), MOST_COUNTED)]
        if len(kept) < len(hashes):
            self._bound = kept[-1]
        self._tokens = {value: self._tokens[value] for value in kept}
        self._full = len(kept) + self._wanted


def corrected_rule(
    rule: HeldOutRule, fraction: float, candidates: Mapping[str, HeldOutCandidates]
) -> HeldOutRule:
    """Return the rule whose held-out tokens are nearest to the fraction that it can reach.

    Args:
        rule: The rule of `held_out.choose_rule`.
        fraction: Its expected share of held-out documents.
        candidates: Language → its candidates.

    Returns:
        `rule` itself if the held-out tokens of every language are near the fraction, or few
        documents that are long do not allow more.
    """
    counted = _counted(fraction, candidates)
    rule = _without_heavy(rule, fraction, counted)
    changed: dict[int, bool] = {}
    for own in counted:
        changed |= _changes_of_short(rule, own, counted)
    return HeldOutRule(fraction, {**rule.exceptions, **changed}) if changed else rule


def shares(
    rule: HeldOutRule, fraction: float, candidates: Mapping[str, HeldOutCandidates]
) -> Iterator[tuple[float, int]]:
    """Yield the share of the tokens of each language that a rule holds out, and all its tokens."""
    for own in _counted(fraction, candidates):
        if own.total:
            yield own.num_held_out(rule) / own.total, own.total


def _counted(fraction: float, candidates: Mapping[str, HeldOutCandidates]) -> list[Counted]:
    """The candidates of each language."""
    counted = [of_language.counted() for of_language in candidates.values()]
    if any(len(own.tokens) >= 2 for own in counted):
        return counted
    all_languages = HeldOutCandidates(fraction)  # `choose_rule` regards them as one language
    for of_language in candidates.values():
        all_languages.merge(of_language.state())
    return [all_languages.counted()]


def _without_heavy(rule: HeldOutRule, fraction: float, counted: Sequence[Counted]) -> HeldOutRule:
    """Return the rule without documents that are too large or have too many copies."""
    returned: set[int] = set()
    for own in counted:
        if own.num_held_out(rule) > own.most:
            returned.update(filter(own.is_heavy, own.held_out(rule)))
    if not returned:
        return rule
    heavy = {value for own in counted for value in own.tokens if own.is_heavy(value)}
    exceptions = {**rule.exceptions, **dict.fromkeys(returned, False)}
    for own in counted:
        if not returned.isdisjoint(own.tokens):
            current = HeldOutRule(fraction, exceptions)
            exceptions |= dict.fromkeys(_replacements(current, own, returned, heavy), True)
    return HeldOutRule(fraction, exceptions)


def _changes_of_short(
    rule: HeldOutRule, own: Counted, counted: Sequence[Counted]
) -> dict[int, bool]:
    """The short documents of a language that must change sides, and whether they are held out.

    Empty if the held-out tokens are near the fraction, or if most documents are too long for it.
    """
    if own.is_near(own.num_held_out(rule)):
        return {}
    short = [
        value
        for value in own.tokens
        if all(other.tokens.get(value, 0) <= other.asked / 2 for other in counted)
    ]
    sums = np.cumsum([own.tokens[value] for value in short])
    number = int(np.searchsorted(sums, own.asked)) + 1
    if 2 * len(short) < len(own.tokens) or not LEAST <= number <= len(short):
        return {}
    wanted, current = set(short[:number]), set(own.held_out(rule))
    if len(wanted ^ current) > MOST_CHANGED:
        return {}
    return {value: value in wanted for value in sorted(wanted ^ current)}


def _replacements(
    rule: HeldOutRule, counted: Counted, returned: Collection[int], heavy: Collection[int]
) -> list[int]:
    """The documents to hold out besides those of the rule, so that a language has enough.

    Documents that are not heavy come first, with the smallest hashes first; then the lightest.
    """
    held_out = set(counted.held_out(rule))
    missing = min(LEAST, len(counted.tokens) // 2) - len(held_out)
    others = [value for value in counted.tokens if value not in held_out and value not in returned]
    others.sort(key=lambda value: (counted.tokens[value] if value in heavy else 0, value))
    return others[: max(missing, 0)]
