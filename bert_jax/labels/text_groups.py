"""Builds groups of texts for sentence embeddings from rows."""

import json

from bert_jax.labels import word_spans
from bert_jax.labels.builder import ExampleBuilder, parse_float, require_list
from bert_jax.labels.examples import TextGroup
from bert_jax.labels.records import InvalidRecord, Row, SkippedRecord, check_text, scalar_text

_PASSAGES = {str, dict}


def build_text_group(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextGroup]:
    """The texts are the columns `data.columns.texts`; a column may have a list of them.

    Scores and vectors are read where a file has their columns, so that a dev file may have scores
    that the train file lacks; rows without them are counted.
    """
    columns = builder.columns
    label = builder.label(row, columns.label) if columns.label else ''
    vectors = _vectors(row, columns.vectors, builder)
    groups = build_answered_query(row, example_id, builder)
    if vectors and len(groups) > 1:
        raise InvalidRecord(
            f'column {columns.texts[1]!r} has {len(groups)} texts, but data.columns.vectors has '
            'one vector for the column'
        )
    if label == '' and not vectors:
        return groups
    return [group._replace(label=label, vectors=vectors) for group in groups]


def build_answered_query(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextGroup]:
    """A group for each document that answers the query, with all documents that do not answer it.

    Of several columns, the first has the query, the second has the documents that answer it, and
    the others have documents that do not: {"query": q, "pos": [a, b], "neg": [n]} becomes (q, a, n)
    and (q, b, n). So does `mine_hard_negatives` of sentence-transformers; FlagEmbedding and
    Tevatron draw one of the positives in each epoch. If there are two columns, and scores for the
    documents, only the scores say which document answers; the one of the highest score is first.
    """
    columns = builder.columns
    scores = _scores(row, columns.scores, builder)
    query, answers, others = _query_and_documents(row, builder)
    if len(answers) < 2 or (len(columns.texts) == 2 and len(scores) == len(answers) - 1):
        return [TextGroup(example_id, (*query, *answers, *others), scores=scores)]
    only_scores_tell = len(columns.texts) == 2 and bool(columns.scores)
    if (scores or only_scores_tell) and len(scores) != len(answers) + len(others):
        raise InvalidRecord(
            f'{len(answers) + len(others)} documents, but {len(scores)} scores; column '
            f'{columns.texts[1]!r} has several documents, so give a score for each document'
        )
    if only_scores_tell:
        order = sorted(range(len(answers)), key=lambda number: -scores[number])
        texts = (*query, *(answers[number] for number in order))
        ordered = tuple(scores[number] for number in order)
        return [TextGroup(example_id, texts, scores=ordered, is_ranked=True)]
    builder.counts['examples_of_further_documents_that_answer_a_query'] += len(answers) - 1
    return [
        TextGroup(
            example_id,
            (*query, answer, *others),
            scores=(scores[number], *scores[len(answers) :]) if scores else (),
        )
        for number, answer in enumerate(answers)
    ]


def build_ranked_texts(row: Row, example_id: str, builder: ExampleBuilder) -> list[TextGroup]:
    """A query and its documents, with their scores.

    Without scores, the documents of the second column have the score 1 and those of further columns
    have 0.
    """
    columns = builder.columns
    scores = _scores(row, columns.scores, builder)
    query, answers, others = _query_and_documents(row, builder)
    if not scores and len(columns.texts) > 1 and (others or builder.labeled):
        if not others:
            raise InvalidRecord(
                'no document that does not answer the query; set data.columns.scores, or add a '
                'column of such documents to data.columns.texts'
            )
        scores = (1.0,) * len(answers) + (0.0,) * len(others)
    return [TextGroup(example_id, (*query, *answers, *others), scores=scores)]


def _query_and_documents(row: Row, builder: ExampleBuilder) -> tuple[list[str], ...]:
    """The texts of the first, of the second, and of all further columns.

    Raises:
        SkippedRecord: no document answers the query, as in some rows of the data of DPR.
        InvalidRecord: an empty text, or several queries.
    """
    columns = builder.columns.texts
    first, *rest = [_texts(row, column, builder) for column in columns]
    if not rest:
        return first[:1], first[1:2], first[2:]
    if len(first) != 1:
        raise InvalidRecord(f'column {columns[0]!r} has {len(first)} texts, must have one query')
    if not rest[0]:
        raise SkippedRecord('queries_without_a_document')
    return first, rest[0], [text for texts in rest[1:] for text in texts]


def _texts(row: Row, column: str, builder: ExampleBuilder) -> list[str]:
    """The texts of a column: one, or a list of texts or of objects with 'text' and 'title'."""
    value = row[column]
    is_list = isinstance(value, list) and {*map(type, value)} <= _PASSAGES
    texts = list(map(_passage, value)) if is_list else [builder.text(value, column)]
    if not all(map(str.strip, texts)):
        raise InvalidRecord(f'column {column!r} has an empty text')
    return texts


def _passage(value: object) -> str:
    """A text, or the title and the text of an object, joined by a space as in Tevatron and BEIR."""
    if isinstance(value, str):
        check_text(value)
        return value
    text, _ = word_spans.parse_text(value)
    title = value.get('title') if isinstance(value, dict) else None
    return f'{scalar_text(title, "title")} {text}' if title else text


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
