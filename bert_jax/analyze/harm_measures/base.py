"""The interface of a measure of harms, and the table and figure that most measures share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Analysis, AnalyzedModel, inputs
from bert_jax.analyze.harm_measures import MEASURES
from bert_jax.analyze.measures import preferences
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEMBERSHIP = ('measure', ('membership',))
_WRITING = ('measure', ('extraction', 'toxicity', 'completions'))
_PROMPTS = ('measure', ('toxicity', 'completions'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class HarmFlags(Analysis):
    """The flags of the analysis `harms`."""

    input: tuple[str, ...] = inputs('data of the measure; see docs/harms.md')
    measure: str = flag(f'one of {", ".join(MEASURES)}', choices=tuple(MEASURES))
    columns: tuple[str, ...] = flag(
        'FIELD=COLUMN for columns with names that differ from the published data',
        (),
        form='several',
        only=('measure', ('crows_pairs', 'stereoset', 'log_odds', 'toxicity', 'completions')),
    )
    candidates: int = flag(
        'number of random secrets that each planted secret is ranked against',
        511,
        '[1, inf)',
        only=('measure', ('exposure',)),
    )
    reference: str | None = flag(
        'a model that was not trained on the corpus', None, only=_MEMBERSHIP
    )
    sentences: int = flag('number of sentences of each split', 500, '[2, inf)', only=_MEMBERSHIP)
    continuations: int = flag(
        'number of texts that the model writes after each prompt', 25, '[1, inf)', only=_WRITING
    )
    temperature: float = flag('of sampling', 1.0, '(0, inf)', only=_WRITING)
    seed: int = flag('another number draws other texts', 0, '[0, 4294967295]', only=_WRITING)
    new_tokens: int = flag('length of a text that is written', 20, '[1, inf)', only=_PROMPTS)
    top_p: float | None = flag(
        'models that write from left to right: sample from the most probable tokens that together '
        'have this probability (default: 1)',
        None,
        '(0, 1]',
        only=_PROMPTS,
    )
    classifier: str | None = flag(
        'a fine-tuned classifier (a run, or a folder of Hugging Face) that reads what was written; '
        'toxicity needs one',
        None,
        only=_PROMPTS,
    )
    harmful: str = flag("the class that is harmful, such as 'toxic'", '', needs='classifier')


class Share(NamedTuple):
    """A share of examples, or another mean over examples.

    Attributes:
        value: the mean.
        interval: its bootstrap interval over examples; None for a single example.
        number: number of examples.
    """

    value: float
    interval: tuple[float, float] | None
    number: int

    @classmethod
    def of(cls, values_N: np.ndarray) -> 'Share':
        """Summarize the values of the examples."""
        return cls(float(np.mean(values_N)), intervals.of_share(values_N), len(values_N))


def grouped(groups: Sequence[str], values_N: np.ndarray, total: str) -> dict[str, Share]:
    """The share of each group and, if there are several groups, the share `total` of all."""
    shares = {name: Share.of(values_N[rows]) for name, rows in preferences.groups(groups)}
    return shares if len(shares) == 1 else shares | {total: Share.of(values_N)}


def table(
    shares: Mapping[str, Share], group: str, value: str, **more: Mapping[str, Share]
) -> Table:
    """Tabulate the share of each group with its interval, one row per group.

    Args:
        shares: Group → its share.
        group: Title of the column of groups.
        value: Title of the column of shares.
        more: Title of a further column → group → share.
    """
    rows = []
    for name, (mean, interval, number) in shares.items():
        others = [column[name].value for column in more.values()]
        rows.append((name or 'all', number, mean, intervals.cell(interval, number), *others))
    titles = (title.replace('_', ' ') for title in more)
    return Table((group, 'examples', value, 'interval', *titles), rows)


def plot(
    shares: Mapping[str, Share],
    title: str,
    label: str,
    neutral: float,
    limits: tuple[float, float] | None = None,
    dashed: str = 'no preference',
) -> 'Figure':
    """Shares with their intervals, and a dashed line, by default at the value of no preference."""
    figure = figures.new(7, 1.2 + 0.34 * len(shares))
    axes = figure.subplots()
    for row, (value, interval, _) in enumerate(shares.values()):
        low, high = interval or (value, value)
        axes.errorbar(value, row, xerr=[[value - low], [high - value]], fmt='o', color='C0')
    axes.axvline(neutral, color='0.4', linestyle='--', linewidth=1)
    axes.set_yticks(range(len(shares)), [name.replace('_', ' ') or 'all' for name in shares])
    axes.set(xlabel=label, ylim=(len(shares) - 0.5, -0.5), xlim=limits)
    axes.set_title(f'{title}; dashed: {dashed}')
    axes.grid(alpha=0.3, axis='x')
    return figure


def token_of(model: AnalyzedModel, word: str, place: str) -> int:
    """The token id of a word within a sentence. Raises UserError if it is not a single token."""
    tokenizer = model.predictor.tokenizer
    (ids,) = tokenizer.encode_batch([tokenizer.sentence_prefix + word], special=True).ids
    if len(ids) != 1:
        raise UserError(f'{place}: {word!r} is {len(ids)} tokens of {model.name}, must be one')
    return int(ids[0])
