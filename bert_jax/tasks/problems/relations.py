"""What holds between two marked places: relations, a word in two contexts, coreference."""

import collections
from collections.abc import Sequence
from functools import partial

import numpy as np

from bert_jax.data import finetune_batches
from bert_jax.data.labeled.examples import Mark, MarkedExample
from bert_jax.errors import UserError
from bert_jax.models.heads.relations import FIRST, SECOND, MarkedPairHead
from bert_jax.objectives.packed import encoder_arguments
from bert_jax.tasks.problems.base import require, require_texts
from bert_jax.tasks.problems.classification import Classification

_BITS = (FIRST, SECOND)


class Relations(Classification):
    """The class of two marked places, in one text or in one each of two.

    settings: those of Classification, and exclusive: examples of the same texts and first mark (a
    pronoun and each of its candidates) are alternatives: at most one is `positive`, the most
    probable. GAP (Webster et al. 2018, arXiv 1810.05201) is scored by the F1 of TRUE over all
    pairs: metrics=('f1',), positive='TRUE'.

    Of texts that are too long the tokens nearest to the marks are kept.
    """

    pretrained_heads = ()

    def __init__(self, settings, framing, labels):
        super().__init__(settings, framing, labels)
        if settings.exclusive and (len(self.labels) != 2 or settings.positive not in self.labels):
            raise UserError(
                'problem.exclusive needs two labels, one of which is problem.positive, not '
                f'{settings.positive!r} of {", ".join(self.labels)}'
            )

    def parse_input(self, name, given):
        """From 'text' and 'marks', two of [start, end] in characters; with 'text2', the second mark
        is there."""
        texts = require_texts(given, name)
        marks = require(given, name, 'marks')
        try:
            (start, end), (start2, end2) = marks
            places = Mark(0, int(start), int(end)), Mark(len(texts) - 1, int(start2), int(end2))
        except (TypeError, ValueError):
            raise UserError(f'{name}: marks are two pairs [start, end], not {marks}') from None
        return MarkedExample(name, texts, places, None)

    def encode(self, example: MarkedExample):
        _check(example)
        encoded = self.tokenizer.encode_batch(list(example.texts))
        bits = [
            _bits(offsets, [mark if mark.text == number else None for mark in example.marks])
            for number, offsets in enumerate(encoded.offsets)
        ]
        kept = self._kept(bits)
        framed = self.framing.frame(*_taken(encoded.ids, kept))
        marks_N = np.zeros(len(framed.ids), np.int32)
        for start, own in zip(framed.starts, _taken(bits, kept), strict=True):
            marks_N[start : start + len(own)] = own
        for bit in _BITS:
            self.counts['marks_without_a_token'] += not (marks_N & bit).any()
        tokens, values = {'marks': marks_N}, {'label': self.label_number(example)}
        return [(finetune_batches.Sequence(framed.ids, framed.token_type_ids, tokens, values),)]

    def _kept(self, bits: list[np.ndarray]) -> list[np.ndarray]:
        """int64 indices of the tokens of each text that there is room for."""
        room = self.framing.room(len(bits))
        kept = nearest([own > 0 for own in bits], room)
        self.counts['texts_cut_around_their_marks'] += sum(map(len, bits)) > room
        self.counts['texts_cut_between_their_marks'] += any(
            (np.diff(own) > 1).any() for own in kept
        )
        self.counts['marks_cut'] += any(
            len(own_kept) < len(own) and np.delete(own, own_kept).any()
            for own, own_kept in zip(bits, kept, strict=True)
        )
        return kept

    def make_heads(self, architecture, compute):
        number = len(self.labels)
        return {'relation': partial(MarkedPairHead, architecture, compute, num_labels=number)}

    def apply_heads(self, heads, encoded, batch, dropout_seeds_R):
        """logits fp32 [R, S, C]."""
        rows = encoder_arguments(batch)
        return {'logits': heads['relation'](encoded, batch['marks'], dropout_seeds_R, **rows)}

    def postprocess(self, examples, predictions):
        """With `exclusive`, of alternatives only the most probable stays positive."""
        if not self.settings.exclusive:
            return predictions
        positive = self.settings.positive
        (negative,) = set(self.labels) - {positive}
        groups, settled = collections.defaultdict(list), list(predictions)
        for number, example in enumerate(examples):
            groups[example.texts, example.marks[0]].append(number)
        for group in groups.values():
            best = max(group, key=lambda number: predictions[number][positive])
            for number in group:
                if number != best:
                    settled[number] = _less_than_half(predictions[number], positive, negative)
        return settled

    def to_record(self, example, prediction) -> dict:
        marks = [
            {
                'text': mark.text,
                'start': mark.start,
                'end': mark.end,
                'marked': _marked(example, mark),
            }
            for mark in example.marks
        ]
        return super().to_record(example, prediction) | {'marks': marks}


def nearest(is_marked: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """Indices, ascending, of the `room` tokens of one or two texts that are nearest to a marked
    token of their own text, of equal ones the first; those of a text without any come last.

    is_marked: bool [n] of each text.
    """
    distances = []
    for marked_N in is_marked:
        places = np.flatnonzero(marked_N)
        away_NM = np.abs(np.arange(len(marked_N))[:, None] - places)
        distances.append(away_NM.min(1, initial=np.iinfo(np.int64).max))
    order = np.argsort(np.concatenate(distances), kind='stable')[:room]
    ends = np.cumsum([len(marked_N) for marked_N in is_marked])
    return [
        np.sort(order[(order >= end - len(marked_N)) & (order < end)]) - (end - len(marked_N))
        for end, marked_N in zip(ends, is_marked, strict=True)
    ]


def _bits(offsets: np.ndarray, marks: Sequence[Mark | None]) -> np.ndarray:
    """int32 [n]: the marks each token has characters of."""
    bits_N = np.zeros(len(offsets), np.int32)
    for bit, mark in zip(_BITS, marks, strict=True):
        if mark is not None:
            bits_N |= bit * ((offsets[:, 0] < mark.end) & (offsets[:, 1] > mark.start))
    return bits_N


def _taken(arrays: Sequence[np.ndarray], kept: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [array[own] for array, own in zip(arrays, kept, strict=True)]


def _marked(example: MarkedExample, mark: Mark) -> str:
    return example.texts[mark.text][mark.start : mark.end]


def _check(example: MarkedExample):
    where = f'example {example.id}'
    if len(example.marks) != 2:
        raise UserError(f'{where} has {len(example.marks)} marks, must have two')
    for mark in example.marks:
        there = 0 <= mark.text < len(example.texts)
        if not there or not 0 <= mark.start < mark.end <= len(example.texts[mark.text]):
            raise UserError(
                f'{where}: the mark {mark.start}:{mark.end} is outside text {mark.text}, or empty'
            )


def _less_than_half(prediction: dict, positive: str, negative: str) -> dict:
    """A prediction that is not positive: given that another is, this one cannot be."""
    if prediction[positive] < prediction[negative]:
        return prediction
    return {label: float(label == negative) for label in prediction}
