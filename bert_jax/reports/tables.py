"""Writes scores to disk: metrics.json for programs, report.md and figures for readers."""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bert_jax import figures, files, markdown
from bert_jax.metrics.intervals import LEVEL, Interval, cell
from bert_jax.metrics.scores import Confusion, Scatter, Scores, Table
from bert_jax.types import JsonObject, JsonRecord

Intervals: TypeAlias = Mapping[str, Interval]  # by metric

MAX_CLASSES_IN_TABLE = 12  # larger confusion matrices are reported as a list of confused classes
MAX_ROWS = 100  # of a table in a report; metrics.json has all


_FIGURES = ('confusion.*', 'scatter.*', 'candidates.tsv')  # which not all results have


def save_results(
    directory: pathlib.Path,
    title: str,
    records: Sequence[JsonRecord],
    scores: Scores | None,
    candidate_labels: Sequence[str] = (),
    **more: Any,
) -> None:
    """Write the predictions and scores of a split or of labeled files into a folder.

    Args:
        records: the lines of predictions.jsonl.
        scores: None if there are no labels.
        candidate_labels: see `save_candidates`.
        more: further arguments of `save_scores`.
    """
    save_predictions(records, directory)
    for path in (path for pattern in _FIGURES for path in directory.glob(pattern)):
        path.unlink()  # of earlier results
    if candidate_labels:
        save_candidates(records, candidate_labels, directory)
    if scores:
        save_scores(scores, directory, title, **more)


def save_scores(
    scores: Scores,
    directory: str | pathlib.Path,
    title: str,
    intervals: Intervals | None = None,
    warnings: Sequence[str] = (),
    baseline: Mapping[str, float] | None = None,
    attention: str = '',
    losses: Mapping[str, float] | None = None,
) -> None:
    """Write metrics.json, report.md and the figures 'confusion' and 'scatter' into a folder.

    The folder is created if it does not exist. metrics.json contains 'metrics', 'intervals',
    'warnings', 'tables' and, if there are any, 'losses', 'signatures', 'baseline', the metrics of a
    blind guess, and 'attention', the direction of attention.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    content = {
        'metrics': scores.metrics,
        'intervals': intervals or {},
        'warnings': list(warnings),
        'tables': {
            name: table._asdict()
            for name, table in scores.tables.items()
            if not isinstance(table, Scatter)
        },
    }
    if losses:
        content['losses'] = dict(losses)
    if scores.signatures:
        content['signatures'] = dict(scores.signatures)
    if baseline:
        content['baseline'] = dict(baseline)
    if attention:
        content['attention'] = attention
    files.write_json(directory / 'metrics.json', content)
    report = report_markdown(scores, title, intervals, warnings, attention)
    (directory / 'report.md').write_text(report, encoding='utf-8')
    for table in scores.tables.values() if figures.are_drawn() else ():
        if isinstance(table, Confusion) and any(table.examples):
            plot_confusion(table, directory / 'confusion')
        if isinstance(table, Scatter) and table.gold:
            plot_scatter(table, directory / 'scatter')


def save_predictions(records: Iterable[JsonRecord], directory: str | pathlib.Path) -> None:
    """Write predictions.jsonl into a folder, which is created: a record per line."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + '\n' for record in records]
    (directory / 'predictions.jsonl').write_text(''.join(lines), encoding='utf-8')


def save_candidates(
    records: Sequence[JsonObject], columns: Sequence[str], directory: str | pathlib.Path
) -> None:
    """Write candidates.tsv for the scorer of GAP: a text id and the class of each candidate.

    Args:
        records: predictions for pairs, with ids 'TEXT_ID-COLUMN'. The scorer expects the text ids
            of GAP (`data.columns.id='ID'`) and the classes TRUE and FALSE.
        columns: `data.columns.candidate_labels`, in the order of the file ('A-coref', 'B-coref').
    """
    predicted: dict[str, dict[str, str]] = {}
    longest_first = sorted(columns, key=len, reverse=True)  # 'A-coref' before 'coref'
    for record in records:
        column = next(column for column in longest_first if record['id'].endswith(f'-{column}'))
        text_id = record['id'].removesuffix(f'-{column}')
        predicted.setdefault(text_id, {})[column] = str(record['predicted'])
    lines = [
        '\t'.join([text_id, *(classes[column] for column in columns)]) + '\n'
        for text_id, classes in predicted.items()
        if len(classes) == len(columns)
    ]
    (pathlib.Path(directory) / 'candidates.tsv').write_text(''.join(lines), encoding='utf-8')


def metrics_markdown(scores: Scores, intervals: Intervals | None = None) -> str:
    """Metrics as a Markdown table, with their signatures, and their intervals if given."""
    columns: dict[str, Mapping[str, object]] = {'value': scores.metrics}
    if intervals:
        cells = {name: cell(intervals.get(name)) for name in scores.metrics}
        columns[f'{LEVEL:.0%} interval'] = cells
    if scores.signatures:
        columns['signature'] = scores.signatures
    rows = [
        (name, *(values.get(name, '') for values in columns.values())) for name in scores.metrics
    ]
    return markdown_table(Table(('metric', *columns), rows))


