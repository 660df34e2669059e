"""Labeled spans of a text, nested or not: every span of up to L words is a class or none."""

from collections import Counter
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import weighted_sum
from bert_jax.data.alignment import Alignment, align
from bert_jax.data.finetune_batches import TokenSequence
from bert_jax.data.labeled.examples import SpansExample
from bert_jax.data.sliding_windows import Window
from bert_jax.errors import UserError
from bert_jax.evaluation import scores
from bert_jax.evaluation.scores import Scores
from bert_jax.models.heads.spans import BOUNDARIES, SUMMARIES, SpanClassificationHead
from bert_jax.models.packed_rows import encoder_arguments
from bert_jax.tasks.problems.base import (
    HostOutputs,
    Problem,
    check_choice,
    check_labels,
    class_weights,
    label_ids,
    require_words,
    window_overlap,
)

THRESHOLD = 0.5  # where none was calibrated
_NO_SPAN = (
    1  # the stored class of spans that are none; 0 is for what is not learned, 2 … for labels
)


class Found(NamedTuple):
    """N spans and how probable the likeliest label of each is.

    first, last: int64 [N], words, both inside. label: int [N], a number. probability: float64 [N].
    """

    first: np.ndarray
    last: np.ndarray
    label: np.ndarray
    probability: np.ndarray

    def take(self, chosen) -> 'Found':
        return Found(*(array[chosen] for array in self))


