"""Labeled spans, possibly nested: every span of up to L words has one label or no label."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import SpansExample
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.metrics import scores
from bert_jax.metrics.entities import Span
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, raw_input
from bert_jax.problems.words import WordEncoding
from bert_jax.tokenizers.alignment import Alignment, join_words
from bert_jax.tokenizers.sliding_windows import Window
from bert_jax.types import Batch, JsonObject, JsonRecord, RecordView

HALF = 0.5  # the tuned threshold if no span of the dev split is correct
_THRESHOLD = 'threshold'
_NO_LABEL = 1  # stored class of a span without a label; 0: not learned, 2 …: labels

Prediction = list[JsonObject]  # spans: start, end, text, label, probability


class CandidateSpans(NamedTuple):
    """N spans and their most probable labels.

    Attributes:
        first, last: first and last word, inclusive, int64 [N].
        label: number of the most probable label, int [N].
        probability: probability of this label, float64 [N].
        no_label: probability that the span has no label (NULL), float64 [N].
    """

    first: np.ndarray
    last: np.ndarray
    label: np.ndarray
    probability: np.ndarray
    no_label: np.ndarray

    def take(self, chosen: np.ndarray) -> 'CandidateSpans':
        """Select spans by index or mask."""
        return CandidateSpans(*(array[chosen] for array in self))


class SpanEncoding(WordEncoding[SpansExample]):
    """Every span of up to L = `max_span_words` words, with a label or without one.

    A span of a long text is learned and predicted in the window with the most context around the
    span. Gold spans that cannot be predicted (longer than L words or than the overlap of windows,
    or a second label of a span) are counted in `counts` and not learned. In plain text without
    spaces, and in Korean, `join_words` joins single characters into subwords, which then are the
    words; an added token such as '[e1]' is one word. Gold spans that start or end inside a subword
    are learned with the whole subword.
    """

    @classmethod
    def count_labels(cls, train: Sequence[SpansExample]) -> Counter[str]:
        return Counter(span.label for example in train for span in example.spans or ())

    def class_counts(self, train: Sequence[SpansExample]) -> Sequence[int]:
        """Count the spans without a label, and with each label."""
        counts = self.count_labels(train)
        num_words_N = np.array([len(self.join_subwords(example).words) for example in train])
        sizes = range(self.settings.max_span_words)
        total = int(sum(np.maximum(num_words_N - size, 0).sum() for size in sizes))
        counts_C = [counts[label] for label in self.labels]
        return [max(0, total - sum(counts_C)), *counts_C]

    def parse_input(self, name: str, record: RecordView) -> SpansExample:
        """Read 'words', 'tokens' or 'text' (see `require_words`)."""
        return SpansExample(name, *raw_input.require_words(record, name, self.setup.splitter), None)

    def join_subwords(self, example: SpansExample) -> SpansExample:
        """Replace single characters by the subwords, and parts of an added token by the token."""
        words = join_words(self.tokenizer, example.text, example.words)
        return example._replace(words=words)

    def encode(self, example: SpansExample) -> list[Item]:
        joined = self.join_subwords(example)
        aligned, windows = self.windows(joined)
        size_WL = _span_sizes(aligned, self.settings.max_span_words)
        window_WL = _assigned_window(aligned, windows, size_WL)
        self.count_unusual(aligned, windows)
        label_WL = self._stored_labels(example, joined.words, window_WL)
        items: list[Item] = []
        for number, window in enumerate(windows):
            is_here_WL = (window_WL == number).astype(np.int32)
            sequence = self._sequence(aligned, window, size_WL * is_here_WL, label_WL * is_here_WL)
            items.append((sequence,))
        return items

    def _stored_labels(
        self, example: SpansExample, joined: WordOffsets, window_WL: np.ndarray
    ) -> np.ndarray:
        """Return the stored class of each span, by first word and length in words, int32 [W, L]."""
        if example.spans is None:
            return np.zeros(window_WL.shape, np.int32)
        starts, ends = ({word[side] for word in example.words} for side in (0, 1))
        label_WL = np.full(window_WL.shape, _NO_LABEL, np.int32)
        start_W, end_W = np.array(joined, np.int64).reshape(-1, 2).T
        for span in dict.fromkeys(example.spans):
            label = self.setup.label_number(span.label, example.id)
            if not (span.start < span.end and span.start in starts and span.end in ends):
                raise UserError(
                    f'example {example.id}: the span {span.start}:{span.end} ({span.label}) does '
                    'not begin and end with words'
                )
            first = int(np.searchsorted(end_W, span.start, side='right'))
            last = int(np.searchsorted(start_W, span.end)) - 1
            if (start_W[first], end_W[last]) != (span.start, span.end):
                self.setup.counts['gold spans that start or end inside a subword'] += 1
            if last - first >= window_WL.shape[1]:
                self.setup.counts['gold spans longer than problem.max_span_words'] += 1
            elif window_WL[first, last - first] < 0:
                self.setup.counts['gold spans in no window'] += 1
            elif label_WL[first, last - first] != _NO_LABEL:
                self.setup.counts['gold spans with two labels'] += 1
            else:
                label_WL[first, last - first] = label + 2
        return label_WL

    def _sequence(
        self, aligned: Alignment, window: Window, size_WL: np.ndarray, label_WL: np.ndarray
    ) -> TokenSequence:
        """Put the sizes and labels of spans at the first token of their first word."""
        laid_out = self.layout.lay_out(aligned.ids[window.start : window.stop])
        is_inside_W = (aligned.first >= window.start) & (aligned.first < window.stop)
        place_W = aligned.first[is_inside_W] - window.start + laid_out.starts[0]
        tokens = {}
        for name, values_WL in (('span_sizes', size_WL), ('span_labels', label_WL)):
            tokens[name] = np.zeros((len(laid_out.ids), values_WL.shape[1]), np.int32)
            tokens[name][place_W] = values_WL[is_inside_W]
        return TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, {})

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        """Return 'spans', the label and the tokens of each labeled span."""
        classes_NL, sizes_NL = fields['span_labels'], fields['span_sizes']
        spans = []
        for start, size in np.argwhere(classes_NL > _NO_LABEL):
            label = self.labels[classes_NL[start, size] - _NO_LABEL - 1]
            spans.append([label, *tokens[start : start + sizes_NL[start, size]]])
        return {'spans': spans}


class SpanLoss(base.Loss):
    """Cross-entropy of the label of each span; "no label" is a class."""

    weights = {'spans': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        """The logits are of no label and of each label, fp32 [R, T, L, 1 + C]."""
        options = {name: self.settings[name] for name in ('width', 'summary', 'boundary')}
        return {'spans': {'num_labels': 1 + len(self.labels), **options}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'spans', the weighted cross-entropy over spans; "no label" is a class."""
        label_RTL = batch['span_labels']
        class_RTL = jnp.maximum(label_RTL - 1, 0)
        log_p_RTLC = jax.nn.log_softmax(outputs['logits'])
        loss_RTL = -jnp.take_along_axis(log_p_RTLC, class_RTL[..., None], axis=-1)[..., 0]
        weight_RTL = jnp.asarray(self.setup.class_weights_C)[class_RTL] * (label_RTL > 0)
        return {'spans': weighted_sum(loss_RTL, weight_RTL)}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return the best label of each span, its probability, and that of no label.

        All are 0 where there is no span.
        """
        p_RTLC = jax.nn.softmax(outputs['logits'])
        is_span_RTL = batch['span_sizes'] > 0
        best = {
            'label': p_RTLC[..., 1:].argmax(-1),
            'probability': jnp.where(is_span_RTL, p_RTLC[..., 1:].max(-1), 0),
            'no_label': jnp.where(is_span_RTL, p_RTLC[..., 0], 0),
        }
        return base.HostOutputs({}, best)

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return 'probabilities' of labels, fp32 [R, T, L, C]; 0 where there is no span.

        'logits', fp32 [R, T, L, 1 + C], have no label first.
        """
        p_RTLC = jax.nn.softmax(outputs['logits'])[..., 1:]
        is_span_RTL1 = (batch['span_sizes'] > 0)[..., None]
        p_RTLC = jnp.where(is_span_RTL1, p_RTLC, 0)
        return base.HostOutputs({}, {'logits': outputs['logits'], 'probabilities': p_RTLC})


