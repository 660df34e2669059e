"""Multiple choice: the best of several choices for a premise."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels.examples import MultipleChoiceExample
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, raw_input
from bert_jax.problems.classification import sequence
from bert_jax.reports import glue
from bert_jax.types import Batch, JsonRecord, RecordView

_ABSENT = -1e9  # logit of an empty slot; finite, so that its gradient is not NaN


class ChoiceEncoding(base.Encoding[MultipleChoiceExample]):
    """One sequence for each choice; all choices of an example are in one row."""

    def parse_input(self, name: str, record: RecordView) -> MultipleChoiceExample:
        """Read 'premise' and 'choices'."""
        key = 'text' if 'text' in record and 'premise' not in record else 'premise'
        premise, choices = (raw_input.require(record, name, one) for one in (key, 'choices'))
        is_list = isinstance(choices, list | tuple) and len(choices) > 0
        if not is_list or not all(isinstance(text, str) for text in (premise, *choices)):
            raise UserError(
                f"{name}: give 'premise', a string, and 'choices', a list of strings, instead of "
                f'{json.dumps([premise, choices])[:60]}'
            )
        return MultipleChoiceExample(name, premise, tuple(choices), None)

    def encode(self, example: MultipleChoiceExample) -> list[Item]:
        sequences = [
            sequence(
                self,
                self.tokenizer.encode_batch([example.premise, choice], special=True).ids,
                {'place': np.int32(number), 'correct': np.float32(number in example.correct())},
            )
            for number, choice in enumerate(example.choices)
        ]
        return [tuple(sequences)]


class ChoiceLoss(base.Loss):
    """A softmax over the scores of the choices of an example.

    SWAG in Devlin et al. 2019, section 4.4.
    """

    weights = {'multiple_choice': 1.0}

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'multiple_choice': {}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'multiple_choice', −log p of all correct choices together, and 'accuracy'."""
        log_p_RS, is_present_RS = _log_probabilities(outputs['logits'], batch)
        is_first_RS = is_present_RS & (batch['place'] == 0)
        same_RSS = _same_example(batch)
        is_correct_RS = batch['correct'] > 0
        log_p_correct_RS = jnp.where(is_correct_RS, log_p_RS, _ABSENT)
        # Counted once for each example, in the slot of its first choice.
        is_known_RS = is_first_RS & jnp.any(same_RSS & is_correct_RS[:, None, :], axis=-1)
        log_p_any_RS = _reduce(jax.nn.logsumexp, log_p_correct_RS, same_RSS)
        loss_RS = jnp.where(is_known_RS, -log_p_any_RS, 0)
        best_RS = _reduce(jnp.max, log_p_RS, same_RSS)
        best_correct_RS = _reduce(jnp.max, log_p_correct_RS, same_RSS)
        return {
            'multiple_choice': weighted_sum(loss_RS, is_known_RS),
            'accuracy': weighted_sum(best_correct_RS >= best_RS, is_known_RS),
        }

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        log_p_RS, _ = _log_probabilities(outputs['logits'], batch)
        return base.HostOutputs({'probability': jnp.exp(log_p_RS)}, {})

    def exported_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        """Return 'logits' of each pair: an exported row is one pair, not all of an example."""
        return base.HostOutputs({'logits': outputs['logits']}, {})


class ChoiceDecoder(base.Decoder[MultipleChoiceExample, list[float]]):
    """The most probable choice."""

    def decode(
        self,
        example: MultipleChoiceExample,
        parts: base.ExampleOutputs,
        calibration: base.Calibration,
    ) -> list[float]:
        """Return the probability of every choice."""
        (choices,) = parts
        return [float(part['probability']) for part in choices]

    def blind_guesses(
        self, train: Sequence[MultipleChoiceExample], examples: Sequence[MultipleChoiceExample]
    ) -> list[list[float]]:
        """Return the share of each place of the correct choice."""
        counts, number = Counter(example.label for example in examples), len(examples)
        return [[counts[i] / number for i in range(len(one.choices))] for one in examples]

    def score(
        self, examples: Sequence[MultipleChoiceExample], predictions: Sequence[list[float]]
    ) -> Scores:
        """Return the accuracy; for ReCoRD, before it, F1 and exact match of the chosen entity."""
        best = [int(np.argmax(prediction)) for prediction in predictions]
        pairs = list(zip(examples, best, strict=True))
        is_correct = [choice in example.correct() for example, choice in pairs]
        metrics = {'accuracy': sum(is_correct) / max(len(is_correct), 1)}
        if examples and all(example.entities for example in examples):
            golds = [[example.entities[i] for i in example.correct()] for example in examples]
            guesses = [example.entities[choice] for example, choice in pairs]
            metrics = glue.score_record(golds, guesses) | metrics
        return Scores(metrics, {})

    def to_record(self, example: MultipleChoiceExample, prediction: list[float]) -> JsonRecord:
        best = int(np.argmax(prediction))
        record = {
            'id': example.id,
            'premise': example.premise,
            'choices': list(example.choices),
            'gold': example.label,
            'predicted': best,
            'probability': prediction[best],
        }
        return record | ({'probabilities': prediction} if self.setup.all_probabilities else {})


MULTIPLE_CHOICE = base.Parts(ChoiceEncoding, ChoiceLoss, ChoiceDecoder)


def _same_example(batch: Batch) -> jax.Array:
    """Return whether two slots hold choices of the same example, bool [R, S, S]."""
    is_present_RS = batch['first_positions'] >= 0
    example_RS = jnp.cumsum(is_present_RS & (batch['place'] == 0), axis=-1)
    same_RSS = example_RS[:, :, None] == example_RS[:, None, :]
    is_same_RSS: jax.Array = same_RSS & is_present_RS[:, :, None] & is_present_RS[:, None, :]
    return is_same_RSS


def _log_probabilities(logits_RS: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Return the log softmax over the choices of each example, fp32 [R, S], and filled slots."""
    is_present_RS = batch['first_positions'] >= 0
    total_RS = _reduce(jax.nn.logsumexp, logits_RS, _same_example(batch))
    return jnp.where(is_present_RS, logits_RS - total_RS, 0), jnp.asarray(is_present_RS)


def _reduce(
    function: Callable[..., jax.Array], values_RS: jax.Array, same_RSS: jax.Array
) -> jax.Array:
    """Apply max or logsumexp to the slots of the same example, [R, S]."""
    return function(jnp.where(same_RSS, values_RS[:, None, :], _ABSENT), axis=-1)