def report_markdown(
    scores: Scores,
    title: str,
    intervals: Intervals | None = None,
    warnings: Sequence[str] = (),
    attention: str = '',
) -> str:
    """The metrics and all tables as a Markdown page."""
    lines = [f'# {markdown.escape(title)}', '', metrics_markdown(scores, intervals)]
    lines += [
        text for warning in warnings for text in ('', f'**Warning:** {markdown.escape(warning)}')
    ]
    if attention:
        lines += ['', f'Attention {attention}.']
    for name, table in scores.tables.items():
        lines += ['', f'## {name}', '']
        if isinstance(table, Confusion):
            lines += ['Rows are gold classes, columns predictions.', '', _confusion_markdown(table)]
            if any(table.examples) and figures.are_drawn():
                lines += ['', '![confusion](confusion.png)']
        elif isinstance(table, Scatter):
            is_drawn = table.gold and figures.are_drawn()
            lines += ['![predicted against gold](scatter.png)'] if is_drawn else []
        else:
            lines.append(_shortened_markdown(table))
    return '\n'.join(lines) + '\n'


def markdown_table(table: Table) -> str:
    """A Markdown table with numbers right-aligned and floats rounded to four digits."""
    numeric = [
        all(isinstance(row[column], int | float) for row in table.rows)
        for column in range(len(table.columns))
    ]
    rules = ['---:' if number else '---' for number in numeric]
    lines = [table.columns, *table.rows]
    cells = [' | '.join(map(_cell, line)) for line in lines]
    cells.insert(1, ' | '.join(rules))
    return '\n'.join(f'| {line} |' for line in cells)


def plot_confusion(confusion: Confusion, path: pathlib.Path) -> None:
    """Plot a confusion matrix as shares of each gold class.

    Args:
        confusion: the counts; of many classes, it has only those with the most errors.
        path: the path of the figure, without a suffix.
    """
    counts_CC, number = np.array(confusion.counts), len(confusion.labels)
    shares_CC = counts_CC / np.maximum(np.array(confusion.examples)[:, None], 1)
    labels = list(map(_shorten, confusion.labels))
    is_large = number > MAX_CLASSES_IN_TABLE
    size = max(3.5, (0.18 if is_large else 0.28) * number + 2.5)
    figure = figures.new(size + 1, size)
    axes = figure.subplots()
    image = axes.imshow(shares_CC, cmap='Blues', vmin=0, vmax=1)
    figure.colorbar(image, label='share of the gold class', shrink=0.5)
    ticks: dict[str, Any] = {'fontsize': 7 if is_large else 10, 'parse_math': False}
    axes.set_xticks(range(number), labels, rotation=90, **ticks)
    axes.set_yticks(range(number), labels, **ticks)
    axes.set_xticks(np.arange(number) + 0.5, minor=True)
    axes.set_yticks(np.arange(number) + 0.5, minor=True)
    axes.grid(which='minor', color='lightgray', linewidth=0.3)
    axes.tick_params(which='minor', length=0)
    axes.set_xlabel('predicted')
    axes.set_ylabel('gold')
    if number < confusion.num_classes:
        axes.set_title(f'The {number} of {confusion.num_classes:,} classes with the most errors')
    else:
        axes.set_title('Predicted and gold classes')
    if not is_large:
        for (row, column), share in np.ndenumerate(shares_CC):
            color = 'white' if share > 0.5 else 'black'
            count = counts_CC[row, column]
            axes.text(column, row, str(count), ha='center', va='center', color=color, fontsize=8)
    figures.save(figure, path)


def plot_scatter(scatter: Scatter, path: pathlib.Path) -> None:
    """Plot predicted against gold numbers, with the diagonal."""
    figure = figures.new(5, 5)
    axes = figure.subplots()
    axes.plot(scatter.gold, scatter.predicted, 'o', alpha=0.4, markersize=4)
    axes.axline((scatter.gold[0], scatter.gold[0]), slope=1, color='gray', linewidth=1)
    values = (*scatter.gold, *scatter.predicted)
    margin = 0.05 * (max(values) - min(values)) or 1.0
    limits = min(values) - margin, max(values) + margin
    axes.set(xlabel='gold', ylabel='predicted', xlim=limits, ylim=limits, aspect='equal')
    axes.set_title('Predicted and gold numbers')
    axes.grid(alpha=0.3)
    figures.save(figure, path)


def _confusion_markdown(confusion: Confusion) -> str:
    """The whole matrix, or a list of the most frequent confusions."""
    labels = confusion.labels
    if confusion.num_classes <= MAX_CLASSES_IN_TABLE:
        rows = [(label, *row) for label, row in zip(labels, confusion.counts, strict=True)]
        return markdown_table(Table(('', *labels), rows))
    table = markdown_table(Table(('gold', 'predicted', 'examples'), confusion.most_confused))
    return f'The most frequent confusions among {confusion.num_classes:,} classes.\n\n{table}'


def _shortened_markdown(table: Table) -> str:
    """The table, or of a long one the rows with the largest counts, in their order."""
    number = len(table.rows)
    if number <= MAX_ROWS:
        return markdown_table(table)
    counts = [sum(cell for cell in row if isinstance(cell, int)) for row in table.rows]
    largest = sorted(range(number), key=lambda place: -counts[place])[:MAX_ROWS]
    rows = [table.rows[place] for place in sorted(largest)]
    shown = markdown_table(Table(table.columns, rows))
    return f'The {MAX_ROWS} most frequent of {number:,}; metrics.json has all.\n\n{shown}'


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'{value:.4f}'
    return markdown.escape(str(value))


def _shorten(label: str, limit: int = 44) -> str:
    return label if len(label) <= limit else label[: limit - 1] + '…'
