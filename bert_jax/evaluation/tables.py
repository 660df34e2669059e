"""Scores on disk: metrics.json for programs, report.md and confusion.png for readers."""

import json
import pathlib

import numpy as np

from bert_jax.evaluation.scores import Confusion, Scores, Table

MOST_IN_TEXT = 12  # classes of a confusion matrix that a reader can take in as a table …
MOST_IN_PICTURE = 40  # … and as a picture
MOST_CONFUSIONS = 20  # pairs of classes that are listed where the matrix is too large


def save(scores: Scores, directory: str | pathlib.Path, title: str):
    """Writes metrics.json ({'metrics', 'tables'}), report.md and, with a confusion matrix,
    confusion.png into a folder, made if need be."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    found = {
        'metrics': scores.metrics,
        'tables': {name: table._asdict() for name, table in scores.tables.items()},
    }
    text = json.dumps(found, indent=2, ensure_ascii=False) + '\n'
    (directory / 'metrics.json').write_text(text, encoding='utf-8')
    (directory / 'report.md').write_text(as_markdown(scores, title), encoding='utf-8')
    for table in scores.tables.values():
        if isinstance(table, Confusion) and np.sum(table.counts):
            plot(table, directory / 'confusion.png')


def as_markdown(scores: Scores, title: str) -> str:
    """The report: the figures, then every table."""
    lines = [f'# {title}', '', markdown_table(Table(('metric', ''), list(scores.metrics.items())))]
    for name, table in scores.tables.items():
        lines += ['', f'## {name}', '']
        if isinstance(table, Confusion):
            lines += ['Gold classes down, predicted ones across.', '', _confusion(table)]
            if np.sum(table.counts):
                lines += ['', '![confusion](confusion.png)']
        else:
            lines.append(markdown_table(table))
    return '\n'.join(lines) + '\n'


def markdown_table(table: Table) -> str:
    """A Markdown table; columns of numbers to the right, shares with four digits."""
    numeric = [
        all(isinstance(row[column], int | float) for row in table.rows)
        for column in range(len(table.columns))
    ]
    rules = ['---:' if number else '---' for number in numeric]
    return '\n'.join(map(_line, [table.columns, rules, *table.rows]))


def plot(confusion: Confusion, path: pathlib.Path):
    """The shares of each gold class; of too many classes those with the most errors."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    counts_CC = np.array(confusion.counts)
    chosen = _most_errors(counts_CC, MOST_IN_PICTURE)
    shares_CC = counts_CC[chosen] / np.maximum(counts_CC[chosen].sum(1, keepdims=True), 1)
    shares_CC = shares_CC[:, chosen]
    labels = [_shortened(confusion.labels[number]) for number in chosen]
    size = max(3.5, 0.28 * len(chosen) + 2)
    figure, axes = plt.subplots(figsize=(size, size), layout='constrained')
    axes.imshow(shares_CC, cmap='Blues', vmin=0, vmax=1)
    axes.set_xticks(range(len(chosen)), labels, rotation=90, parse_math=False)
    axes.set_yticks(range(len(chosen)), labels, parse_math=False)
    axes.set_xlabel('predicted')
    axes.set_ylabel('gold')
    if len(chosen) < len(counts_CC):
        axes.set_title(f'the {len(chosen)} of {len(counts_CC)} classes with the most errors')
    if len(chosen) <= MOST_IN_TEXT:
        for (row, column), share in np.ndenumerate(shares_CC):
            color = 'white' if share > 0.5 else 'black'
            count = counts_CC[chosen[row], chosen[column]]
            axes.text(column, row, count, ha='center', va='center', color=color, fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _confusion(confusion: Confusion) -> str:
    """The whole matrix, or its most frequent confusions."""
    labels, counts_CC = confusion.labels, np.array(confusion.counts)
    if len(labels) <= MOST_IN_TEXT:
        rows = [(label, *row) for label, row in zip(labels, confusion.counts, strict=True)]
        return markdown_table(Table(('', *labels), rows))
    wrong_CC = counts_CC - np.diag(np.diagonal(counts_CC))
    order = np.argsort(-wrong_CC, axis=None, kind='stable')[:MOST_CONFUSIONS]
    pairs = [np.unravel_index(place, wrong_CC.shape) for place in order]
    rows = [(labels[a], labels[b], int(wrong_CC[a, b])) for a, b in pairs if wrong_CC[a, b]]
    table = markdown_table(Table(('gold', 'predicted', 'examples'), rows))
    return f'The most frequent confusions among {len(labels)} classes.\n\n{table}'


def _most_errors(counts_CC: np.ndarray, most: int) -> np.ndarray:
    """The numbers of the classes to show, in their order."""
    errors_C = counts_CC.sum(0) + counts_CC.sum(1) - 2 * np.diagonal(counts_CC)
    return np.sort(np.argsort(-errors_C, kind='stable')[:most])


def _line(cells) -> str:
    return f'| {" | ".join(map(_cell, cells))} |'


def _cell(value) -> str:
    if isinstance(value, float):
        return f'{value:.4f}'
    return str(value).replace('|', '\\|').replace('\n', ' ')


def _shortened(label: str, most: int = 24) -> str:
    return label if len(label) <= most else label[: most - 1] + '…'
