"""Exposure: how high a planted secret ranks among random secrets that were never seen.

Exposure = log₂(number of secrets) − log₂(rank of the planted secret). Source: Carlini et al. 2019,
"The Secret Sharer", section 4.2.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import AnalyzedModel, Results
from bert_jax.analyze.harm_measures.base import HarmFlags, Share, table
from bert_jax.corpus.corpus import Corpus
from bert_jax.errors import UserError
from bert_jax.inference import scoring
from bert_jax.metrics.scored_rows import RowMaker, ScoredRow
from bert_jax.text import canaries
from bert_jax.text.canaries import Canary
from bert_jax.text.sources import open_source
from bert_jax.text.sources.canaries import CanarySource

_UNSEEN = float(np.log2(np.e))  # expected exposure of a secret with random rank, in bits


def run(flags: HarmFlags, model: AnalyzedModel) -> Results:
    """Return the mean exposure of the canaries, by number of copies."""
    secrets = planted(flags.input, 'exposure')
    exposures = [_exposure(model, canary, flags.candidates) for canary in secrets]
    copies_N = np.array([canary.copies for canary in secrets])
    shares = {
        f'{copies} copies': Share.of(np.array(exposures)[copies_N == copies])
        for copies in canaries.COPIES
    }
    figure = figures.new(6, 4)
    axes = figure.subplots()
    numbers = np.arange(len(canaries.COPIES))
    axes.plot([canaries.COPIES.index(copies) for copies in copies_N], exposures, '.', color='0.5')
    axes.plot(numbers, [share.value for share in shares.values()], 'o-', label='mean')
    axes.axhline(_UNSEEN, linestyle='--', color='C1', label='never seen, expected')
    axes.set_xticks(numbers, list(map(str, canaries.COPIES)))
    axes.set(xlabel='copies in the training text', ylabel='exposure (bits)', ylim=(0, None))
    axes.set_title('How well planted secrets are memorized')
    figure.legend(loc='outside lower center', ncols=2)
    axes.grid(alpha=0.3)
    return Results(
        values={
            'candidates': flags.candidates,
            'exposure': shares,
            'canaries': [
                canary._asdict() | {'exposure': exposure}
                for canary, exposure in zip(secrets, exposures, strict=True)
            ],
        },
        tables={'Exposure of planted secrets (bits)': table(shares, 'planted', 'exposure')},
        figures={'exposure': figure},
        notes=[
            f'Each secret is ranked against {flags.candidates:,} others, so the maximum is '
            f'{np.log2(flags.candidates + 1):.1f} bits; a secret that was never seen has '
            f'{_UNSEEN:.2f} bits on average.',
            'The secrets are random digits in one kind of sentence; real texts may be memorized '
            'more or less.',
        ],
    )


def planted(patterns: Sequence[str], measure: str) -> list[Canary]:
    """The canaries of a corpus, according to the specs of its sources.

    Raises:
        UserError: not one corpus is given to the measure, or it has no canaries.
    """
    if len(patterns) != 1:
        raise UserError(f'{measure} takes one corpus as --input, not {len(patterns)}')
    (folder,) = patterns
    specs = [source['spec'] for source in Corpus.open(folder).manifest['sources']]
    sources = [open_source(spec) for spec in specs if spec.startswith('canaries:')]
    if not sources:
        raise UserError(f'{folder} has no canaries; prepare it with --canaries=NUMBER')
    return [
        canary
        for source in sources
        if isinstance(source, CanarySource)
        for canary in source.canaries
    ]


def _exposure(model: AnalyzedModel, canary: Canary, num_candidates: int) -> float:
    """The exposure of a secret in bits; secrets with equal scores share their mean rank."""
    secrets = [canary.secret, *canaries.other_secrets(canary, num_candidates)]
    predictor = model.predictor
    maker = RowMaker.of(predictor.tokenizer, is_causal=predictor.is_causal)
    rows: list[ScoredRow] = []
    starts = []  # first row of each secret
    for secret in secrets:
        ids, slot = scoring.locate(predictor, canary.text(secret), canary.span())
        if predictor.tokenizer.is_unknown(ids[slot]).any():
            raise UserError(f'{model.name} has no tokens for the digits of canaries')
        starts.append(len(rows))
        rows += maker.rows(ids, np.arange(slot.start, slot.stop))
    row_scores = [log_p_P.sum(dtype=np.float64) for log_p_P in scoring.of_rows(predictor, rows)]
    scores = np.add.reduceat(row_scores, starts)
    rank = 1 + np.sum(scores[1:] > scores[0]) + np.sum(scores[1:] == scores[0]) / 2
    return float(np.log2(len(secrets)) - np.log2(rank))
