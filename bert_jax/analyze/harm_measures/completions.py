"""Completions of queries: what a model writes after the same beginning for several groups.

Audits of search engines type a beginning such as "women should" and compare what the engine adds
(Baker and Potts 2013, "Why do white people have thin lips?"). Here groups are compared by the first
words that are written, beside the same texts with shuffled groups, and by a classifier if one is
given.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.analyze.base import AnalyzedModel, Results
from bert_jax.analyze.harm_measures.base import HarmFlags, Share, table
from bert_jax.analyze.harm_measures.continuations import TextClassifier, read_prompts, write
from bert_jax.errors import UserError
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table

_SHUFFLES = 200  # of the groups, for the divergence that chance gives
_RESAMPLES = 1000
_LISTED = 5  # most frequent first words of a group in the table


class Divergence(NamedTuple):
    """How much the first words after the prompts of a group differ from those of the others.

    Attributes:
        value: Jensen–Shannon divergence in bits, 0 to 1.
        chance: the 95 % quantile of the divergence if groups of prompts are shuffled.
        number: number of prompts of the group.
    """

    value: float
    chance: float
    number: int


def run(flags: HarmFlags, model: AnalyzedModel) -> Results:
    """Return how the completions of each group differ from those of the other groups."""
    classifier = TextClassifier.load(flags) if flags.classifier else None
    rows = read_prompts(flags)
    groups = np.array([row['group'] for row in rows])
    if len({*groups.tolist()}) < 2 or '' in groups:
        raise UserError(
            f'{", ".join(flags.input)} needs a column group with at least two groups of prompts; '
            'name it by --columns group=COLUMN'
        )
    texts = write(flags, model, [row['prompt'] for row in rows])
    words = [list(map(_first_word, own)) for own in texts]
    values: dict[str, object] = {
        'completions': [
            {'prompt': row['prompt'], 'group': row['group'], 'texts': own}
            for row, own in zip(rows, texts, strict=True)
        ]
    }
    divergence = {name: _divergence(words, groups == name) for name in _names(groups)}
    listed = [
        (name, own.number, own.value, own.chance, ', '.join(_frequent(words, groups == name)))
        for name, own in divergence.items()
    ]
    columns = ('group', 'prompts', 'divergence', '95 % by chance', 'most frequent first words')
    tables = {'First words of completions': Table(columns, listed)}
    values['divergence'] = {name: own._asdict() for name, own in divergence.items()}
    notes = [
        'Divergence: Jensen–Shannon, in bits, from 0 to 1, between the first words after the '
        'prompts of a group and after those of all other groups; by chance: the 95 % quantile with '
        f'shuffled groups of prompts ({_SHUFFLES} times).'
    ]
    if classifier:
        model.stage('classify')
        p_N = classifier.probabilities(texts).mean(1)
        shares = {name: Share.of(p_N[groups == name]) for name in _names(groups)}
        values |= {'harmful': classifier.label, 'probability': shares}
        values['difference'] = difference = {
            name: _difference(p_N, groups == name) for name in _names(groups)
        }
        tables[f'Probability of {classifier.label!r} in completions'] = table(
            shares, 'group', 'mean probability'
        )
        tables['Difference from the other groups'] = table(
            difference, 'group', 'difference of the mean probability'
        )
        notes.append('Intervals: 95 %, bootstrap over the prompts of both sides.')
    return Results(values=values, tables=tables, notes=notes)


def _names(groups_N: np.ndarray) -> list[str]:
    return list(dict.fromkeys(groups_N.tolist()))


def _first_word(text: str) -> str:
    """The first word of a completion in lower case; '' if it has none."""
    found = re.search(r'\w+', text)
    return found.group().casefold() if found else ''


def _frequent(words: Sequence[Sequence[str]], is_own_N: np.ndarray) -> list[str]:
    own = [words[number] for number in np.flatnonzero(is_own_N).tolist()]
    counts = Counter(word for texts in own for word in texts)
    return [word for word, _ in counts.most_common() if word][:_LISTED]


def _divergence(words: Sequence[Sequence[str]], is_own_N: np.ndarray) -> Divergence:
    """Compare the first words of a group with those of the others, and with shuffled groups."""
    vocabulary = {word: number for number, word in enumerate({w: 0 for own in words for w in own})}
    counts_NV = np.zeros((len(words), len(vocabulary)))
    for row_V, own in zip(counts_NV, words, strict=True):
        np.add.at(row_V, [vocabulary[word] for word in own], 1)
    rng = np.random.default_rng(0)
    shuffled = [jensen_shannon(counts_NV, rng.permutation(is_own_N)) for _ in range(_SHUFFLES)]
    chance = float(np.quantile(shuffled, intervals.LEVEL))
    return Divergence(jensen_shannon(counts_NV, is_own_N), chance, int(is_own_N.sum()))


def jensen_shannon(counts_NV: np.ndarray, is_own_N: np.ndarray) -> float:
    """Return the divergence in bits of the words of some rows from those of the others.

    Lin 1991, equation 4.1, with equal weights.
    """
    p_2V = np.stack([counts_NV[is_own_N].sum(0), counts_NV[~is_own_N].sum(0)])
    p_2V = p_2V / p_2V.sum(1, keepdims=True)
    mean_V = p_2V.mean(0)
    ratio_2V = np.divide(p_2V, mean_V, out=np.ones_like(p_2V), where=p_2V > 0)
    return float(np.sum(p_2V * np.log2(ratio_2V), axis=1).mean())


def _difference(p_N: np.ndarray, is_own_N: np.ndarray) -> Share:
    """The mean of a group minus that of the others, with an interval over the prompts of both."""
    rng, own_M, other_K = np.random.default_rng(0), p_N[is_own_N], p_N[~is_own_N]
    resampled = [
        rng.choice(own_M, len(own_M)).mean() - rng.choice(other_K, len(other_K)).mean()
        for _ in range(_RESAMPLES)
    ]
    low, high = intervals.percentiles(resampled).tolist()
    return Share(float(own_M.mean() - other_K.mean()), (low, high), len(own_M))
