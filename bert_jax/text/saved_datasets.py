"""Folders that save_to_disk of `datasets` writes: the JSON files that list splits and files."""

from typing import Any, NamedTuple

from bert_jax import files, schema
from bert_jax.storage import names
from bert_jax.storage.path import Path

SPLITS, STATE = 'dataset_dict.json', 'state.json'


class State(NamedTuple):
    """What the folder of a split says.

    Attributes:
        split: name of the split; None if it has none.
        files: the Arrow files.
    """

    split: str | None
    files: tuple[str, ...]


def splits(folder: Path) -> tuple[str, ...] | None:
    """Return the names of the splits of a folder; None if it is not one of several splits.

    Raises:
        UserError: The file that lists them is not valid.
    """
    path = folder / SPLITS
    if not path.is_file():
        return None
    listed = schema.convert(tuple[str, ...], files.read_json(path).get('splits', []), path)
    return tuple(names.check(name, path) for name in listed)


def state(folder: Path) -> State | None:
    """Return what the folder of a split says; None if it is not one.

    Raises:
        UserError: The file that says so is not valid.
    """
    path = folder / STATE
    if not path.is_file():
        return None
    fields = files.read_json(path)
    listed = schema.convert(tuple[dict[str, Any], ...], fields.get('_data_files', []), path)
    split = schema.convert(str | None, fields.get('_split'), f'{path}: _split')
    found = (names.check(file.get('filename'), path) for file in listed)
    return State(split, tuple(str(folder / name) for name in found))
