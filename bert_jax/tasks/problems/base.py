"""The interface of a fine-tuning problem: model heads, loss, decoding and scoring.

tasks/finetuning.py trains any `Problem`. The path of an example through the methods:

    parse_input ─▶ encode ─▶ apply_heads ─▶ host_outputs ─▶ decode ─▶ postprocess ─▶ score
     raw input     packed     logits          arrays         one         all       to_record
                    rows   └▶ terms (loss)   per example  prediction  predictions
"""

import abc
import collections
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from bert_jax.averages import Terms, weighted_sum
from bert_jax.data.finetune_batches import Item
from bert_jax.data.labeled import word_spans
from bert_jax.data.labeled.records import InvalidRecord
from bert_jax.data.special_token_layout import SpecialTokenLayout
from bert_jax.errors import UserError
from bert_jax.evaluation.scores import Scores
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.packed_rows import encoder_arguments
from bert_jax.types import Array, Batch

ExampleT = TypeVar('ExampleT')  # one of data/labeled/examples.py
PredictionT = TypeVar('PredictionT')  # JSON types

HeadMakers = dict[str, Callable[..., nn.Module]]  # name → constructor that takes `name`
Heads = Mapping[str, Callable[..., Any]]  # name → head, bound to its parameters
Outputs = Mapping[str, Any]  # name → fp32 array, or a tuple of them
Seeds = jax.Array | None  # of dropout, uint32, one for each row; None for evaluation


# Fields of a packed row that are the same for all problems.
PACKED_FIELDS = frozenset(
    ['input_ids', 'token_type_ids', 'attention_mask', 'segment_ids', 'first_positions']
)


class HostOutputs(NamedTuple):
    """What is copied from the device for `decode`.

    Attributes:
      per_sequence: name → array [R, S, …], a value for each sequence of a packed row.
      per_token: name → array [R, T, …].
    """

    per_sequence: Mapping[str, Array]
    per_token: Mapping[str, Array]


# For each item of an example, for each sequence of the item: its host outputs by name, without the
# axes of rows and sequences: [...] or [tokens, …].
ExampleOutputs = Sequence[Sequence[Mapping[str, np.ndarray]]]


