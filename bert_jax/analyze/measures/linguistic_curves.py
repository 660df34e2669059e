"""Linguistic evaluations of a pretraining run: the section of the model card, and curves."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from bert_jax import figures, limits
from bert_jax.files import read_text
from bert_jax.metrics.scores import Table
from bert_jax.reports.tables import markdown_table
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAIRS, _COSINE, _PROBE = 'pairs/', 'mean_cosine/', 'pos_accuracy'
FIGURE = 'linguistic'  # name of the figure, and of the JSON file with the same numbers
Records: TypeAlias = Sequence[JsonObject]
_SECTION = """\
## Linguistic evaluation

{tables}

![curves](linguistic.png)

Accuracy is the share of pairs in which the acceptable sentence is likelier; 0.5 is chance.
Sentences of minimal pairs are generated from templates, and accuracy that token frequencies also
reach is no evidence of grammar. The probe is linear, on the last layer; a high mean cosine is
neither good nor bad by itself.
"""


def is_linguistic(name: str) -> bool:
    """Whether a held-out metric comes from the linguistic evaluation."""
    return name in ('pairs', _PROBE, 'linguistic_seconds') or name.startswith((_PAIRS, _COSINE))


def markdown(held_out: Mapping[str, float], unigram: Mapping[str, float]) -> str:
    """The section of the model card; '' without linguistic evaluation.

    Args:
        held_out: metrics of the last evaluation.
        unigram: the metrics of the unigram baseline on minimal pairs.
    """
    tables = []
    pairs = {name: value for name, value in held_out.items() if name.startswith(_PAIRS)}
    if pairs:
        rows = [('mean of the paradigms', held_out['pairs'], unigram['pairs'])]
        rows += [(_title(name), value, unigram[name]) for name, value in pairs.items()]
        tables.append(Table(('minimal pairs', 'accuracy', 'token frequencies'), rows))
    state_rows = [
        (_title(name), value)
        for name, value in held_out.items()
        if name == _PROBE or name.startswith(_COSINE)
    ]
    if state_rows:
        tables.append(Table(('states', 'value'), state_rows))
    return _SECTION.format(tables='\n\n'.join(map(markdown_table, tables))) if tables else ''


def read_records(workdir: pathlib.Path) -> Records:
    """The held-out records of metrics.jsonl that have linguistic metrics."""
    lines = read_text(workdir / 'metrics.jsonl', limit=limits.LARGE_FILE).split('\n')
    records = [json.loads(line) for line in lines if line]
    return [r for r in records if r['kind'] == 'held_out' and any(map(is_linguistic, r))]


def plot(runs: Mapping[str, Records], unigram: Mapping[str, float], path: pathlib.Path) -> None:
    """Draw a panel for each phenomenon, a panel for the probe and a panel for mean cosines.

    Args:
        runs: label → records of a run; see `read_records`. The label of a single run is not shown.
        unigram: the metrics of the unigram baseline on minimal pairs, as dashed lines.
        path: the path of the figure, without a suffix.
    """
    first = next(iter(runs.values()))[-1]
    names = [n for n in ('pairs', _PROBE) if n in first]
    names += sorted(name for name in first if name.startswith(_PAIRS))
    panels = [[name] for name in names]
    if cosines := [name for name in first if name.startswith(_COSINE)]:
        panels.append(cosines)
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = figures.new(2.6 * columns + 0.6, 1.9 * rows + 0.7)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _plot_panel(axes, panel, runs, unigram)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    if len(runs) > 1:
        figure.legend(*grid.flat[0].get_legend_handles_labels(), loc='outside upper right', ncols=4)
    figure.supxlabel('training step; dashed: token frequencies, dotted: chance', fontsize=9)
    figures.save(figure, path)


def _plot_panel(
    axes: 'Axes', names: Sequence[str], runs: Mapping[str, Records], unigram: Mapping[str, float]
) -> None:
    """Draw the curves of a metric, or of the mean cosine by layer, darker for later layers."""
    for number, (label, records) in enumerate(runs.items()):
        for layer, name in enumerate(names):
            points = [record for record in records if name in record]
            steps, values = ([point[key] for point in points] for key in ('step', name))
            strength = (layer + 1) / len(names)
            axes.plot(steps, values, '.-', label=label, color=f'C{number}', alpha=strength)
    axes.set_title(_title(names[0]) if len(names) == 1 else 'mean cosine by layer', fontsize=9)
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    if names[0] in unigram:
        axes.axhline(unigram[names[0]], color='0.3', linestyle='--', linewidth=1)
        axes.axhline(0.5, color='0.5', linestyle=':', linewidth=1)


def _title(name: str) -> str:
    """The name of a metric for readers."""
    if name.startswith(_COSINE):
        return f'mean cosine, layer {name.removeprefix(_COSINE)}'
    titles = {'pairs': 'minimal pairs, all', _PROBE: 'part-of-speech probe'}
    return titles.get(name, name.removeprefix(_PAIRS).replace('_', ' '))
