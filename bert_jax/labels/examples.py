"""Labeled examples of each kind of problem, independent of file formats.

All offsets count characters, and ends are exclusive. A label of None is unknown, as in text to
predict on.
"""

from typing import NamedTuple

from bert_jax.errors import UserError

ExampleId = str | int  # an integer if the id is one in JSON


class TextExample(NamedTuple):
    """One or two texts with a class (str) or a score (float)."""

    id: ExampleId
    texts: tuple[str, ...]
    label: str | float | None


class DistilledExample(NamedTuple):
    """One or two texts with the (class, probability) pairs that another model predicted.

    Attributes:
        label: the most probable class.
    """

    id: ExampleId
    texts: tuple[str, ...]
    label: str | None
    probabilities: tuple[tuple[str, float], ...]


class LabelSetExample(NamedTuple):
    """One or two texts with any number of classes; () if no class applies."""

    id: ExampleId
    texts: tuple[str, ...]
    label: tuple[str, ...] | None


class NumbersExample(NamedTuple):
    """One or two texts with a number for each target, as (name, number) pairs."""

    id: ExampleId
    texts: tuple[str, ...]
    label: tuple[tuple[str, float], ...] | None


class TextGroup(NamedTuple):
    """Texts that are embedded apart from each other, and what is known about their similarity.

    Attributes:
        texts: one text; or a query, its document, and documents that do not answer it.
        label: the class of the text; '' if there are no classes.
        scores: the similarity of a pair, or one number per document from a teacher; () if unknown.
        vectors: the vector of each text from a teacher; () if unknown.
        is_ranked: whether only the scores say which documents answer the query.
    """

    id: ExampleId
    texts: tuple[str, ...]
    label: str | None = ''
    scores: tuple[float, ...] = ()
    vectors: tuple[tuple[float, ...], ...] = ()
    is_ranked: bool = False


class PromptExample(NamedTuple):
    """Named texts for the fields of a template, with a class (str) or a score (float)."""

    id: ExampleId
    names: tuple[str, ...]
    fields: tuple[str, ...]
    label: str | float | None


class MultipleChoiceExample(NamedTuple):
    """A premise and the choices that may follow it or fill its blank.

    Attributes:
        label: index of the correct choice.
        also_correct: indices of other choices that are scored as correct.
        entities: the text that each choice puts into the blank, for problems that are scored by
            text (ReCoRD).
    """

    id: ExampleId
    premise: str
    choices: tuple[str, ...]
    label: int | None
    also_correct: tuple[int, ...] = ()
    entities: tuple[str, ...] = ()

    def correct(self) -> tuple[int, ...]:
        """Return the indices of all correct choices; () if they are unknown."""
        return () if self.label is None else (self.label, *self.also_correct)


class TaggedExample(NamedTuple):
    """A text with the offsets of its words and a tag for each word.

    Attributes:
        predicate: the index of the word whose arguments the tags mark; None if tags mark something
            else.
    """

    id: ExampleId
    text: str
    words: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None
    predicate: int | None = None


class ParsedExample(NamedTuple):
    """A text with the offsets of its words, and the dependency tree of the words.

    Attributes:
        heads: the number of each word's head, from 1; 0 for the root.
        relations: the relation of each word to its head.
    """

    id: ExampleId
    text: str
    words: tuple[tuple[int, int], ...]
    heads: tuple[int, ...] | None
    relations: tuple[str, ...] | None


class Span(NamedTuple):
    """A labeled range of characters."""

    start: int
    end: int
    label: str


class SpansExample(NamedTuple):
    """A text with labeled spans that start and end at word boundaries; spans may overlap."""

    id: ExampleId
    text: str
    words: tuple[tuple[int, int], ...]
    spans: tuple[Span, ...] | None


class Mark(NamedTuple):
    """A range of characters in the text with index `text` of an example."""

    text: int
    start: int
    end: int


class MarkedExample(NamedTuple):
    """Two marked ranges and the class of their relation.

    Both ranges are in one text (relation, coreference), or each in a text of its own (a word in two
    contexts).
    """

    id: ExampleId
    texts: tuple[str, ...]
    marks: tuple[Mark, ...]
    label: str | None


class Answer(NamedTuple):
    """An answer and the offset in the context where it starts."""

    text: str
    start: int


class QuestionExample(NamedTuple):
    """A question about a context with its accepted answers; () if there is no answer."""

    id: ExampleId
    question: str
    context: str
    answers: tuple[Answer, ...] | None


class TargetExample(NamedTuple):
    """One or two texts, and the text to write for them.

    Attributes:
        targets: the references; the first one is learned.
    """

    id: ExampleId
    texts: tuple[str, ...]
    targets: tuple[str, ...] | None


class ConversationExample(NamedTuple):
    """The turns of a conversation, in order: a system's, if any, then those of users and others.

    Attributes:
        roles: who speaks: 'system', 'user', 'assistant' or 'tool'.
        contents: the text of each turn.
        answer: the last text if it is the assistant's; None if it is not known.
        is_learned: whether each turn is an answer that is learned.
    """

    id: ExampleId
    roles: tuple[str, ...]
    contents: tuple[str, ...]
    answer: str | None
    is_learned: tuple[bool, ...]

    def before_answer(self) -> 'ConversationExample':
        """Return the conversation without its last answer, if that is known."""
        if self.answer is None:
            return self
        return ConversationExample(
            self.id, self.roles[:-1], self.contents[:-1], None, self.is_learned[:-1]
        )


Example = (
    TextExample
    | DistilledExample
    | LabelSetExample
    | NumbersExample
    | TextGroup
    | PromptExample
    | MultipleChoiceExample
    | TaggedExample
    | ParsedExample
    | SpansExample
    | MarkedExample
    | QuestionExample
    | TargetExample
    | ConversationExample
)


# Names of fields; each class of examples has at least one of each kind.
_GOLD = ('label', 'tags', 'heads', 'spans', 'answers', 'targets', 'answer')
_TEXTS = ('text', 'texts', 'premise', 'choices', 'question', 'context', 'fields', 'contents')


def is_labeled(example: Example) -> bool:
    """Whether the label, tags, spans or answers of an example are known.

    Raises:
        UserError: The class of a custom problem has no such field.
    """
    return any(getattr(example, name) is not None for name in _fields(example, _GOLD))


def texts_of(example: Example) -> list[str]:
    """Return all texts of an example that get tokenized.

    Raises:
        UserError: The class of a custom problem has no such field.
    """
    texts: list[str] = []
    for name in _fields(example, _TEXTS):
        value = getattr(example, name)
        texts += [value] if isinstance(value, str) else value
    return texts


def _fields(example: Example, known: tuple[str, ...]) -> list[str]:
    names = [name for name in known if hasattr(example, name)]
    if not names:
        raise UserError(
            f'{type(example).__name__} has none of the fields {", ".join(known)}: rename a field'
        )
    return names
