"""Arguments of predicates, and their scores by the rules of CoNLL-2005 (srl-eval.pl)."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.labels.semantic_roles import PREDICATE
from bert_jax.metrics import entities
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores, Table

_CONTINUATION = 'C-'


class Argument(NamedTuple):
    """An argument of a predicate.

    Attributes:
        role: such as 'A0' or 'AM-TMP'.
        pieces: the ranges of words [start, end) that it consists of, from left to right.
    """

    role: str
    pieces: tuple[tuple[int, int], ...]


def arguments_of_tags(tags: Sequence[str]) -> list[Argument]:
    """Return the arguments that BIO tags mark, by the place of their first pieces.

    A span C-x continues the nearest argument x before it; without one, it is an argument x itself.
    """
    found: list[Argument] = []
    last: dict[str, int] = {}  # role → index of its last argument
    for start, end, label in entities.entities_from_tags(tags):
        role = label.removeprefix(_CONTINUATION)
        if role != label and role in last:
            continued = found[last[role]]
            found[last[role]] = Argument(role, (*continued.pieces, (start, end)))
        else:
            last[role] = len(found)
            found.append(Argument(role, ((start, end),)))
    return found


class _Counts(NamedTuple):
    """Numbers of arguments, without the predicates themselves.

    Attributes:
        counts_N3: int64 [N, 3], the correct, gold and predicted arguments of each predicate.
        by_role: role → correct, gold and predicted arguments.
    """

    counts_N3: np.ndarray
    by_role: dict[str, tuple[int, int, int]]


def _count(
    gold: Sequence[Collection[Argument]], guesses: Sequence[Collection[Argument]]
) -> _Counts:
    totals = [Counter[str](), Counter[str](), Counter[str]()]
    counts_N3 = np.zeros((len(gold), 3), np.int64)
    for number, (own, guessed) in enumerate(zip(gold, guesses, strict=True)):
        gold_set, guessed_set = (
            {argument for argument in some if argument.role != PREDICATE} for some in (own, guessed)
        )
        for place, some in enumerate((gold_set & guessed_set, gold_set, guessed_set)):
            counts_N3[number, place] = len(some)
            totals[place].update(argument.role for argument in some)
    correct, all_gold, all_guessed = totals
    roles = sorted(all_gold.keys() | all_guessed.keys())
    by_role = {role: (correct[role], all_gold[role], all_guessed[role]) for role in roles}
    return _Counts(counts_N3, by_role)


def score_rows(
    gold: Sequence[Collection[Argument]], guesses: Sequence[Collection[Argument]]
) -> RowScore:
    """Return a function that computes the metrics of `score` of some of the predicates."""
    counts_N3 = _count(gold, guesses).counts_N3
    return lambda rows_M: entities.score_exact(counts_N3[rows_M])


def score(gold: Sequence[Collection[Argument]], guesses: Sequence[Collection[Argument]]) -> Scores:
    """Score the predicted arguments of each predicate.

    An argument is correct if its role and all its pieces are. The predicate itself (role V) does
    not count. Carreras & Màrquez 2005, "Introduction to the CoNLL-2005 Shared Task", section 2.3.

    Returns:
        'f1', 'precision', 'recall', and 'exact_match', the share of predicates whose arguments are
        all right; a table of the roles.
    """
    rows = [
        (role, *entities.score_of_counts(*counts))
        for role, counts in _count(gold, guesses).by_role.items()
    ]
    tables = {'Roles': Table(('role', *entities.SpanScore._fields), rows)}
    return Scores(dict(score_rows(gold, guesses)(np.arange(len(gold)))), tables)
