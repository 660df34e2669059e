"""Reads rows of Parquet files."""

import math
from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels.records import Record, Row, make_record
from bert_jax.storage import paths
from bert_jax.storage.path import BucketError


def read_parquet(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the rows of a Parquet file; the line number of a place is the number of the row.

    Raises:
        UserError: the file is not a Parquet file, or is damaged.
    """
    import pyarrow  # takes 0.1 s
    from pyarrow import parquet

    try:
        with paths.open_arrow(path) as file:
            batches = parquet.ParquetFile(file).iter_batches(use_threads=False)
            rows = (values for batch in batches for values in batch.to_pylist())
            for number, values in enumerate(rows, start=1):
                row = Row({name: _as_json(value) for name, value in values.items()})
                yield make_record(path, number, row)
    except BucketError:  # not the fault of the file
        raise
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f'cannot read {path} as Parquet: {error}') from error


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
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    is_json = value is None or isinstance(value, str | bool | int | float)
    return value if is_json else str(value)
