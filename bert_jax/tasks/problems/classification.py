"""One answer for a text or a pair of texts: its class, a number, or the best of several choices."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import weighted_sum
from bert_jax.data import finetune_batches
from bert_jax.data.labeled.examples import MultipleChoiceExample, TextExample
from bert_jax.data.special_token_layout import shorten
from bert_jax.evaluation import glue, scores
from bert_jax.evaluation.scores import Scores
from bert_jax.models.heads import MultipleChoiceHead, SequenceClassificationHead
from bert_jax.objectives.packed import encoder_arguments
from bert_jax.tasks.problems.base import (
    HostOutputs,
    Problem,
    check_labels,
    class_weights,
    label_ids,
    require,
    require_texts,
)

_NONE = -1e9  # a logit of what is not there; finite, for the gradient's sake


class _TextProblem(Problem):
    """What problems with one answer a sequence share: how texts become sequences."""

    def _sequence(self, texts: Sequence[str], values: dict) -> finetune_batches.Sequence:
        ids = self.tokenizer.encode_batch(list(texts)).ids
        room = self.framing.room(len(ids))
        if sum(map(len, ids)) > room:
            self.counts['texts_cut_to_training_max_length'] += 1
            ids = shorten(ids, room)
        framed = self.framing.frame(*ids)
        return finetune_batches.Sequence(framed.ids, framed.token_type_ids, {}, values)

    def parse_input(self, name, given):
        """From 'text', and 'text2' where texts come in pairs."""
        return TextExample(name, require_texts(given, name), None)

    def apply_heads(self, heads, encoded, batch, dropout_seeds_R):
        """logits fp32 [R, S, C], or [R, S] of choices."""
        (head,) = heads.values()
        rows = encoder_arguments(batch)
        return {'logits': head(encoded, batch['attention_mask'], dropout_seeds_R, **rows)}


class Classification(_TextProblem):
    """The class of a text or of a pair.

    settings: label_smoothing ε: targets (1 − ε) one-hot + ε / C; class_weights: see
    problem.class_weights; metrics, positive, negative: see evaluation/scores.py, with
    'exact_match' over the examples of the same id up to its last '-'.
    """

    weights = {'classification': 1.0}
    pretrained_heads = ('sequence_classification',)

    @classmethod
    def collect_labels(cls, examples, settings) -> tuple[str, ...]:
        return tuple(sorted({example.label for example in examples}))

    def prepare(self, train):
        """The weight of each class."""
        counts = Counter(example.label for example in train)
        counts_C = [counts[label] for label in self.labels]
        self._class_weights_C = class_weights(self.settings.class_weights, counts_C)

    def encode(self, example: TextExample):
        return [(self._sequence(example.texts, {'label': self.label_number(example)}),)]

    def label_number(self, example) -> np.int32:
        """The number of an example's class, + 1; 0 where there is none."""
        if example.label is None:
            return np.int32(0)
        check_labels({example.label: f'example {example.id}'}, self.labels)
        return np.int32(label_ids(self.labels)[example.label] + 1)

    def make_heads(self, architecture, compute):
        number = len(self.labels)
        head = partial(SequenceClassificationHead, architecture, compute, num_labels=number)
        return {'sequence_classification': head}

    def terms(self, outputs, batch):
        """classification: −Σ target · log p with the class weights; accuracy."""
        label_RS, logits_RSC = batch['label'] - 1, outputs['logits']
        smoothing, number = self.settings.label_smoothing, len(self.labels)
        target_RSC = jax.nn.one_hot(label_RS, number) * (1 - smoothing) + smoothing / number
        loss_RS = -jnp.sum(target_RSC * jax.nn.log_softmax(logits_RSC), axis=-1)
        known_RS = label_RS >= 0
        weight_RS = jnp.asarray(self._class_weights_C)[jnp.maximum(label_RS, 0)] * known_RS
        right_RS = logits_RSC.argmax(-1) == label_RS
        return {
            'classification': weighted_sum(loss_RS, weight_RS),
            'accuracy': weighted_sum(right_RS, known_RS),
        }

    def host_outputs(self, outputs, batch):
        return HostOutputs({'probabilities': jax.nn.softmax(outputs['logits'])}, {})

    def decode(self, example, parts) -> dict[str, float]:
        """The probability of every class."""
        ((own,),) = parts
        return dict(zip(self.labels, own['probabilities'].tolist(), strict=True))

    def score(self, examples, predictions) -> Scores:
        gold = [example.label for example in examples]
        guesses = [_best(prediction) for prediction in predictions]
        own = self.settings
        classes = (own.positive or None, own.negative or None)
        groups = None
        if 'exact_match' in own.metrics:
            groups = [example.id.rpartition('-')[0] for example in examples]
        return scores.classification(gold, guesses, self.labels, own.metrics, *classes, groups)

    def to_record(self, example, prediction) -> dict:
        best = _best(prediction)
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': example.label,
            'predicted': best,
            'probability': prediction[best],
        }


