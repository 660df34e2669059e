"""The best evaluation so far, and when to stop waiting for a better one."""

from typing import Any, NamedTuple

from bert_jax.errors import UserError, unknown

_LOWER = ('loss', 'perplexity')  # metrics whose name ends so are better when lower


def lower_is_better(metric: str) -> bool:
    """By the name of a metric; 'mlm_loss/cy' is of a language."""
    return metric.partition('/')[0].endswith(_LOWER)


class Best(NamedTuple):
    """The metrics of the best evaluation and its step (None before the first one that is a number),
    and how many evaluations there have been since. In every checkpoint's metadata."""

    step: int | None = None
    metrics: dict[str, float] | None = None
    waited: int = 0


class Watch:
    """What `config.evaluation` says of a best evaluation: `best` is a metric or '', `patience` the
    evaluations without a better one after which a run is over (0: never)."""

    def __init__(self, evaluation: Any):
        """Raises UserError for patience that has nothing to wait for."""
        self.name, self.patience = evaluation.best, evaluation.patience
        if self.patience < 0 or (self.patience and not self.name):
            raise UserError(
                f'evaluation.patience is {self.patience} with evaluation.best={self.name!r}; it '
                'must be at least 0 and needs the name of a metric there'
            )

    def after(self, best: Best, step: int, metrics: dict[str, float]) -> Best:
        """With one more evaluation. The first of equal ones is the best, NaN never is.

        Raises UserError if there is no such metric.
        """
        if not self.name:
            return best
        self.check(metrics)
        value = metrics[self.name]
        if best.step is None:
            better = value == value
        elif lower_is_better(self.name):
            better = value < best.metrics[self.name]
        else:
            better = value > best.metrics[self.name]
        return Best(step, metrics) if better else best._replace(waited=best.waited + 1)

    def check(self, metrics: dict[str, float]):
        """Raises UserError if the metric is not among them."""
        if self.name and self.name not in metrics:
            raise unknown('metric in evaluation.best', self.name, metrics)

    def is_over(self, best: Best) -> bool:
        """Whether the run has waited long enough."""
        return 0 < self.patience <= best.waited
