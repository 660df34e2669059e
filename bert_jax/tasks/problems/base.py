"""What a kind of fine-tuning task says of itself; tasks/finetuning.py trains any of them."""

import abc
import collections
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import jax
import numpy as np

from bert_jax.averages import Terms
from bert_jax.data.finetune_batches import Item
from bert_jax.data.labeled import word_spans
from bert_jax.data.special_token_layout import Framing
from bert_jax.errors import UserError
from bert_jax.evaluation.scores import Scores
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoder import EncoderOutput


class Answers(NamedTuple):
    """What leaves the device: slots: by name [R, S, …], tokens: by name [R, T, …]."""

    slots: dict[str, jax.Array]
    tokens: dict[str, jax.Array]


Parts = list[list[dict]]  # of each item of an example, of each of its sequences: its Answers


class Problem(abc.ABC):
    """A kind of task on labeled examples (data/labeled/examples.py); see the methods.

    Attributes:
      weights: of the loss terms.
      parts: those of its heads that are published ones (interop/pretrained.py, HEADS), so that
        their weights can be begun with and traded.
      settings: the config's `problem`.
      labels: names of the classes, in the order of their numbers.
      counts: what was cut or could not be used, to be reported.
      calibrated: settings found on the dev split, kept in the checkpoint.
    """

    weights: ClassVar[dict[str, float]]
    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings, framing: Framing, labels: Sequence[str]):
        self.settings, self.framing, self.labels = settings, framing, tuple(labels)
        self.tokenizer = framing.tokenizer
        self.counts: collections.Counter = collections.Counter()
        self.calibrated: dict[str, float] = {}

    @classmethod
    def labels_of(cls, examples: Sequence, settings) -> tuple[str, ...]:
        """The classes of a train split; none by default."""
        return ()

    def prepare(self, train: Sequence):  # noqa: B027 (most need nothing)
        """Learns from the train split what training needs, such as the frequencies of classes."""

    @abc.abstractmethod
    def items(self, example) -> list[Item]:
        """What is computed for an example: one item, or one for each window of a long text. Labels
        are fields of the sequences, present or not alike; without a label they say so."""

    @abc.abstractmethod
    def heads(self, architecture: Architecture, compute: Compute) -> dict[str, Callable]:
        """Parts of the parameters beside the encoder: name → function of `name` that makes the
        module, whose parameters are params[name]['head']."""

    @abc.abstractmethod
    def outputs(
        self, heads: dict[str, Callable], encoded: EncoderOutput, batch, dropout_seeds_R
    ) -> dict[str, jax.Array]:
        """What the loss and the answers are made of, fp32; heads are callables."""

    @abc.abstractmethod
    def terms(self, outputs: dict[str, jax.Array], batch) -> Terms:
        """The loss terms, named as in `weights`, and others to be shown."""

    @abc.abstractmethod
    def answers(self, outputs: dict[str, jax.Array], batch) -> Answers:
        """What `decode` needs."""

    @abc.abstractmethod
    def decode(self, example, parts: Parts):
        """The prediction for an example, of types that JSON has."""

    def calibrate(self, examples: Sequence, parts: Sequence[Parts]) -> dict[str, float]:
        """Settings chosen by the dev split, for `calibrated`; none by default."""
        return {}

    def postprocess(self, examples: Sequence, predictions: Sequence) -> Sequence:
        """The predictions, with what they say of each other; as they are by default."""
        return predictions

    @abc.abstractmethod
    def score(self, examples: Sequence, predictions: Sequence) -> Scores:
        """How good predictions are."""

    @abc.abstractmethod
    def example_of(self, name: str, given: dict):
        """The example to predict on, named so, of a line of input: a JSON object, or {'text': …}.
        Raises UserError if the line lacks something."""

    @abc.abstractmethod
    def record(self, example, prediction) -> dict:
        """A line of the predictions file: what was given, gold where it is known, predicted."""


def needed(given: dict, name: str, key: str):
    """given[key]. Raises UserError if the line lacks it."""
    if key not in given:
        raise UserError(f'{name}: the line has no {key!r}, but {", ".join(given)}')
    return given[key]


def label_numbers(labels: Sequence[str]) -> dict[str, int]:
    """The number of each class."""
    return {label: number for number, label in enumerate(labels)}


def class_weights(setting: str, counts: Sequence[int]) -> np.ndarray:
    """fp32 [C]: how much each class counts in the loss: 1 with 'none', with 'balanced'
    N / (C · counts) (King & Zeng 2001, as scikit-learn has it). Raises UserError for any other."""
    counts_C = np.array(counts, np.float32)
    if setting == 'none':
        return np.ones_like(counts_C)
    if setting != 'balanced':
        raise UserError(f'problem.class_weights is {setting!r}, must be none or balanced')
    return counts_C.sum() / (len(counts_C) * np.maximum(counts_C, 1))


def check_labels(found: dict[str, str], labels: Sequence[str]):
    """Raises UserError for a label (→ where it was found) that is none of the classes."""
    for label, where in found.items():
        if label not in labels:
            known = ', '.join(map(str, labels[:8])) + (' …' if len(labels) > 8 else '')
            raise UserError(f'{where}: the label {label!r} is not among those trained: {known}')


def words_of(name: str, given: dict) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A text and the places of its words: from 'words', a list of strings, or from 'text', whose
    words are runs of letters and digits and single other characters (labeled.words.split)."""
    if 'words' in given:
        return word_spans.joined(given['words'])
    text = needed(given, name, 'text')
    return text, word_spans.split(text)
