"""Problems with any number of classes for each text or pair of texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels.examples import LabelSetExample
from bert_jax.metrics import label_sets
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, raw_input
from bert_jax.problems.classification import ClassProbabilities, encode_windows
from bert_jax.types import Batch, JsonRecord, RecordView


class LabelSet(NamedTuple):
    """The predicted classes of an example.

    Attributes:
        probabilities: class → its probability; they are independent of each other.
        chosen_C: bool, whether the probability reaches the threshold of the class.
    """

    probabilities: ClassProbabilities
    chosen_C: np.ndarray


class LabelSetEncoding(base.Encoding[LabelSetExample]):
    """A text or a pair of texts with a set of classes."""

    @classmethod
    def count_labels(cls, train: Sequence[LabelSetExample]) -> Counter[str]:
        return Counter(label for example in train for label in example.label or ())

    def keep(self, train: Sequence[LabelSetExample]) -> RecordView:
        """Keep the number of examples, for class weights."""
        return {'examples': len(train)}

    def parse_input(self, name: str, record: RecordView) -> LabelSetExample:
        return LabelSetExample(name, raw_input.require_texts(record, name), None)

    def encode(self, example: LabelSetExample) -> list[Item]:
        values = {
            'labels': self.flags(example).astype(np.float32),
            'known': np.float32(example.label is not None),
        }
        return encode_windows(self, example.texts, values)

    def flags(self, example: LabelSetExample) -> np.ndarray:
        """Return whether each class applies, bool [C]; none if they are unknown."""
        flags_C = np.zeros(len(self.labels), bool)
        flags_C[[self.setup.label_number(label, example.id) for label in example.label or ()]] = 1
        return flags_C

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        own = [label for label, flag in zip(self.labels, fields['labels'], strict=True) if flag]
        return {'labels': own if fields['known'] else None}


class LabelSetLoss(base.Loss):
    """A linear head and binary cross-entropy of each class.

    The loss is the mean over examples and classes, as in transformers for problem_type
    multi_label_classification. With class_weights='balanced' the term of a class that applies is
    multiplied by (N − n) / n, the examples without and with the class (`pos_weight` of torch); the
    weight of a class that applies to all examples is 1, because there is nothing to balance.
    """

    weights = {'multi_label': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'sequence_classification': {'num_labels': len(self.labels)}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'multi_label', the cross-entropy, and 'subset_accuracy' at threshold 0.5."""
        logits_RSC, gold_RSC = jnp.asarray(outputs['logits']), jnp.asarray(batch['labels'])
        loss_RSC = -(
            self._positive_weights_C() * gold_RSC * jax.nn.log_sigmoid(logits_RSC)
            + (1 - gold_RSC) * jax.nn.log_sigmoid(-logits_RSC)
        )
        is_right_RS = ((logits_RSC >= 0) == (gold_RSC > 0)).all(axis=-1)
        return {
            'multi_label': weighted_sum(loss_RSC.mean(axis=-1), batch['known']),
            'subset_accuracy': weighted_sum(is_right_RS, batch['known']),
        }

    def _positive_weights_C(self) -> np.ndarray:
        if not self.setup.class_counts:
            return np.ones(len(self.labels), np.float32)
        counts_C = np.maximum(np.array(self.setup.class_counts, np.float32), 1)
        others_C = self.setup.kept['examples'] - counts_C
        return np.where(others_C > 0, others_C / counts_C, 1).astype(np.float32)

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs({'probabilities': jax.nn.sigmoid(outputs['logits'])}, {})


