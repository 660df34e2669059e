"""Reads tasks of Label Studio's JSON export as rows, as its own JSON_MIN export writes them.

A task is {"data": {"text": …}, "annotations": [{"result": […]}, …]}; a result has the name of its
control tag, its type and its value. Source: `label_studio_sdk.converter`, JSON_MIN.
"""

from collections.abc import Iterator
from typing import Any

from bert_jax.labels.records import Row
from bert_jax.types import JsonObject, JsonRecord


def is_task(value: JsonRecord) -> bool:
    """Whether an object of JSON is a task with its data and its annotations."""
    annotations = value.get('annotations')
    return (
        isinstance(annotations, list)
        and isinstance(value.get('data'), dict)
        and all(isinstance(one, dict) and 'result' in one for one in annotations)
    )


def rows_of(task: JsonObject) -> Iterator[Row]:
    """Yield a row for each annotation that was not cancelled, or one if there is none.

    It has the keys of the task, those of its data, and a key for each control tag: a list of spans
    ({"start", "end", "text", "labels"}), or a choice, a text or a number; a list if there are
    several.
    """
    shared = task | task['data']
    accepted = [one for one in task['annotations'] if not one.get('was_cancelled')]
    for annotation in accepted or [{'result': []}]:
        yield Row(shared | _by_control_tag(annotation['result'] or []))


def _by_control_tag(results: list[Any]) -> JsonRecord:
    """The values of an annotation by control tag; relations between spans have none."""
    values: dict[str, list[Any]] = {}
    spans: set[str] = set()
    for result in results:
        name, value = result.get('from_name'), result.get('value')
        if name is None or not isinstance(value, dict):
            continue
        given = value.get(result.get('type'))
        if 'start' in value and 'end' in value:
            spans.add(name)
            given = value
        values.setdefault(name, []).extend(given if isinstance(given, list) else [given])
    return {
        name: found if name in spans or len(found) != 1 else found[0]
        for name, found in values.items()
    }
