"""Classification of pairs of marked spans: relations, words in two contexts, coreference."""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.builder import parse_int
from bert_jax.labels.examples import Mark, MarkedExample
from bert_jax.labels.records import InvalidRecord
from bert_jax.models.heads.relations import FIRST, SECOND
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, raw_input
from bert_jax.problems.classification import (
    OneLabelDecoder,
    OneLabelEncoding,
    OneLabelLoss,
    Probabilities,
)
from bert_jax.types import JsonRecord, RecordView


class MarkedEncoding(OneLabelEncoding[MarkedExample]):
    """Two marked spans, both in one text or one in each of two texts.

    Long texts keep the tokens nearest to the marks.
    """

    def parse_input(self, name: str, record: RecordView) -> MarkedExample:
        """Read 'text' and 'marks', two [start, end] in characters; the second is in any 'text2'."""
        texts = raw_input.require_texts(record, name)
        offsets = raw_input.require(record, name, 'marks')
        try:
            (start, end), (start2, end2) = offsets
            marks = (
                Mark(0, parse_int(start), parse_int(end)),
                Mark(len(texts) - 1, parse_int(start2), parse_int(end2)),
            )
        except (TypeError, ValueError, InvalidRecord):
            raise UserError(f"{name}: 'marks' is {offsets}; give two pairs [start, end]") from None
        for mark in marks:
            if not 0 <= mark.start < mark.end <= len(texts[mark.text]):
                raise UserError(
                    f'{name}: the mark {mark.start}:{mark.end} is empty or outside text {mark.text}'
                )
        return MarkedExample(name, texts, marks, None)

    def encode(self, example: MarkedExample) -> list[Item]:
        encoded = self.tokenizer.encode_batch(example.texts, special=True)
        flags = [
            _mark_flags(offsets, [mark if mark.text == number else None for mark in example.marks])
            for number, offsets in enumerate(encoded.offsets)
        ]
        kept = self._kept_tokens(flags)
        ids = [text_ids[indices] for text_ids, indices in zip(encoded.ids, kept, strict=True)]
        laid_out = self.layout.lay_out(*ids)
        marks_N = np.zeros(len(laid_out.ids), np.int32)
        for start, text_flags, indices in zip(laid_out.starts, flags, kept, strict=True):
            marks_N[start : start + len(indices)] = text_flags[indices]
        for flag in (FIRST, SECOND):
            self.setup.counts['marks without a token'] += not (marks_N & flag).any()
        tokens, values = {'marks': marks_N}, {'label': self.label_id(example)}
        return [(TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, values),)]

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        marks = [
            [token for token, flags in zip(tokens, fields['marks'], strict=True) if flags & flag]
            for flag in (FIRST, SECOND)
        ]
        return super().describe_targets(tokens, fields) | {'marks': marks}

    def _kept_tokens(self, flags: list[np.ndarray]) -> list[np.ndarray]:
        """Choose the tokens of each text to keep; return their indices, int64."""
        room = self.layout.max_text_tokens(len(flags))
        kept = nearest([text_flags > 0 for text_flags in flags], room)
        self.setup.counts['texts truncated around their marks'] += sum(map(len, flags)) > room
        self.setup.counts['texts with tokens removed between their marks'] += any(
            (np.diff(indices) > 1).any() for indices in kept
        )
        self.setup.counts['truncated marks'] += any(
            np.delete(text_flags, indices).any()
            for text_flags, indices in zip(flags, kept, strict=True)
        )
        return kept


class MarkedLoss(OneLabelLoss):
    """Cross-entropy of a head on the states of both spans."""

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'relation': {'num_labels': len(self.labels)}}


class MarkedDecoder(OneLabelDecoder[MarkedExample]):
    """The class of a pair of marked spans.

    With the setting `exclusive`, examples with the same texts and the same first mark (a pronoun
    and its candidates) are alternatives: at most the most probable alternative is `positive`. GAP
    (Webster et al. 2018, arXiv 1810.05201) is scored by the F1 of TRUE over all pairs:
    metrics=('f1',), positive='TRUE'.
    """

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.exclusive and (len(self.labels) != 2 or settings.positive not in self.labels):
            raise UserError(
                'problem.exclusive needs two labels, one of which is problem.positive; it is '
                f'{settings.positive!r}, and the labels are {", ".join(self.labels)}'
            )

    def postprocess(
        self, examples: Sequence[MarkedExample], predictions: Sequence[Probabilities]
    ) -> Sequence[Probabilities]:
        """With `exclusive`, make all but the most probable alternative negative."""
        if not self.settings.exclusive:
            return predictions
        positive = self.settings.positive
        (negative,) = set(self.labels) - {positive}
        groups, revised = collections.defaultdict(list), list(predictions)
        for number, example in enumerate(examples):
            groups[example.texts, example.marks[0]].append(number)
        for group in groups.values():
            best = max(group, key=lambda number: predictions[number][positive])
            for number in group:
                if number != best:
                    revised[number] = _as_negative(predictions[number], positive, negative)
        return revised

    def to_record(self, example: MarkedExample, prediction: Probabilities) -> JsonRecord:
        marks = [
            {
                'text': mark.text,
                'start': mark.start,
                'end': mark.end,
                'marked': example.texts[mark.text][mark.start : mark.end],
            }
            for mark in example.marks
        ]
        return super().to_record(example, prediction) | {'marks': marks}


RELATIONS = base.Parts(MarkedEncoding, MarkedLoss, MarkedDecoder)


def nearest(is_marked: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """Choose the `room` tokens of one or two texts that are nearest to a marked token.

    Distances are within a text. Ties go to the first token; tokens of a text without a mark come
    last.

    Args:
        is_marked: for each text, bool [n].
        room: number of tokens to keep.
    Returns:
        For each text the kept indices, int64, ascending.
    """
    distances = []
    for marked_N in is_marked:
        distance_NM = np.abs(np.arange(len(marked_N))[:, None] - np.flatnonzero(marked_N))
        distances.append(distance_NM.min(1, initial=np.iinfo(np.int64).max))
    order = np.argsort(np.concatenate(distances), kind='stable')[:room]
    ends = np.cumsum([len(marked_N) for marked_N in is_marked])
    return [
        np.sort(order[(order >= end - len(marked_N)) & (order < end)]) - (end - len(marked_N))
        for end, marked_N in zip(ends, is_marked, strict=True)
    ]


def _mark_flags(offsets: np.ndarray, marks: Sequence[Mark | None]) -> np.ndarray:
    """Return bit flags, int32 [n], of the marks that each token overlaps."""
    flags_N = np.zeros(len(offsets), np.int32)
    for flag, mark in zip((FIRST, SECOND), marks, strict=True):
        if mark is not None:
            flags_N |= flag * ((offsets[:, 0] < mark.end) & (offsets[:, 1] > mark.start))
    return flags_N


def _as_negative(prediction: Probabilities, positive: str, negative: str) -> Probabilities:
    """Return a prediction of `negative`, for an example with a more probable alternative."""
    if prediction[positive] < prediction[negative]:
        return prediction
    return {label: float(label == negative) for label in prediction}
