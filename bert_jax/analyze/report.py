"""Writes the folder of an analysis: results.json, README.md and figures, all of them or none."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import figures
from bert_jax.analyze.base import Results
from bert_jax.errors import UserError
from bert_jax.evaluation.tables import markdown_table

RESULTS = 'results.json'


def check_output(output: pathlib.Path, overwrite: bool) -> None:
    """Raise UserError if the results cannot be written to this folder."""
    if not output.exists():
        return
    if not overwrite:
        raise UserError(f'--output={output} exists; add --overwrite to replace it')
    if not (output / RESULTS).is_file():
        raise UserError(
            f'--output={output} has no {RESULTS}, so it was not made by an analysis; '
            'choose another folder'
        )


@contextlib.contextmanager
def new_folder(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary folder that becomes `output` at the end of the block, or is removed.

    Raises:
        UserError: it cannot be written.
    """
    partial, old = (output.with_name(f'{output.name}.{name}') for name in ('partial', 'old'))
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if output.exists():
            os.rename(output, old)
        os.rename(partial, output)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise UserError(f'--output={output} cannot be written: {error.strerror}') from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write(
    folder: pathlib.Path,
    *,
    analysis: str,
    description: str,
    model: str,
    command: str,
    limits: Sequence[str],
    results: Results,
) -> None:
    """Write the files.

    Args:
        folder: an empty folder.
        analysis: name of the analysis.
        description: what it measures, in one line.
        model: the path of the model.
        command: the command line that made the results.
        limits: what they do not show, in sentences.
        results: what was found.
    """
    for name, figure in results.figures.items():
        figures.save(figure, folder / name)
    content = {
        'analysis': analysis,
        'description': description,
        'model': model,
        'command': command,
        'results': results.values,
        'tables': {title: table._asdict() for title, table in results.tables.items()},
        'figures': [f'{name}.png' for name in results.figures],
        'notes': list(results.notes),
        'limits': list(limits),
    }
    text = json.dumps(content, indent=2, ensure_ascii=False, default=_plain) + '\n'
    (folder / RESULTS).write_text(text, encoding='utf-8')
    (folder / 'README.md').write_text(_report(content, results), encoding='utf-8')


def _report(content: dict[str, Any], results: Results) -> str:
    sections = [
        f'# {content["analysis"]} of {pathlib.Path(content["model"]).name}',
        f'{content["description"]}.',
        f'    {content["command"]}',
    ]
    for title, table in results.tables.items():
        sections += [f'## {title}', markdown_table(table)]
    sections += [f'![{name}]({name})' for name in content['figures']]
    for title, sentences in (('Notes', results.notes), ('Limits', content['limits'])):
        if sentences:
            sections += [f'## {title}', '\n'.join(f'- {sentence}' for sentence in sentences)]
    return '\n\n'.join(sections) + '\n'


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays as JSON values."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f'{value!r:.60} is not a JSON value')
