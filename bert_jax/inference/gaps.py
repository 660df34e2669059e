"""Texts with gaps to fill: 'The [MASK:5] old house' has one gap of five tokens."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import InvalidText
from bert_jax.metrics.scored_rows import add_special
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class GappedText:
    """A text in tokens, with [MASK] at every token of its gaps.

    Attributes:
        pieces: the text before, between and after the gaps; one more than there are gaps.
        lengths: number of tokens of each gap.
        ids_T: int32 [T], the row of the text, with special tokens.
        positions_P: int32 [P], the positions of the gaps in the row, from left to right.
    """

    pieces: tuple[str, ...]
    lengths: tuple[int, ...]
    ids_T: np.ndarray
    positions_P: np.ndarray

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        text: str,
        new_tokens: int = 0,
        number: int = 1,
        max_length: int = 512,
        model: str = 'the model',
    ) -> 'GappedText':
        """Find the gaps of a text.

        Args:
            tokenizer: the tokenizer of the model.
            text: a gap is [MASK], [MASK:5] for five tokens, or the same with the mask token of the
                vocabulary, such as <mask:5>.
            new_tokens: length of a last gap after the text.
            number: of the text in its list, for errors.
            max_length: the longest row of the model, in tokens, with special tokens.
            model: the name of the model in error messages.

        Raises:
            InvalidText: there is nothing to fill, or the row is longer than `max_length`.
        """
        mask = tokenizer.vocab[tokenizer.mask_id]
        pieces, lengths = _split(text, mask)
        if new_tokens:
            pieces, lengths = [*pieces, ''], [*lengths, new_tokens]
        if not all(lengths):
            raise InvalidText(number, 'has a gap of 0 tokens; the number in [MASK:5] is at least 1')
        if not lengths:
            raise InvalidText(
                number,
                'has no [MASK] and new_tokens is 0; mark gaps, such as [MASK:5], or set new_tokens',
            )
        if sum(lengths) > max_length:  # before a string of all masks is made
            raise InvalidText(
                number,
                f'has gaps of {sum(lengths):,} tokens; {model} supports up to {max_length}',
            )
        masks = [mask * length for length in lengths]
        joined = ''.join(a + b for a, b in zip(pieces, [*masks, ''], strict=True))
        (ids,) = tokenizer.encode_batch([joined], special=True).ids
        row = add_special(tokenizer, ids)
        if len(row) > max_length:
            raise InvalidText(
                number,
                f'has {len(row)} tokens with its gaps; {model} supports up to {max_length}',
            )
        positions = np.flatnonzero(row == tokenizer.mask_id).astype(np.int32)
        return cls(tuple(pieces), tuple(lengths), row, positions)

    def split(self, values_P: Sequence[int]) -> list[Sequence[int]]:
        """Divide values of all positions into those of each gap."""
        ends = np.cumsum(self.lengths).tolist()
        return [values_P[end - size : end] for end, size in zip(ends, self.lengths, strict=True)]

    def join(self, tokenizer: Tokenizer, gaps: Sequence[Sequence[int]]) -> tuple[str, list[str]]:
        """Return the text with tokens in its gaps, and the text of each gap."""
        row_T, ends = self.ids_T.tolist(), np.cumsum(self.lengths).tolist()
        text, written = self.pieces[0], []
        for ids, length, end, after in zip(gaps, self.lengths, ends, self.pieces[1:], strict=True):
            before = row_T[int(self.positions_P[end - length]) - 1]
            added = _decode_after(tokenizer, text, before, list(ids))
            text = (text.rstrip() if added else text) + added + after
            written.append(added.strip())
        return text, written


def _split(text: str, mask: str) -> tuple[list[str], list[int]]:
    """Return the pieces of a text around its gaps, and the length of each gap."""
    names = {('[MASK', ']'), (mask[:-1], mask[-1:])}
    pattern = '|'.join(rf'{re.escape(a)}(?::(\d+))?{re.escape(b)}' for a, b in sorted(names))
    pieces, lengths, start = [], [], 0
    for match in re.finditer(pattern, text):
        pieces.append(text[start : match.start()])
        lengths.append(int(next((number for number in match.groups() if number), 1)))
        start = match.end()
    return [*pieces, text[start:]], lengths


def _decode_after(tokenizer: Tokenizer, text: str, before: int, ids: list[int]) -> str:
    """Return the text of tokens, with the space that separates them from the text before.

    The token before says whether there is one: none before ##ing or a full stop.
    """
    if not ids:
        return ''
    if not text.strip() or before in tokenizer.special_ids:
        return (' ' if text.strip() else '') + tokenizer.decode(ids).strip()
    alone, both = tokenizer.decode([before]), tokenizer.decode([before, *ids])
    return both[len(alone) :] if both.startswith(alone) else f' {tokenizer.decode(ids)}'
