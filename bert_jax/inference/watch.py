"""Reads texts while they are written."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from bert_jax.inference.next_tokens import Texts
from bert_jax.tokenizers import Tokenizer

_HALF_CHARACTER = '\ufffd'


@dataclasses.dataclass(frozen=True)
class Watch:
    """Reads texts while they are written: finds stop strings, and shows the text.

    Attributes:
        tokenizer: of the model.
        stop: strings that end a text.
        stream: called with each new piece of the first text.
    """

    tokenizer: Tokenizer
    stop: tuple[str, ...]
    stream: Callable[[str], object] | None

    @property
    def is_active(self) -> bool:
        return bool(self.stop or self.stream)

    def check(self, texts: Texts, prompt_length_B: np.ndarray, step: int) -> np.ndarray | None:
        """Return which texts have ended, bool [B]; None if stop strings change nothing."""
        if not self.is_active:
            return None
        ids_BT, length_B, is_done_B = jax.device_get((texts.ids_BT, texts.length_B, texts.done_B))
        done_B = np.array(is_done_B)
        for row, (ids_T, first, end) in enumerate(
            zip(ids_BT, prompt_length_B, length_B, strict=True)
        ):
            if end - first != step:  # it had ended before
                continue
            before, now = (self._text(ids_T[first:stop]) for stop in (end - 1, end))
            if any(stop in now for stop in self.stop):
                done_B[row] = True
            elif self.stream and now != before:
                self.stream(now[len(before) :])
        return done_B

    def _text(self, ids: np.ndarray) -> str:
        """The text of tokens, without an incomplete character at its end."""
        return without_special(self.tokenizer, ids).rstrip(_HALF_CHARACTER)


def without_special(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> str:
    """The text of tokens, without special tokens."""
    return tokenizer.decode([index for index in ids if index not in tokenizer.special_ids])
