"""The tasks of predict.py, from lines of text to records or vectors."""

import itertools
import json
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bert_jax.errors import UserError, warn
from bert_jax.files import parse_json
from bert_jax.inference.vector_file import Vectors
from bert_jax.text import text_files

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor

Record: TypeAlias = dict[str, Any]
# Yields the results of a task for the lines of the input.
Task: TypeAlias = Callable[['Predictor', Iterator[str], Namespace], Iterator[Any]]

_CHUNK = 4096  # lines that are batched together, sorted by length

_COLUMNS = {  # task → names of the tab-separated columns of a line of text
    'classify': ('text', 'text2'),
    'prompt': ('text', 'text2'),
    'answer': ('question', 'context'),
}


def _fill_mask(predictor: 'Predictor', lines: Iterator[str], flags: Namespace) -> Iterator[Record]:
    num_without_mask = 0
    for texts in _chunks(lines):
        for text, masks in zip(texts, predictor.fill_mask(texts, flags.top), strict=True):
            num_without_mask += not masks
            yield {'text': text, 'masks': [[guess._asdict() for guess in mask] for mask in masks]}
    if num_without_mask:
        warn(f'{num_without_mask:,} line(s) have no [MASK]')


def _embed(predictor: 'Predictor', lines: Iterator[str], flags: Namespace) -> Iterator[Vectors]:
    if flags.unit != 'text':
        yield from _embed_words(predictor, lines, flags)
        return
    for texts in _chunks(lines):
        for vectors in predictor.embed(texts, flags.pooling, flags.layer, flags.long_texts):
            yield Vectors(vectors)


def _embed_words(
    predictor: 'Predictor', lines: Iterator[str], flags: Namespace
) -> Iterator[Vectors]:
    """Yield the vectors of the words or spans of each line, with their character offsets."""
    from bert_jax.inference import streams, word_states

    located: deque[word_states.Located] = deque()

    def locate() -> Iterator[word_states.Located]:
        for number, line in enumerate(lines, 1):
            record = parse_line(number, line, flags)
            located.append(word_states.locate_record(record, flags.unit, flags.words))
            yield located[-1]

    pooling = flags.pooling or 'mean'
    for vectors in streams.stream_words(predictor, locate(), pooling, flags.layer):
        yield Vectors(vectors, np.array(located.popleft()[1], np.int64).reshape(-1, 2))


def _score(predictor: 'Predictor', lines: Iterator[str], flags: Namespace) -> Iterator[Record]:
    for texts in _chunks(lines):
        scores = predictor.pseudo_likelihood(texts, flags.long_texts, flags.variant)
        for text, scored in zip(texts, scores, strict=True):
            yield {
                'text': text,
                'pseudo_log_likelihood': scored.total,
                'tokens': scored.tokens,
                'log_probabilities': scored.log_probabilities.tolist(),
            }


def _score_pairs(
    predictor: 'Predictor', lines: Iterator[str], flags: Namespace
) -> Iterator[Record]:
    from bert_jax.inference import scoring  # imports JAX

    for numbered in _chunks(enumerate(lines, 1)):
        pairs = [_parse_pair(number, line) for number, line in numbered]
        sums = scoring.sums(predictor, itertools.chain.from_iterable(pairs), flags.variant)
        shared = scoring.shared_sums(predictor, pairs, flags.variant)
        for pair, first, second, of_shared in zip(pairs, sums, sums, shared, strict=True):
            yield {
                'texts': pair,
                'pseudo_log_likelihoods': [first, second],
                'of_shared_tokens': of_shared,
                'preferred': None if first == second else int(second > first),
            }


def _parse_pair(number: int, line: str) -> list[str]:
    texts = line.split('\t')
    if len(texts) != 2:
        raise UserError(f'line {number} is not TEXT<tab>TEXT; it has {len(texts)} column(s)')
    return texts


def predict_finetuned(
    predictor: 'Predictor', lines: Iterator[str], flags: Namespace
) -> Iterator[Record]:
    from bert_jax.inference.finetuned import PredictionOptions  # imports JAX

    options = PredictionOptions(flags.probabilities, flags.long_texts, flags.words)
    for chunk in _chunks(enumerate(lines, 1)):
        inputs = [parse_line(number, line, flags) for number, line in chunk]
        yield from predictor.predict(flags.task, inputs, options)


# Task of pretrained models → its function.
PRETRAINED: dict[str, Task] = {
    'fill_mask': _fill_mask,
    'embed': _embed,
    'pseudo_likelihood': _score,
    'pairs': _score_pairs,
}


def parse_line(number: int, line: str, flags: Namespace) -> Record:
    """Parse a line, the first is number 1, into an input for `Predictor.predict`."""
    default_id = f'input {number}'  # as for an input without an id in Python
    name, columns = f'line {number}', _COLUMNS.get(flags.task, ('text',))
    if flags.input_format == 'jsonl' or (flags.input_format == 'auto' and line.startswith('{')):
        try:
            record = parse_json(line)
        except ValueError as error:
            raise UserError(
                f'{name} is not valid JSON: {error}; set --input_format=text if it is a text'
            ) from error
        if not isinstance(record, dict):
            raise UserError(f'{name} is not a JSON object')
        if text_files.has_surrogates(json.dumps(record, ensure_ascii=False)):
            raise UserError(f'{name} has half of a surrogate pair, which is not valid text')
        return record | {'id': default_id if record.get('id') is None else record['id']}
    values = line.split('\t') if len(columns) > 1 else [line]
    if len(values) > len(columns):
        raise UserError(
            f'{name} has {len(values)} columns; give {flags.task} at most {len(columns)}, '
            f'separated by a tab'
        )
    if flags.task == 'answer' and len(values) < 2:
        raise UserError(f'{name} is not QUESTION<tab>CONTEXT')
    return {'id': default_id, **dict(zip(columns, values, strict=False))}


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    items = iter(items)
    while chunk := list(itertools.islice(items, _CHUNK)):
        yield chunk
