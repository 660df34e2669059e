"""The learning curves of a run: a panel for each loss, and one for scores."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bert_jax import figures
from bert_jax.types import RecordView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {
    'clm_loss': 'next token',
    'loss': 'total',
    'mlm_loss': 'masked tokens',
    'nsp_loss': 'next sentence',
    'rtd_loss': 'replaced tokens',
    'sbo_loss': 'span boundaries',
    'sop_loss': 'sentence order',
}
_COLUMNS = 3  # of panels

Records = Sequence[RecordView]


def draw(
    records: Records, score: str, references: Mapping[str, float], stage_starts: Sequence[int]
) -> 'Figure':
    """Draw the curves of training as lines and of held-out examples as lines with dots.

    Args:
        records: the records of metrics.jsonl.
        score: a metric to draw with the accuracies unless it is a loss, '' for none.
        references: label → loss of a simple prediction, a horizontal line in the first panel.
        stage_starts: the first step of each stage; later ones are marked.
    """
    names = {name for record in records for name in record}
    losses = sorted(name for name in names if name.endswith('_loss')) or ['loss']
    drawn_with_scores = {score} - {'loss', *losses}
    scores = sorted(n for n in names if n.endswith('accuracy') or n in drawn_with_scores)
    losses.sort(key=lambda name: name not in ('mlm_loss', 'clm_loss'))  # stable: others follow
    panels = [[name] for name in losses] + [scores] * bool(scores)
    columns = max(1, min(_COLUMNS, len(panels)))
    rows = math.ceil(max(1, len(panels)) / columns)
    figure = figures.new(1 + 5 * columns, 0.5 + 4 * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, records, panel)
        _mark_stages(axes, stage_starts)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    if names:
        _draw_references(grid[0], references)
    return figure


def _draw_panel(axes: 'Axes', records: Records, names: Sequence[str]) -> None:
    for name in names:
        for kind, style in (('train', '-'), ('held_out', 'o-')):
            of_kind = [record for record in records if record['kind'] == kind]
            # In fine-tuning, the loss `NAME_loss` is `NAME` in training.
            keys = [name, name.removesuffix('_loss')]
            points = [
                (record['step'], next(record[key] for key in keys if key in record))
                for record in of_kind
                if not record.keys().isdisjoint(keys)
            ]
            if points:
                label = kind.replace('_', '-')
                label = label if len(names) == 1 else f'{label}: {name.replace("_", " ")}'
                axes.plot(*zip(*points, strict=True), style, label=label, alpha=0.8, markersize=4)
    is_loss = names[0].endswith('loss')
    title = _TITLES.get(names[0], names[0].removesuffix('_loss').replace('_', ' '))
    axes.set_title(f'Loss: {title}' if is_loss else 'Scores')
    axes.set(xlabel='training step', ylabel='nats per prediction' if is_loss else 'score')
    axes.grid(alpha=0.3)
    if axes.lines:
        _place_legend(axes)


def _place_legend(axes: 'Axes') -> None:
    """Draw the legend below the panel, where it covers no curve."""
    axes.legend(loc='upper center', bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False)


def _mark_stages(axes: 'Axes', stage_starts: Sequence[int]) -> None:
    for number, step in enumerate(stage_starts[1:], start=2):
        axes.axvline(step, linestyle=':', color='grey', linewidth=1)
        axes.annotate(
            f'stage {number}',
            (step, 0.02),
            xycoords=('data', 'axes fraction'),
            xytext=(3, 0),
            textcoords='offset points',
            fontsize=8,
            color='grey',
        )


def _draw_references(axes: 'Axes', references: Mapping[str, float]) -> None:
    for label, value in references.items():
        axes.axhline(value, linestyle='--', color='grey', linewidth=1, label=label)
    if references:
        _place_legend(axes)