class Problem(abc.ABC, Generic[ExampleT, PredictionT]):
    """A kind of fine-tuning problem on labeled examples.

    Attributes:
      weights: loss term → weight.
      pretrained_heads: names of its heads that published checkpoints may hold (HEADS of
        interop/pretrained.py): loaded with `init_from`, and exported.
      required_heads: those of them that a run cannot do without.
      reads_embeddings: whether heads are called with `embedding_VE`, the token embeddings.
      min_labels: least number of classes there is anything to learn from.
      head_field: field of a batch that the default `apply_heads` gives to the head.
      settings: the config's `problem`.
      layout: how special tokens are put around one or two texts.
      labels: class names in the order of their numbers.
      counts: what was truncated or could not be used, for the log.
      thresholds: found on the dev split by `tune_thresholds`, kept in checkpoints.
      kept: what predictions need of the training examples, JSON values, kept in checkpoints.
      splitter: how plain text is split into words (SPLITTERS in data/labeled/word_spans.py), kept
        in checkpoints.
      has_probabilities: whether predictions can list the probability of every class.
      all_probabilities: whether they do.
      long_texts: what can be done with texts longer than a sequence, the default first:
        'truncate', or 'windows' whose predictions are combined.
      window_overlap: share of a window that the next one repeats where the default is 'truncate';
        None to truncate.
    """

    weights: ClassVar[Mapping[str, float]]
    pretrained_heads: ClassVar[tuple[str, ...]] = ()
    required_heads: ClassVar[tuple[str, ...]] = ()
    reads_embeddings: ClassVar[bool] = False
    min_labels: ClassVar[int] = 0
    head_field: ClassVar[str] = 'attention_mask'
    has_probabilities: ClassVar[bool] = False
    long_texts: ClassVar[tuple[str, ...]] = ('windows',)

    def __init__(self, settings: ConfigDict, layout: SpecialTokenLayout, labels: Sequence[str]):
        self.settings, self.layout, self.labels = settings, layout, tuple(labels)
        self._label_numbers = {label: number for number, label in enumerate(labels)}
        self.tokenizer = layout.tokenizer
        self.counts: collections.Counter[str] = collections.Counter()
        self.thresholds: dict[str, float] = {}
        self.kept: dict[str, Any] = {}
        self.splitter = 'punctuation'
        self.all_probabilities = False
        self.window_overlap: float | None = None

    def blind_guess(self, train: Sequence[ExampleT]) -> PredictionT | None:
        """Return the best prediction without reading the input; None if there is none."""
        return None

    @classmethod
    def count_labels(cls, train: Sequence[ExampleT]) -> collections.Counter[str]:
        """Count how often each class occurs in a train split; no classes by default."""
        return collections.Counter()

    def prepare(self, train: Sequence[ExampleT]) -> None:
        """Derive from the train split what the loss needs; by default the weights of classes."""
        counts = self.count_labels(train)
        self.set_class_weights([counts[label] for label in self.labels])

    def set_class_weights(self, counts: Sequence[int]) -> None:
        """Set `class_weights_C`, the weight of each class in the loss, fp32 [C].

        With the setting class_weights='balanced' it is N / (C · count), as in scikit-learn (after
        King & Zeng 2001); with 'none', or without this setting, it is 1.
        """
        counts_C = np.array(counts, np.float32)
        setting = self.settings.get('class_weights', 'none')
        if setting not in ('none', 'balanced'):
            raise UserError(f'problem.class_weights is {setting!r}; set none or balanced')
        self.class_weights_C = np.ones_like(counts_C)
        if setting == 'balanced':
            self.class_weights_C = counts_C.sum() / (len(counts_C) * np.maximum(counts_C, 1))

    def label_number(self, label: str, example_id: str) -> int:
        """Return the number of a label. Raises UserError if it is not one of `labels`."""
        if label not in self._label_numbers:
            known = ', '.join(self.labels[:8]) + (' …' if len(self.labels) > 8 else '')
            raise UserError(
                f'example {example_id}: the label {label!r} is not among those trained: {known}; '
                'set problem.labels to all labels, or data.rename_labels or data.skip_labels'
            )
        return self._label_numbers[label]

    def class_terms(self, name: str, logits_XC: jax.Array, label_X: Array) -> Terms:
        """Return the terms `name`, smoothed and weighted cross-entropy, and 'accuracy'.

        Args:
          name: name of the loss.
          logits_XC: fp32, for sequences or tokens.
          label_X: number of the class + 1; 0 where it is unknown, which is not counted.
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
    def parse_input(self, name: str, given: Mapping[str, Any]) -> ExampleT:
        """Make an unlabeled example from raw input.

        Args:
          name: id of the example, used in messages.
          given: a JSON object; a line of plain text arrives as {'text': …}, two tab-separated
            texts as {'text': …, 'text2': …}.
        Raises:
          UserError: a key is missing or malformed.
        """

    @abc.abstractmethod
    def encode(self, example: ExampleT) -> list[Item]:
        """Tokenize an example into one item, or one item for each window of a long text.

        Labels are fields of the sequences. Unlabeled examples have the same fields, with a value
        that means "unknown".
        """

    def training_examples(
        self, train: Sequence[ExampleT], unlabeled: Sequence[ExampleT]
    ) -> Sequence[ExampleT]:
        """Return the examples of an epoch; raises UserError for unlabeled ones by default."""
        if unlabeled:
            raise UserError('data.unlabeled has no use for this kind of problem; leave it out')
        return train

    def corrupt(self, batch: Batch, dropout_seeds_R: Seeds) -> Batch:
        """Change the input of the encoder, such as mask tokens; returns it unchanged by default.

        What is added to the batch reaches `apply_heads`.
        """
        return batch

    def further_items(self, example: ExampleT, parts: ExampleOutputs) -> list[Item]:
        """Return items that depend on the outputs of earlier ones; none by default.

        Called until it returns none. The outputs of these items follow the earlier ones in `parts`.
        """
        return []

    def references(self) -> Sequence[ExampleT]:
        """Return examples whose outputs all predictions are compared with; none by default."""
        return ()

    def calibrate(self, parts: Sequence[ExampleOutputs]) -> None:
        """Take the outputs of `references`, before other examples are decoded."""

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return what a sequence is trained to predict, as JSON values for `debug.batch`.

        Args:
          tokens: of the sequence, [n].
          fields: those that `encode` gave it, [n, …] or […], and those of the packed row.
        """
        own = fields.keys() - PACKED_FIELDS
        return {name: fields[name].tolist() for name in sorted(own)}

    def stored_label(self, stored: int | np.ndarray) -> str | None:
        """Return the class of a stored number, which is 0 where the class is unknown."""
        return self.labels[int(stored) - 1] if stored else None

    @abc.abstractmethod
    def make_heads(self, architecture: Architecture, compute: Compute) -> HeadMakers:
        """Return the heads; the parameters of one are params[name]['head']."""

    def apply_heads(
        self, heads: Heads, encoded: EncoderOutput, batch: Batch, dropout_seeds_R: Seeds
    ) -> Outputs:
        """Apply the heads to encoded rows; the outputs are inputs of `terms` and `host_outputs`.

        By default 'logits' of the only head for each sequence, fp32 [R, S, …].
        """
        (head,) = heads.values()
        rows = encoder_arguments(batch)
        return {'logits': head(encoded, batch[self.head_field], dropout_seeds_R, **rows)}

    @abc.abstractmethod
    def terms(self, outputs: Outputs, batch: Batch) -> Terms:
        """Return the loss terms, named as in `weights`, and further terms to be logged."""

    @abc.abstractmethod
    def host_outputs(self, outputs: Outputs, batch: Batch) -> HostOutputs:
        """Reduce the outputs, on the device, to what `decode` needs."""

    def exported_outputs(self, outputs: Outputs, batch: Batch) -> HostOutputs:
        """Return what an exported model computes: by default the logits of each sequence."""
        return HostOutputs({'logits': outputs['logits']}, {})

    @abc.abstractmethod
    def decode(self, example: ExampleT, parts: ExampleOutputs) -> PredictionT:
        """Turn the host outputs of an example into its prediction."""

    def tune_thresholds(
        self, examples: Sequence[ExampleT], parts: Sequence[ExampleOutputs]
    ) -> dict[str, float]:
        """Choose thresholds that are best for labeled dev examples; none by default."""
        return {}

    def postprocess(
        self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]
    ) -> Sequence[PredictionT]:
        """Revise predictions that depend on each other; returns them unchanged by default."""
        return predictions

    @abc.abstractmethod
    def score(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> Scores:
        """Compare predictions with the labels of the examples."""

    @abc.abstractmethod
    def to_record(self, example: ExampleT, prediction: PredictionT) -> dict[str, Any]:
        """Return a line of predictions.jsonl: the input, 'gold' where known, the prediction."""


def require(given: Mapping[str, Any], name: str, key: str) -> Any:
    """Return given[key]. Raises UserError, with the name of the input, if it is missing."""
    if key not in given:
        known = ', '.join(sorted(given.keys() - {'id'})) or 'no keys'
        raise UserError(f'{name}: key {key!r} is missing; the input has {known}')
    return given[key]


def require_text(given: Mapping[str, Any], name: str, key: str) -> str:
    """Return the text given[key]. Raises UserError if it is missing or not a string."""
    value = require(given, name, key)
    if not isinstance(value, str):
        raise UserError(f'{name}: {key!r} is {json.dumps(value)[:40]}, not a string')
    return value


def require_texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return 'text' and, where it is given, 'text2'. Raises UserError without 'text'."""
    keys = ('text', 'text2') if 'text2' in given else ('text',)
    return tuple(require_text(given, name, key) for key in keys)


def require_words(
    given: Mapping[str, Any], name: str, splitter: str
) -> tuple[str, word_spans.WordOffsets]:
    """Return a text and the (start, end) characters of its words.

    They come from 'words' or 'tokens', a list of strings, or else from 'text', which is split as
    `splitter` says (SPLITTERS in data/labeled/word_spans.py).

    Raises:
      UserError: no such key, or a value that is not a list of words or a text.
    """
    key = next((key for key in ('words', 'tokens') if key in given), 'text')
    try:
        text, words = word_spans.parse_text(require(given, name, key))
    except InvalidRecord as error:
        raise UserError(f'{name}: {key!r}: {error}') from None
    if (words is None) != (key == 'text'):
        raise UserError(f"{name}: give a text as 'text', a list of words as 'words'")
    return text, word_spans.SPLITTERS[splitter](text) if words is None else words


def check_choice(settings: ConfigDict, key: str, known: Sequence[str]) -> None:
    """Raise UserError if settings[key] is not one of the known values."""
    if settings[key] not in known:
        raise UserError(f'problem.{key} is {settings[key]!r}; set {" or ".join(known)}')


def describe_span(text: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """Return a span of characters for a record: 'start', 'end', 'text', and more."""
    return {'start': start, 'end': end, 'text': text[start:end], **more}


def window_overlap(settings: ConfigDict, room: int) -> int:
    """Return how many of `room` tokens neighboring windows of a long text share."""
    return min(int(settings.overlap * room), room - 1)