class SpanLabeling(Problem):
    """The labeled spans of a text; a span has one label or none.

    settings: max_span_words L: longer spans are not found. width, summary, boundary: see
    models/heads/spans.py. nested: spans may lie in each other and overlap; else the most probable
    of those that do is kept. overlap: share of a window of a long text that its neighbor sees as
    well; a span is learned and answered for in the window that sees most on both its sides.
    class_weights: see problem.class_weights; no label is a class too.

    A span is predicted if its label is more probable than a threshold, by default THRESHOLD, which
    `tune_thresholds` sets to what gives the best F1. Gold spans that cannot be predicted (longer than L
    words or than what windows share, a second label of a span) are counted in `counts`, are not
    learned, and are misses in the score.
    """

    weights = {'spans': 1.0}

    def __init__(self, settings, layout, labels):
        super().__init__(settings, layout, labels)
        check_choice(settings, 'summary', SUMMARIES)
        check_choice(settings, 'boundary', BOUNDARIES)
        for key in ('max_span_words', 'width'):
            if settings[key] < 1:
                raise UserError(f'problem.{key} is {settings[key]}, must be at least 1')
        self._overlap = window_overlap(settings, layout.max_text_tokens(1))
        self._numbers = label_ids(self.labels)

    @classmethod
    def collect_labels(cls, examples, settings) -> tuple[str, ...]:
        return tuple(sorted({span.label for example in examples for span in example.spans}))

    def prepare(self, train):
        """The weight of no label and of each label."""
        most = self.settings.max_span_words
        counts = Counter(span.label for example in train for span in example.spans)
        words_N = np.array([len(example.words) for example in train], np.int64)
        total = sum(np.maximum(words_N - size, 0).sum() for size in range(most))
        counts_C = [counts[label] for label in self.labels]
        counts_C = [max(0, total - sum(counts_C)), *counts_C]
        self._class_weights_C = class_weights(self.settings.class_weights, counts_C)

    def parse_input(self, name, given):
        """From 'words' or 'text' (see require_words)."""
        return SpansExample(name, *require_words(given, name), None)

    def encode(self, example: SpansExample):
        aligned, windows = self._cut(example)
        size_WL = _sizes(aligned, self.settings.max_span_words)
        owner_WL = _owners(aligned, windows, size_WL)
        self.counts['texts_cut_into_windows'] += len(windows) > 1
        self.counts['words_tokenized_apart'] += aligned.num_splits
        self.counts['words_seen_as_an_unknown_token'] += aligned.num_dropped
        label_WL = self._label_numbers(example, owner_WL)
        return [
            (self._sequence(aligned, window, size_WL * own_WL, label_WL * own_WL),)
            for window, own_WL in zip(windows, _each(owner_WL, len(windows)), strict=True)
        ]

    def _cut(self, example: SpansExample) -> tuple[Alignment, list[Window]]:
        aligned = align(self.tokenizer, example.text, example.words)
        room = self.layout.max_text_tokens(1)
        return aligned, aligned.windows(room, self._overlap)

    def _label_numbers(self, example: SpansExample, owner_WL) -> np.ndarray:
        """int32 [W, L]: the stored class of each span."""
        if example.spans is None:
            return np.zeros(owner_WL.shape, np.int32)
        label_WL = np.full(owner_WL.shape, _NO_SPAN, np.int32)
        firsts = {start: number for number, (start, _) in enumerate(example.words)}
        lasts = {end: number for number, (_, end) in enumerate(example.words)}
        where = f'example {example.id}'
        for span in dict.fromkeys(example.spans):
            check_labels({span.label: where}, self.labels)
            first, last = firsts.get(span.start), lasts.get(span.end)
            if first is None or last is None or last < first:
                raise UserError(
                    f'{where}: the span {span.start}:{span.end} ({span.label}) does not begin and '
                    'end with words'
                )
            if last - first >= owner_WL.shape[1]:
                self.counts['gold_spans_longer_than_max_span_words'] += 1
            elif owner_WL[first, last - first] < 0:
                self.counts['gold_spans_in_no_window'] += 1
            elif label_WL[first, last - first] != _NO_SPAN:
                self.counts['gold_spans_with_two_labels'] += 1
            else:
                label_WL[first, last - first] = self._numbers[span.label] + 2
        return label_WL

    def _sequence(self, aligned: Alignment, window: Window, size_WL, label_WL) -> TokenSequence:
        laid_out = self.layout.lay_out(aligned.ids[window.start : window.stop])
        inside_W = (aligned.first >= window.start) & (aligned.first < window.stop)
        place_W = aligned.first[inside_W] - window.start + laid_out.starts[0]
        tokens = {}
        for name, values_WL in (('span_sizes', size_WL), ('span_labels', label_WL)):
            tokens[name] = np.zeros((len(laid_out.ids), values_WL.shape[1]), np.int32)
            tokens[name][place_W] = values_WL[inside_W]
        return TokenSequence(laid_out.ids, laid_out.token_type_ids, tokens, {})

    def make_heads(self, architecture, compute):
        own = self.settings
        head = partial(
            SpanClassificationHead,
            architecture,
            compute,
            num_labels=1 + len(self.labels),
            width=own.width,
            summary=own.summary,
            boundary=own.boundary,
        )
        return {'spans': head}

    def apply_heads(self, heads, encoded, batch, dropout_seeds_R):
        """logits fp32 [R, T, L, 1 + C]: of no span, and of the labels."""
        segments = encoder_arguments(batch)['segment_ids_BT']
        sizes = batch['span_sizes']
        logits = heads['spans'](encoded, sizes, dropout_seeds_R, segment_ids_BT=segments)
        return {'logits': logits}

    def terms(self, outputs, batch):
        """spans: −log p of the label or of none, a span, with the class weights."""
        label_RTL = batch['span_labels']
        class_RTL = jnp.maximum(label_RTL - 1, 0)
        log_RTLC = jax.nn.log_softmax(outputs['logits'])
        loss_RTL = -jnp.take_along_axis(log_RTLC, class_RTL[..., None], axis=-1)[..., 0]
        weight_RTL = jnp.asarray(self._class_weights_C)[class_RTL] * (label_RTL > 0)
        return {'spans': weighted_sum(loss_RTL, weight_RTL)}

    def host_outputs(self, outputs, batch):
        """The likeliest label of each span and its probability, which is 0 where no span is."""
        share_RTLC = jax.nn.softmax(outputs['logits'])[..., 1:]
        probability_RTL = jnp.where(batch['span_sizes'] > 0, share_RTLC.max(-1), 0)
        return HostOutputs({}, {'label': share_RTLC.argmax(-1), 'probability': probability_RTL})

    def decode(self, example, parts) -> list[dict]:
        """The spans: {start, end, text, label, probability}, in the order of their places."""
        found = self._found(example, parts)
        found = found.take(found.probability > self.thresholds.get('threshold', THRESHOLD))
        spans = []
        for number in np.lexsort((found.last, found.first)):
            start = example.words[found.first[number]][0]
            end = example.words[found.last[number]][1]
            spans.append(
                {
                    'start': start,
                    'end': end,
                    'text': example.text[start:end],
                    'label': self.labels[found.label[number]],
                    'probability': float(found.probability[number]),
                }
            )
        return spans

    def _found(self, example, parts) -> Found:
        """All spans with their likeliest labels; unless they may nest, without those that overlap
        a more probable one."""
        aligned, windows = self._cut(example)
        word_P = np.full(len(aligned.ids) + 1, -1, np.int64)
        word_P[aligned.first] = np.arange(len(aligned.first))
        of_windows = []
        for window, (own,) in zip(windows, parts, strict=True):
            place_N, number_N = np.nonzero(own['probability'])
            first_N = word_P[place_N - self.layout.lay_out([]).starts[0] + window.start]
            label_N, share_N = (own[key][place_N, number_N] for key in ('label', 'probability'))
            last_N = first_N + number_N
            of_windows.append(Found(first_N, last_N, label_N, share_N.astype(np.float64)))
        found = Found(*(np.concatenate(arrays) for arrays in zip(*of_windows, strict=True)))
        return found if self.settings.nested else found.take(_apart(found, len(aligned.first)))

    def tune_thresholds(self, examples, parts):
        """The threshold that gives the best F1."""
        right, probability, gold = [], [], 0
        for example, own in zip(examples, parts, strict=True):
            known = {tuple(span) for span in example.spans}
            gold += len(known)
            found = self._found(example, own)
            probability.append(found.probability)
            for first, last, label in zip(*found[:3], strict=True):
                place = example.words[first][0], example.words[last][1]
                right.append((*place, self.labels[label]) in known)
        return {'threshold': best_threshold(np.array(right), np.concatenate(probability), gold)}

    def score(self, examples, predictions) -> Scores:
        """Strict F1 of spans; those that cannot be predicted are misses."""
        gold = [[tuple(span) for span in example.spans] for example in examples]
        keys = ('start', 'end', 'label')
        guesses = [[tuple(span[key] for key in keys) for span in own] for own in predictions]
        return scores.spans(gold, guesses)

    def to_record(self, example, prediction) -> dict:
        gold = {}
        if example.spans is not None:
            gold = {'gold': [span._asdict() for span in example.spans]}
        return {'id': example.id, 'text': example.text} | gold | {'predicted': prediction}


