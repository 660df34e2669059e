"""Rows that the annotators of a labeling tool rejected or left open, by the columns of the tool."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax.labels import conversations, label_studio
from bert_jax.labels.records import Row, SkippedRecord, columns_of

# Column → its values for rows whose labels are not to be learned.
Reader = Callable[..., Iterable[Any]]  # see labeled_files.py
Statuses = Mapping[str, tuple[Any, ...]]

_STATUSES: Statuses = {
    'answer': ('reject', 'ignore'),  # Prodigy
    'was_cancelled': (True, 'true', 'True'),  # Label Studio
    'status': ('discarded', 'Discarded'),  # Argilla
    'AssignmentStatus': ('Rejected',),  # Amazon Mechanical Turk
    'ASSIGNMENT:status': ('REJECTED',),  # Toloka
}
# Column with a list of annotations → the key and its values, as above.
_OF_EACH: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    'annotations': ('was_cancelled', (True,)),  # Label Studio
    'responses': ('status', ('discarded',)),  # Argilla
}
_COLUMNS = frozenset((*_STATUSES, *_OF_EACH))


def statuses(data: ConfigDict, readers: Collection[Reader]) -> Statuses:
    """Return the columns of statuses, without those that the config uses for something else."""
    used = {
        name
        for key, value in data.columns.items()
        for names in ([value] if isinstance(value, str) else value)
        for name in columns_of(names)
        if key != 'answer' or conversations.build_conversation in readers
    }
    return {column: values for column, values in _STATUSES.items() if column not in used}


def check_accepted(row: Row, known: Statuses, labeled: bool) -> None:
    """Raise SkippedRecord if the annotators rejected the row or left it open.

    Args:
        row: a row.
        known: see `statuses`.
        labeled: whether a task of Label Studio without annotations is left out.
    """
    if _COLUMNS.isdisjoint(row.values):  # most files: no other cost for each row
        return
    is_open = labeled and row.values.get('annotations') == []
    if is_open and label_studio.is_task(row.values):
        raise SkippedRecord('not_annotated')
    values = row.values
    if any(row[name] in known[name] for name in known.keys() & values.keys()) or any(
        _are_rejected(row[name], *_OF_EACH[name]) for name in _OF_EACH.keys() & values.keys()
    ):
        raise SkippedRecord('not_accepted_by_the_annotator')


def _are_rejected(annotations: object, key: str, rejected: tuple[Any, ...]) -> bool:
    """Whether there are annotations, and all of them are rejected."""
    if not isinstance(annotations, list) or not annotations:
        return False
    return all(isinstance(one, dict) and one.get(key) in rejected for one in annotations)
