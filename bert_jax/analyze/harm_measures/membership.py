"""Membership: can texts of the training be told from held-out texts by their likelihood?

The score is the mean log probability of a token, minus that of a reference model which was not
trained on these texts: it shows what is easy for any model. (Mireshghallah et al. 2022)
"""

import argparse

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Model, Results
from bert_jax.analyze.harm_measures.base import Measure
from bert_jax.data.corpus import SPLITS, Corpus
from bert_jax.data.corpus_text import CorpusText
from bert_jax.errors import UserError
from bert_jax.evaluation import intervals
from bert_jax.evaluation.scores import Table
from bert_jax.inference import scoring
from bert_jax.interop import loading

_LEAST_TOKENS, _MOST_TOKENS = 8, 60  # of a sentence


def run(flags: argparse.Namespace, model: Model) -> Results:
    """Return the area under the ROC curve, alone and with the reference."""
    (folder, *others) = flags.input
    if others or flags.sentences < 2:
        raise UserError('membership takes one corpus as --input, and --sentences of at least 2')
    corpus = Corpus.open(folder)
    texts = {name: _sentences(corpus, name, flags.sentences) for name in SPLITS}
    models = {'the model': model}
    if flags.reference:
        pretrained = loading.load_any(flags.reference, allow_missing=('^encoder/pooler/',))
        models['the reference'] = Model(flags.reference, pretrained, model.options, model.stage)
    means = {
        name: {split: _means(own, texts[split]) for split in SPLITS} for name, own in models.items()
    }
    if flags.reference:
        ours, theirs = means['the model'], means['the reference']
        means['model − reference'] = {split: ours[split] - theirs[split] for split in SPLITS}
    found = {name: _auc(own['train'], own['held_out']) for name, own in means.items()}
    rows = [
        (name, value, intervals.cell(interval), float(own['train'].mean() - own['held_out'].mean()))
        for (name, (value, interval)), own in zip(found.items(), means.values(), strict=True)
    ]
    figure = figures.new(6, 3.2)
    axes = figure.subplots()
    name, last = list(means.items())[-1]
    for split in SPLITS:
        label = split.replace('_', '-')
        axes.hist(last[split], bins=30, density=True, alpha=0.5, label=label)
    axes.set(xlabel=f'{name}: mean log probability of a token (nats)', ylabel='density')
    axes.legend()
    notes = [
        f'{flags.sentences:,} sentences of each split; an area of 0.5 tells nothing apart.',
        'Held-out documents may differ from those of the training in topic or author, which '
        'separates them without any memory.',
    ]
    if not flags.reference:
        notes.append('No --reference: sentences that are easy for any model count as members.')
    return Results(
        values={'auc': found, 'means': means},
        tables={
            'Telling training text from held-out text': Table(
                ('score', 'area under the curve', 'interval', 'difference of the means'), rows
            )
        },
        figures={'membership': figure},
        notes=notes,
    )


def _sentences(corpus: Corpus, split: str, number: int) -> list[str]:
    """Evenly spaced sentences of a split, of similar lengths in both splits."""
    text = CorpusText(corpus.split(split))
    starts = text.sentence_start(np.arange(text.first_sentence[-1] + 1))
    lengths = np.diff(starts)
    chosen = np.flatnonzero((lengths >= _LEAST_TOKENS) & (lengths <= _MOST_TOKENS))
    if len(chosen) < number:
        raise UserError(
            f'the {split} split has {len(chosen)} sentences of {_LEAST_TOKENS} to {_MOST_TOKENS} '
            f'tokens; lower --sentences={number}'
        )
    found = []
    for index in chosen[np.linspace(0, len(chosen) - 1, number).round().astype(int)]:
        ids = np.zeros(lengths[index], np.int64)
        text.copy(ids, np.array([0]), starts[[index]], lengths[[index]])
        found.append(corpus.tokenizer.decode(ids.tolist()))
    return found


def _means(model: Model, texts: list[str]) -> np.ndarray:
    """The mean log probability of a token of each text, float64 [N]."""
    found = scoring.log_probabilities(model.predictor, texts)
    return np.array([own.mean(dtype=np.float64) if len(own) else 0.0 for own in found])


def _auc(members_N: np.ndarray, others_M: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The probability that a member scores above another text, and its bootstrap interval."""
    wins_NM = (members_N[:, None] > others_M) + 0.5 * (members_N[:, None] == others_M)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(1000):
        n, m = (np.bincount(rng.integers(k, size=k), minlength=k) for k in wins_NM.shape)
        drawn.append(n @ wins_NM @ m / wins_NM.size)
    tail = (1 - intervals.LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(wins_NM.mean()), (float(low), float(high))


MEASURE = Measure(run, 'a tokenized corpus', ('reference', 'sentences'))
