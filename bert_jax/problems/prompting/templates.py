"""Cloze templates: text around one [MASK], such as '{text} It was [MASK].'.

A template has literal text, fields in braces ('{text}', '{text2}' or other names; '{{' is a
brace), one [MASK] for the answer and at most one [SEP], after which token types are 1. The text of
a field may be changed: '{text:no_stop}', '{text2:lower_first}', or both, separated by a comma.
"""

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout, truncate_longest_first

MASK, SEPARATOR = '[MASK]', '[SEP]'
# Name → function that changes a text (after *sent- and *sentl of princeton-nlp/LM-BFF).
CHANGES = {
    'no_stop': lambda text: text[:-1] if text[-1:] in tuple(string.punctuation) else text,
    'lower_first': lambda text: text[:1].lower() + text[1:],
}


class FilledTemplate(NamedTuple):
    """A filled template.

    Attributes:
        ids: int32 [n], special tokens included.
        token_type_ids: int32 [n].
        mask_slots: int32 [n], 1, 2, … at the masks of the answer, else 0.
    """

    ids: np.ndarray
    token_type_ids: np.ndarray
    mask_slots: np.ndarray

    def with_pieces(self, pieces: np.ndarray, masks: Sequence[int]) -> 'FilledTemplate':
        """Return the prompt with these masks (from 0) replaced by the pieces of an answer."""
        is_filled = np.isin(self.mask_slots, np.array(masks) + 1)
        ids = np.where(is_filled, pieces[self.mask_slots - 1], self.ids)
        return self._replace(ids=ids, mask_slots=np.where(is_filled, 0, self.mask_slots))


class Field(NamedTuple):
    """A field of a template and the names of its changes."""

    name: str
    changes: tuple[str, ...]

    def text(self, values: Mapping[str, str]) -> str:
        """Return the changed text of the field."""
        text = values[self.name]
        for change in self.changes:
            text = CHANGES[change](text)
        return text


class Demonstration(NamedTuple):
    """An answered prompt that follows the prompt: texts of the fields and ids of the answer."""

    values: Mapping[str, str]
    pieces: np.ndarray


class Segment(NamedTuple):
    """The tokens of a filled segment.

    Attributes:
        ids: int32 [n]; the answer is one mask, or the pieces that replace it.
        is_answer: bool [n].
        texts: for each field, the indices of its tokens, which may be removed to save space.
    """

    ids: np.ndarray
    is_answer: np.ndarray
    texts: list[np.ndarray]

    def answered(self, pieces: np.ndarray) -> 'Segment':
        """Return the segment with the pieces of an answer instead of its mask, if it has one."""
        if not self.is_answer.any():
            return self
        place = int(self.is_answer.argmax())
        ids = np.concatenate([self.ids[:place], pieces, self.ids[place + 1 :]])
        texts = [indices + (len(pieces) - 1) * (indices > place) for indices in self.texts]
        return Segment(ids, np.zeros(len(ids), bool), texts)

    def followed_by(self, pieces: np.ndarray) -> 'Segment':
        """Return the segment with the pieces of an answer after it."""
        ids = np.concatenate([self.ids, pieces])
        return Segment(ids, np.zeros(len(ids), bool), self.texts)


class Template:
    """A cloze template.

    Attributes:
        fields: names of its fields in the order of their first occurrence.
        is_spaced: whether the answer starts a word: [MASK] is first or follows whitespace.
    """

    def __init__(self, source: str, name: str = 'problem.template') -> None:
        """Parse a template.

        Args:
            source: the template.
            name: name of the option that holds it, for error messages.

        Raises:
            UserError: no or several [MASK], several [SEP], no field, braces that do not match, or
                an unknown change.
        """
        setting = f'{name} is {source!r}'
        for marker, counts in ((MASK, (1,)), (SEPARATOR, (0, 1))):
            number = source.count(marker)
            if number not in counts:
                expected = 'one' if counts == (1,) else 'at most one'
                raise UserError(
                    f'{setting}, which has {number or "no"} {marker}; give it {expected}'
                )
        self._setting = setting
        self._segments = [self.parse(part) for part in source.split(SEPARATOR)]
        parts = [part for segment in self._segments for part in segment]
        self.fields = tuple(dict.fromkeys(p.name for p in parts if isinstance(p, Field)))
        if not self.fields:
            raise UserError(f'{setting}, which has no field; give it one, such as {{text}}')
        before = source[: source.index(MASK)]
        self.is_spaced = not before or before[-1].isspace() or before.endswith(SEPARATOR)

    def parse(self, source: str) -> list[str | Field]:
        """Parse a part of the template into literals and fields."""
        return _parse(source, self._setting)

    def fill(
        self,
        values: Mapping[str, str],
        layout: SpecialTokenLayout,
        num_masks: Sequence[int],
        counts: Counter[str],
        demonstrations: Sequence[Demonstration] = (),
    ) -> list[FilledTemplate]:
        """Return the prompt with each number of masks; only texts are truncated to make room.

        All prompts keep the same tokens of the texts, as many as fit with the most masks.

        Args:
            values: the text of each field.
            layout: how special tokens are added, and the maximum length.
            num_masks: numbers of masks, increasing.
            counts: its number of truncated texts is increased.
            demonstrations: answered prompts that follow, each with its own segments.

        Raises:
            UserError: the template itself is too long.
        """
        tokenizer = layout.tokenizer
        mask = tokenizer.vocab[tokenizer.mask_id]
        segments = [encode_segment(parts, values, tokenizer, mask) for parts in self._segments]
        for values, pieces in demonstrations:
            encoded = (encode_segment(parts, values, tokenizer, mask) for parts in self._segments)
            segments += [segment.answered(pieces) for segment in encoded]
        room = layout.max_text_tokens(len(segments)) - (num_masks[-1] - 1)
        segments = truncate_segments(segments, room, layout.max_length, counts)
        return [_lay_out(segments, number, layout) for number in num_masks]


