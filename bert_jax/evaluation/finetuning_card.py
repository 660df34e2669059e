"""Model card of a fine-tuning run: what was trained on what, and how far its scores can be trusted.

Each metric has a bootstrap interval over the examples, and the value of always giving the answer
that is best without reading the input.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bert_jax.evaluation.model_card import json_block, table
from bert_jax.evaluation.scores import Table
from bert_jax.evaluation.tables import markdown_table
from bert_jax.types import Config

LEVEL = 0.95
Score: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]
_MOST_RESAMPLES, _LEAST_RESAMPLES, _RESAMPLED_EXAMPLES = 200, 50, 200_000


class SplitScores(NamedTuple):
    """The scores of a split.

    Attributes:
        num_examples: its number of examples.
        metrics: name → value.
        intervals: name → (low, high).
        baseline: name → value without reading the input; empty if the problem has no such answer.
    """

    num_examples: int
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    baseline: Mapping[str, float]


def score_split(
    score: Score, examples: Sequence[Any], predictions: Sequence[Any], guess: Any
) -> SplitScores:
    """Score predictions, with intervals, and a guess.

    Intervals are percentiles of resampled examples (Efron and Tibshirani 1993, chapter 13): 200
    resamples, down to 50 if there are many examples.

    Args:
        score: examples and predictions → metrics.
        guess: the prediction for every example without reading it; None if there is none.
    """
    number = len(examples)
    resamples = max(_LEAST_RESAMPLES, min(_MOST_RESAMPLES, _RESAMPLED_EXAMPLES // number))
    rng = np.random.default_rng(0)
    drawn = []
    for chosen in rng.integers(number, size=(resamples, number)):
        own = [(examples[index], predictions[index]) for index in chosen]
        drawn.append(score(*zip(*own, strict=True)))
    tail = (1 - LEVEL) / 2
    metrics = score(examples, predictions)
    intervals = {}
    for name in metrics:
        low, high = np.quantile([one[name] for one in drawn], [tail, 1 - tail])
        intervals[name] = float(low), float(high)
    baseline = {} if guess is None else score(examples, [guess] * number)
    return SplitScores(number, metrics, intervals, baseline)


def finetuned(
    config: Config,
    results: Mapping[str, Any],
    num_train: int,
    splits: Mapping[str, SplitScores],
    command: Sequence[str],
) -> str:
    """The card, in Markdown.

    Args:
        results: what the training loop returns.
        num_train: number of training examples.
        splits: scores by split.
        command: the program's arguments.
    """
    data = config.data
    facts = {
        'problem': config.task,
        'initialized from': config.init_from or 'random values',
        'data': data.dataset or ', '.join(str(part) for part in (data.train, data.dev) if part),
        'training examples': f'{num_train:,}',
        'parameters': f'{results["parameters"]:,}',
        'steps': f'{results["steps"]:,} in {results["train_seconds"]:,.0f} s on '
        f'{results["devices"]}',
        'learning rate': f'{config.schedule.learning_rate:g}',
        'seed': config.seed,
        'command': f'`{shlex.join(command)}`',
    }
    scores = '\n'.join(
        f'### {name}, {split.num_examples:,} examples\n\n{_scores(split)}\n'
        for name, split in splits.items()
    )
    return f"""# {config.task}

An encoder fine-tuned with bert_jax.

{table(facts)}
## Scores

{LEVEL:.0%} intervals: bootstrap over the examples of one run; other seeds differ as well
(`config.sweep.seeds`). Baseline: always the most frequent class, or the mean, of the training data.

{scores}
## Limits

It reproduces biases of its training data, and was not evaluated for any use beyond these scores.

## Config

{json_block(config.to_dict())}"""


def _scores(split: SplitScores) -> str:
    rows: list[tuple] = []
    for name, value in split.metrics.items():
        low, high = split.intervals[name]
        baseline = f'{split.baseline[name]:.4f}' if name in split.baseline else '–'
        rows.append((name, value, f'{low:.4f} – {high:.4f}', baseline))
    return markdown_table(Table(('metric', 'value', 'interval', 'baseline'), rows))
