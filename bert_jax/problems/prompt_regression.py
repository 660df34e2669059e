"""Regression by cloze prompts: answers stand for the two ends of a scale."""

from collections import Counter
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.labels.examples import PromptExample
from bert_jax.metrics import scores
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.problems import base
from bert_jax.problems.prompt import PromptDecoder, PromptLoss, PromptPrediction, mlm_terms
from bert_jax.problems.prompting.encoding import PromptEncoding
from bert_jax.types import Batch, JsonRecord

ENDS = ('high', 'low')  # the labels


class ScalePromptEncoding(PromptEncoding):
    """A prompt whose two answers stand for the ends of a scale."""

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.demonstrations:
            raise UserError('problem.demonstrations needs classes; set it to 0 for regression')
        if settings.lowest >= settings.highest:
            raise UserError(
                f'problem.lowest is {settings.lowest:g}, but problem.highest is '
                f'{settings.highest:g}; set them to the ends of the scale'
            )
        super().__post_init__()

    @classmethod
    def count_labels(cls, train: Sequence[PromptExample]) -> Counter[str]:
        return Counter(dict.fromkeys(ENDS, len(train)))

    def share(self, example: PromptExample) -> float:
        """Return the label scaled to [0, 1]."""
        lowest, highest = self.settings.lowest, self.settings.highest
        share: float = (float(example.label or 0) - lowest) / (highest - lowest)
        if not 0 <= share <= 1:
            raise UserError(
                f'example {example.id}: the label {example.label} is not between problem.lowest='
                f'{lowest:g} and problem.highest={highest:g}'
            )
        return share

    def _targets(self, example: PromptExample) -> dict[str, np.number]:
        is_known = example.label is not None
        share = self.share(example) if is_known else 0
        return {'target': np.float32(share), 'known': np.float32(is_known)}

    def describe_targets(
        self, tokens: Sequence[str], fields: Mapping[str, np.ndarray]
    ) -> JsonRecord:
        return {'target': float(fields['target']) if fields['known'] else None}


class ScalePromptLoss(PromptLoss):
    """The divergence from a number between two ends.

    With p the softmax over both ends, the number is lowest + p(high) · (highest − lowest). The loss
    is KL((1 − t, t) ‖ p) for a target t scaled to [0, 1] (LM-BFF, section 4.2).
    """

    main = 'regression'

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'regression', the divergence."""
        log_p_REC = jax.nn.log_softmax(self._class_scores(outputs['log_p']))
        target_RE, known_RE = (
            self._of_examples(batch[name], log_p_REC) for name in ('target', 'known')
        )
        is_high_C = jnp.array([label == 'high' for label in self.labels])
        target_REC = jnp.where(is_high_C, target_RE[..., None], 1 - target_RE[..., None])
        entropy_REC = jax.scipy.special.xlogy(target_REC, target_REC)
        loss_RE = jnp.sum(entropy_REC - target_REC * log_p_REC, axis=-1)
        return {'regression': weighted_sum(loss_RE, known_RE)} | mlm_terms(outputs)


class ScalePromptDecoder(PromptDecoder):
    """The number between the ends."""

    encoding: ScalePromptEncoding

    def blind_guesses(
        self, train: Sequence[PromptExample], examples: Sequence[PromptExample]
    ) -> list[PromptPrediction]:
        """Return the mean of the examples."""
        share = float(np.mean([self.encoding.share(example) for example in examples]))
        return [PromptPrediction({'high': share, 'low': 1 - share}, ())] * len(examples)

    def baseline(
        self, train: Sequence[PromptExample], examples: Sequence[PromptExample]
    ) -> Mapping[str, float]:
        return base.Decoder.baseline(self, train, examples)

    def _value(self, prediction: PromptPrediction) -> float:
        lowest, highest = self.settings.lowest, self.settings.highest
        return float(lowest + prediction.classes['high'] * (highest - lowest))

    def score(
        self, examples: Sequence[PromptExample], predictions: Sequence[PromptPrediction]
    ) -> Scores:
        gold = [float(example.label or 0) for example in examples]
        return scores.regression(gold, list(map(self._value, predictions)), self.settings.metrics)

    def score_rows(
        self, examples: Sequence[PromptExample], predictions: Sequence[PromptPrediction]
    ) -> RowScore:
        return base.Decoder.score_rows(self, examples, predictions)

    def to_record(self, example: PromptExample, prediction: PromptPrediction) -> JsonRecord:
        record = super().to_record(example, prediction) | {'predicted': self._value(prediction)}
        return {name: value for name, value in record.items() if name != 'probability'}


PROMPT_REGRESSION = base.Parts(ScalePromptEncoding, ScalePromptLoss, ScalePromptDecoder)
