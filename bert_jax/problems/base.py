"""The interface of a fine-tuning problem: model heads, loss, decoding and scoring.

tasks/finetuning.py trains any `Problem`. An example passes through its methods:

    parse_input ─▶ encode ─▶ outputs ─▶ host_outputs ─▶ decode ─▶ postprocess ─▶ score
     raw input     packed    logits       arrays         one         all       to_record
                    rows   └▶ terms (loss)   per example  prediction  predictions
"""

import abc
import collections
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError, join_first
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels import word_spans
from bert_jax.labels.examples import ExampleId
from bert_jax.labels.records import InvalidRecord
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import Array, Batch, JsonObject, JsonView, Tree

ExampleT = TypeVar('ExampleT')  # one of labels/examples.py
PredictionT = TypeVar('PredictionT')  # JSON types

Outputs = Mapping[str, Tree]  # name → fp32 array, or a tuple of them
Seeds = jax.Array | None  # dropout seeds, uint32, one for each row; None for evaluation


# The fields that packed rows of all problems have.
PACKED_FIELDS = frozenset(
    ['input_ids', 'token_type_ids', 'attention_mask', 'segment_ids', 'first_positions']
)


class HostOutputs(NamedTuple):
    """The arrays that are copied from the device for `decode`.

    Attributes:
        per_sequence: name → array [R, S, …], a value for each sequence of a packed row.
        per_token: name → array [R, T, …].
    """

    per_sequence: Mapping[str, Array]
    per_token: Mapping[str, Array]


# For each item of an example, for each sequence of the item: its host outputs by name, without the
# axes of rows and sequences: [...] or [tokens, …].
ExampleOutputs = Sequence[Sequence[Mapping[str, np.ndarray]]]


def _number_labels(labels: Sequence[str]) -> dict[str, int]:
    """The number of each class by name. Raises UserError if two classes have the same name."""
    numbers: dict[str, int] = {}
    for number, label in enumerate(labels):
        if numbers.setdefault(label, number) != number:
            raise UserError(
                f'the classes {numbers[label]} and {number} are both named {label!r}; give each '
                'class its own name in problem.labels, or in id2label of config.json'
            )
    return numbers


