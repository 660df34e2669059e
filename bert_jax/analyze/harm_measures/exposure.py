"""Exposure: how far planted secrets rank above secrets that were never seen.

Carlini et al. 2019, "The Secret Sharer", section 4.2: log₂ of the number of secrets − log₂ of the
rank of the planted one, here among random other secrets.
"""

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Model, Results
from bert_jax.analyze.harm_measures.base import Measure, Share, table
from bert_jax.data import canaries
from bert_jax.data.canaries import Canary
from bert_jax.data.corpus import Corpus
from bert_jax.data.sources import open_source
from bert_jax.data.sources.canaries import CanarySource
from bert_jax.errors import UserError
from bert_jax.evaluation.scored_rows import RowMaker, ScoredRow
from bert_jax.inference import scoring

_UNSEEN = float(np.log2(np.e))  # mean exposure of a secret of random rank


def run(flags: argparse.Namespace, model: Model) -> Results:
    """Return the mean exposure of the canaries, by number of copies."""
    if flags.candidates < 1:
        raise UserError(f'--candidates is {flags.candidates}, must be at least 1')
    found = _planted(flags.input)
    exposures = [_exposure(model, canary, flags.candidates) for canary in found]
    copies_N = np.array([canary.copies for canary in found])
    shares = {
        f'{copies} copies': Share.of(np.array(exposures)[copies_N == copies])
        for copies in canaries.COPIES
    }
    figure = figures.new(6, 3.5)
    axes = figure.subplots()
    numbers = np.arange(len(canaries.COPIES))
    axes.plot([canaries.COPIES.index(copies) for copies in copies_N], exposures, '.', color='0.5')
    axes.plot(numbers, [own.value for own in shares.values()], 'o-', label='mean')
    axes.axhline(_UNSEEN, linestyle='--', color='C1', label='never seen, expected')
    axes.set_xticks(numbers, list(map(str, canaries.COPIES)))
    axes.set(xlabel='copies in the training text', ylabel='exposure (bits)', ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    return Results(
        values={
            'candidates': flags.candidates,
            'exposure': shares,
            'canaries': [
                canary._asdict() | {'exposure': own}
                for canary, own in zip(found, exposures, strict=True)
            ],
        },
        tables={'Exposure of planted secrets (bits)': table(shares, 'planted', 'exposure')},
        figures={'exposure': figure},
        notes=[
            f'Each secret is ranked among {flags.candidates:,} others, so at most '
            f'{np.log2(flags.candidates + 1):.1f} bits can be seen; a secret that was never seen '
            f'has {_UNSEEN:.2f} bits on average.',
            'Invented digits in one kind of sentence: real texts may be memorized more, or less.',
        ],
    )


def _planted(patterns: Sequence[str]) -> list[Canary]:
    """The canaries of a corpus, from the specs of its sources."""
    (folder, *others) = patterns
    if others:
        raise UserError(f'exposure takes one corpus as --input, not {len(patterns)}')
    specs = [source['spec'] for source in Corpus.open(folder).manifest['sources']]
    sources = [open_source(spec) for spec in specs if spec.startswith('canaries:')]
    if not sources:
        raise UserError(f'{folder} has no canaries; prepare it with --canaries=NUMBER')
    return [
        own for source in sources if isinstance(source, CanarySource) for own in source.canaries
    ]


def _exposure(model: Model, canary: Canary, number: int) -> float:
    """The exposure of a secret in bits; ranks of equal scores are their mean."""
    secrets = [canary.secret, *canaries.other_secrets(canary, number)]
    maker = RowMaker.of(model.predictor.tokenizer, is_causal=model.predictor.is_causal)
    rows, counts = [], []
    for secret in secrets:
        own = list(_rows(model, canary.text(secret), canary.span(), maker))
        rows += own
        counts.append(len(own))
    found = [own.sum(dtype=np.float64) for own in scoring.of_rows(model.predictor, rows)]
    scores = np.add.reduceat(found, np.cumsum([0, *counts[:-1]]))
    rank = 1 + np.sum(scores[1:] > scores[0]) + np.sum(scores[1:] == scores[0]) / 2
    return float(np.log2(len(secrets)) - np.log2(rank))


def _rows(model: Model, text: str, span: tuple[int, int], maker: RowMaker) -> Iterator[ScoredRow]:
    """The rows that score the digits of a secret."""
    ids, slot = scoring.locate(model.predictor, text, span)
    if model.predictor.tokenizer.unk_id in ids[slot]:
        raise UserError(f'{model.name} has no tokens for the digits of canaries')
    yield from maker.rows(ids, np.arange(slot.start, slot.stop))


MEASURE = Measure(run, 'a corpus that was prepared with --canaries', ('candidates',))
