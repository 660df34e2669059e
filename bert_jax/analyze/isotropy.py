"""Isotropy by layer: mean cosine of two tokens, variances and correlations of dimensions."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Analysis, AnalyzedModel, Results, inputs, read_texts
from bert_jax.analyze.measures import isotropy
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference.streams import stream_tokens
from bert_jax.metrics import intervals
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonObject, JsonRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_GROUPS = 500  # groups of texts that are resampled for the intervals
_TOP = 3  # dimensions in the table
_NOTES = (
    'A mean cosine of 0 says that the states of two random tokens point in unrelated directions, 1 '
    'that all states point in the same direction.',
    'Each dimension of the states adds a part to the mean cosine, its share. If a few dimensions '
    'have large shares, they alone make different tokens look alike.',
    'Standardized: each dimension was shifted and scaled to mean 0 and standard deviation 1 over '
    'all tokens (z-scores), so that no dimension dominates.',
    'Variance ratio: the largest variance of a dimension divided by the smallest. Mean '
    '|correlation|: of two dimensions over all tokens. In an isotropic space they are 1 and 0.',
    'Dead dimensions have nearly the same value for all tokens and are not standardized.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Isotropy(Analysis):
    """Mean cosine of all pairs of tokens, before and after z-scoring each dimension."""

    description = 'Mean cosine of two tokens by layer; variances and correlations of dimensions'
    limits = (
        'The mean cosine depends on the texts and on which tokens are frequent in them.',
        'An isotropic space is not necessarily better: these numbers say nothing about a task.',
    )

    input: tuple[str, ...] = inputs('texts, one per line')
    limit: int | None = flag('number of texts (default: all)', None, '[1, inf)')
    long_texts: str = flag(
        'texts longer than --max_length: overlapping windows, or only the start (truncate)',
        'windows',
        choices=('windows', 'truncate'),
    )

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`; the texts are encoded twice, the second time for z-scored states."""
        texts = read_texts(self.input, self.limit)
        scales, sums, _ = _measure(model, texts, self.long_texts, None)
        for layer, scale in enumerate(scales):
            if scale.is_dead_D.all():
                raise UserError(
                    f'{model.name}: all dimensions of layer {layer} are dead: every token of '
                    f'{", ".join(self.input)} has the same state'
                )
        _, z_sums, products = _measure(model, texts, self.long_texts, scales)
        layers = list(map(_describe_layer, scales, sums, z_sums, products))
        return Results(
            values={'texts': len(texts), 'tokens': int(sums[0].counts_G.sum()), 'layers': layers},
            tables={'Mean cosine by layer': _table(layers)},
            figures={'isotropy': _plot(layers)},
            notes=_NOTES,
        )


def _measure(
    model: AnalyzedModel, texts: list[str], long_texts: str, scales: list[isotropy.Scale] | None
) -> tuple[list[isotropy.Scale], list[isotropy.UnitSums], list[np.ndarray]]:
    """Encode the texts; return the scale, the sums and the products [D, D] of each layer.

    With `scales` of an earlier pass, the sums are of z-scored states. Only these have products.
    """
    model.stage('states' if scales is None else 'standardized states')
    model.predictor.counts.clear()  # counts truncated texts once, not in both passes
    size, layers = model.pretrained.architecture.hidden_size, range(model.num_layers + 1)
    groups = min(_MAX_GROUPS, len(texts))
    sums = [isotropy.unit_sums(groups, size) for _ in layers]
    moments = [isotropy.moments(size) for _ in layers]
    products = [np.zeros((size, size) if scales else (0, 0)) for _ in layers]
    states = stream_tokens(model.predictor, texts, 'all', long_texts)
    for number, states_TLD in enumerate(states):
        for layer in layers:
            vectors_TD = states_TLD[:, layer].astype(np.float64)
            if scales is None:
                moments[layer].add(vectors_TD)
            else:
                vectors_TD = scales[layer].standardize(vectors_TD)
                products[layer] += vectors_TD.T @ vectors_TD
            sums[layer].add(number % groups, vectors_TD)
    if sums[0].counts_G.sum() < 2:
        raise UserError('isotropy needs at least two tokens')
    return scales or [layer_moments.scale() for layer_moments in moments], sums, products


