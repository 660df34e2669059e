"""The lines of the input of predict.py, and the inputs of a model that they hold."""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TypeVar

from bert_jax.cli.request import Request
from bert_jax.errors import UserError
from bert_jax.files import parse_json
from bert_jax.text import scripts
from bert_jax.types import JsonObject

Item = TypeVar('Item')

_CHUNK = 4096  # lines that are batched together, sorted by length

_COLUMNS = {  # task → names of the tab-separated columns of a line of text
    'classify': ('text', 'text2'),
    'prompt': ('text', 'text2'),
    'write': ('text', 'text2'),
    'answer': ('question', 'context'),
    'respond': ('prompt',),
}
# Task → name of the columns after a query.
_LISTS = {'rerank': 'documents', 'mine': 'positives'}


def parse_line(number: int, line: str, request: Request) -> JsonObject:
    """Parse a line, the first is number 1, into an input for `Predictor.predict`."""
    default_id = f'input {number}'  # as for an input without an id in Python
    name, columns = f'line {number}', _COLUMNS.get(request.task, ('text',))
    if request.input_format == 'jsonl' or (request.input_format == 'auto' and line.startswith('{')):
        try:
            record = parse_json(line)
        except ValueError as error:
            raise UserError(
                f'{name} is not valid JSON: {error}; set --input_format=text if it is a text'
            ) from error
        if not isinstance(record, dict):
            raise UserError(f'{name} is not a JSON object')
        if scripts.has_surrogates(json.dumps(record, ensure_ascii=False)):
            raise UserError(f'{name} has half of a surrogate pair, which is not valid text')
        return record | {'id': default_id if record.get('id') is None else record['id']}
    if documents := _LISTS.get(request.task):
        query, *texts = line.split('\t')
        return {'id': default_id, 'query': query, documents: texts}
    values = line.split('\t') if len(columns) > 1 else [line]
    if len(values) > len(columns):
        raise UserError(
            f'{name} has {len(values)} columns; give {request.task} at most {len(columns)}, '
            f'separated by a tab'
        )
    if request.task == 'answer' and len(values) < 2:
        raise UserError(f'{name} is not QUESTION<tab>CONTEXT')
    return {'id': default_id, **dict(zip(columns, values, strict=False))}


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of lines that are read and computed at a time."""
    items = iter(items)
    while chunk := list(itertools.islice(items, _CHUNK)):
        yield chunk
