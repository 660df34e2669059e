"""Builds examples of generation from rows: a text, or a pair, and the text to write for it."""

from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.examples import TargetExample
from bert_jax.labels.records import InvalidRecord, Row, SkippedRecord


def build_generation(row: Row, example_id: str, builder: ExampleBuilder) -> list[TargetExample]:
    """Read `data.columns.target`, a text or a list of references; the first one is learned."""
    column = builder.columns.target
    if not builder.has_label(row, column, 'target'):
        return [TargetExample(example_id, builder.texts(row), None)]
    value = row[column]
    given = value if isinstance(value, list) else [builder.text(row.text(column), column)]
    if not all(isinstance(one, str) for one in given):
        raise InvalidRecord(f'column {column!r} has a reference that is not a text')
    # White space at the start of a target, such as the indentation of code, belongs to it.
    targets = tuple(builder.new_labels.get(one.strip(), one.rstrip()) for one in given)
    if any(target.strip() in builder.data.skip_labels for target in targets):
        raise SkippedRecord('skipped_by_label')
    if not targets or not all(targets):
        if not builder.labeled:
            return [TargetExample(example_id, builder.texts(row), None)]
        raise InvalidRecord(
            f"column {column!r} has an empty target; data.skip_labels=('',) skips such rows"
        )
    return [TargetExample(example_id, builder.texts(row), targets)]
