"""Writes the folder of an analysis atomically: results.json, README.md and figures."""

import json
import pathlib

import numpy as np

from bert_jax import figures, files, markdown
from bert_jax.analyze.base import Analysis, Results
from bert_jax.errors import UserError
from bert_jax.metrics.scores import Table
from bert_jax.reports.tables import markdown_table
from bert_jax.storage import outputs
from bert_jax.types import JsonObject

RESULTS = 'results.json'


def check_output(output: pathlib.Path, overwrite: bool) -> None:
    """Raise UserError if the results cannot be written to this folder."""
    outputs.check_folder(output, overwrite, [RESULTS])
    path = output / RESULTS
    if path.exists() and 'analysis' not in files.read_json(path):  # a run has such a file too
        raise UserError(f'--output={output} has no {RESULTS} of an analysis; choose another folder')


def write(
    folder: pathlib.Path,
    *,
    name: str,
    analysis: Analysis,
    model: str,
    command: str,
    results: Results,
) -> None:
    """Write results.json, README.md and the figures of an analysis into an empty folder."""
    for stem, figure in results.figures.items():
        figures.save(figure, folder / stem)
    content = {
        'analysis': name,
        'description': analysis.description,
        'model': model,
        'command': command,
        'results': results.values,
        'tables': {title: table._asdict() for title, table in results.tables.items()},
        'figures': [f'{stem}.png' for stem in results.figures],
        'notes': list(results.notes),
        'limits': list(analysis.limits),
    }
    text = json.dumps(content, indent=2, ensure_ascii=False, default=_numpy_as_json) + '\n'
    (folder / RESULTS).write_text(text, encoding='utf-8')
    (folder / 'README.md').write_text(_report(content, results), encoding='utf-8')


def first_table(content: JsonObject) -> tuple[str, str]:
    """The title and the Markdown of the first table in the content of a results.json."""
    title, table = next(iter(content['tables'].items()))
    return title, markdown_table(Table(tuple(table['columns']), table['rows']))


def _report(content: JsonObject, results: Results) -> str:
    sections = [
        f'# {content["analysis"]} of {markdown.escape(pathlib.Path(content["model"]).name)}',
        f'{content["description"]}.',
        f'    {content["command"]}',
    ]
    for title, table in results.tables.items():
        sections += [f'## {markdown.escape(title)}', markdown_table(table)]
    sections += [f'![{name}]({name})' for name in content['figures']]
    for title in ('notes', 'limits'):
        if content[title]:
            sentences = '\n'.join(f'- {sentence}' for sentence in content[title])
            sections += [f'## {title.capitalize()}', sentences]
    return '\n\n'.join(sections) + '\n'


def _numpy_as_json(value: object) -> object:
    """Convert NumPy numbers and arrays to JSON values."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f'{value!r:.60} is not a JSON value')
