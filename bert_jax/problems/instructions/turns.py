"""The turns of a conversation as tokens: each text with plain-text markers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels.conversations import ROLES
from bert_jax.tokenizers import Tokenizer

TEXT = '{text}'


class Turn(NamedTuple):
    """A turn in tokens.

    Attributes:
        before: int32, tokens that are not learned: all of the turn, or the marker of an assistant.
        answer: int32, the text of an assistant without its end token; None for other roles.
        is_learned: whether the answer is learned; others are read only.
    """

    before: np.ndarray
    answer: np.ndarray | None
    is_learned: bool = False


class TurnTemplate:
    """How turns are written, such as 'User: {text}' and a line feed; stored with the run.

    The text of an assistant is followed by the end token of the vocabulary ([SEP], </s> or
    <|endoftext|>), which no marker and no text of a user can contain.
    """

    def __init__(self, settings: ConfigDict, tokenizer: Tokenizer) -> None:
        """Read `problem.system`, `problem.user`, `problem.assistant` and `problem.tool`.

        Raises:
            UserError: a template without {text} or with several, text after that of the assistant,
                or no marker before it.
        """
        self._tokenizer, self._parts = tokenizer, dict[str, tuple[str, str]]()
        for role in ROLES:
            template = settings[role]
            if template.count(TEXT) != 1:
                raise UserError(f'problem.{role} is {template!r}; it must have {TEXT} once')
            before, _, after = template.partition(TEXT)
            self._parts[role] = before, after
        before, after = self._parts['assistant']
        if after.strip() or not before.strip():
            raise UserError(
                f'problem.assistant is {settings.assistant!r}; it must be a marker and {TEXT}, '
                f"such as 'Assistant: {TEXT}'; the end token follows"
            )
        self._space = tokenizer.sentence_prefix if before[-1].isspace() else ''
        (self.marker,) = tokenizer.encode_batch([before.rstrip()]).ids

    def encode(self, role: str, text: str, is_learned: bool = False) -> Turn:
        """Return the tokens of a turn. Names of special tokens in a text are ordinary text.

        White space at the start of an answer, such as the indentation of code, belongs to it.
        """
        if role == 'assistant':
            (answer,) = self._tokenizer.encode_batch([self._space + text.rstrip()]).ids
            return Turn(self.marker, answer, is_learned)
        before, after = self._parts[role]
        (ids,) = self._tokenizer.encode_batch([before + text.strip() + after]).ids
        return Turn(ids, None)

    def decode(self, answer: Sequence[int] | np.ndarray) -> str:
        """Return the text of the tokens of an answer, without the space before it."""
        return self._tokenizer.decode_text(answer).removeprefix(self._space)