def best_threshold(right: np.ndarray, probability: np.ndarray, gold: int) -> float:
    """The threshold between two probabilities above which the F1 of what is right is best, with
    `gold` things to be found; THRESHOLD if nothing is right at any."""
    if not right.any():
        return THRESHOLD
    order = np.argsort(-probability, kind='stable')
    probability = probability[order]
    below = np.append(probability[1:], 0)
    f1 = 2 * np.cumsum(right[order]) / (np.arange(1, len(order) + 1) + gold)
    best = int(np.where(below < probability, f1, -1).argmax())
    return float(probability[best] + below[best]) / 2


def _sizes(aligned: Alignment, most: int) -> np.ndarray:
    """int32 [W, L]: of how many pieces the span of 1 … L words is that begins with each word; 0
    beyond the text."""
    stop_W = aligned.first + aligned.count
    last_WL = np.arange(len(stop_W))[:, None] + np.arange(most)
    size_WL = np.append(stop_W, 0)[np.minimum(last_WL, len(stop_W))] - aligned.first[:, None]
    return np.maximum(size_WL, 0)


def _owners(aligned: Alignment, windows: list[Window], size_WL) -> np.ndarray:
    """int64 [W, L]: the window that answers for each span, in which it has most context on the
    side where it has less; −1 if it is in none."""
    start_WL, stop_WL = aligned.first[:, None], aligned.first[:, None] + size_WL
    num_pieces = len(aligned.ids)
    context_KWL = []
    for window in windows:
        # The text's own ends are no loss.
        left_WL = np.where(window.start > 0, start_WL - window.start, num_pieces)
        right_WL = np.where(window.stop < num_pieces, window.stop - stop_WL, num_pieces)
        inside_WL = (start_WL >= window.start) & (stop_WL <= window.stop) & (size_WL > 0)
        context_KWL.append(np.where(inside_WL, np.minimum(left_WL, right_WL), -1))
    context_KWL = np.stack(context_KWL)
    return np.where(context_KWL.max(0) >= 0, context_KWL.argmax(0), -1)


def _each(owner_WL, num_windows: int) -> list[np.ndarray]:
    """For each window 1 where a span is its own, else 0; int32 [W, L]."""
    return [(owner_WL == number).astype(np.int32) for number in range(num_windows)]


def _apart(found: Found, num_words: int) -> np.ndarray:
    """int64: the spans that are left if, from the most probable on, those that overlap one that
    was taken are left out."""
    taken_W, chosen = np.zeros(num_words, bool), []
    for number in np.argsort(-found.probability, kind='stable'):
        inside = slice(found.first[number], found.last[number] + 1)
        if not taken_W[inside].any():
            taken_W[inside] = True
            chosen.append(number)
    return np.array(chosen, np.int64)
