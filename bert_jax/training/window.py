"""What is measured over the steps between two records."""

import time

from bert_jax import averages


class Window:
    """Sums over the steps since the last record, on one stage of the run."""

    def __init__(self):
        self.restart()

    def restart(self):
        self.start = time.perf_counter()
        self.steps, self.terms, self.gradient_norm, self.skipped = 0, {}, 0.0, 0

    def add(self, metrics):
        self.steps += 1
        self.terms = averages.add(self.terms, metrics['terms'])
        self.gradient_norm, self.skipped = metrics['gradient_norm'], metrics['skipped']

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def tokens_per_second(self, stage) -> float:
        return self.steps * stage.tokens_per_step / self.seconds()


def means(terms: averages.Terms, weights: dict[str, float]) -> dict[str, float]:
    """The weighted loss, and the mean of every term."""
    found = {name: float(averages.mean(term)) for name, term in terms.items()}
    return {'loss': sum(weight * found[name] for name, weight in weights.items())} | found
