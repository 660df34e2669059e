"""Reads texts while they are written."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import numpy as np

from bert_jax.inference.generate_options import first_stop
from bert_jax.inference.next_tokens import Texts
from bert_jax.tokenizers import Tokenizer

# (tokens of a prompt, tokens after it) → the text after the prompt.
TextOf: TypeAlias = Callable[[np.ndarray, np.ndarray], str]
_HALF_CHARACTER = '\ufffd'


class Shown:
    """Shows a text while it is written; what was shown is always its beginning."""

    def __init__(self, show: Callable[[str], object], stop: Sequence[str]) -> None:
        """Show pieces with `show`, none of a stop string and what follows it."""
        self._show, self._stop, self._text = show, stop, ''

    def update(self, text: str, is_final: bool) -> None:
        """Show what is new in the text so far; while it may change, without what may not stay."""
        found = first_stop(text, self._stop)
        if found is not None:
            text = text[:found]
        elif not is_final:
            text = _settled(text, self._stop)
        if text.startswith(self._text) and text != self._text:
            self._show(text[len(self._text) :])
            self._text = text


def _settled(text: str, stop: Sequence[str]) -> str:
    """A text without an incomplete character or the beginning of a stop string at its end."""
    text = text.rstrip(_HALF_CHARACTER)
    begun = [size for one in stop for size in range(1, len(one)) if text.endswith(one[:size])]
    return text[: len(text) - max(begun, default=0)]


@dataclasses.dataclass(frozen=True)
class Watch:
    """Reads texts while they are written: finds stop strings, and shows the text.

    Attributes:
        text_of: the text so far.
        stop: strings that end a text.
        shown: shows the first text; None: no text is shown.
    """

    text_of: TextOf
    stop: tuple[str, ...] = ()
    shown: Shown | None = None

    @property
    def is_active(self) -> bool:
        return bool(self.stop or self.shown)

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
            text = self.text_of(ids_T[:first], ids_T[first:end])
            done_B[row] |= first_stop(text, self.stop) is not None
            if self.shown:
                self.shown.update(text, bool(done_B[row]))
        return done_B


def text_after(tokenizer: Tokenizer, prompt: np.ndarray, written: np.ndarray) -> str:
    """Return the text of tokens after a prompt, which decides whether a space is between them."""
    before, both = (_text(tokenizer, part) for part in (prompt, [*prompt, *written]))
    return both[len(before) :] if both.startswith(before) else _text(tokenizer, written)


def target_text(tokenizer: Tokenizer, prompt: np.ndarray, written: np.ndarray) -> str:
    """Return the text that a decoder wrote, after its first token `prompt`."""
    return _text(tokenizer, written)


def _text(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> str:
    return tokenizer.decode([index for index in ids if index not in tokenizer.hidden_ids])
