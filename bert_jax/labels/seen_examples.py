"""Which examples a model was trained on: hashes of their texts, kept in the folder of a run."""

import pathlib
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.labels.examples import Example
from bert_jax.labels.splitting import text_name
from bert_jax.storage import paths

_FILE = 'train_examples.npy'


def hashes(examples: Sequence[Example]) -> np.ndarray:
    """Return the hash of the texts of each example, uint64 [N]; see `splitting.text_name`."""
    return np.array([int(text_name([example])) for example in examples], np.uint64)


def save(train: Sequence[Example], folder: pathlib.Path) -> None:
    """Write the hashes of the train split into the folder of a run."""
    np.save(folder / _FILE, np.unique(hashes(train)))


def count(model: str, examples: Sequence[Example]) -> int | None:
    """Return how many examples a model was trained on, or None if its folder does not say.

    Args:
        model: folder of a run, or one of its checkpoints.
        examples: the examples to look for.
    """
    folder = paths.bring(model)
    for place in (folder, folder.parent.parent):
        if (place / _FILE).is_file():
            path = paths.fetch(place / _FILE)
            try:  # a memory map compares the shape with the size of the file
                trained_N = np.load(path, mmap_mode='r', allow_pickle=False)
            except (ValueError, EOFError, OSError) as error:
                raise UserError(f'{path} is damaged; remove it: {error}') from None
            return int(np.isin(hashes(examples), trained_N).sum())
    return None
