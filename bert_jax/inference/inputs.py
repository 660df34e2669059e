"""The input of a fine-tuned model, from texts, pairs, words or dictionaries, and its options."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.types import RecordView


class PredictionOptions(NamedTuple):
    """How a fine-tuned model answers.

    Attributes:
        probabilities: whether to list the probability of every class.
        long_texts: 'truncate', or 'windows', whose predictions are averaged; None: as in training.
        words: how tagging and spans split plain text (labels/word_spans.SPLITTERS); None: as
            in training.
    """

    probabilities: bool = False
    long_texts: str | None = None
    words: str | None = None


AS_TRAINED = PredictionOptions()


def with_ids(inputs: Sequence[RecordView]) -> list[RecordView]:
    """Return the inputs; those without an id get their number, as on a command line."""
    return [
        item if item.get('id') is not None else {**item, 'id': f'input {number}'}
        for number, item in enumerate(inputs, 1)
    ]


def as_pair(text: str | Sequence[str] | RecordView) -> RecordView:
    """The input of `FineTuned.predict` for a text, a pair of texts or a dictionary."""
    if isinstance(text, Mapping):
        return text
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, Sequence) or not 1 <= len(texts) <= 2:
        raise UserError(f'expected a text or a pair of texts, not {text!r:.60}')
    return dict(zip(('text', 'text2'), texts, strict=False))


def as_words(text: str | Sequence[str] | RecordView) -> RecordView:
    """The input of `FineTuned.predict` for a text, a list of words or a dictionary."""
    if isinstance(text, Mapping):
        return text
    if isinstance(text, str):
        return {'text': text}
    if not isinstance(text, Sequence):
        raise UserError(f'expected a text or a list of words, not {text!r:.60}')
    return {'words': list(text)}
