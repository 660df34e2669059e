"""Minimal pairs: how often the acceptable sentence is the likelier one."""

import argparse
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Analysis, Model, Results
from bert_jax.data import minimal_pairs
from bert_jax.data.corpus import Corpus
from bert_jax.data.minimal_pairs import MinimalPair
from bert_jax.errors import UserError
from bert_jax.evaluation import intervals, preferences
from bert_jax.evaluation.scored_rows import VARIANTS, encode_rows
from bert_jax.evaluation.scores import Table
from bert_jax.inference import scoring
from bert_jax.storage import paths

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MinimalPairs(Analysis):
    """Accuracy on BLiMP-like files, by phenomenon and paradigm, compared with two baselines."""

    description = 'How often the acceptable sentence of a minimal pair is the likelier one'
    input_help = 'pairs in CSV, TSV or JSON, such as the .jsonl files of BLiMP'
    limits = (
        'Sentences of minimal pairs are generated from templates; nobody wrote them.',
        'A paradigm that a word frequency decides shows no grammar: compare the unigram column, '
        'and read mirrored paradigms together.',
        'A longer sentence has more terms: where lengths differ, accuracy also measures length.',
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --variant, --per_paradigm, --columns, --corpus and --seed."""
        add = parser.add_argument
        add(
            '--variant',
            choices=VARIANTS,
            default='tokens',
            help='tokens (default), or word_l2r, where the later subwords of the same word are '
            'masked too',
        )
        add('--per_paradigm', type=int, default=0, help='number of pairs of each (default: all)')
        add(
            '--columns',
            nargs='+',
            default=[],
            metavar='FIELD=COLUMN',
            help='columns of good, bad, phenomenon, paradigm (default: those of BLiMP)',
        )
        add(
            '--corpus',
            help='tokenized corpus whose frequencies are the unigram baseline (default: that of '
            'the run)',
        )
        add('--seed', type=int, default=0, help='of the untrained model (default 0)')

    def run(self, flags: argparse.Namespace, model: Model) -> Results:
        """See `Analysis.run`."""
        pairs = minimal_pairs.read(flags.input, flags.columns)
        if flags.per_paradigm:
            pairs = minimal_pairs.sample(pairs, flags.per_paradigm)
        model.predictor.require('pseudo_likelihood')
        model.stage('pairs')
        scores, lengths_N2 = score(model, pairs, flags.variant)
        untrained = model.untrained(flags.seed, heads=('mlm', 'clm'))
        model.stage('pairs, untrained')
        baselines = {'untrained': score(untrained, pairs, flags.variant)[0]}
        notes = []
        corpus = find_corpus(model, flags.corpus)
        if corpus is None:
            notes.append('No corpus of this tokenizer is known (--corpus): no unigram baseline.')
        else:
            baselines['unigram'] = _unigram(model, pairs, corpus.unigram_counts('train'))
        found = _summarize(pairs, scores, lengths_N2, baselines)
        tables = {
            'By phenomenon': _table(found['phenomena'], baselines),
            'By paradigm': _table(found['paradigms'], baselines),
        }
        if found['mirrored']:
            tables['Mirrored paradigms'] = _twins_table(found['mirrored'])
        return Results(
            values={'variant': flags.variant, **found},
            tables=tables,
            figures={'pairs': _plot(found, baselines)},
            notes=notes,
        )


def score(
    model: Model, pairs: Sequence[MinimalPair], variant: str
) -> tuple[np.ndarray, np.ndarray]:
    """The log-likelihoods of both sentences in nats and their numbers of tokens, [N, 2] each."""
    texts = itertools.chain.from_iterable((pair.good, pair.bad) for pair in pairs)
    found = [
        (own.sum(dtype=np.float64), len(own))
        for own in scoring.log_probabilities(model.predictor, texts, variant)
    ]
    sums, lengths = np.array(found).reshape(-1, 2, 2).transpose(2, 0, 1)
    return sums, lengths


def find_corpus(model: Model, path: str | None) -> Corpus | None:
    """Open the corpus at a path, or that of the run if it is still there.

    Raises:
        UserError: the corpus has another tokenizer.
    """
    known = model.pretrained.metadata.get('config', {}).get('data', {}).get('corpus')
    if path is None and (not known or not (paths.path(known) / 'manifest.json').exists()):
        return None
    corpus = Corpus.open(path or known)
    if corpus.tokenizer.fingerprint != model.predictor.tokenizer.fingerprint:
        if path is None:
            return None
        raise UserError(f'--corpus={path} has another tokenizer than {model.name}')
    return corpus


def _unigram(model: Model, pairs: Sequence[MinimalPair], counts_V: np.ndarray) -> np.ndarray:
    columns = [[pair.good for pair in pairs], [pair.bad for pair in pairs]]
    ids = [
        [row[1:-1] for row in encode_rows(model.predictor.tokenizer, texts)] for texts in columns
    ]
    return np.stack([preferences.unigram_scores(own, counts_V) for own in ids], axis=1)


def _summarize(
    pairs: Sequence[MinimalPair],
    scores: np.ndarray,
    lengths_N2: np.ndarray,
    baselines: dict[str, np.ndarray],
) -> dict[str, Any]:
    """Summaries of all pairs, of each phenomenon and paradigm, and of mirrored paradigms."""

    def summarize(chosen: Any) -> dict[str, Any]:
        found: dict[str, Any] = preferences.summarize(scores, lengths_N2, chosen)
        for name, own in baselines.items():
            found[name] = float(preferences.prefers_first(own[chosen]).mean())
        return found

    phenomena = dict(preferences.groups([pair.phenomenon for pair in pairs]))
    by_paradigm = {
        name: {'phenomenon': pairs[chosen[0]].phenomenon} | summarize(chosen)
        for name, chosen in preferences.groups([pair.paradigm for pair in pairs])
    }
    twins = [
        {
            'paradigms': twin,
            'accuracies': [by_paradigm[name]['accuracy'] for name in twin],
            'mean': float(np.mean([by_paradigm[name]['accuracy'] for name in twin])),
        }
        for twin in minimal_pairs.mirrored(pairs)
    ]
    return {
        'mean_of_paradigms': float(np.mean([own['accuracy'] for own in by_paradigm.values()])),
        'phenomena': {name: summarize(chosen) for name, chosen in phenomena.items()}
        | {'all pairs': summarize(slice(None))},
        'paradigms': by_paradigm,
        'mirrored': twins,
    }


def _table(found: dict[str, dict[str, Any]], baselines: dict[str, np.ndarray]) -> Table:
    columns = ('', 'pairs', 'accuracy', 'interval', *baselines, 'per token', 'equal length', 'ties')
    rows = [
        (
            name.replace('_', ' '),
            own['pairs'],
            own['accuracy'],
            intervals.cell(own['interval']),
            *(own[baseline] for baseline in baselines),
            own['per_token'],
            own['equal_length'],
            own['ties'],
        )
        for name, own in found.items()
    ]
    return Table(columns, rows)


def _twins_table(twins: Sequence[dict[str, Any]]) -> Table:
    rows = [(*own['paradigms'], *own['accuracies'], own['mean']) for own in twins]
    return Table(('first', 'second', 'of the first', 'of the second', 'mean'), rows)


def _plot(found: dict[str, Any], baselines: dict[str, np.ndarray]) -> 'Figure':
    """A bar with its interval for each phenomenon, dots for its paradigms, marks of baselines."""
    phenomena = found['phenomena']
    figure = figures.new(8, 1.4 + 0.34 * len(phenomena))
    axes = figure.subplots()
    for row, (name, own) in enumerate(phenomena.items()):
        low, high = own['interval'] or (own['accuracy'], own['accuracy'])
        error = [[own['accuracy'] - low], [high - own['accuracy']]]
        axes.barh(row, own['accuracy'], color='C0', alpha=0.5, xerr=error, ecolor='0.3', height=0.7)
        paradigms = [p['accuracy'] for p in found['paradigms'].values() if p['phenomenon'] == name]
        axes.plot(paradigms, [row] * len(paradigms), '.', color='0.2', markersize=5)
        for number, baseline in enumerate(baselines):
            axes.plot(own[baseline], row, 'd^'[number], color=f'C{number + 1}', markersize=6)
    for number, baseline in enumerate(baselines):
        axes.plot([], [], 'd^'[number], color=f'C{number + 1}', label=baseline)
    axes.plot([], [], '.', color='0.2', label='a paradigm')
    axes.axvline(0.5, color='0.4', linestyle='--', linewidth=1)
    axes.set_yticks(range(len(phenomena)), [name.replace('_', ' ') for name in phenomena])
    axes.set(xlim=(0, 1), ylim=(len(phenomena) - 0.4, -0.6), xlabel='accuracy')
    figure.legend(loc='outside upper right', ncols=3)
    return figure
