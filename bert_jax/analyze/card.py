"""Adds the results of an analysis to the model card, README.md in the folder of the model."""

import pathlib
import re

from bert_jax import files
from bert_jax.analyze import report
from bert_jax.errors import UserError, writing

CARD = 'README.md'
_NEXT_SECTION = re.compile(r'^## Limits$', re.MULTILINE)  # results are inserted before it, if any


def check(model: str) -> None:
    """Raise UserError unless the folder of a model has a model card."""
    if not (pathlib.Path(model) / CARD).is_file():
        raise UserError(f'--card: {model} has no {CARD}')


def add(model: str, results: pathlib.Path) -> None:
    """Add the first table of a results.json to the card, or replace the table of an earlier run."""
    path, content = pathlib.Path(model) / CARD, files.read_json(results)
    title, table = report.first_table(content)
    mark = f'<!-- {content["analysis"]}: {title} -->'
    end = mark.replace('<!-- ', '<!-- end of ')
    section = '\n\n'.join(
        [
            mark,
            f'## {content["analysis"].capitalize()}: {title}',
            f'    {content["command"]}',
            table,
            '\n'.join(f'- {sentence}' for sentence in [*content['notes'], *content['limits']]),
            end,
        ]
    )
    text = files.read_text(path)
    if mark in text and end in text:
        text = text[: text.index(mark)] + section + text[text.index(end) + len(end) :]
    elif match := _NEXT_SECTION.search(text):
        text = f'{text[: match.start()]}{section}\n\n{text[match.start() :]}'
    else:
        text = f'{text.rstrip()}\n\n{section}\n'
    with writing(path):
        files.write_text(path, text)
