"""Tasks with labeled texts, and their templates for cloze and for prefix prompts."""

import csv
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_WORDS = 9  # longer texts are left out, so that three shots fit into 64 tokens


class Task(NamedTuple):
    """Labeled texts.

    Attributes:
        cloze: template for a masked language model.
        prefix: template for a causal model; the answer is at its end.
        answers: class → the word that stands for it.
    """

    cloze: str
    prefix: str
    answers: dict[str, str]


TASKS = {
    'polarity': Task(
        '{text} It was [MASK] .',
        '{text} It was [MASK]',
        {'positive': 'good', 'negative': 'bad'},
    ),
    'banking': Task(
        '{text} This is about [MASK] .',
        '{text} This is about [MASK]',
        {'card': 'letters', 'money': 'money', 'name': 'names'},
    ),
}
# Category of banking77 → class; others are left out.
_BANKING = {
    'card_arrival': 'card',
    'card_delivery_estimate': 'card',
    'wrong_amount_of_cash_received': 'money',
    'declined_cash_withdrawal': 'money',
    'edit_personal_details': 'name',
    'verify_my_identity': 'name',
}


class Example(NamedTuple):
    """A text and its class."""

    text: str
    label: str


def read(name: str, data: pathlib.Path) -> list[Example]:
    """Read the texts of a task that have at most MOST_WORDS words."""
    if name == 'polarity':
        found = [
            Example(line.strip(), label)
            for label, suffix in (('positive', 'pos'), ('negative', 'neg'))
            for line in _lines(data / f'sentence_polarity/rt-polarity.{suffix}')
        ]
    else:
        with open(data / 'banking77/train.csv', encoding='utf-8', newline='') as file:
            rows = [(row['text'], row['category']) for row in csv.DictReader(file)]
        found = [Example(text, _BANKING[label]) for text, label in rows if label in _BANKING]
    return [one for one in found if 0 < len(one.text.split()) <= MOST_WORDS]


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text(encoding='latin-1').splitlines()


class Draw(NamedTuple):
    """Examples for the shots, a balanced order of them, and examples to classify."""

    shots: list[Example]
    tested: list[Example]


def draw(examples: Sequence[Example], shots: int, tested: int, seed: int) -> Draw:
    """Draw shots, classes in turn, and other examples to classify, as many of each class.

    The first shots of a larger number are those of a smaller number; the tested examples are the
    same for every number of shots.
    """
    rng = np.random.default_rng(seed)
    labels = sorted({one.label for one in examples})
    by_label = []
    for label in labels:
        own = [one for one in examples if one.label == label]
        by_label.append([own[number] for number in rng.permutation(len(own))])
    per_class = -(-tested // len(labels))
    chosen = [own[per_class + number // len(labels)] for number, own in _in_turn(by_label, shots)]
    return Draw(chosen, [one for own in by_label for one in own[:per_class]])


def _in_turn(by_label: Sequence[list[Example]], number: int) -> list[tuple[int, list[Example]]]:
    return [(place, by_label[place % len(by_label)]) for place in range(number)]
