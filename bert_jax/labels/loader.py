"""Reads labeled examples: `read` returns the train, dev and test splits.

The readers in problems/kinds turn the records of a file into examples of a kind of problem.
"""

import copy
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels import benchmarks, class_names, exchanged_columns
from bert_jax.labels.examples import Example
from bert_jax.labels.labeled_files import Reader, read_files
from bert_jax.labels.records import ReadingReport
from bert_jax.labels.splitting import GroupedExample, draw, draw_per_class, split_off

_BOOLEANS = ('true', 'false')


class Splits(NamedTuple):
    """The examples of a data set.

    Attributes:
        unlabeled: examples of data.unlabeled.
        unsplit: the train split before dev, test and a subset were drawn; it has all labels.
        report: counts of skipped, repaired and unusable records.
        more: further held-out splits by name, such as 'dev_mismatched' of a benchmark.
    """

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    unlabeled: list[Example]
    unsplit: list[Example]
    report: ReadingReport
    more: dict[str, list[Example]]

    def digest(self) -> str:
        """Return the SHA-256 of each split, joined."""
        *splits, _, more = self
        return ''.join(map(digest, [*splits, *more.values()]))


def digest(examples: Sequence[Example]) -> str:
    """Return the SHA-256 of examples in their order."""
    sha256 = hashlib.sha256()
    for example in examples:
        sha256.update(repr(example).encode())
    return sha256.hexdigest()


def read(data: ConfigDict, kind: str, readers: Mapping[str, Reader]) -> Splits:
    """Read the examples that the config's `data` describes; see data_keys.py for its keys.

    Without dev files, the share `data.dev_fraction` of the train examples becomes the dev split,
    and likewise for test.

    Args:
        data: the config's `data`.
        kind: the kind of problem; a benchmark must be of this kind.
        readers: format → function that builds the examples of a record.

    Raises:
        UserError: an unknown format or column, an unreadable file, an empty split, or more unusable
            records than allowed.
    """
    report = ReadingReport()
    if data.dataset:
        splits = benchmarks.read(data, kind, report)
    else:
        if not data.train:
            raise UserError(
                'data.train and data.dataset are empty; set data.train to files or data.dataset to '
                'a benchmark'
            )
        splits = _read_splits(data, kind, readers, report)
    unsplit = splits['train']
    if not data.dataset:
        exchanged_columns.check(_examples(unsplit), data)
    for name in ('test',) if data.shots else ('test', 'dev'):
        if not splits[name] and data[f'{name}_fraction']:
            split = split_off(splits['train'], data[f'{name}_fraction'], data.split_seed)
            splits['train'], splits[name] = split.rest, split.drawn
            report[f'{name}_examples_split_off_train'] = len(split.drawn)
            report[f'copies_of_train_examples_left_out_of_{name}'] = split.left_out
    if data.shots:
        if splits['dev']:
            splits['full_dev'] = splits['dev']
        splits['train'], splits['dev'] = draw_per_class(
            splits['train'], data.shots, data.split_seed
        )
    elif data.train_examples:
        splits['train'] = draw(splits['train'], data.train_examples, data.split_seed)
    for name in ('train', 'dev', 'test'):
        if splits[name]:
            continue
        if name == 'train' or data[name] or data[f'{name}_fraction']:
            raise UserError(_describe_empty(name, len(unsplit), data, report))
    unlabeled = _read_unlabeled(data, kind, readers, report) if data.unlabeled else []
    examples = {name: _examples(split) for name, split in splits.items()}
    train, dev, test = (examples.pop(name) for name in ('train', 'dev', 'test'))
    return Splits(train, dev, test, unlabeled, _examples(unsplit), report, examples)


def _read_splits(
    data: ConfigDict, kind: str, readers: Mapping[str, Reader], report: ReadingReport
) -> dict[str, list[GroupedExample]]:
    """Return the splits of the files; the labels of train say what the classes are."""
    reports = {name: ReadingReport() for name in ('train', 'dev', 'test')}
    train, dev = (
        read_files(data[name], data, kind, readers, reports[name]) for name in ('train', 'dev')
    )
    labels = class_names.labels_of(train)
    _check_spellings(labels)
    names = class_names.ClassNames(labels)
    splits = {
        'train': names.apply(train, reports['train']),
        'dev': names.apply(dev, reports['dev']),
    }
    if data.test:
        # Benchmarks publish test files whose labels are all −1: unknown, unless −1 is a class.
        hides = not any(_has_label_minus_1(example) for example, _ in splits['train'])
        test = read_files(
            data.test,
            data,
            kind,
            readers,
            reports['test'],
            labeled=False,
            may_hide_labels=hides,
        )
        splits['test'] = names.apply(test, reports['test'], may_be_unlabeled=True)
    for one in reports.values():
        report.merge(one)
    return {'test': []} | splits


def _has_label_minus_1(example: Example) -> bool:
    labels = getattr(example, 'tags', None) or getattr(example, 'label', None)
    labels = labels if isinstance(labels, tuple) else (labels,)
    return any(label in ('-1', '-1.0', -1.0) for label in labels)


def _check_spellings(labels: set[str]) -> None:
    """Raise UserError if two classes are one number or boolean in two spellings."""
    spellings: dict[str, str] = {}
    for label in sorted(labels):
        number = re.fullmatch(r'(-?\d+)\.0+', label)
        value = number[1] if number else label.lower() if label.lower() in _BOOLEANS else label
        other = spellings.setdefault(value, label)
        if other != label:
            raise UserError(
                f'the labels {other!r} and {label!r} of the training data are two spellings of one '
                f"value; make them one with data.rename_labels=('{label}={other}',)"
            )


def _examples(split: Sequence[GroupedExample]) -> list[Example]:
    return [grouped.example for grouped in split]


def _read_unlabeled(
    data: ConfigDict, kind: str, readers: Mapping[str, Reader], report: ReadingReport
) -> list[Example]:
    data = ConfigDict(copy.deepcopy(dict(data.items())))
    data.columns.label = ''
    return _examples(read_files(data.unlabeled, data, kind, readers, report, labeled=False))


def _describe_empty(name: str, num_train: int, data: ConfigDict, report: ReadingReport) -> str:
    """Return the error message for an empty split."""
    if num_train and name != 'train' and not data[name]:
        return (
            f'the {name} split is empty: data.{name}_fraction={data[f"{name}_fraction"]:g} of '
            f'{num_train} examples, without separating groups and copies; set a larger fraction, 0 '
            f'for no {name} split, or data.{name}'
        )
    return f'the {name} split is empty ({"; ".join(report.lines())}); set data.{name}'
