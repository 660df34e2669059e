"""Problems with one answer for each text or pair of texts: a class or a number."""

import abc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import averages
from bert_jax.averages import Term, Terms, weighted_sum
from bert_jax.errors import UserError, join_first
from bert_jax.examples.finetune_batches import Item, TokenSequence
from bert_jax.labels.examples import DistilledExample, MarkedExample, TextExample, texts_of
from bert_jax.metrics import gender_parity, scores
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, raw_input
from bert_jax.tokenizers.sliding_windows import make_windows
from bert_jax.tokenizers.special_token_layout import truncate_longest_first
from bert_jax.training.early_stopping import lower_is_better
from bert_jax.types import Batch, JsonRecord, RecordView, Tree

ACTIVATIONS = {'identity': lambda logits: logits, 'sigmoid': jax.nn.sigmoid}
_MOST_CONSTANTS = 50  # classes that are tried as the answer to all examples
_MIN_Q = 1e-30  # lower bound of class probabilities that are learned from another model

Probabilities = Mapping[str, float]  # label → probability
LabeledT = TypeVar('LabeledT', bound=TextExample | DistilledExample | MarkedExample)


class ClassProbabilities(Mapping[str, float]):
    """The probability of each class, in an array: a dict takes 50 times the memory.

    Attributes:
        labels: the classes.
        numbers: class → its number.
        p_C: probabilities by number.
    """

    def __init__(self, labels: Sequence[str], numbers: Mapping[str, int], p_C: np.ndarray):
        self.labels, self.numbers, self.p_C = labels, numbers, p_C

    def __getitem__(self, label: str) -> float:
        return float(self.p_C[self.numbers[label]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def most_probable(self) -> str:
        """Return the most probable class."""
        return self.labels[int(self.p_C.argmax())]


class OneLabelEncoding(base.Encoding[LabeledT]):
    """One class for each example; subclasses encode the example."""

    @classmethod
    def count_labels(cls, train: Sequence[LabeledT]) -> Counter[str]:
        return Counter(str(example.label) for example in train)

    def label_id(self, example: LabeledT) -> np.int32:
        """Return the number of an example's class + 1, or 0 if it is unknown."""
        if example.label is None:
            return np.int32(0)
        return np.int32(self.setup.label_number(str(example.label), example.id) + 1)

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        return {'label': self.setup.stored_label(fields['label'])}


class OneLabelLoss(base.Loss):
    """Cross-entropy of one class for each example; subclasses have the head."""

    weights = {'classification': 1.0}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        return self.setup.class_terms('classification', outputs['logits'], batch['label'])

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs({'probabilities': jax.nn.softmax(outputs['logits'])}, {})


class ClassDecoder(base.Decoder[base.ExampleT, base.PredictionT]):
    """Scores the predicted class of each example.

    The metric 'exact_match' groups examples whose ids agree up to the last '-' (MultiRC). If most
    examples form pairs that differ in the gender of a pronoun, 'gender_parity' is added.
    """

    @abc.abstractmethod
    def guess(self, prediction: base.PredictionT) -> str:
        """Return the predicted class."""

    def score(
        self, examples: Sequence[base.ExampleT], predictions: Sequence[base.PredictionT]
    ) -> Scores:
        return scores.classification(*self._classes(examples, map(self.guess, predictions)))

    def score_rows(
        self, examples: Sequence[base.ExampleT], predictions: Sequence[base.PredictionT]
    ) -> RowScore:
        return scores.classification_rows(*self._classes(examples, map(self.guess, predictions)))

    def baseline(
        self, train: Sequence[base.ExampleT], examples: Sequence[Any]
    ) -> Mapping[str, float]:
        """Return the best value of each metric among predictions of one class for all examples.

        Tried are the most frequent classes of the examples, and the one that F1 is of.
        """
        counts = Counter(str(example.label) for example in examples)
        constants = [label for label, _ in counts.most_common(_MOST_CONSTANTS)]
        constants += [label for label in (self.settings.positive,) if label]
        best: dict[str, float] = {}
        for label in dict.fromkeys(constants):
            arguments = self._classes(examples, [label] * len(examples))
            found = scores.classification_rows(*arguments)(np.arange(len(examples)))
            for name, value in found.items():
                choose = min if lower_is_better(name) else max
                best[name] = choose(value, best.get(name, value))
        return best

    def _classes(self, examples: Sequence[Any], guesses: Iterable[str]) -> tuple[Any, ...]:
        """Return the arguments of `scores.classification` for the predicted classes."""
        settings, groups = self.settings, None
        gold = [str(example.label) for example in examples]
        if 'exact_match' in settings.metrics:
            groups = [str(example.id).rpartition('-')[0] for example in examples]
        classes = (settings.positive or None, settings.negative or None)
        ordinal = settings.get('ordinal', False)
        pairs_P2 = gender_parity.find_pairs([texts_of(example) for example in examples])
        return (
            gold,
            list(guesses),
            self.labels,
            settings.metrics,
            *classes,
            groups,
            ordinal,
            pairs_P2,
        )


class OneLabelDecoder(ClassDecoder[LabeledT, Probabilities]):
    """The most probable class of each example."""

    def decode(
        self, example: LabeledT, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Probabilities:
        """Return the probability of every class, the mean over the windows of a long text."""
        mean_C = np.mean([part['probabilities'] for (part,) in parts], axis=0)
        return ClassProbabilities(self.labels, self.setup.label_numbers, mean_C)

    def guess(self, prediction: Probabilities) -> str:
        return most_probable(prediction)

    def to_record(self, example: LabeledT, prediction: Probabilities) -> JsonRecord:
        best = most_probable(prediction)
        record = {
            'id': example.id,
            'texts': list(example.texts),
            'gold': example.label,
            'predicted': best,
            'probability': prediction[best],
        }
        return record | (
            {'probabilities': dict(prediction)} if self.setup.all_probabilities else {}
        )


class TextEncoding(OneLabelEncoding[TextExample | DistilledExample]):
    """A text or a pair of texts."""

    @classmethod
    def count_labels(cls, train: Sequence[TextExample | DistilledExample]) -> Counter[str]:
        counts = super().count_labels(train)
        for example in train:
            if isinstance(example, DistilledExample):
                counts.update(dict.fromkeys(dict(example.probabilities), 0))
        return counts

    def keep(self, train: Sequence[TextExample | DistilledExample]) -> RecordView:
        """Check that the classes are ordered, and have probabilities, if these are learned from."""
        if self.settings.get('ordinal', False):
            _check_order(self.labels, tuple(self.settings.get('labels', ())))
        is_distilled = any(isinstance(example, DistilledExample) for example in train)
        temperature = self.settings.get('temperature', 0.0)
        if train and is_distilled != (temperature > 0):
            raise UserError(
                f'problem.temperature is {temperature:g}, but the training data has '
                f'{"" if is_distilled else "no "}probabilities; set it and '
                'data.columns.probabilities, or neither'
            )
        return {}

    def parse_input(self, name: str, record: RecordView) -> TextExample:
        return TextExample(name, raw_input.require_texts(record, name), None)

    def encode(self, example: TextExample | DistilledExample) -> list[Item]:
        values: dict[str, Tree] = {'label': self.label_id(example)}
        if self.settings.get('temperature', 0.0):
            values |= self._soft_targets(example)
        return encode_windows(self, example.texts, values)

    def _soft_targets(self, example: TextExample | DistilledExample) -> dict[str, Tree]:
        """Return the fields 'log_q', fp32 [C], and 'is_soft', 1 if q is known."""
        log_q_C = np.zeros(len(self.labels), np.float32)
        if not isinstance(example, DistilledExample):
            return {'log_q': log_q_C, 'is_soft': np.float32(0)}
        log_q_C += np.log(_MIN_Q)
        for label, probability in example.probabilities:
            log_q_C[self.setup.label_number(label, example.id)] = np.log(max(probability, _MIN_Q))
        return {'log_q': log_q_C, 'is_soft': np.float32(1)}


def _check_order(labels: Sequence[str], configured: Sequence[str]) -> None:
    """Raise UserError unless classes are given in their order or are increasing numbers."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        numbers = []
    if not configured and numbers != sorted(numbers or [0.0]):
        raise UserError(
            f'problem.ordinal is True, but the order of the classes {join_first(labels)} is not '
            'known; set problem.labels to the classes from the lowest to the highest'
        )


class TextLoss(OneLabelLoss):
    """A linear head, and a loss from classes or from the class probabilities of another model.

    With `ordinal` the loss is the ranked probability score: the squared difference between the
    cumulative probabilities of the prediction and of the target, summed over the classes (Epstein
    1969; as the squared earth mover's distance of classifiers in Hou et al. 2016, section 3).

    With a temperature T the model learns from the class probabilities q of another model: the loss
    is T² · KL(softmax(log q / T) ‖ softmax(logits / T)) (Hinton et al. 2015, section 2).
    """

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'sequence_classification': {'num_labels': len(self.labels)}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'classification', for soft targets the divergence, and 'accuracy'."""
        terms = super().terms(outputs, batch)
        if self.settings.get('ordinal', False):
            return terms | {'classification': self._ranked_score(outputs, batch)}
        if 'is_soft' not in batch:
            return terms
        temperature = self.settings.temperature
        q_RSC = jax.nn.softmax(jnp.asarray(batch['log_q']) / temperature)
        log_p_RSC = jax.nn.log_softmax(outputs['logits'] / temperature)
        divergence_RS = jnp.sum(jax.scipy.special.xlogy(q_RSC, q_RSC) - q_RSC * log_p_RSC, axis=-1)
        soft = weighted_sum(temperature**2 * divergence_RS, batch['is_soft'])
        is_hard_RS = jnp.asarray(batch['is_soft']) == 0
        hard = self.setup.class_terms(
            'classification', outputs['logits'], jnp.where(is_hard_RS, batch['label'], 0)
        )
        return terms | averages.add(
            {'classification': soft}, {'classification': hard['classification']}
        )

    def _ranked_score(self, outputs: base.Outputs, batch: Batch) -> Term:
        label_RS = jnp.asarray(batch['label'])
        class_RS, is_known_RS = jnp.maximum(label_RS - 1, 0), label_RS > 0
        smoothing, number = self.settings.label_smoothing, len(self.labels)
        target_RSC = jax.nn.one_hot(class_RS, number) * (1 - smoothing) + smoothing / number
        gap_RSC = jnp.cumsum(jax.nn.softmax(outputs['logits']) - target_RSC, axis=-1)
        weight_RS = jnp.asarray(self.setup.class_weights_C)[class_RS] * is_known_RS
        return weighted_sum(jnp.square(gap_RSC).sum(axis=-1), weight_RS)


CLASSIFICATION = base.Parts(TextEncoding, TextLoss, OneLabelDecoder)


class NumberEncoding(base.Encoding[TextExample]):
    """A text or a pair of texts with a number."""

    @classmethod
    def count_labels(cls, train: Sequence[TextExample]) -> Counter[str]:
        return Counter(score=len(train))

    def parse_input(self, name: str, record: RecordView) -> TextExample:
        return TextExample(name, raw_input.require_texts(record, name), None)

    def encode(self, example: TextExample) -> list[Item]:
        is_known = example.label is not None
        target = np.float32(example.label if is_known else 0)
        values = {'target': target, 'known': np.float32(is_known)}
        return encode_windows(self, example.texts, values)


class NumberLoss(base.Loss):
    """The squared error, without normalization."""

    weights = {'regression': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'sequence_classification': {'num_labels': 1}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'regression', the squared error."""
        error_RS = outputs['logits'][..., 0] - batch['target']
        return {'regression': weighted_sum(jnp.square(error_RS), batch['known'])}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        score = ACTIVATIONS[self.setup.activation](outputs['logits'][..., 0])
        return base.HostOutputs({'score': score}, {})


class NumberDecoder(base.Decoder[TextExample, float]):
    """A number for each example."""

    def decode(
        self, example: TextExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> float:
        return float(np.mean([part['score'] for (part,) in parts]))

    def score(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> Scores:
        gold = [float(example.label) for example in examples]  # type: ignore[arg-type]  # labeled
        return scores.regression(gold, predictions, self.settings.metrics)

    def blind_guesses(
        self, train: Sequence[TextExample], examples: Sequence[TextExample]
    ) -> list[float]:
        """Return the mean of the examples."""
        return [float(np.mean([example.label for example in examples]))] * len(examples)

    def to_record(self, example: TextExample, prediction: float) -> JsonRecord:
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': example.label,
            'predicted': prediction,
        }


REGRESSION = base.Parts(NumberEncoding, NumberLoss, NumberDecoder)


def encode_windows(
    encoding: base.Encoding[Any], texts: Sequence[str], values: dict[str, Tree]
) -> list[Item]:
    """Tokenize one or two texts into one truncated sequence or into overlapping windows.

    For a pair, the windows slide over the longer text; each has the start of the shorter text.
    """
    ids = encoding.tokenizer.encode_batch(texts, special=True).ids
    room = encoding.layout.max_text_tokens(len(ids))
    if encoding.setup.window_overlap is None or sum(map(len, ids)) <= room:
        return [(sequence(encoding, ids, values),)]
    encoding.setup.counts['texts split into windows'] += 1
    longest = int(np.argmax(list(map(len, ids))))
    window_ids = [text_ids[: room // 2] for text_ids in ids]
    window_ids[longest] = ids[longest][:0]
    size = room - sum(map(len, window_ids))
    overlap = min(int(encoding.setup.window_overlap * size), size - 1)
    items: list[Item] = []
    for window in make_windows(len(ids[longest]), size, overlap):
        window_ids[longest] = ids[longest][window.start : window.stop]
        items.append((sequence(encoding, window_ids, values),))
    return items


def sequence(
    encoding: base.Encoding[Any], ids: Sequence[np.ndarray], values: dict[str, Tree]
) -> TokenSequence:
    """Lay out one or two texts as one sequence, truncated to the length of the layout."""
    room = encoding.layout.max_text_tokens(len(ids))
    if sum(map(len, ids)) > room:
        encoding.setup.counts[f'texts truncated to {encoding.layout.max_length} tokens'] += 1
        ids = truncate_longest_first(ids, room)
    laid_out = encoding.layout.lay_out(*ids)
    return TokenSequence(laid_out.ids, laid_out.token_type_ids, {}, values)


def most_probable(probabilities: Probabilities) -> str:
    """Return the most probable class."""
    if isinstance(probabilities, ClassProbabilities):
        return probabilities.most_probable()
    return max(probabilities, key=lambda label: probabilities[label])
