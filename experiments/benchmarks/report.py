"""Timing in turns, and the records of a benchmark as JSON, a Markdown table and a bar chart."""

import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # run as scripts

from bert_jax import figures


def take_turns(functions: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Call all functions in turn, so that the load of the machine affects all of them alike.

    Returns:
        Name of the function → the seconds of each of its calls.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(turns):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def show(records: list[dict], output: str | None, bars: str, labels: tuple[str, ...] = ()):
    """Print a Markdown table; with `output` also write output.json, .md, .png and .pdf.

    Args:
        records: dictionaries of names and values.
        output: path without suffix, or None.
        bars: name of the value that the chart shows.
        labels: names of the values that label a bar; by default all strings.
    """
    table = as_table(records)
    print(table)
    if output is None:
        return
    pathlib.Path(output).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(f'{output}.json').write_text(json.dumps(records, indent=1) + '\n')
    pathlib.Path(f'{output}.md').write_text(table + '\n', encoding='utf-8')
    try:
        plot(records, pathlib.Path(output), bars, labels)
    except ImportError:
        print(f'matplotlib is not installed: {output}.png and .pdf are not written')


def as_table(records: list[dict]) -> str:
    """Format as Markdown: one row per record, one column per key of any record."""
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [names, ['---'] * len(names)]
    rows += [[str(record.get(name, '')) for name in names] for record in records]
    return '\n'.join(f'| {" | ".join(row)} |' for row in rows)


def plot(records: list[dict], path: pathlib.Path, bars: str, labels: tuple[str, ...] = ()):
    """Draw one horizontal bar per record; `path` has no suffix."""
    labels = labels or tuple(name for name, value in records[0].items() if isinstance(value, str))
    shown = [record for record in records if bars in record]
    names = [' '.join(str(record.get(label, '')) for label in labels) for record in shown]
    figure = figures.new(8, 1 + 0.35 * len(shown))
    axes = figure.subplots()
    axes.barh(range(len(shown)), [record[bars] for record in shown])
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.set_xlabel(bars.replace('_', ' '))
    figures.save(figure, path)
