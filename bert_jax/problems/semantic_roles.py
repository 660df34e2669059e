"""Semantic role labeling: who did what to whom, as BIO tags of the arguments of one predicate."""

import bisect
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels.examples import TaggedExample
from bert_jax.metrics import semantic_roles
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.metrics.semantic_roles import Argument, arguments_of_tags
from bert_jax.problems import base, raw_input
from bert_jax.problems.tagging import Prediction, TagDecoder, TagEncoding, TagLoss
from bert_jax.tokenizers.alignment import Alignment, align
from bert_jax.tokenizers.sliding_windows import Window
from bert_jax.types import JsonObject, JsonView

_OUTSIDE = 'O'
_MARK = '@'  # around the predicate, as Zhou & Chen 2021 (arXiv 2102.01373) mark entities


class RoleEncoding(TagEncoding):
    """The tags of a sentence for one predicate, which the model sees marked.

    The predicate has token type 1 (`problem.predicate='types'`), or stands between two @ ('marks'),
    in models without token types. A sentence that is too long keeps the words around it.
    """

    def __post_init__(self) -> None:
        if self.settings.predicate == 'types' and not self.layout.has_types:
            raise UserError(
                "problem.predicate is 'types', but the model has no token types; set it to 'marks'"
            )

    def parse_input(self, name: str, record: JsonView) -> TaggedExample:
        """Read 'words', 'tokens' or 'text', and 'predicate', the index of one of the words."""
        example = super().parse_input(name, record)
        place, number = raw_input.require(record, name, 'predicate'), len(example.words)
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < number:
            raise UserError(
                f"{name}: 'predicate' is {place!r}; it must be the index of one of {number} words"
            )
        return example._replace(predicate=place)

    def encode(self, example: TaggedExample) -> list[Item]:
        """Make one sequence; words that do not fit are learned and predicted as no argument."""
        aligned, window = self.aligned(example)
        self.count_unusual(aligned, [window])
        first_W = aligned.first
        is_left_out_W = (first_W < window.start) | (first_W >= window.stop)
        self.setup.counts['words beyond the sequence length'] += int(is_left_out_W.sum())
        sequence = self._sequence(aligned, window, self._stored_labels(example))
        if self._has_types:
            is_predicate_N = aligned.words[window.start : window.stop] == example.predicate
            (start,) = self.layout.lay_out(aligned.ids[window.start : window.stop]).starts
            sequence.token_type_ids[start : start + len(is_predicate_N)][is_predicate_N] = 1
        return [(sequence,)]

    def aligned(self, example: TaggedExample) -> tuple[Alignment, Window]:
        """Tokenize a sentence, in which the predicate may be marked, and choose what is kept."""
        assert example.predicate is not None
        text, words = example.text, example.words
        if not self._has_types:
            text, words = _mark(text, words, example.predicate)
        aligned = align(self.tokenizer, text, words)
        return aligned, _around(aligned, example.predicate, self.room)

    def _stored_labels(self, example: TaggedExample) -> np.ndarray:
        """Return `TagEncoding._stored_labels`; roles that were not trained are no arguments."""
        if example.tags is not None:
            known = self.setup.label_numbers
            tags = tuple(tag if tag in known else _OUTSIDE for tag in example.tags)
            unknown = sum(a != b for a, b in zip(tags, example.tags, strict=True))
            self.setup.counts['tags that no training example has'] += unknown
            example = example._replace(tags=tags)
        return super()._stored_labels(example)

    @property
    def _has_types(self) -> bool:
        """Whether the predicate is marked by its token type: by default if the model has types."""
        return self.layout.has_types and self.settings.predicate != 'marks'


class RoleDecoder(TagDecoder):
    """The arguments of a predicate; see metrics/semantic_roles.py for their scores."""

    def decode(
        self, example: TaggedExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Prediction:
        """Return `TagDecoder.decode`; words that did not fit into the sequence are no arguments."""
        prediction = super().decode(example, parts, calibration)
        missing = len(example.words) - len(prediction['tags'])
        if not missing:
            return prediction
        aligned, window = self.encoding.aligned(example)
        before = int(np.searchsorted(aligned.first, window.start))
        fill = {'tags': _OUTSIDE, 'probabilities': 1.0}
        return {
            name: [value] * before + prediction[name] + [value] * (missing - before)
            for name, value in fill.items()
        }

    def blind_guesses(
        self, train: Sequence[TaggedExample], examples: Sequence[TaggedExample]
    ) -> list[Prediction]:
        """Return none: without a model, no argument is found."""
        return []

    def score(self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]) -> Scores:
        """Return F1, precision and recall of the arguments, and the share of exact predicates."""
        return semantic_roles.score(*_arguments(examples, predictions))

    def score_rows(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
    ) -> RowScore:
        return semantic_roles.score_rows(*_arguments(examples, predictions))

    def to_record(self, example: TaggedExample, prediction: Prediction) -> JsonObject:
        """Return {'id', 'text', 'predicate'} and the arguments, 'gold' (if known) and 'predicted'.

        An argument is {'role', 'pieces'}, a predicted one has the 'probability' of its least
        probable word. A piece is {'start', 'end', 'text'}, in characters, end exclusive.
        """
        assert example.predicate is not None
        span = example.words[example.predicate]
        record: JsonObject = {
            'id': example.id,
            'text': example.text,
            'predicate': raw_input.describe_span(example.text, *span, word=example.predicate),
        }
        if example.tags is not None:
            record['gold'] = [_described(example, one) for one in arguments_of_tags(example.tags)]
        p_W = prediction['probabilities']
        record['predicted'] = [
            _described(example, one)
            | {'probability': min(p for start, end in one.pieces for p in p_W[start:end])}
            for one in arguments_of_tags(prediction['tags'])
        ]
        return record


SEMANTIC_ROLES = base.Parts(RoleEncoding, TagLoss, RoleDecoder)


def _arguments(
    examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
) -> tuple[list[list[Argument]], list[list[Argument]]]:
    """Return the gold and the predicted arguments of each example."""
    gold = [arguments_of_tags(example.tags or ()) for example in examples]
    return gold, [arguments_of_tags(prediction['tags']) for prediction in predictions]


def _described(example: TaggedExample, argument: Argument) -> JsonObject:
    pieces = [
        raw_input.describe_span(example.text, example.words[start][0], example.words[end - 1][1])
        for start, end in argument.pieces
    ]
    return {'role': argument.role, 'pieces': pieces}


def _mark(
    text: str, words: Sequence[tuple[int, int]], predicate: int
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Put the marks around the predicate; return the text and the new offsets of its words."""
    start, end = words[predicate]
    before, after = f'{_MARK} ', f' {_MARK}'
    marked = text[:start] + before + text[start:end] + after + text[end:]
    shift, shift_after = len(before), len(before + after)
    return marked, (
        *words[:predicate],
        (start + shift, end + shift),
        *((a + shift_after, b + shift_after) for a, b in words[predicate + 1 :]),
    )


def _around(aligned: Alignment, predicate: int, room: int) -> Window:
    """Return the window of at most `room` tokens with the predicate in its middle.

    It starts and stops between words.
    """
    number = len(aligned.ids)
    points = aligned.split_points(room)
    first = int(aligned.first[predicate])
    earliest = min(first, first + int(aligned.count[predicate]) // 2 - room // 2)
    start = points[bisect.bisect_left(points, max(0, min(earliest, number - room)))]
    stop = points[bisect.bisect_right(points, start + room) - 1]
    return Window(start, stop, start, stop)
