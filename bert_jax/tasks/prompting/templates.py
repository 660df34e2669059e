"""Cloze templates: texts around one [MASK], such as '{text} It was [MASK].'.

A template has literal text, fields in braces ('{text}', '{text2}' or named ones; '{{' is a brace),
one [MASK] for the answer and at most one [SEP], after which token types are 1. A field may be
changed: '{text:no_stop}', '{text2:lower_first}', or both, separated by a comma.
"""

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.special_token_layout import SpecialTokenLayout, truncate_longest_first
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError, unknown

MASK, SEPARATOR = '[MASK]', '[SEP]'
# Name → change of a text (after *sent- and *sentl of princeton-nlp/LM-BFF).
CHANGES = {
    'no_stop': lambda text: text[:-1] if text[-1:] in tuple(string.punctuation) else text,
    'lower_first': lambda text: text[:1].lower() + text[1:],
}


class Prompt(NamedTuple):
    """A filled template.

    Attributes:
        ids: int32 [n], special tokens included.
        token_type_ids: int32 [n].
        mask_slots: int32 [n], 1, 2, … at the masks of the answer, else 0.
    """

    ids: np.ndarray
    token_type_ids: np.ndarray
    mask_slots: np.ndarray

    def with_pieces(self, pieces: np.ndarray, masks: Sequence[int]) -> 'Prompt':
        """Return the prompt with the pieces of an answer in the places of these masks (from 0)."""
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
    """A filled template after the prompt: the texts of its fields, and an answer as token ids."""

    values: Mapping[str, str]
    pieces: np.ndarray


class _Segment(NamedTuple):
    """The tokens of a filled segment.

    Attributes:
        ids: int32 [n]; the answer is one mask, or the pieces that replace it.
        is_answer: bool [n].
        texts: for each field, the indices of its tokens, which may be left out.
    """

    ids: np.ndarray
    is_answer: np.ndarray
    texts: list[np.ndarray]

    def answered(self, pieces: np.ndarray) -> '_Segment':
        """Return the segment with the pieces of an answer instead of its mask, if it has one."""
        if not self.is_answer.any():
            return self
        place = int(self.is_answer.argmax())
        ids = np.concatenate([self.ids[:place], pieces, self.ids[place + 1 :]])
        texts = [own + (len(pieces) - 1) * (own > place) for own in self.texts]
        return _Segment(ids, np.zeros(len(ids), bool), texts)


class Template:
    """A cloze template.

    Attributes:
        source: the template as it was written.
        fields: names of its fields in the order of their first occurrence.
        is_spaced: whether the answer starts a word: [MASK] is first or has whitespace before it.
    """

    def __init__(self, source: str, name: str = 'problem.template') -> None:
        """Parse a template.

        Args:
            source: the template.
            name: of the option that holds it, for error messages.

        Raises:
            UserError: no or several [MASK], several [SEP], no field, braces that do not match, or
                an unknown change.
        """
        self.source, told = source, f'{name} is {source!r}'
        for marker, counts in ((MASK, (1,)), (SEPARATOR, (0, 1))):
            number = source.count(marker)
            if number not in counts:
                expected = 'one' if counts == (1,) else 'at most one'
                raise UserError(f'{told}, which has {number or "no"} {marker}; give it {expected}')
        self._segments = [_parse(part, told) for part in source.split(SEPARATOR)]
        parts = [part for segment in self._segments for part in segment]
        self.fields = tuple(dict.fromkeys(p.name for p in parts if isinstance(p, Field)))
        if not self.fields:
            raise UserError(f'{told}, which has no field; give it one, such as {{text}}')
        before = source[: source.index(MASK)]
        self.is_spaced = not before or before[-1].isspace() or before.endswith(SEPARATOR)

    def fill(
        self,
        values: Mapping[str, str],
        layout: SpecialTokenLayout,
        num_masks: Sequence[int],
        counts: Counter[str],
        demonstrations: Sequence[Demonstration] = (),
    ) -> list[Prompt]:
        """Return the prompt with each number of masks; only texts are shortened to make room.

        All prompts have the same tokens of the texts, those that fit with the most masks.

        Args:
            values: the text of each field.
            layout: how special tokens are added, and the maximal length.
            num_masks: numbers of masks, increasing.
            counts: gets the number of examples whose texts were truncated.
            demonstrations: answered prompts that follow, each a segment of its own.

        Raises:
            UserError: the template itself is too long.
        """
        tokenizer = layout.tokenizer
        segments = [_encode(parts, values, tokenizer) for parts in self._segments]
        for shown in demonstrations:
            answered = (_encode(parts, shown.values, tokenizer) for parts in self._segments)
            segments += [segment.answered(shown.pieces) for segment in answered]
        room = layout.max_text_tokens(len(segments)) - (num_masks[-1] - 1)
        segments = _shorten(segments, room, layout.max_length, counts)
        return [_lay_out(segments, number, layout) for number in num_masks]


