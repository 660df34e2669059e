"""The parts of a fine-tuning problem: encoding, loss and decoder.

tasks/finetuning/task.py trains any `Problem`. An example passes through its parts:

    Encoding                  Loss                              Decoder
    parse_input ─▶ encode ─▶ outputs ─▶ host_outputs ─▶ decode ─▶ postprocess ─▶ complete ─▶ score
     raw input     packed    logits       arrays         one         all         written   to_record
                    rows   └▶ terms (loss)   per example  prediction  predictions  texts
"""

import abc
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import jax
import numpy as np
from jax.typing import ArrayLike
from ml_collections import ConfigDict

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.examples.batch_orders import BatchOrder, Stratified
from bert_jax.examples.finetune_batches import Item
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.problems.setup import Setup
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import Array, Batch, JsonRecord, RecordView, Tree

ExampleT = TypeVar('ExampleT')  # one of labels/examples.py
PredictionT = TypeVar('PredictionT')  # JSON types

Outputs = Mapping[str, Tree]  # name → fp32 array, or a tuple of them
Seeds = jax.Array | None  # dropout seeds, uint32, one for each row; None for evaluation


# The fields that packed rows of all problems have.
PACKED_FIELDS = frozenset(
    ['input_ids', 'token_type_ids', 'attention_mask', 'segment_ids', 'first_positions']
)


class HostOutputs(NamedTuple):
    """The arrays that are copied from the device for `Decoder.decode`.

    Attributes:
        per_sequence: name → array [R, S, …], a value for each sequence of a packed row.
        per_token: name → array [R, T, …].
    """

    per_sequence: Mapping[str, Array]
    per_token: Mapping[str, Array]


# For each item of an example, for each sequence of the item: its host outputs by name, without the
# axes of rows and sequences: [...] or [tokens, …].
ExampleOutputs = Sequence[Sequence[Mapping[str, np.ndarray]]]


# 'ids', int32 [n], and 'log_p', fp32 [n], of the tokens of a text that the model wrote.
WrittenTokens: TypeAlias = Mapping[str, np.ndarray]


class Calibration(NamedTuple):
    """What `Decoder.decode` takes from other examples.

    Attributes:
        thresholds: decision thresholds of `Decoder.tune_thresholds`, stored in checkpoints.
        references: the outputs of `Encoding.references`.
    """

    thresholds: Mapping[str, float] = {}
    references: Sequence[ExampleOutputs] = ()


class ExampleWriter(Protocol):
    """A model that writes texts token by token, for `Decoder.complete`."""

    def write_targets(self, encoding: Any, examples: Sequence[Any]) -> list[WrittenTokens]:
        """Write the target of each `TargetExample`; its own targets are not read.

        Args:
            encoding: the `TargetEncoding` of the problem.
            examples: the examples.
        """

    def respond(self, encoding: Any, examples: Sequence[Any]) -> list[str]:
        """Write the next answer of each `ConversationExample`; '' if there is no room for one.

        Args:
            encoding: the `InstructionEncoding` of the problem.
            examples: conversations that end with the user's turn.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    setup: Setup

    def __post_init__(self) -> None:
        """Raise UserError for settings or labels that do not fit; none by default."""

    @property
    def settings(self) -> ConfigDict:
        """The config's `problem`."""
        return self.setup.settings

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in the order of their numbers."""
        return self.setup.labels


class Encoding(_Part, abc.ABC, Generic[ExampleT]):
    """Turns examples into rows of tokens."""

    @classmethod
    def count_labels(cls, train: Sequence[ExampleT]) -> Counter[str]:
        """Count how often each class occurs in a train split; no classes by default."""
        return Counter()

    def class_counts(self, train: Sequence[ExampleT]) -> Sequence[int]:
        """Return how often each class occurs in a train split, for `Setup.class_weights_C`."""
        counts = self.count_labels(train)
        return [counts[label] for label in self.labels]

    def keep(self, train: Sequence[ExampleT]) -> RecordView:
        """Check a train split and return its `Setup.kept`; nothing by default."""
        return {}

    def uncounted(self) -> Self:
        """Return this encoding for examples whose truncations `Setup.counts` already holds."""
        return dataclasses.replace(self, setup=dataclasses.replace(self.setup, counts=Counter()))

    @property
    def layout(self) -> SpecialTokenLayout:
        """Where special tokens go around one or two texts."""
        return self.setup.layout

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the layout."""
        return self.setup.layout.tokenizer

    @abc.abstractmethod
    def parse_input(self, name: str, record: RecordView) -> ExampleT:
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

    @property
    def group_size(self) -> int | None:
        """Number of items of every example, if the loss needs to know which belong together."""
        return None

    def batch_order(
        self, examples: Sequence[ExampleT], length_N: np.ndarray, batch_size: int, seed: int
    ) -> BatchOrder:
        """Return which examples are in a batch together; by default, any.

        Args:
            examples: the train split.
            length_N: int64 [N], tokens of each group of items, or of each item if there are no
                groups.
            batch_size: number of examples in a batch.
            seed: seed of the order.

        Raises:
            UserError: there are no such batches.
        """
        return Stratified(length_N, batch_size, seed)

    def further_items(self, example: ExampleT, parts: ExampleOutputs) -> list[Item]:
        """Return items that depend on the outputs of earlier items; none by default.

        Called until it returns none. Outputs of later items are appended to `parts`.
        """
        return []

    def references(self) -> Sequence[ExampleT]:
        """Return examples whose outputs all predictions need; none by default."""
        return ()

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        """Return the targets of a sequence, as JSON values for `debug.batch`.

        Args:
            tokens: tokens of the sequence, [n].
            fields: the fields that `encode` gave the sequence, [n, …] or […], and PACKED_FIELDS.
        """
        return {name: fields[name].tolist() for name in sorted(fields.keys() - PACKED_FIELDS)}


