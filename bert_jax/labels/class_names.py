"""Which labels of a data set are classes, and their names: decided once, by the training data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from bert_jax.labels.examples import DistilledExample, TextExample, is_labeled
from bert_jax.labels.records import ReadingReport
from bert_jax.labels.splitting import GroupedExample

_MINUS_1 = ('-1', '-1.0')
_UNKNOWN = (*_MINUS_1, '-')  # '-' in SNLI and MNLI: the annotators did not agree
_WHOLE = re.compile(r'(-?\d+)\.0+')
_FRACTION = re.compile(r'-?\d*\.0*[1-9]\d*')


class ClassNames:
    """Unknown labels and other spellings of classes.

    A label -1 or - is unknown if it is not a label of the training data, or if all other labels
    there are words; so is -1 if the other labels are the numbers from 0 of three or more classes.
    Labels such as 1.0 are named 1, unless the training data have fractions such as 1.5: programs
    write integers so in columns with missing values.

    Attributes:
        unknown: labels that are not classes.
        classes: the classes.
    """

    def __init__(self, labels: Iterable[str]):
        labels = {*labels}
        known = labels - {*_UNKNOWN}
        has_fractions = any(_FRACTION.fullmatch(label) for label in known)
        self.classes = labels if has_fractions else {_as_integer(label) for label in labels}
        numbers = {_as_integer(label) for label in known}
        unknown = {*_UNKNOWN} - labels
        if known and all(any(map(str.isalpha, label)) for label in known):
            unknown |= {*_UNKNOWN}
        elif len(numbers) > 2 and numbers == {*map(str, range(len(numbers)))}:
            unknown |= {*_MINUS_1}
        self.unknown = frozenset(unknown)
        self.classes -= unknown

    def name(self, label: str) -> str | None:
        """Return the name of a class; None if the label is unknown."""
        if label in self.unknown:
            return None
        integer = _as_integer(label)
        return integer if label not in self.classes and integer in self.classes else label

    def apply(
        self,
        split: Sequence[GroupedExample],
        report: ReadingReport,
        may_be_unlabeled: bool = False,
    ) -> list[GroupedExample]:
        """Name the classes of a split, and leave out examples with unknown labels.

        Args:
            split: examples.
            report: the counts of this split alone.
            may_be_unlabeled: whether examples stay if no example has a known label, as in a test
                file of a benchmark.
        """
        labels = labels_of(split)
        renamed = {label: name for label in labels if (name := self.name(label)) != label}
        named = [_renamed(one, renamed) for one in split] if renamed else list(split)
        report['classes_such_as_1.0_named_1'] += len(renamed.keys() - self.unknown)
        if not report['hidden_labels'] and renamed.keys().isdisjoint(self.unknown):
            return named
        labeled = [one for one in named if is_labeled(one.example)]
        report['hidden_labels'] = 0
        if may_be_unlabeled and not labeled:
            report['hidden_labels'] = len(named)
            return named
        for one in named:
            if not is_labeled(one.example):
                report.add('unknown_labels_left_out', str(one.example.id))
        return labeled


def labels_of(split: Iterable[GroupedExample]) -> set[str]:
    """Return all labels of examples that are text."""
    labels: set[str] = set()
    for example, _ in split:
        label = getattr(example, 'label', None)
        if isinstance(label, str):
            labels.add(label)
        elif isinstance(label, tuple):
            labels.update(one for one in label if isinstance(one, str))
    return labels


def _renamed(grouped: GroupedExample, names: Mapping[str, str | None]) -> GroupedExample:
    """Return an example with other names of its classes; None stands for an unknown label."""
    label: Any = getattr(grouped.example, 'label', None)
    if isinstance(grouped.example, DistilledExample):  # its probabilities name the classes
        return grouped
    if isinstance(label, str):
        label = names.get(label, label)
    elif isinstance(label, tuple):
        label = tuple(dict.fromkeys(names.get(one, one) for one in label))
        label = None if label == (None,) else label
    else:
        return grouped
    return grouped._replace(example=cast(TextExample, grouped.example)._replace(label=label))


def _as_integer(label: str) -> str:
    whole = _WHOLE.fullmatch(label)
    return whole[1] if whole else label
