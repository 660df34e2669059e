"""Membership: can training texts be distinguished from held-out texts by likelihood?

The score of a text is its mean log probability per token, optionally minus the same of a reference
model that was not trained on these texts and shows which texts are easy for any model.
Source: Mireshghallah et al. 2022.
"""

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import AnalyzedModel, Results
from bert_jax.analyze.harm_measures.base import HarmFlags
from bert_jax.corpus.corpus import SPLITS, Corpus
from bert_jax.corpus.corpus_text import CorpusText
from bert_jax.errors import UserError
from bert_jax.inference import scoring
from bert_jax.interop import loading
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table

_MIN_TOKENS, _MAX_TOKENS = 8, 60  # of a sentence


def run(flags: HarmFlags, model: AnalyzedModel) -> Results:
    """Return the area under the ROC curve, alone and with the reference."""
    if len(flags.input) != 1 or flags.sentences < 2:
        raise UserError('membership takes one corpus as --input, and --sentences of at least 2')
    corpus = Corpus.open(flags.input[0])
    texts = {split: _sentences(corpus, split, flags.sentences) for split in SPLITS}
    models = {'the model': model}
    if flags.reference:
        pretrained = loading.load_any(flags.reference, allow_missing=('^encoder/pooler/',))
        models['the reference'] = AnalyzedModel(
            flags.reference, pretrained, model.options, model.stage
        )
    means = {
        name: {split: _means(scorer, texts[split]) for split in SPLITS}
        for name, scorer in models.items()
    }
    if flags.reference:
        ours, theirs = means['the model'], means['the reference']
        means['model − reference'] = {split: ours[split] - theirs[split] for split in SPLITS}
    auc, rows = {}, []
    for name, by_split in means.items():
        members_N, others_M = by_split['train'], by_split['held_out']
        auc[name] = _auc(members_N, others_M)
        area, interval = auc[name]
        difference = float(members_N.mean() - others_M.mean())
        rows.append((name, area, intervals.cell(interval), difference))
    figure = figures.new(6, 3.2)
    axes = figure.subplots()
    for split in SPLITS:  # of the last score, which is the difference if there is a reference
        label = split.replace('_', '-')
        axes.hist(by_split[split], bins=30, density=True, alpha=0.5, label=label)
    axes.set(xlabel=f'{name}: mean log probability of a token (nats)', ylabel='density')
    axes.set_title('Scores of training and held-out sentences')
    axes.legend()
    notes = [
        f'{flags.sentences:,} sentences of each split; an area of 0.5 is chance.',
        'Held-out documents may differ from training documents in topic or author, which separates '
        'the splits without any memorization.',
    ]
    if not flags.reference:
        notes.append('No --reference: sentences that are easy for any model count as members.')
    return Results(
        values={'auc': auc, 'means': means},
        tables={
            'Telling training text from held-out text': Table(
                ('score', 'area under the curve', 'interval', 'difference of the means'), rows
            )
        },
        figures={'membership': figure},
        notes=notes,
    )


def _sentences(corpus: Corpus, split: str, number: int) -> list[str]:
    """Evenly spaced sentences of a split, with _MIN_TOKENS to _MAX_TOKENS tokens."""
    text = CorpusText(corpus.split(split))
    starts = text.sentence_start(np.arange(text.first_sentence[-1] + 1))
    lengths = np.diff(starts)
    candidates = np.flatnonzero((lengths >= _MIN_TOKENS) & (lengths <= _MAX_TOKENS))
    if len(candidates) < number:
        raise UserError(
            f'the {split} split has {len(candidates)} sentences of {_MIN_TOKENS} to {_MAX_TOKENS} '
            f'tokens; lower --sentences={number}'
        )
    sentences = []
    for index in candidates[np.linspace(0, len(candidates) - 1, number).round().astype(int)]:
        ids = np.zeros(lengths[index], np.int64)
        text.copy(ids, np.array([0]), starts[[index]], lengths[[index]])
        sentences.append(corpus.tokenizer.decode(ids.tolist()))
    return sentences


def _means(model: AnalyzedModel, texts: list[str]) -> np.ndarray:
    """The mean log probability per token of each text, float64 [N]."""
    return np.array(
        [
            log_p_T.mean(dtype=np.float64) if len(log_p_T) else 0.0
            for log_p_T in scoring.log_probabilities(model.predictor, texts)
        ]
    )


def _auc(members_N: np.ndarray, others_M: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The probability that a member scores above a non-member, and its bootstrap interval."""
    wins_NM = (members_N[:, None] > others_M) + 0.5 * (members_N[:, None] == others_M)
    rng = np.random.default_rng(0)
    resampled = []
    for _ in range(1000):
        n, m = (np.bincount(rng.integers(k, size=k), minlength=k) for k in wins_NM.shape)
        resampled.append(n @ wins_NM @ m / wins_NM.size)
    low, high = intervals.percentiles(resampled)
    return float(wins_NM.mean()), (float(low), float(high))
