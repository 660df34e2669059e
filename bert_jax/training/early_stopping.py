"""Early stopping: the best evaluation so far, and when to stop waiting for a better one."""

import math
from collections.abc import Mapping

from bert_jax.errors import UserError, unknown
from bert_jax.loaded.record import BestEvaluation
from bert_jax.types import Config

_LOWER_IS_BETTER = ('loss', 'perplexity', 'rmse', 'mae')  # endings of metric names


def lower_is_better(metric: str) -> bool:
    """Return whether a lower value is better; 'mlm_loss/cy' is the loss in one language."""
    return metric.partition('/')[0].endswith(_LOWER_IS_BETTER)


class EarlyStopping:
    """Tracks the best evaluation by one metric and ends the run when it does not improve.

    Attributes:
        metric: name of the metric, `evaluation.best` of the config; '' if there is none.
        patience: evaluations without improvement after which the run is over,
            `evaluation.patience`; 0: never.
        best: the best evaluation so far.
    """

    def __init__(self, evaluation: Config):
        """Raise UserError if the patience is negative; `check` refuses one without a metric."""
        self.metric, self.patience = evaluation.best, evaluation.patience
        self.best = BestEvaluation()
        if self.patience < 0:
            raise UserError(f'evaluation.patience is {self.patience}, but must be at least 0')

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record an evaluation. The first of equal values stays the best; NaN never is the best.

        Raises UserError as `check` does.
        """
        self.check(metrics)
        if not self.metric:
            return
        value = metrics[self.metric]
        if self.best.metrics is None:
            is_better = not math.isnan(value)
        elif lower_is_better(self.metric):
            is_better = value < self.best.metrics[self.metric]
        else:
            is_better = value > self.best.metrics[self.metric]
        if is_better:
            self.best = BestEvaluation(step, dict(metrics))
        else:
            self.best = self.best._replace(waited=self.best.waited + 1)

    def check(self, metrics: Mapping[str, float]) -> None:
        """Raise UserError if the metric is not one of `metrics`, or there is only a patience."""
        if self.patience and not self.metric:
            names = ', '.join(sorted(metrics))
            known = f'one of {names}' if metrics else 'a metric of held-out examples'
            raise UserError(
                f'evaluation.patience is {self.patience}, but evaluation.best is not set: set it '
                f'to the metric that must improve, {known}'
            )
        if self.metric and self.metric not in metrics:
            raise unknown('metric in evaluation.best', self.metric, metrics)

    @property
    def is_used(self) -> bool:
        """Whether a metric or a patience is set, so that `check` is needed before training."""
        return bool(self.metric or self.patience)

    @property
    def is_over(self) -> bool:
        """Whether `patience` evaluations have passed without improvement."""
        return bool(0 < self.patience <= self.best.waited)
