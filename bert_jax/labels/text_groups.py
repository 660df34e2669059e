"""Builds groups of texts for sentence embeddings from rows."""

import json

from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, parse_float, require_list
from bert_jax.labels.examples import TextGroup
from bert_jax.labels.records import InvalidRecord, Row, SkippedRecord


def build_text_group(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextGroup]:
    """The texts are the columns `data.columns.texts`; a column may have a list of them.

    Scores and vectors are read where a file has their columns, so that a dev file may have scores
    that the train file lacks; rows without them are counted.
    """
    columns = builder.columns
    label = builder.label(row, columns.label) if columns.label else ''
    return [
        TextGroup(
            example_id,
            _texts(row, columns.texts),
            label,
            _scores(row, columns.scores, builder),
            _vectors(row, columns.vectors, builder),
        )
    ]


def build_ranked_texts(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextGroup]:
    """A query and its documents, with the scores of the documents if there are any."""
    columns = builder.columns
    scores = _scores(row, columns.scores, builder)
    return [TextGroup(example_id, _texts(row, columns.texts), scores=scores)]


def _texts(row: Row, columns: tuple[str, ...]) -> tuple[str, ...]:
    texts: list[str] = []
    for column in columns:
        value = row[column]
        is_list = isinstance(value, list) and all(isinstance(text, str) for text in value)
        found = value if is_list else [word_spans.parse_text(value)[0]]
        if not all(text.strip() for text in found):
            raise InvalidRecord(f'column {column!r} has an empty text')
        texts += found
    return tuple(texts)


def _scores(row: Row, columns: tuple[str, ...], builder: ExampleBuilder) -> tuple[float, ...]:
    if not _has_all(row, columns, 'scores', builder):
        return ()
    scores: list[float] = []
    for column in columns:
        if isinstance(row[column], list):
            scores += map(_number, row[column])
            continue
        text = row.text(column).strip()
        if text in builder.data.skip_labels:
            raise SkippedRecord('skipped_by_label')
        if not text and not builder.labeled:
            return ()
        if not text:
            raise InvalidRecord(
                f"column {column!r} has an empty score; data.skip_labels=('',) skips such rows"
            )
        scores.append(parse_float(text))
    return tuple(scores)


def _vectors(
    row: Row, columns: tuple[str, ...], builder: ExampleBuilder
) -> tuple[tuple[float, ...], ...]:
    if not _has_all(row, columns, 'vectors', builder):
        return ()
    return tuple(tuple(map(_number, require_list(row[column], column))) for column in columns)


def _has_all(row: Row, columns: tuple[str, ...], kind: str, builder: ExampleBuilder) -> bool:
    has_all = all(column in row for column in columns)
    builder.counts[f'rows_without_{kind}'] += not has_all
    return bool(columns) and has_all


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRecord(f'{json.dumps(value)[:40]} is not a number')
    return parse_float(str(value))