class Regression(_TextProblem):
    """A number for a text or a pair, learned by squared error. Numbers are used as they are."""

    weights = {'regression': 1.0}
    pretrained_heads = ('sequence_classification',)

    @classmethod
    def collect_labels(cls, examples, settings) -> tuple[str, ...]:
        return ('score',)

    def encode(self, example: TextExample):
        known = example.label is not None
        values = {'target': np.float32(example.label if known else 0), 'known': np.float32(known)}
        return [(self._sequence(example.texts, values),)]

    def make_heads(self, architecture, compute):
        head = partial(SequenceClassificationHead, architecture, compute, num_labels=1)
        return {'sequence_classification': head}

    def terms(self, outputs, batch):
        """regression: the squared error."""
        error_RS = outputs['logits'][..., 0] - batch['target']
        return {'regression': weighted_sum(jnp.square(error_RS), batch['known'])}

    def host_outputs(self, outputs, batch):
        return HostOutputs({'score': outputs['logits'][..., 0]}, {})

    def decode(self, example, parts) -> float:
        ((own,),) = parts
        return float(own['score'])

    def score(self, examples, predictions) -> Scores:
        gold = [example.label for example in examples]
        return scores.regression(gold, predictions, self.settings.metrics)

    def to_record(self, example, prediction) -> dict:
        return {
            'id': example.id,
            'texts': list(example.texts),
            'gold': example.label,
            'predicted': prediction,
        }


class MultipleChoice(_TextProblem):
    """Which of several continuations is right: one sequence for each, a softmax over them
    (SWAG in Devlin et al. 2019, section 4.4)."""

    weights = {'multiple_choice': 1.0}
    pretrained_heads = ('multiple_choice',)

    def parse_input(self, name, given):
        """From 'premise' and 'choices'."""
        choices = tuple(require(given, name, 'choices'))
        return MultipleChoiceExample(name, require(given, name, 'premise'), choices, None)

    def encode(self, example: MultipleChoiceExample):
        sequences = [
            self._sequence(
                (example.premise, choice),
                {'place': np.int32(number), 'right': np.float32(number in example.correct())},
            )
            for number, choice in enumerate(example.choices)
        ]
        return [tuple(sequences)]

    def make_heads(self, architecture, compute):
        return {'multiple_choice': partial(MultipleChoiceHead, architecture, compute)}

    def terms(self, outputs, batch):
        """multiple_choice: −log of what the right ones get together; accuracy."""
        log_RS, present_RS = _log_shares(outputs['logits'], batch)
        first_RS = present_RS & (batch['place'] == 0)
        same_RSS = _same_question(batch)
        right_RS = batch['right'] > 0
        log_right_RS = jnp.where(right_RS, log_RS, _NONE)
        gained_RS = _log_sum(log_right_RS, same_RSS)
        known_RS = first_RS & jnp.any(same_RSS & right_RS[:, None, :], axis=-1)
        best_RS = jnp.max(jnp.where(same_RSS, log_RS[:, None, :], _NONE), axis=-1)
        best_right_RS = jnp.max(jnp.where(same_RSS, log_right_RS[:, None, :], _NONE), axis=-1)
        loss_RS = jnp.where(known_RS, -gained_RS, 0)
        return {
            'multiple_choice': weighted_sum(loss_RS, known_RS),
            'accuracy': weighted_sum(best_right_RS >= best_RS, known_RS),
        }

    def host_outputs(self, outputs, batch):
        return HostOutputs({'probability': jnp.exp(_log_shares(outputs['logits'], batch)[0])}, {})

    def decode(self, example, parts) -> list[float]:
        """The probability of every choice."""
        (own,) = parts
        return [float(part['probability']) for part in own]

    def score(self, examples, predictions) -> Scores:
        """Accuracy; of ReCoRD first what it is scored by."""
        best = [int(np.argmax(prediction)) for prediction in predictions]
        right = [choice in own.correct() for own, choice in zip(examples, best, strict=True)]
        found = {'accuracy': float(np.mean(right))}
        if all(example.entities for example in examples):
            golds = [[own.entities[choice] for choice in own.correct()] for own in examples]
            guesses = [own.entities[choice] for own, choice in zip(examples, best, strict=True)]
            found = glue.record(golds, guesses) | found
        return Scores(found, {})

    def to_record(self, example, prediction) -> dict:
        best = int(np.argmax(prediction))
        return {
            'id': example.id,
            'premise': example.premise,
            'choices': list(example.choices),
            'gold': example.label,
            'predicted': best,
            'probability': prediction[best],
        }


def _best(probabilities: dict[str, float]) -> str:
    return max(probabilities, key=probabilities.get)


def _same_question(batch) -> jax.Array:
    """bool [R, S, S]: whether two slots are choices of one question."""
    present_RS = batch['first_positions'] >= 0
    question_RS = jnp.cumsum(present_RS & (batch['place'] == 0), axis=-1)
    same_RSS = question_RS[:, :, None] == question_RS[:, None, :]
    return same_RSS & present_RS[:, :, None] & present_RS[:, None, :]


def _log_shares(logits_RS, batch) -> tuple[jax.Array, jax.Array]:
    """Log probabilities [R, S] among the choices of a question, and which slots have one."""
    present_RS = batch['first_positions'] >= 0
    total_RS = _log_sum(logits_RS, _same_question(batch))
    return jnp.where(present_RS, logits_RS - total_RS, 0), present_RS


def _log_sum(values_RS, same_RSS) -> jax.Array:
    """log Σ exp over the slots of the same question, [R, S]."""
    return jax.nn.logsumexp(jnp.where(same_RSS, values_RS[:, None, :], _NONE), axis=-1)