class SpanDecoder(base.Decoder[SpansExample, Prediction]):
    """The labeled spans of a text.

    With `decoding` argmax a span is predicted if its most probable class is a label rather than no
    label (Jurafsky & Martin, Speech and Language Processing, 3rd ed., section 11.5); with
    `decoding` threshold, if the probability of its best label exceeds `threshold`, tuned on the
    dev split unless it is set. Gold spans that cannot be predicted count as misses in the score.
    """

    @property
    def dev_keys(self) -> Sequence[str]:
        return ('decoding',) if self._tunes else ()

    @property
    def _tunes(self) -> bool:
        return self.settings.decoding == 'threshold' and self.settings.threshold is None

    def decode(
        self, example: SpansExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Prediction:
        """Return {'start', 'end', 'text', 'label', 'probability'} of spans, in text order.

        Raises:
            UserError: `decoding` is 'threshold', but no threshold was tuned or set.
        """
        example = self.encoding.join_subwords(example)
        spans = self._candidates(example, parts)
        spans = spans.take(spans.probability > self._least(spans, calibration))
        spans = self._without_overlaps(spans, len(example.words))
        spans = spans.take(np.lexsort((spans.last, spans.first)))
        return [
            raw_input.describe_span(
                example.text,
                example.words[first][0],
                example.words[last][1],
                label=self.labels[label],
                probability=float(probability),
            )
            for first, last, label, probability in zip(*spans[:4], strict=True)
        ]

    def _least(self, spans: CandidateSpans, calibration: base.Calibration) -> float | np.ndarray:
        """Return what the probability of the best label of a span must exceed."""
        if self.settings.decoding == 'argmax':
            return spans.no_label
        if not self._tunes:
            return float(self.settings.threshold)
        if _THRESHOLD not in calibration.thresholds:
            raise UserError(
                "problem.decoding is 'threshold', but no threshold was tuned when the model was "
                'trained; set problem.threshold'
            )
        return calibration.thresholds[_THRESHOLD]

    def _candidates(self, example: SpansExample, parts: base.ExampleOutputs) -> CandidateSpans:
        """Return all spans of a text with joined subwords."""
        aligned, windows = self.encoding.windows(example)
        word_P = np.full(len(aligned.ids) + 1, -1, np.int64)
        word_P[aligned.first] = np.arange(len(aligned.first))
        text_start = self.setup.layout.lay_out(np.zeros(0, np.int32)).starts[0]
        by_window = []
        for window, (part,) in zip(windows, parts, strict=True):
            place_N, size_N = np.nonzero(part['probability'])
            first_N = word_P[place_N - text_start + window.start]
            label_N = part['label'][place_N, size_N]
            p_N, no_label_N = (
                part[key][place_N, size_N].astype(np.float64) for key in ('probability', 'no_label')
            )
            by_window.append(CandidateSpans(first_N, first_N + size_N, label_N, p_N, no_label_N))
        return CandidateSpans(*map(np.concatenate, zip(*by_window, strict=True)))

    def _without_overlaps(self, spans: CandidateSpans, num_words: int) -> CandidateSpans:
        """Return the spans that do not overlap a more probable one, or all if they may nest."""
        if self.settings.nested:
            return spans
        is_covered_W, chosen = np.zeros(num_words, bool), []
        for number in np.argsort(-spans.probability, kind='stable'):
            inside = slice(spans.first[number], spans.last[number] + 1)
            if not is_covered_W[inside].any():
                is_covered_W[inside] = True
                chosen.append(number)
        return spans.take(np.array(chosen, np.int64))

    def tune_thresholds(
        self, examples: Sequence[SpansExample], parts: Sequence[base.ExampleOutputs]
    ) -> dict[str, float]:
        """Find the threshold with the best F1, if `decoding` needs one."""
        if not self._tunes:
            return {}
        is_correct, probability, num_gold = [], [], 0
        for example, example_parts in zip(examples, parts, strict=True):
            example = self.encoding.join_subwords(example)
            gold = {tuple(span) for span in example.spans or ()}
            num_gold += len(gold)
            spans = self._candidates(example, example_parts)
            spans = self._without_overlaps(spans, len(example.words))
            probability.append(spans.probability)
            for first, last, label in zip(*spans[:3], strict=True):
                start, end = example.words[first][0], example.words[last][1]
                is_correct.append((start, end, self.labels[label]) in gold)
        best = best_threshold(np.array(is_correct), np.concatenate(probability), num_gold)
        return {_THRESHOLD: best}

    def score(self, examples: Sequence[SpansExample], predictions: Sequence[Prediction]) -> Scores:
        """Return strict F1; gold spans that cannot be predicted are misses."""
        return scores.spans(*_compared(examples, predictions))

    def score_rows(
        self, examples: Sequence[SpansExample], predictions: Sequence[Prediction]
    ) -> RowScore:
        return scores.span_rows(*_compared(examples, predictions))

    def blind_guesses(
        self, train: Sequence[SpansExample], examples: Sequence[SpansExample]
    ) -> list[Prediction]:
        """Return no spans."""
        return [[] for _ in examples]

    def to_record(self, example: SpansExample, prediction: Prediction) -> JsonObject:
        gold = {}
        if example.spans is not None:
            gold = {'gold': [span._asdict() for span in example.spans]}
        return {'id': example.id, 'text': example.text} | gold | {'predicted': prediction}


SPANS = base.Parts(SpanEncoding, SpanLoss, SpanDecoder)


def _compared(
    examples: Sequence[SpansExample], predictions: Sequence[Prediction]
) -> tuple[list[list[Span]], list[list[Span]]]:
    """Return the gold and the predicted spans (start, end, label) of each example."""
    gold = [[(s.start, s.end, s.label) for s in example.spans or ()] for example in examples]
    keys = ('start', 'end', 'label')
    return gold, [[tuple(span[key] for key in keys) for span in spans] for spans in predictions]


def best_threshold(is_correct: np.ndarray, probability: np.ndarray, num_gold: int) -> float:
    """Return the probability threshold with the best F1.

    The threshold is the mean of two neighboring probabilities, or HALF if no span is correct.

    Args:
        is_correct, probability: arrays over candidates, [N].
        num_gold: number of gold spans.
    """
    if not is_correct.any():
        return HALF
    order = np.argsort(-probability, kind='stable')
    probability = probability[order]
    below = np.append(probability[1:], 0)
    f1 = 2 * np.cumsum(is_correct[order]) / (np.arange(1, len(order) + 1) + num_gold)
    best = int(np.where(below < probability, f1, -1).argmax())
    return float(probability[best] + below[best]) / 2


def _span_sizes(aligned: Alignment, max_words: int) -> np.ndarray:
    """Count the tokens of spans of 1 … L words from each word, int32 [W, L]; 0 past the text."""
    stop_W = aligned.first + aligned.count
    last_WL = np.arange(len(stop_W))[:, None] + np.arange(max_words)
    size_WL = np.append(stop_W, 0)[np.minimum(last_WL, len(stop_W))] - aligned.first[:, None]
    return np.asarray(np.maximum(size_WL, 0))


def _assigned_window(aligned: Alignment, windows: list[Window], size_WL: np.ndarray) -> np.ndarray:
    """Assign each span to the window that learns and predicts it, int64 [W, L]; −1: no window.

    This is the window with the most context on the side of the span that has less context.
    """
    start_WL, stop_WL = aligned.first[:, None], aligned.first[:, None] + size_WL
    num_tokens = len(aligned.ids)
    context_KWL = []
    for window in windows:
        # At an end of the text, no context is missing.
        left_WL = np.where(window.start > 0, start_WL - window.start, num_tokens)
        right_WL = np.where(window.stop < num_tokens, window.stop - stop_WL, num_tokens)
        is_inside_WL = (start_WL >= window.start) & (stop_WL <= window.stop) & (size_WL > 0)
        context_KWL.append(np.where(is_inside_WL, np.minimum(left_WL, right_WL), -1))
    best_KWL = np.stack(context_KWL)
    return np.where(best_KWL.max(0) >= 0, best_KWL.argmax(0), -1)
