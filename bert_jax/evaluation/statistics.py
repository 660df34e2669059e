"""What several runs say together: mean ± standard deviation, and a bootstrap interval."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data import sampling

LEVEL = 0.95  # of the intervals
DRAWS = 1000
_KEY = 0  # of the draws: the same figures give the same interval
_RUNS, _EXAMPLES = 300, 301  # purposes of random draws


class Summary(NamedTuple):
    """mean; sd: of the sample (n − 1), 0 for one run; low, high: a bootstrap interval of the mean;
    count: of the runs."""

    mean: float
    sd: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f'{self.mean:.4f} ± {self.sd:.4f}'


def summary(values: Sequence[float]) -> Summary:
    """Of one figure of several runs (seeds)."""
    values_S = np.asarray(values, np.float64)
    low, high = bootstrap(lambda run, examples: values_S[run], len(values_S))
    sd = float(values_S.std(ddof=1)) if len(values_S) > 1 else 0.0
    return Summary(float(values_S.mean()), sd, low, high, len(values_S))


def bootstrap(
    figure: Callable[[int, np.ndarray], float], num_runs: int, num_examples: int = 0
) -> tuple[float, float]:
    """The percentile interval of the mean over runs of figure(run, examples), with runs and, if
    there are any, examples drawn with replacement (Efron and Tibshirani 1993, chapter 13).

    figure: of one run on the examples of these numbers, int64 [num_examples]; a draw takes the
        same examples for all runs, since all were scored on the same.
    """
    means = []
    for draw in range(DRAWS):
        run_S = _drawn(num_runs, draw, _RUNS)
        example_N = _drawn(num_examples, draw, _EXAMPLES)
        runs, counts = np.unique(run_S, return_counts=True)
        means.append(np.average([figure(int(run), example_N) for run in runs], weights=counts))
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(means, [edge, 1 - edge])
    return float(low), float(high)


def _drawn(number: int, draw: int, purpose: int) -> np.ndarray:
    """int64 [number], each in [0, number)."""
    key = sampling.key(_KEY, draw, purpose)
    (bits_N,) = sampling.random_bits(key, np.arange(number), 1)
    return sampling.integers(bits_N, number)
