"""Minimal pairs: how often the acceptable sentence is likelier."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs
from bert_jax.analyze.measures import preferences
from bert_jax.analyze.readers import minimal_pairs
from bert_jax.analyze.readers.minimal_pairs import MinimalPair
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference import scoring
from bert_jax.metrics import intervals
from bert_jax.metrics.scored_rows import VARIANTS, encode_rows
from bert_jax.metrics.scores import Table
from bert_jax.storage import paths
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimalPairs(Analysis):
    """Accuracy on BLiMP-like files, by phenomenon and paradigm, compared with two baselines."""

    description = 'How often the acceptable sentence of a minimal pair is likelier'
    limits = (
        'Sentences of minimal pairs are generated from templates; nobody wrote them.',
        'Accuracy that word frequencies also reach is no evidence of grammar: compare the unigram '
        'column, and read mirrored paradigms together.',
        'A longer sentence has more terms: where lengths differ, accuracy also measures length.',
    )

    input: tuple[str, ...] = inputs('pairs in CSV, TSV or JSON, such as the .jsonl files of BLiMP')
    variant: str = flag(
        'tokens, or word_l2r, where the later subwords of the same word are masked too',
        'tokens',
        choices=VARIANTS,
    )
    per_paradigm: int | None = flag('pairs per paradigm (default: all)', None, '[1, inf)')
    columns: tuple[str, ...] = flag(
        'FIELD=COLUMN for good, bad, phenomenon, paradigm (default: the columns of BLiMP)',
        (),
        form='several',
    )
    corpus: str | None = flag(
        'tokenized corpus whose token frequencies are the unigram baseline (default: the corpus of '
        'the run)',
        None,
    )
    seed: int = flag('seed of the untrained model', 0)

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        pairs = minimal_pairs.read(self.input, self.columns)
        if self.per_paradigm:
            pairs = minimal_pairs.sample(pairs, self.per_paradigm)
        model.predictor.require('pseudo_likelihood')
        model.stage('pairs')
        scores, lengths_N2 = score(model, pairs, self.variant)
        untrained = model.untrained(self.seed, heads=('mlm', 'clm'))
        model.stage('pairs, untrained')
        baselines = {'untrained': score(untrained, pairs, self.variant)[0]}
        notes = []
        corpus = find_corpus(model, self.corpus)
        if corpus is None:
            notes.append('No unigram baseline: no corpus with this tokenizer (see --corpus).')
        else:
            baselines['unigram'] = _unigram(model, pairs, corpus.unigram_counts('train'))
        summary = _summarize(pairs, scores, lengths_N2, baselines)
        tables = {
            'By phenomenon': _table(summary['phenomena'], baselines),
            'By paradigm': _table(summary['paradigms'], baselines),
        }
        if mirrored := summary['mirrored']:
            tables['Mirrored paradigms'] = Table(
                ('first', 'second', 'of the first', 'of the second', 'mean'),
                [(*twins['paradigms'], *twins['accuracies'], twins['mean']) for twins in mirrored],
            )
        return Results(
            values={'variant': self.variant, **summary},
            tables=tables,
            figures={'pairs': _plot(summary, baselines)},
            notes=notes,
        )


def score(
    model: AnalyzedModel, pairs: Sequence[MinimalPair], variant: str
) -> tuple[np.ndarray, np.ndarray]:
    """The log-likelihoods of both sentences in nats and their numbers of tokens, [N, 2] each."""
    texts = itertools.chain.from_iterable((pair.good, pair.bad) for pair in pairs)
    sums_and_lengths = [
        (log_p_T.sum(dtype=np.float64), len(log_p_T))
        for log_p_T in scoring.log_probabilities(model.predictor, texts, variant)
    ]
    sums_N2, lengths_N2 = np.array(sums_and_lengths).reshape(-1, 2, 2).transpose(2, 0, 1)
    return sums_N2, lengths_N2


def find_corpus(model: AnalyzedModel, path: str | None) -> Corpus | None:
    """Open the corpus at `path`; by default the corpus of the run, or None if it is not usable.

    Raises:
        UserError: the corpus at `path` has a different tokenizer.
    """
    run = model.pretrained.usage
    of_run = run.setting('data', 'corpus', str) if 'corpus' in run.section('data') else ''
    if path is None and not (of_run and (paths.path(of_run) / 'manifest.json').exists()):
        return None
    corpus = Corpus.open(path or of_run)
    if corpus.tokenizer.fingerprint == model.predictor.tokenizer.fingerprint:
        return corpus
    if path is None:
        return None
    raise UserError(f'--corpus={path} has a different tokenizer than {model.name}')


def _unigram(
    model: AnalyzedModel, pairs: Sequence[MinimalPair], counts_V: np.ndarray
) -> np.ndarray:
    """The scores of both sentences by token frequencies, [N, 2]."""
    columns = []
    for texts in ([pair.good for pair in pairs], [pair.bad for pair in pairs]):
        ids = [row[1:-1] for row in encode_rows(model.predictor.tokenizer, texts)]
        columns.append(preferences.unigram_scores(ids, counts_V))
    return np.stack(columns, axis=1)


def _summarize(
    pairs: Sequence[MinimalPair],
    scores: np.ndarray,
    lengths_N2: np.ndarray,
    baselines: dict[str, np.ndarray],
) -> JsonObject:
    """Summaries of all pairs, of each phenomenon and paradigm, and of mirrored paradigms."""

    def summarize(rows: np.ndarray | slice) -> JsonObject:
        summary: JsonObject = preferences.summarize(scores, lengths_N2, rows)
        for name, baseline_N2 in baselines.items():
            summary[name] = float(preferences.prefers_first(baseline_N2[rows]).mean())
        return summary

    phenomena = preferences.groups([pair.phenomenon for pair in pairs])
    paradigms = {
        name: {'phenomenon': pairs[rows[0]].phenomenon} | summarize(rows)
        for name, rows in preferences.groups([pair.paradigm for pair in pairs])
    }
    mirrored = []
    for names in minimal_pairs.mirrored(pairs):
        accuracies = [paradigms[name]['accuracy'] for name in names]
        mirrored.append(
            {'paradigms': names, 'accuracies': accuracies, 'mean': float(np.mean(accuracies))}
        )
    return {
        'mean_of_paradigms': float(np.mean([p['accuracy'] for p in paradigms.values()])),
        'phenomena': {name: summarize(rows) for name, rows in phenomena}
        | {'all pairs': summarize(slice(None))},
        'paradigms': paradigms,
        'mirrored': mirrored,
    }


def _table(summaries: dict[str, JsonObject], baselines: dict[str, np.ndarray]) -> Table:
    columns = ('', 'pairs', 'accuracy', 'interval', *baselines, 'per token', 'equal length', 'ties')
    rows = [
        (
            name.replace('_', ' '),
            summary['pairs'],
            summary['accuracy'],
            intervals.cell(summary['interval'], summary['pairs']),
            *(summary[key] for key in (*baselines, 'per_token', 'equal_length', 'ties')),
        )
        for name, summary in summaries.items()
    ]
    return Table(columns, rows)


def _plot(summary: JsonObject, baselines: dict[str, np.ndarray]) -> 'Figure':
    """A bar for each phenomenon with its interval, a dot for each paradigm, and the baselines."""
    phenomena, paradigms = summary['phenomena'], summary['paradigms'].values()
    figure = figures.new(8, 1.4 + 0.34 * len(phenomena))
    axes = figure.subplots()
    for row, (name, phenomenon) in enumerate(phenomena.items()):
        accuracy = phenomenon['accuracy']
        low, high = phenomenon['interval'] or (accuracy, accuracy)
        error = [[accuracy - low], [high - accuracy]]
        axes.barh(row, accuracy, color='C0', alpha=0.5, xerr=error, ecolor='0.3', height=0.7)
        dots = [paradigm['accuracy'] for paradigm in paradigms if paradigm['phenomenon'] == name]
        axes.plot(dots, [row] * len(dots), '.', color='0.2', markersize=5)
        for number, baseline in enumerate(baselines):
            axes.plot(phenomenon[baseline], row, 'd^'[number], color=f'C{number + 1}', markersize=6)
    for number, baseline in enumerate(baselines):
        axes.plot([], [], 'd^'[number], color=f'C{number + 1}', label=baseline)
    axes.plot([], [], '.', color='0.2', label='a paradigm')
    axes.axvline(0.5, color='0.4', linestyle='--', linewidth=1)
    axes.set_yticks(range(len(phenomena)), [name.replace('_', ' ') for name in phenomena])
    axes.set(xlim=(0, 1), ylim=(len(phenomena) - 0.4, -0.6), xlabel='accuracy')
    axes.set_title('How often the acceptable sentence is more probable')
    figure.legend(loc='outside upper right', ncols=3)
    return figure
