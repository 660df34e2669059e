"""Reads rows of Parquet and Arrow files, also those that the library `datasets` saves."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ml_collections import ConfigDict

from bert_jax import files
from bert_jax.errors import UserError
from bert_jax.labels.records import InvalidRecord, Record, Row, make_record
from bert_jax.storage import paths
from bert_jax.storage.path import BucketError
from bert_jax.text import arrow_tables, saved_datasets

Arrow: TypeAlias = Any  # an object of pyarrow, which ships no types

_INFO = 'dataset_info.json'


def read_rows(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the rows of a Parquet or Arrow file; the line number of a place is that of the row.

    Numbers of a ClassLabel of `datasets`, also in lists and objects, become the names of its
    classes; −1, an unknown class, stays a number (`ExampleBuilder.is_unknown`).

    Raises:
        UserError: the file is not a Parquet or Arrow file, or is damaged.
    """
    import pyarrow  # takes 0.1 s

    try:
        with paths.open_arrow(path) as file:
            schema, batches = arrow_tables.open_table(file)
            features = declared_features(schema)
            if not features:
                info = files.read_json(paths.path(path).with_name(_INFO), default={})
                features = features_of(info)
            rows = (values for batch, _ in batches for values in rows_of(batch))
            for number, values in enumerate(rows, start=1):
                yield make_record(path, number, _row(values, features))
    except BucketError:  # not the fault of the file
        raise
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f'cannot read {path} as Parquet or Arrow: {error}') from error


def saved_files(folder: str) -> list[str]:
    """Return the Arrow files of a folder that save_to_disk of `datasets` wrote; [] for others.

    Raises:
        UserError: the folder holds several splits.
    """
    path = paths.bring(folder)
    splits = saved_datasets.splits(path)
    if splits is not None:
        if len(splits) != 1:
            shown = ', '.join(f'{folder.rstrip("/")}/{split}' for split in splits)
            raise UserError(f'{folder!r} is a dataset of several splits; name one: {shown}')
        path /= splits[0]
    state = saved_datasets.state(path)
    return [] if state is None else [*state.files]


def rows_of(batch: Arrow) -> list[dict[str, Any]]:
    """Return the rows of a batch. Maps become objects; a key that a map repeats is an error."""
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts='strict')
    return rows


def declared_features(schema: Arrow) -> Mapping[str, Any]:
    """Return the features of `datasets` by column, as JSON, that a schema declares; {} if none."""
    try:
        return features_of(json.loads((schema.metadata or {}).get(b'huggingface', b'{}'))['info'])
    except (ValueError, KeyError, TypeError):
        return {}


def features_of(info: object) -> Mapping[str, Any]:
    """Return the features of `datasets` by column that a dataset_info.json has; {} if none."""
    features = info.get('features') if isinstance(info, dict) else None
    return features if isinstance(features, dict) else {}


def _row(values: Mapping[str, object], features: Mapping[str, Any]) -> Row | InvalidRecord:
    try:
        return Row(
            {
                name: with_class_names(_as_json(value), features.get(name))
                for name, value in values.items()
            }
        )
    except InvalidRecord as error:
        return error


def with_class_names(value: Any, feature: Any) -> Any:
    """Return a value of JSON with the names of classes instead of their numbers.

    Args:
        value: the value of a column.
        feature: the feature of `datasets` of the column, as JSON; None if it is not known.

    Raises:
        InvalidRecord: a number that is not one of a class.
    """
    if isinstance(feature, list) and feature:  # a list, as older versions write it
        feature = {'feature': feature[0]}
    if value is None or not isinstance(feature, dict):
        return value
    if feature.get('_type') == 'ClassLabel':
        classes = feature.get('names')
        classes = classes if isinstance(classes, list) else []
        if not isinstance(value, int) or value < 0:
            return value
        if value >= len(classes):
            raise InvalidRecord(f'class {value} of {len(classes)} classes')
        return str(classes[value])
    inner = feature.get('feature', feature)
    if not isinstance(inner, dict | list):  # not one of `datasets`
        return value
    if isinstance(value, list):
        return [with_class_names(item, inner) for item in value]
    if isinstance(value, dict) and isinstance(inner, dict):
        is_list_of_objects = inner is not feature  # stored as an object of lists
        return {
            key: [with_class_names(one, inner.get(key)) for one in item]
            if is_list_of_objects and isinstance(item, list)
            else with_class_names(item, inner.get(key))
            for key, item in value.items()
        }
    return value


def _as_json(value: object) -> object:
    """Return a value as JSON has it.

    Missing numbers are None, dates and decimals are strings; bytes are text without a declared
    encoding, as many programs write it.
    """
    if isinstance(value, bytes):
        return value.decode('utf-8', 'surrogateescape')
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(_as_json(key)): _as_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    is_json = value is None or isinstance(value, str | bool | int | float)
    return value if is_json else str(value)