def _parse(source: str, setting: str) -> list[str | Field]:
    """Parse a segment into literals and fields; errors start with `setting`."""
    parts: list[str | Field] = []
    try:
        for literal, name, changes, conversion in string.Formatter().parse(source):
            parts += [literal] if literal else []
            if name is None:
                continue
            if not name or conversion:
                raise UserError(f'{setting}, which has a field without a name, or with a "!"')
            names = tuple(change.strip() for change in (changes or '').split(',') if change)
            for change in names:
                if change not in CHANGES:
                    raise unknown(f'change of {{{name}}}', change, CHANGES)
            parts.append(Field(name, names))
    except ValueError as error:
        raise UserError(f'{setting}: {error}; write {{{{ for a literal brace') from None
    return parts


def encode_segment(
    parts: Sequence[str | Field],
    values: Mapping[str, str],
    tokenizer: Tokenizer,
    mask: str = '',
    special: bool = False,
) -> Segment:
    """Tokenize a segment as a whole, like `fill_mask`.

    Args:
        parts: literals and fields.
        values: the text of each field.
        tokenizer: the tokenizer of the model.
        mask: its mask token; '' for a segment without an answer.
        special: whether names of special tokens in the texts are these tokens.
    """
    filled, spans = '', []
    for part in parts:
        if isinstance(part, Field):
            text = part.text(values)
            text = text if special else _without_special_tokens(text, tokenizer)
            spans.append((len(filled), len(filled) + len(text)))
            filled += text
        else:
            filled += part.replace(MASK, mask) if mask else part
    (ids,), (offsets,) = tokenizer.encode_batch([filled], special=True)
    texts: list[list[int]] = [[] for _ in spans]
    for index, (start, end) in enumerate(offsets.tolist()):
        token = filled[start:end]  # may begin or end with a space of a neighboring literal
        start, end = end - len(token.lstrip()), start + len(token.rstrip())
        for number, (first, last) in enumerate(spans):
            if first <= start and end <= last and first < last:
                texts[number].append(index)
                break
    is_answer = ids == tokenizer.mask_id if mask else np.zeros(len(ids), bool)
    for indices in texts:  # findings/sentencepiece_fullwidth_symbol.sh
        is_answer[indices] = False
    return Segment(ids, is_answer, [np.array(indices, np.int64) for indices in texts])


def _without_special_tokens(text: str, tokenizer: Tokenizer) -> str:
    """Put a space inside names of special tokens in a text, which makes them ordinary text."""
    for index in tokenizer.special_ids:
        name = tokenizer.vocab[index]
        text = text.replace(name, f'{name[0]} {name[1:]}')
    return text


def truncate_segments(
    segments: list[Segment], room: int, max_length: int, counts: Counter[str]
) -> list[Segment]:
    """Remove last tokens of texts, always from the longest text, until all segments fit."""
    total = sum(len(segment.ids) for segment in segments)
    if total <= room:
        return segments
    texts = [indices for segment in segments for indices in segment.texts]
    num_literal = total - sum(map(len, texts))
    if num_literal > room:
        raise UserError(
            f'the template has {num_literal} tokens besides its texts, but sequences of '
            f'{max_length} tokens have room for {room}; set training.sequence_length, or shorten '
            'the template'
        )
    counts[f'texts truncated to {max_length} tokens'] += 1
    kept = iter(truncate_longest_first(texts, room - num_literal))
    truncated = []
    for segment in segments:
        is_kept = np.ones(len(segment.ids), bool)
        for indices in segment.texts:
            is_kept[indices[len(next(kept)) :]] = False
        truncated.append(
            segment._replace(ids=segment.ids[is_kept], is_answer=segment.is_answer[is_kept])
        )
    return truncated


def _lay_out(
    segments: Sequence[Segment], num_masks: int, layout: SpecialTokenLayout
) -> FilledTemplate:
    """Repeat the mask of the answer and add special tokens around the segments."""
    repeated = [
        (np.where(segment.is_answer, num_masks, 1), segment.ids, segment.is_answer)
        for segment in segments
    ]
    laid_out = layout.lay_out(*(np.repeat(ids, times) for times, ids, _ in repeated))
    slots = np.zeros(len(laid_out.ids), np.int32)
    for start, (times, _, is_answer) in zip(laid_out.starts, repeated, strict=True):
        (places,) = np.nonzero(np.repeat(is_answer, times))
        slots[start + places] = np.arange(1, len(places) + 1)
    return FilledTemplate(laid_out.ids, np.minimum(laid_out.token_type_ids, 1), slots)