@dataclasses.dataclass(frozen=True, eq=False)
class Loss(_Part, abc.ABC):
    """The heads of the model, what is learned, and what predictions are made from.

    Attributes:
        encoding: how the examples are encoded.
        reads_whole_batch: whether `terms` compares the examples of a batch. It then gets all rows
            of a training batch, whatever the number of devices and of micro-batches, and is not
            computed in evaluation, where batches have other examples.
        starts_from: parameters of a pretrained head ('mlm/head') → the parameters of the model that
            start with their values.
    """

    encoding: Any  # the problem's class of `Encoding`
    reads_whole_batch: ClassVar[bool] = False
    starts_from: ClassVar[Mapping[str, str]] = {}

    @property
    @abc.abstractmethod
    def weights(self) -> Mapping[str, float]:
        """Loss term → weight."""

    @property
    def has_prefix(self) -> bool:
        """Whether all positions of a causal model see the whole prompt; False by default."""
        return False

    @property
    def is_generative(self) -> bool:
        """Whether the model learns to write text; False by default."""
        return False

    @abc.abstractmethod
    def heads(self) -> Mapping[str, HeadOptions]:
        """Return the heads of the model: name in HEADS of models/heads → options."""

    def corrupt(self, rows: Rows, dropout_seeds_R: Seeds) -> Rows:
        """Return the rows that the model reads; by default unchanged.

        They may have other tokens, such as [MASK], and targets that say where a head predicts.
        """
        return rows

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> Outputs:
        """Return what `terms` and `host_outputs` read, from the outputs of the heads by name.

        By default 'logits', the output of the only head.
        """
        (logits,) = heads.values()
        return {'logits': logits}

    def at(self, progress: ArrayLike) -> 'Loss':
        """Return the loss after a share of the run, in [0, 1]; by default it does not change.

        Evaluation uses the loss at the end of the run.
        """
        return self

    @abc.abstractmethod
    def terms(self, outputs: Outputs, batch: Batch) -> Terms:
        """Return the loss terms, named as in `weights`, and other terms to log."""

    def held_out_terms(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Terms:
        """Return the terms of evaluated examples, if `terms` needs the batches of training."""
        return {}

    @abc.abstractmethod
    def host_outputs(self, outputs: Outputs, batch: Batch) -> HostOutputs:
        """Reduce the outputs, on the device, to what `Decoder.decode` needs."""

    def compact(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return what is kept of the host outputs of a sequence; by default all of them.

        The outputs of all evaluated examples are in memory together.
        """
        return values

    def exported_outputs(self, outputs: Outputs, batch: Batch) -> HostOutputs:
        """Return the outputs of an exported model; by default 'logits' and the host outputs.

        Programs that run exported models look for the name 'logits'.
        """
        of_sequences = self.host_outputs(outputs, batch).per_sequence
        return HostOutputs({'logits': outputs['logits'], **of_sequences}, {})


@dataclasses.dataclass(frozen=True, eq=False)
class Decoder(_Part, abc.ABC, Generic[ExampleT, PredictionT]):
    """Turns outputs into predictions, scores and records.

    Attributes:
        encoding: how the examples are encoded.
        reads_outputs: whether `decode` reads the outputs of a forward pass; if not, `complete`
            makes the predictions.
    """

    encoding: Any  # the problem's class of `Encoding`
    reads_outputs: ClassVar[bool] = True

    @property
    def dev_keys(self) -> Sequence[str]:
        """Keys of the settings whose values need a dev split; none by default."""
        return ()

    def check(self, examples: Sequence[ExampleT]) -> None:
        """Raise UserError if a split cannot be scored; by default any can."""

    @abc.abstractmethod
    def decode(
        self, example: ExampleT, parts: ExampleOutputs, calibration: Calibration
    ) -> PredictionT:
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

    def complete(
        self,
        examples: Sequence[ExampleT],
        predictions: Sequence[PredictionT],
        writer: ExampleWriter,
    ) -> Sequence[PredictionT]:
        """Add to predictions the texts that the model writes; by default returns them unchanged."""
        return predictions

    @abc.abstractmethod
    def score(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> Scores:
        """Compare predictions with the labels of the examples."""

    def score_rows(
        self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]
    ) -> intervals.RowScore:
        """Return a function that computes the metrics of the examples with some numbers.

        It is called for each resample of an interval, so it should not make tables.
        """
        return intervals.rows_of(lambda *some: self.score(*some).metrics, examples, predictions)

    def blind_guesses(
        self, train: Sequence[ExampleT], examples: Sequence[ExampleT]
    ) -> Sequence[PredictionT]:
        """Return the best predictions without a model; none by default.

        What the examples have in common, such as their mean label, may be used.
        """
        return []

    def baseline(
        self, train: Sequence[ExampleT], examples: Sequence[ExampleT]
    ) -> Mapping[str, float]:
        """Return what predictions without a model reach in each metric; empty if there are none."""
        guesses = self.blind_guesses(train, examples)
        return self.score(examples, guesses).metrics if guesses else {}

    @abc.abstractmethod
    def to_record(self, example: ExampleT, prediction: PredictionT) -> JsonRecord:
        """Return a line of predictions.jsonl: the input, 'gold' where known, the prediction."""


class Problem(NamedTuple, Generic[ExampleT, PredictionT]):
    """A fine-tuning problem with its settings and labels."""

    setup: Setup
    encoding: Encoding[ExampleT]
    loss: Loss
    decoder: Decoder[ExampleT, PredictionT]


AnyProblem: TypeAlias = Problem[Any, Any]  # for code that passes on what it does not look at


class Parts(NamedTuple):
    """The classes of the parts of a kind of problem."""

    encoding: type[Encoding[Any]]
    loss: type[Loss]
    decoder: type[Decoder[Any, Any]]

    def loss_of(self, settings: ConfigDict) -> type[Loss]:
        """Return the class of the loss for the config's `problem`."""
        return self.loss

    def build(self, setup: Setup) -> AnyProblem:
        """Build a problem. Raises UserError if settings or labels do not fit."""
        _ = setup.label_numbers
        encoding = self.encoding(setup)
        loss = self.loss_of(setup.settings)(setup, encoding)
        return Problem(setup, encoding, loss, self.decoder(setup, encoding))

    def build_for(self, train: Sequence[Any], setup: Setup) -> AnyProblem:
        """Build a problem that is trained on these examples."""
        kept = self.encoding(setup).keep(train)
        if setup.settings.get('class_weights', 'none') != 'none':
            setup = dataclasses.replace(setup, kept=kept)
            kept = {**kept, 'class_counts': list(self.encoding(setup).class_counts(train))}
        return self.build(dataclasses.replace(setup, kept=kept))
