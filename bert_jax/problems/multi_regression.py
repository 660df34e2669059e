"""Problems with several numbers for each text or pair of texts."""

from collections import Counter
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels.examples import NumbersExample
from bert_jax.metrics import scores
from bert_jax.metrics.scores import Scores, Table, main_first
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, raw_input
from bert_jax.problems.classification import encode_windows
from bert_jax.types import Batch, JsonRecord, RecordView

Numbers = np.ndarray  # float32 [C], in the order of the labels


class NumbersEncoding(base.Encoding[NumbersExample]):
    """A text or a pair of texts with a number for each target; the labels name the targets."""

    @classmethod
    def count_labels(cls, train: Sequence[NumbersExample]) -> Counter[str]:
        return Counter(name for example in train for name, _ in example.label or ())

    def parse_input(self, name: str, record: RecordView) -> NumbersExample:
        return NumbersExample(name, raw_input.require_texts(record, name), None)

    def encode(self, example: NumbersExample) -> list[Item]:
        values = {
            'targets': self.numbers(example),
            'known': np.float32(example.label is not None),
        }
        return encode_windows(self, example.texts, values)

    def numbers(self, example: NumbersExample) -> Numbers:
        """Return the number of each target, zeros if they are unknown.

        Raises:
            UserError: a target is missing or unknown.
        """
        target_C = np.zeros(len(self.labels), np.float32)
        if example.label is None:
            return target_C
        numbers = dict(example.label)
        if missing := [name for name in self.labels if name not in numbers]:
            raise UserError(
                f'example {example.id}: no number for {missing[0]!r}; every example needs a '
                f'number for each of {len(self.labels)} targets'
            )
        for name, number in numbers.items():
            target_C[self.setup.label_number(name, example.id)] = number
        return target_C


class NumbersLoss(base.Loss):
    """A linear head and the squared error, the mean over examples and targets."""

    weights = {'regression': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'sequence_classification': {'num_labels': len(self.labels)}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'regression', the squared error."""
        error_RSC = outputs['logits'] - jnp.asarray(batch['targets'])
        return {'regression': weighted_sum(jnp.square(error_RSC).mean(axis=-1), batch['known'])}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        return base.HostOutputs({'scores': outputs['logits']}, {})


class NumbersDecoder(base.Decoder[NumbersExample, Numbers]):
    """A number for each target of each example."""

    def decode(
        self, example: NumbersExample, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> Numbers:
        return np.asarray(np.mean([part['scores'] for (part,) in parts], axis=0))

    def score(self, examples: Sequence[NumbersExample], predictions: Sequence[Numbers]) -> Scores:
        """Return the means over the targets of 'pearson', 'spearman' and 'rmse'."""
        shape = len(examples), len(self.labels)
        gold_NC = np.array([self.encoding.numbers(one) for one in examples]).reshape(shape)
        guess_NC = np.array(predictions).reshape(shape)
        by_target = [
            scores.regression(gold_N.tolist(), guess_N.tolist()).metrics
            for gold_N, guess_N in zip(gold_NC.T, guess_NC.T, strict=True)
        ]
        names = ('pearson', 'spearman', 'rmse')
        values = {name: float(np.mean([own[name] for own in by_target])) for name in names}
        rows = [
            (label, *(own[name] for name in names))
            for label, own in zip(self.labels, by_target, strict=True)
        ]
        return Scores(
            main_first(values, self.settings.metrics),
            {'Targets': Table(('target', *names), rows)},
        )

    def blind_guesses(
        self, train: Sequence[NumbersExample], examples: Sequence[NumbersExample]
    ) -> list[Numbers]:
        """Return the means of the examples."""
        mean_C = np.mean([self.encoding.numbers(example) for example in examples], axis=0)
        return [mean_C] * len(examples)

    def to_record(self, example: NumbersExample, prediction: Numbers) -> JsonRecord:
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': None if example.label is None else dict(example.label),
            'predicted': dict(zip(self.labels, prediction.tolist(), strict=True)),
        }


MULTI_REGRESSION = base.Parts(NumbersEncoding, NumbersLoss, NumbersDecoder)
