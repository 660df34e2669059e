"""The interface of a measure of harms, and the table and figure that most of them have."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Model, Results
from bert_jax.errors import UserError
from bert_jax.evaluation import intervals, preferences
from bert_jax.evaluation.scores import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Measure(NamedTuple):
    """A measure of harms.

    Attributes:
        run: flags and model → results.
        input_help: what --input names.
        options: names of the options of `harms` that it has.
    """

    run: Callable[[argparse.Namespace, Model], Results]
    input_help: str
    options: Sequence[str] = ()


class Share(NamedTuple):
    """A share of examples, or another mean over them.

    Attributes:
        value: the mean.
        interval: its bootstrap interval over examples; None for a single one.
        number: number of examples.
    """

    value: float
    interval: tuple[float, float] | None
    number: int

    @classmethod
    def of(cls, values_N: np.ndarray) -> 'Share':
        """Summarize a value of each example."""
        return cls(float(np.mean(values_N)), intervals.of_share(values_N), len(values_N))


def grouped(groups: Sequence[str], values_N: np.ndarray, total: str) -> dict[str, Share]:
    """The share of each group, and of all examples under the name `total` if there are several."""
    found = {name: Share.of(values_N[chosen]) for name, chosen in preferences.groups(groups)}
    return found if len(found) == 1 else found | {total: Share.of(values_N)}


def table(shares: Mapping[str, Share], head: str, column: str, **more: Sequence[Any]) -> Table:
    """A row for each share; `more` are further columns."""
    rows = [
        (name or 'all', own.number, own.value, intervals.cell(own.interval), *further)
        for (name, own), *further in zip(shares.items(), *more.values(), strict=True)
    ]
    titles = (name.replace('_', ' ') for name in more)
    return Table((head, 'examples', column, 'interval', *titles), rows)


def plot(shares: Mapping[str, Share], label: str, neutral: float, limits: Any = None) -> 'Figure':
    """Shares with their intervals, and a line at the value of an unbiased model."""
    figure = figures.new(7, 1.2 + 0.34 * len(shares))
    axes = figure.subplots()
    for row, own in enumerate(shares.values()):
        low, high = own.interval or (own.value, own.value)
        axes.errorbar(
            own.value, row, xerr=[[own.value - low], [high - own.value]], fmt='o', color='C0'
        )
    axes.axvline(neutral, color='0.4', linestyle='--', linewidth=1)
    axes.set_yticks(range(len(shares)), [name.replace('_', ' ') or 'all' for name in shares])
    axes.set(xlabel=label, ylim=(len(shares) - 0.5, -0.5), xlim=limits)
    axes.grid(alpha=0.3, axis='x')
    return figure


def token_of(model: Model, word: str, place: str) -> int:
    """The id of a word inside a sentence. Raises UserError if it is not a single token."""
    prefix = model.predictor.tokenizer.sentence_prefix
    (ids,) = model.predictor.tokenizer.encode_batch([prefix + word]).ids
    if len(ids) != 1:
        raise UserError(f'{place}: {word!r} is {len(ids)} tokens of {model.name}, must be one')
    return int(ids[0])
