"""What an example of each kind of task is, whatever file it came from.

All offsets are of characters, end exclusive. What is None is not known: raw text to predict on.
"""

import collections
from typing import NamedTuple


class TextExample(NamedTuple):
    """One or two texts with a class (str) or a score (float)."""

    id: str
    texts: tuple[str, ...]
    label: str | float | None


class ChoiceExample(NamedTuple):
    """A premise and what may follow it or fill it; `label` is the index of the right choice, and
    `also_right` are others that score as right. `entities`: what each choice puts into a blank, if
    it is scored by those words (ReCoRD)."""

    id: str
    premise: str
    choices: tuple[str, ...]
    label: int | None
    also_right: tuple[int, ...] = ()
    entities: tuple[str, ...] = ()

    def right(self) -> tuple[int, ...]:
        """The indices of all right choices; () if they are not known."""
        return () if self.label is None else (self.label, *self.also_right)


class TaggedExample(NamedTuple):
    """A text whose words, given by their places, have a tag each."""

    id: str
    text: str
    words: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None


class Span(NamedTuple):
    start: int
    end: int
    label: str


class SpansExample(NamedTuple):
    """A text with labeled spans that begin and end with words; they may nest and overlap."""

    id: str
    text: str
    words: tuple[tuple[int, int], ...]
    spans: tuple[Span, ...] | None


class Mark(NamedTuple):
    """A place in text number `text` of an example."""

    text: int
    start: int
    end: int


class MarkedExample(NamedTuple):
    """What holds between two marked places: in one text (a relation, a pronoun and a name) or in a
    text each (a word in two contexts)."""

    id: str
    texts: tuple[str, ...]
    marks: tuple[Mark, ...]
    label: str | None


class Answer(NamedTuple):
    """A stretch of the context, and where it starts."""

    text: str
    start: int


class QuestionExample(NamedTuple):
    """A question on a context; `answers` are the accepted ones, () if there is none in it."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None


Example = (
    TextExample | ChoiceExample | TaggedExample | SpansExample | MarkedExample | QuestionExample
)


def is_labeled(example: Example) -> bool:
    """Whether what is to be predicted is known of an example."""
    names = ('label', 'tags', 'spans', 'answers')
    return any(getattr(example, name, None) is not None for name in names)


class Splits(NamedTuple):
    """What `read` found; `report` counts what was read, skipped and malformed."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    report: collections.Counter


def texts_of(example: Example) -> list[str]:
    """All of an example that a tokenizer has to read."""
    found = []
    for name in ('text', 'texts', 'premise', 'choices', 'question', 'context'):
        value = getattr(example, name, ())
        found += [value] if isinstance(value, str) else value
    return found