def _describe_layer(
    scale: isotropy.Scale,
    sums: isotropy.UnitSums,
    z_sums: isotropy.UnitSums,
    products_DD: np.ndarray,
) -> JsonRecord:
    """The results of a layer; `z_sums` and the products are of z-scored states."""
    contributions_D = sums.contributions()
    cosine = float(contributions_D.sum())
    shares_D = contributions_D / cosine
    return {
        'mean_cosine': cosine,
        'interval': _interval(sums),
        'z_scored': float(z_sums.contributions().sum()),
        'z_scored_interval': _interval(z_sums),
        'variance_ratio': scale.variance_ratio(),
        'mean_correlation': isotropy.mean_correlation(products_DD, scale.is_dead_D),
        'top_dimensions': np.argsort(-np.abs(shares_D))[:_TOP],
        'rogue_dimensions': np.flatnonzero(shares_D > isotropy.ROGUE_SHARE),
        'dead_dimensions': np.flatnonzero(scale.is_dead_D),
        'shares': shares_D,
    }


def _interval(sums: isotropy.UnitSums) -> tuple[float, float] | None:
    ends = intervals.of_documents(
        lambda weights_G: sums.contributions(weights_G).sum(), len(sums.counts_G)
    )
    return None if ends is None else (float(ends[0]), float(ends[1]))


def _table(layers: list[JsonObject]) -> Table:
    columns = (
        'layer',
        'mean cosine',
        'interval',
        'mean cosine, standardized',
        'variance ratio',
        'mean |correlation|',
        'dimensions with the largest shares (share)',
        'dead dimensions',
    )
    rows = []
    for number, layer in enumerate(layers):
        top = ', '.join(f'{d} ({layer["shares"][d]:.2f})' for d in layer['top_dimensions'])
        dead = ', '.join(map(str, layer['dead_dimensions'])) or '–'
        interval = intervals.cell(layer['interval'])
        measures = (layer[name] for name in ('z_scored', 'variance_ratio', 'mean_correlation'))
        rows.append((number, layer['mean_cosine'], interval, *measures, top, dead))
    return Table(columns, rows)


def _plot(layers: list[JsonObject]) -> 'Figure':
    """The mean cosine by layer: measured, without the largest shares, and standardized."""
    figure = figures.new(6.5, 4.6)
    axes = figure.subplots()
    numbers = range(len(layers))
    cosines = [layer['mean_cosine'] for layer in layers]
    top = [layer['shares'][layer['top_dimensions']].sum() for layer in layers]
    rest = [cosine * (1 - share) for cosine, share in zip(cosines, top, strict=True)]
    axes.plot(numbers, cosines, 'o-', label='mean cosine of the states as they are')
    if all(layer['interval'] for layer in layers):
        low, high = np.transpose([layer['interval'] for layer in layers])
        axes.fill_between(numbers, low, high, alpha=0.2)
    axes.plot(
        numbers,
        rest,
        's--',
        label=f'what remains of it without the {_TOP} dimensions that add most',
    )
    standardized = [layer['z_scored'] for layer in layers]
    label = 'mean cosine after scaling every dimension to mean 0 and standard deviation 1'
    axes.plot(numbers, standardized, '^:', label=label)
    axes.set(xlabel='layer (0: embeddings)', xticks=numbers)
    axes.set_ylabel('mean cosine of two tokens\n(0: unrelated, 1: same direction)')
    axes.set_title('How similar the states of two random tokens are')
    axes.grid(alpha=0.3)
    figure.legend(loc='outside lower center', fontsize=8)
    return figure