def _parse(source: str, told: str) -> list[str | Field]:
    """The literals and fields of a segment."""
    parts: list[str | Field] = []
    try:
        for literal, name, changes, conversion in string.Formatter().parse(source):
            parts += [literal] if literal else []
            if name is None:
                continue
            if not name or conversion:
                raise UserError(f'{told}, which has a field without a name, or with a "!"')
            known = tuple(change.strip() for change in (changes or '').split(',') if change)
            for change in known:
                if change not in CHANGES:
                    raise unknown(f'change of {{{name}}}', change, CHANGES)
            parts.append(Field(name, known))
    except ValueError as error:
        raise UserError(f'{told}: {error}; write {{{{ for a brace that is text') from None
    return parts


def _encode(
    parts: Sequence[str | Field], values: Mapping[str, str], tokenizer: Tokenizer
) -> _Segment:
    """Tokenize a segment as a whole, as fill_mask would."""
    filled, spans = '', []
    mask = tokenizer.vocab[tokenizer.mask_id]
    for part in parts:
        if isinstance(part, Field):
            text = _without_special_tokens(part.text(values), tokenizer)
            spans.append((len(filled), len(filled) + len(text)))
            filled += text
        else:
            filled += part.replace(MASK, mask)
    (ids,), (offsets,) = tokenizer.encode_batch([filled], special=True)
    texts: list[list[int]] = [[] for _ in spans]
    for index, (start, end) in enumerate(offsets.tolist()):
        token = filled[start:end]  # may begin or end with a space of the literal beside it
        start, end = end - len(token.lstrip()), start + len(token.rstrip())
        for number, (first, last) in enumerate(spans):
            if first <= start and end <= last and first < last:
                texts[number].append(index)
                break
    is_answer = ids == tokenizer.mask_id
    return _Segment(ids, is_answer, [np.array(own, np.int64) for own in texts])


def _without_special_tokens(text: str, tokenizer: Tokenizer) -> str:
    """A text whose literal special tokens have a space inside, which makes them ordinary text."""
    for index in tokenizer.special_ids:
        name = tokenizer.vocab[index]
        text = text.replace(name, f'{name[0]} {name[1:]}')
    return text


def _shorten(
    segments: Sequence[_Segment], room: int, max_length: int, counts: Counter[str]
) -> list[_Segment]:
    """Leave out the last tokens of texts, always of the longest one, until all segments fit."""
    total = sum(len(segment.ids) for segment in segments)
    if total <= room:
        return list(segments)
    texts = [own for segment in segments for own in segment.texts]
    literal = total - sum(map(len, texts))
    if literal > room:
        raise UserError(
            f'the template has {literal} tokens besides its texts, but sequences of {max_length} '
            f'tokens have room for {room}; set training.sequence_length, or shorten the template'
        )
    counts[f'texts truncated to {max_length} tokens'] += 1
    kept = iter(truncate_longest_first(texts, room - literal))
    shortened = []
    for segment in segments:
        keep = np.ones(len(segment.ids), bool)
        for own in segment.texts:
            keep[own[len(next(kept)) :]] = False
        shortened.append(segment._replace(ids=segment.ids[keep], is_answer=segment.is_answer[keep]))
    return shortened


def _lay_out(segments: Sequence[_Segment], num_masks: int, layout: SpecialTokenLayout) -> Prompt:
    """Put special tokens around segments whose mask is repeated."""
    repeated = [
        (np.where(segment.is_answer, num_masks, 1), segment.ids, segment.is_answer)
        for segment in segments
    ]
    laid_out = layout.lay_out(*(np.repeat(ids, times) for times, ids, _ in repeated))
    slots = np.zeros(len(laid_out.ids), np.int32)
    for start, (times, _, is_answer) in zip(laid_out.starts, repeated, strict=True):
        (places,) = np.nonzero(np.repeat(is_answer, times))
        slots[start + places] = np.arange(1, len(places) + 1)
    return Prompt(laid_out.ids, np.minimum(laid_out.token_type_ids, 1), slots)
