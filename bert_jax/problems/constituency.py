"""Constituency parsing: a label for every span of words, and the best tree of them.

Kitaev & Klein 2018, arXiv 1805.01052, sections 2 and 3.1, with the scores of a local loss, as
"Two local models" of Teng & Zhang 2018 (arXiv 1808.07617): each span is learned on its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms
from bert_jax.labels import trees, word_spans
from bert_jax.labels.examples import SpansExample
from bert_jax.labels.tag_schemes import WordSpan
from bert_jax.labels.trees import Tree
from bert_jax.metrics import brackets
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.problems import base
from bert_jax.problems.spans import CandidateSpans, SpanDecoder, SpanEncoding, SpanLoss
from bert_jax.types import Batch, JsonObject, JsonView

_IMPOSSIBLE = -1e9  # logit of a label that single words, or longer spans, never have
_LEAST = 1e-30  # probability


class TreeEncoding(SpanEncoding):
    """Every span of up to L = `max_span_words` words, with its chain of labels or no label."""

    def keep(self, train: Sequence[SpansExample]) -> JsonView:
        """Keep which chains of labels words have, and which longer spans."""
        chains: tuple[set[str], set[str]] = (set(), set())
        for example in train:
            words = set(example.words)
            for start, end, label in example.spans or ():
                chains[(start, end) not in words].add(label)
        of_words, of_phrases = map(sorted, chains)
        return {
            'splitter': word_spans.closest_splitter(train),
            'of_words': of_words,
            'of_phrases': of_phrases,
        }

    def join_subwords(self, example: SpansExample) -> SpansExample:
        """Return the example: its words are those of the tree."""
        return example

    def _stored_labels(
        self, example: SpansExample, joined: word_spans.WordOffsets, window_WL: np.ndarray
    ) -> np.ndarray:
        """Return `SpanEncoding._stored_labels` without chains of labels that were not trained."""
        if example.spans is not None:
            known = tuple(one for one in example.spans if one.label in self.setup.label_numbers)
            self.setup.counts['chains of labels that no training tree has'] += len(
                example.spans
            ) - len(known)
            example = example._replace(spans=known)
        return super()._stored_labels(example, joined, window_WL)


class TreeLoss(SpanLoss):
    """Cross-entropy of the chain of labels of each span, among those that its length allows."""

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        return super().terms(self._allowed(outputs), batch)

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return super().host_outputs(self._allowed(outputs), batch)

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return super().exported_outputs(self._allowed(outputs), batch)

    def _allowed(self, outputs: base.Outputs) -> base.Outputs:
        """Return the logits, fp32 [R, T, L, 1 + C], without impossible labels; L = 1: words."""
        logits_RTLC: jax.Array = outputs['logits']
        kept = self.setup.kept
        of_words_C, of_phrases_C = (
            np.array([True, *(label in kept.get(name, self.labels) for label in self.labels)])
            for name in ('of_words', 'of_phrases')
        )
        is_word_L1 = np.arange(logits_RTLC.shape[2])[:, None] == 0
        is_allowed_LC = np.where(is_word_L1, of_words_C, of_phrases_C)
        return {'logits': jnp.where(is_allowed_LC, logits_RTLC, _IMPOSSIBLE)}


class TreeDecoder(SpanDecoder):
    """The tree whose spans have the highest sum of log p(label) − log p(no label).

    A prediction is a list of constituents: first word, last word + 1, chain of labels.
    """

    dev_keys = ()  # no threshold is tuned

    def decode(
        self, example: SpansExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> list[JsonObject]:
        """Return {'start', 'end', 'label'} of constituents, in words, end exclusive."""
        tree = best_tree(self._candidates(example, parts), len(example.words), self.labels)
        return [{'start': start, 'end': end, 'label': label} for start, end, label in tree]

    def tune_thresholds(
        self, examples: Sequence[SpansExample], parts: Sequence[base.ExampleOutputs]
    ) -> dict[str, float]:
        return {}

    def blind_guesses(
        self, train: Sequence[SpansExample], examples: Sequence[SpansExample]
    ) -> list[list[JsonObject]]:
        """Return right-branching trees with the most frequent label and tag."""
        tags, labels = Counter[str](), Counter[str]()
        for example in examples:
            for start, end, chain in _gold(example):
                (tags if end == start + 1 else labels)[chain] += 1
        ((tag, _),), ((label, _),) = (some.most_common(1) or [('X', 0)] for some in (tags, labels))
        guesses = []
        for example in examples:
            number = len(example.words)
            longer = [dict(start=n, end=number, label=label) for n in range(number - 1)]
            words = [dict(start=n, end=n + 1, label=tag) for n in range(number)]
            guesses.append([*longer, *words])
        return guesses

    def score(
        self, examples: Sequence[SpansExample], predictions: Sequence[Sequence[JsonObject]]
    ) -> Scores:
        """Return the scores of brackets; see metrics/brackets.py."""
        return brackets.score([*map(_gold, examples)], [*map(_constituents, predictions)])

    def score_rows(
        self, examples: Sequence[SpansExample], predictions: Sequence[Sequence[JsonObject]]
    ) -> RowScore:
        return brackets.score_rows([*map(_gold, examples)], [*map(_constituents, predictions)])

    def to_record(self, example: SpansExample, prediction: Sequence[JsonObject]) -> JsonObject:
        """Return {'id', 'text'} and the trees in brackets, 'gold' (if known) and 'predicted'."""
        words = [example.text[start:end] for start, end in example.words]
        gold = {}
        if example.spans is not None:
            gold = {'gold': trees.to_text(Tree(words, _gold(example)))}
        predicted = trees.to_text(Tree(words, _constituents(prediction)))
        return {'id': example.id, 'text': example.text} | gold | {'predicted': predicted}


CONSTITUENCY = base.Parts(TreeEncoding, TreeLoss, TreeDecoder)


def best_tree(spans: CandidateSpans, num_words: int, labels: Sequence[str]) -> list[WordSpan]:
    """Find the binary tree with the highest sum of scores, and leave out spans without a label.

    The score of a span is the larger one of log p(label) − log p(no label) and, for more than one
    word, 0, without a label (the algorithm of Cocke, Kasami and Younger).
    """
    score_SE = np.zeros((num_words + 1, num_words + 1))
    label_SE = np.full(score_SE.shape, -1)
    odds_N = np.log(np.maximum(spans.probability, _LEAST)) - np.log(
        np.maximum(spans.no_label, _LEAST)
    )
    is_labeled_N = (odds_N > 0) | (spans.first == spans.last)
    place = spans.first[is_labeled_N], spans.last[is_labeled_N] + 1
    score_SE[place], label_SE[place] = odds_N[is_labeled_N], spans.label[is_labeled_N]
    best_SE, split_SE = score_SE.copy(), np.zeros(score_SE.shape, np.int64)
    for size in range(2, num_words + 1):
        for start in range(num_words - size + 1):
            end = start + size
            sums = best_SE[start, start + 1 : end] + best_SE[start + 1 : end, end]
            split_SE[start, end] = start + 1 + int(sums.argmax())
            best_SE[start, end] += sums.max()
    found, waiting = [], [(0, num_words)]
    while waiting:
        start, end = waiting.pop()
        if label_SE[start, end] >= 0:
            found.append((start, end, labels[label_SE[start, end]]))
        if end > start + 1:
            middle = int(split_SE[start, end])
            waiting += [(middle, end), (start, middle)]
    return found


def _gold(example: SpansExample) -> list[WordSpan]:
    """Return the constituents of an example, in words."""
    start_of = {start: number for number, (start, _) in enumerate(example.words)}
    end_of = {end: number + 1 for number, (_, end) in enumerate(example.words)}
    return [(start_of[start], end_of[end], label) for start, end, label in example.spans or ()]


def _constituents(prediction: Sequence[Mapping[str, object]]) -> list[WordSpan]:
    return [(one['start'], one['end'], one['label']) for one in prediction]  # type: ignore[misc]