class LabelSetDecoder(base.Decoder[LabelSetExample, LabelSet]):
    """The classes whose probability reaches a threshold."""

    @property
    def dev_keys(self) -> Sequence[str]:
        return () if self.settings.thresholds == 'none' else ('thresholds',)

    def decode(
        self,
        example: LabelSetExample,
        parts: base.ExampleOutputs,
        calibration: base.Calibration,
    ) -> LabelSet:
        """Return the mean over the windows of a long text."""
        mean_C = np.mean([part['probabilities'] for (part,) in parts], axis=0)
        tuned = {} if self.settings.thresholds == 'none' else calibration.thresholds
        threshold_C = [tuned.get(label, self.settings.threshold) for label in self.labels]
        return self._label_set(mean_C, mean_C >= np.array(threshold_C))

    def tune_thresholds(
        self, examples: Sequence[LabelSetExample], parts: Sequence[base.ExampleOutputs]
    ) -> dict[str, float]:
        """Return the threshold of each class with the best F1, or of all with the best micro F1."""
        if self.settings.thresholds == 'none':
            return {}
        known = [number for number, example in enumerate(examples) if example.label is not None]
        untuned = base.Calibration()
        p_NC = np.array(
            [self.decode(examples[n], parts[n], untuned).probabilities.p_C for n in known]
        )
        gold_NC = self._gold_NC([examples[n] for n in known])
        if self.settings.thresholds == 'one':
            return dict.fromkeys(
                self.labels, label_sets.best_threshold(p_NC.ravel(), gold_NC.ravel())
            )
        return {
            label: label_sets.best_threshold(p_N, gold_N)
            for label, p_N, gold_N in zip(self.labels, p_NC.T, gold_NC.T, strict=True)
        }

    def score(self, examples: Sequence[LabelSetExample], predictions: Sequence[LabelSet]) -> Scores:
        arrays = self._arrays(examples, predictions)
        return label_sets.score(*arrays, self.labels, self.settings.metrics)

    def score_rows(
        self, examples: Sequence[LabelSetExample], predictions: Sequence[LabelSet]
    ) -> RowScore:
        return label_sets.score_rows(*self._arrays(examples, predictions), self.settings.metrics)

    def blind_guesses(
        self, train: Sequence[LabelSetExample], examples: Sequence[LabelSetExample]
    ) -> list[LabelSet]:
        """Return the set of most frequent classes with the best micro F1 on the examples."""
        counts = self.encoding.count_labels(examples)
        share_C = np.array([counts[label] for label in self.labels]) / len(examples)
        order_C = np.argsort(-share_C, kind='stable')
        right_C = np.cumsum(share_C[order_C])
        f1_C = 2 * right_C / (np.arange(1, len(share_C) + 1) + right_C[-1])
        chosen_C = np.zeros(len(share_C), bool)
        chosen_C[order_C[: int(np.argmax(f1_C)) + 1]] = True
        return [self._label_set(share_C, chosen_C)] * len(examples)

    def to_record(self, example: LabelSetExample, prediction: LabelSet) -> JsonRecord:
        chosen = zip(self.labels, prediction.chosen_C, strict=True)
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': None if example.label is None else list(example.label),
            'predicted': [label for label, is_chosen in chosen if is_chosen],
            'probabilities': dict(prediction.probabilities),
        }

    def _label_set(self, p_C: np.ndarray, chosen_C: np.ndarray) -> LabelSet:
        return LabelSet(ClassProbabilities(self.labels, self.setup.label_numbers, p_C), chosen_C)

    def _gold_NC(self, examples: Sequence[LabelSetExample]) -> np.ndarray:
        flags = [self.encoding.flags(example) for example in examples]
        return np.array(flags, bool).reshape(len(examples), len(self.labels))

    def _arrays(
        self, examples: Sequence[LabelSetExample], predictions: Sequence[LabelSet]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        shape = len(examples), len(self.labels)
        return (
            self._gold_NC(examples),
            np.array([own.chosen_C for own in predictions], bool).reshape(shape),
            np.array([own.probabilities.p_C for own in predictions]).reshape(shape),
        )


MULTI_LABEL = base.Parts(LabelSetEncoding, LabelSetLoss, LabelSetDecoder)