class Problem(abc.ABC, Generic[ExampleT, PredictionT]):
    """A kind of fine-tuning problem on labeled examples.

    Attributes:
        weights: loss term → weight.
        pretrained_heads: names of its heads that published checkpoints may hold
            (interop/pretrained.py): loaded with `init_from`, and exported.
        required_heads: the pretrained heads that a run cannot train from scratch.
        min_labels: minimum number of classes.
        settings: the config's `problem`.
        layout: where special tokens go around one or two texts.
        labels: class names in the order of their numbers.
        label_numbers: class name → its number.
        counts: how many texts or labels were truncated or unusable, by reason, for the log.
        thresholds: decision thresholds of `tune_thresholds`, stored in checkpoints.
        kept: JSON values from the training examples that predictions need, stored in checkpoints.
        activation: function on the logit of a regression: 'identity', or 'sigmoid' for some models
            of other libraries.
        splitter: how plain text is split into words (SPLITTERS in labels/word_spans.py),
            stored in checkpoints.
        has_probabilities: whether predictions can list the probability of every class.
        all_probabilities: whether predictions list the probability of every class.
        long_texts: supported treatments of texts longer than a sequence, the default first:
            'truncate', or 'windows' whose predictions are combined.
        answer_settings: settings that only affect how a trained model answers and is scored.
        window_overlap: for problems that truncate by default, the share of a window that the next
            window repeats; None to truncate.
    """

    weights: ClassVar[Mapping[str, float]]
    pretrained_heads: ClassVar[tuple[str, ...]] = ()
    required_heads: ClassVar[tuple[str, ...]] = ()
    min_labels: ClassVar[int] = 0
    has_probabilities: ClassVar[bool] = False
    long_texts: ClassVar[tuple[str, ...]] = ('windows',)
    answer_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: ConfigDict, layout: SpecialTokenLayout, labels: Sequence[str]):
        self.settings, self.layout, self.labels = settings, layout, tuple(labels)
        self.label_numbers = _number_labels(labels)
        self.tokenizer = layout.tokenizer
        self.counts: collections.Counter[str] = collections.Counter()
        self.thresholds: dict[str, float] = {}
        self.kept: JsonObject = {}
        self.activation = 'identity'
        self.splitter = 'punctuation'
        self.all_probabilities = False
        self.window_overlap: float | None = None

    def blind_guess(self, train: Sequence[ExampleT]) -> PredictionT | None:
        """Return the best prediction without reading the input; None if there is none."""
        return None

    def blind_guesses(
        self, train: Sequence[ExampleT], examples: Sequence[ExampleT]
    ) -> Sequence[PredictionT]:
        """Return the blind guess for each example; none if there is no blind guess."""
        guess = self.blind_guess(train)
        return [] if guess is None else [guess] * len(examples)

    @classmethod
    def count_labels(cls, train: Sequence[ExampleT]) -> collections.Counter[str]:
        """Count how often each class occurs in a train split; no classes by default."""
        return collections.Counter()

    def prepare(self, train: Sequence[ExampleT]) -> None:
        """Derive settings of the loss from the train split; by default the class weights."""
        counts = self.count_labels(train)
        self.set_class_weights([counts[label] for label in self.labels])

    def set_class_weights(self, counts: Sequence[int]) -> None:
        """Set `class_weights_C`, the weight of each class in the loss, fp32 [C].

        With class_weights='balanced' the weight is N / (C · count), as in scikit-learn (after King
        & Zeng 2001); with 'none', or for problems without this setting, it is 1.
        """
        counts_C = np.array(counts, np.float32)
        setting = self.settings.get('class_weights', 'none')
        if setting not in ('none', 'balanced'):
            raise UserError(f'problem.class_weights is {setting!r}; set none or balanced')
        self.class_weights_C = np.ones_like(counts_C)
        if setting == 'balanced':
            self.class_weights_C = counts_C.sum() / (len(counts_C) * np.maximum(counts_C, 1))

    def label_number(self, label: str, example_id: ExampleId) -> int:
        """Return the number of a label. Raises UserError if it is not one of `labels`."""
        if label not in self.label_numbers:
            raise UserError(
                f'example {example_id}: the label {label!r} is not among the trained labels: '
                f'{join_first(self.labels)}; set problem.labels to all labels, or '
                'data.rename_labels or data.skip_labels'
            )
        return self.label_numbers[label]

    def class_terms(self, name: str, logits_XC: jax.Array, label_X: Array) -> Terms:
        """Return the term `name`, smoothed and weighted cross-entropy, and 'accuracy'.

        Args:
            name: name of the loss.
            logits_XC: fp32, for sequences or tokens.
            label_X: number of the class + 1; 0 for an unknown class, which is not counted.
        """
        class_X, is_known_X = jnp.maximum(label_X - 1, 0), label_X > 0
        smoothing, number = self.settings.label_smoothing, len(self.labels)
        target_XC = jax.nn.one_hot(class_X, number) * (1 - smoothing) + smoothing / number
        loss_X = -jnp.sum(target_XC * jax.nn.log_softmax(logits_XC), axis=-1)
        weight_X = jnp.asarray(self.class_weights_C)[class_X] * is_known_X
        return {
            name: weighted_sum(loss_X, weight_X),
            'accuracy': weighted_sum(logits_XC.argmax(-1) == class_X, is_known_X),
        }

    @abc.abstractmethod
    def parse_input(self, name: str, record: JsonView) -> ExampleT:
        """Make an unlabeled example from raw input.

        Args:
            name: id of the example, used in messages.
            record: a JSON object; a line of plain text arrives as {'text': …}, two tab-separated
                texts as {'text': …, 'text2': …}.
        Raises:
            UserError: a key is missing or malformed.
        """

    @abc.abstractmethod
    def encode(self, example: ExampleT) -> list[Item]:
        """Tokenize an example into one item, or one item for each window of a long text.

        Labels are fields of the sequences. Unlabeled examples have the same fields, set to a value
        that means "unknown".
        """

    def training_examples(
        self, train: Sequence[ExampleT], unlabeled: Sequence[ExampleT]
    ) -> Sequence[ExampleT]:
        """Return the examples of an epoch. By default, raises UserError for unlabeled examples."""
        if unlabeled:
            raise UserError('data.unlabeled has no use for this kind of problem; leave it out')
        return train

    def corrupt(self, rows: Rows, dropout_seeds_R: Seeds) -> Rows:
        """Return the rows that the model reads; by default unchanged.

        They may have other tokens, such as [MASK], and targets that say where a head predicts.
        """
        return rows

    def further_items(self, example: ExampleT, parts: ExampleOutputs) -> list[Item]:
        """Return items that depend on the outputs of earlier items; none by default.

        Called until it returns none. Outputs of later items are appended to `parts`.
        """
        return []

    def references(self) -> Sequence[ExampleT]:
        """Return examples that predictions are calibrated with; none by default."""
        return ()

    def calibrate(self, parts: Sequence[ExampleOutputs]) -> None:
        """Store the outputs of `references`; called before other examples are decoded."""

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonObject:
        """Return the targets of a sequence, as JSON values for `debug.batch`.

        Args:
            tokens: tokens of the sequence, [n].
            fields: the fields that `encode` gave the sequence, [n, …] or […], and PACKED_FIELDS.
        """
        return {name: fields[name].tolist() for name in sorted(fields.keys() - PACKED_FIELDS)}

    def stored_label(self, stored: int | np.ndarray) -> str | None:
        """Return the class of a stored number (number of the class + 1); None for 0, unknown."""
        return self.labels[int(stored) - 1] if stored else None

    @abc.abstractmethod
    def heads(self) -> Mapping[str, HeadOptions]:
        """Return the heads of the model: name in HEADS of models/heads → options."""

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> Outputs:
        """Return what `terms` and `host_outputs` read, from the outputs of the heads by name.

        By default 'logits', the output of the only head.
        """
        (logits,) = heads.values()
        return {'logits': logits}

    @abc.abstractmethod
    def terms(self, outputs: Outputs, batch: Batch) -> Terms:
        """Return the loss terms, named as in `weights`, and other terms to log."""

    @abc.abstractmethod
    def host_outputs(self, outputs: Outputs, batch: Batch) -> HostOutputs:
        """Reduce the outputs, on the device, to what `decode` needs."""

    def exported_outputs(self, outputs: Outputs, batch: Batch) -> HostOutputs:
        """Return the outputs of an exported model; by default the logits of each sequence."""
        return HostOutputs({'logits': outputs['logits']}, {})

    @abc.abstractmethod
    def decode(self, example: ExampleT, parts: ExampleOutputs) -> PredictionT:
        """Turn the host outputs of an example into its prediction."""

    def tune_thresholds(
        self, examples: Sequence[ExampleT], parts: Sequence[ExampleOutputs]
    ) -> dict[str, float]:
        """Choose the best thresholds on labeled dev examples; none by default."""
        return {}

    def postprocess(
        self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]
    ) -> Sequence[PredictionT]:
        """Revise predictions that depend on each other; by default returns them unchanged."""
        return predictions

    @abc.abstractmethod
    def score(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> Scores:
        """Compare predictions with the labels of the examples."""

    def metrics(
        self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]
    ) -> dict[str, float]:
        """Return the metrics of `score`, by name."""
        return self.score(examples, predictions).metrics

    def score_rows(
        self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]
    ) -> intervals.RowScore:
        """Return a function that computes `metrics` of the examples with some numbers.

        It is called for each resample of an interval, so it should not make tables.
        """
        return intervals.rows_of(self.metrics, examples, predictions)

    @abc.abstractmethod
    def to_record(self, example: ExampleT, prediction: PredictionT) -> JsonObject:
        """Return a line of predictions.jsonl: the input, 'gold' where known, the prediction."""


