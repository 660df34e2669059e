"""Reads one checkpoint, for use outside of training."""

import os
import pathlib
from collections.abc import Callable

import jax
import numpy as np
from flax import traverse_util

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_files
from bert_jax.loaded.checkpoint_files import Restored
from bert_jax.storage import paths
from bert_jax.storage.names import is_number


def load_params(
    path: str | os.PathLike[str], check: Callable[[pathlib.Path], None] | None = None
) -> Restored:
    """Load the parameters of one checkpoint: their moving average if there is one.

    Args:
        path: see `checkpoint_files.find`.
        check: refuses the folder of a checkpoint before its arrays are read.

    Returns:
        The step, the parameters as nested dicts of NumPy arrays, and the metadata.

    Raises:
        UserError: as for `load`.
    """
    restored = load(path, 'params', 'average', check=check)
    params, average = (restored.state.get(part, {}) for part in ('params', 'average'))
    averaged = {**tree_paths.flatten(params), **tree_paths.flatten(average)}
    return restored._replace(state=traverse_util.unflatten_dict(averaged, sep='/'))


def load_mean_params(
    path: str | os.PathLike[str],
    number: int,
    check: Callable[[pathlib.Path], None] | None = None,
) -> Restored:
    """Load the mean of the parameters of the newest checkpoints of a run.

    Sums are in float64. The step and the metadata are those of the newest.

    Args:
        path: a run, or its folder of checkpoints.
        number: of checkpoints.
        check: see `load_params`.

    Raises:
        UserError: the run has fewer undamaged checkpoints, or as for `load`.
    """
    run = paths.path(path).absolute()
    folders = [folder for folder in (run, run / 'checkpoints') if checkpoint_files.steps(folder)]
    steps = checkpoint_files.steps(folders[0]) if folders else []
    if len(steps) < number:
        raise UserError(
            f'{path} has {len(steps)} checkpoints, too few for the mean of {number}; train with '
            f'--config.checkpoint.keep={number}'
        )
    newest, *others = (load_params(folders[0] / str(step), check) for step in steps[:number])
    total = jax.tree.map(np.float64, newest.state)
    for restored in others:
        total = jax.tree.map(np.add, total, restored.state)
    mean = jax.tree.map(lambda leaf: (leaf / number).astype(np.float32), total)
    return newest._replace(state=mean)


def load(
    path: str | os.PathLike[str],
    *prefixes: str,
    check: Callable[[pathlib.Path], None] | None = None,
) -> Restored:
    """Load one checkpoint as nested dicts of NumPy arrays, for use outside of training.

    Args:
        path: see `checkpoint_files.find`.
        prefixes: names of the subtrees to read, such as 'params/encoder'; by default everything.
        check: see `load_params`.

    Raises:
        UserError: there is no checkpoint, all of them are damaged, or nothing has one of these
            prefixes.
    """
    folder = checkpoint_files.find(paths.path(path).absolute())
    if check is not None:
        check(folder)
    stored = checkpoint_files.read_description(folder)
    starts = tuple(f'{prefix}/' for prefix in prefixes) or ('',)
    wanted = {name: 0 for name in stored if f'{name}/'.startswith(starts)}
    if not wanted:
        missing = ' or '.join(map(repr, prefixes))
        raise UserError(f'{folder} has no arrays below {missing}; it has {", ".join(stored)}')
    args = checkpoint_files.orbax().RestoreArgs(restore_type=np.ndarray)
    arrays = checkpoint_files.read_arrays(folder, wanted, lambda _: args)
    tree = traverse_util.unflatten_dict(arrays, sep='/')
    return Restored(_stored_step(folder), tree, checkpoint_files.read_metadata(folder))


def _stored_step(folder: pathlib.Path) -> int:
    """Return the step of a checkpoint, whose folder may be a copy under any name."""
    if is_number(folder.name):
        return int(folder.name)
    args = checkpoint_files.orbax().RestoreArgs(restore_type=np.ndarray)
    return int(checkpoint_files.read_arrays(folder, {'step': 0}, lambda _: args)['step'])