def require(record: JsonView, name: str, key: str) -> Any:
    """Return record[key]. Raises UserError, with the name of the input, if the key is missing."""
    if key not in record:
        known = ', '.join(sorted(record.keys() - {'id'})) or 'no keys'
        raise UserError(f'{name}: key {key!r} is missing; the input has {known}')
    return record[key]


def require_text(record: JsonView, name: str, key: str) -> str:
    """Return the text record[key]. Raises UserError if it is missing or not a string."""
    value = require(record, name, key)
    if not isinstance(value, str):
        raise UserError(f'{name}: {key!r} is {json.dumps(value)[:40]}, not a string')
    return value


def require_texts(record: JsonView, name: str) -> tuple[str, ...]:
    """Return 'text' and, if present, 'text2'. Raises UserError without 'text'."""
    keys = ('text', 'text2') if 'text2' in record else ('text',)
    return tuple(require_text(record, name, key) for key in keys)


def require_words(record: JsonView, name: str, splitter: str) -> tuple[str, word_spans.WordOffsets]:
    """Return a text and the (start, end) characters of its words.

    The words come from 'words' or 'tokens', a list of strings, or else from splitting 'text' with
    `splitter` (SPLITTERS in labels/word_spans.py).

    Raises:
        UserError: no such key, or a value that is not a list of words or a text.
    """
    key = next((key for key in ('words', 'tokens') if key in record), 'text')
    try:
        text, words = word_spans.parse_text(require(record, name, key))
    except InvalidRecord as error:
        raise UserError(f'{name}: {key!r}: {error}') from None
    if (words is None) != (key == 'text'):
        raise UserError(f"{name}: give a text as 'text', a list of words as 'words'")
    return text, word_spans.SPLITTERS[splitter](text) if words is None else words


def check_choice(settings: ConfigDict, key: str, known: Sequence[str]) -> None:
    """Raise UserError if settings[key] is not a known value."""
    if settings[key] not in known:
        raise UserError(f'problem.{key} is {settings[key]!r}; set {" or ".join(known)}')


def describe_span(text: str, start: int, end: int, **more: object) -> JsonObject:
    """Return a span of characters for a record: 'start', 'end', 'text', and more."""
    return {'start': start, 'end': end, 'text': text[start:end], **more}


AnyProblem: TypeAlias = Problem[Any, Any]  # for code that passes on what it does not look at


def window_overlap(settings: ConfigDict, room: int) -> int:
    """Return the number of tokens, out of `room`, that neighboring windows share."""
    return min(int(settings.overlap * room), room - 1)
