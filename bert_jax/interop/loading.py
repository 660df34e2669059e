"""Loads models by path: our own runs, and the folders of other libraries."""

import functools
from collections.abc import Iterable
from typing import Any

from bert_jax import lazy_table
from bert_jax.errors import UserError
from bert_jax.interop.readers import READERS, Reader
from bert_jax.loaded import checkpoint_files, run
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Base
from bert_jax.storage import paths, wrong_paths
from bert_jax.storage.path import Path
from bert_jax.types import Tree

_WEIGHT_FILES = 'bert_jax.interop.weights:FILES'
_WITHOUT_POOLER = ('^encoder/pooler/',)


def load_any(
    path: str | Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    base_of: str | Path | None = None,
    leave_out: str = '',
) -> LoadedModel:
    """Load the model at a path.

    Args:
        path: folder of a run, one of its checkpoints, a folder that one of READERS holds or one of
            the checkpoints in it, or a name of the Hugging Face Hub (storage/hub.py).
        heads, allow_missing: see `huggingface.load`.
        base_of: the tuned model that names this model as its base, which must not be tuned itself.
        leave_out: weights of a Hugging Face folder to leave out (see `huggingface.load`).

    Raises:
        UserError: the path does not hold a model, or the model is damaged or not supported.
    """
    folder = paths.bring(wrong_paths.model_name(path))
    for reader in READERS.values():
        if reader.is_checkpoint(folder):
            parent = paths.fetch(folder.parent)
            return _read(reader, parent, heads, allow_missing, base_of, checkpoint=folder.name)
    run.check_exists(folder)
    # A run has both config.json and checkpoints; a Hugging Face folder has no checkpoints.
    has_checkpoints = (folder / 'checkpoints').is_dir()
    runs = sorted(checkpoint.parent.name for checkpoint in folder.glob('*/checkpoints'))
    is_run = has_checkpoints or runs or checkpoint_files.steps(folder)
    copy = paths.local(folder) if is_run else paths.fetch(folder)
    found = [one for one in READERS.values() if one.holds(copy)]
    if has_checkpoints:
        found = [one for one in found if not one.is_like_run]
    is_of_others = bool(found) and not found[0].is_like_run
    if checkpoint_files.is_run(folder) and not (is_of_others or has_checkpoints or runs):
        raise UserError(f'{folder} is a run without a checkpoint: rerun its command to train it')
    if leave_out and not (found and found[0].can_leave_out):
        raise UserError(f'{folder} is not a Hugging Face folder: no weights can be left out')
    if found:
        options = {'leave_out': leave_out} if leave_out else {}
        return _read(found[0], copy, heads, allow_missing, base_of, **options)
    if runs and not has_checkpoints:
        raise UserError(f'{folder} holds {run.describe_runs(folder, runs)}')
    if not has_checkpoints and not checkpoint_files.steps(folder):
        _check_not_a_part(folder)
    return load_checkpoint(folder, heads, allow_missing, base_of=base_of)


def load_checkpoint(
    path: str | Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    generator: bool = False,
    base_of: str | Path | None = None,
    average: int = 0,
) -> LoadedModel:
    """Load a checkpoint of bert_jax; of a run, the best checkpoint or else the newest.

    Args:
        heads, allow_missing, base_of: see `load_any`.
        generator: load the generator of replaced-token detection instead of the discriminator.
        average: load the mean of so many of the newest checkpoints of a run; 0: one checkpoint.
    """
    return run.load(
        path,
        heads,
        allow_missing,
        load_base=load_base,
        base_of=base_of,
        generator=generator,
        average=average,
    )


def load_base(path: str | Path, tuned: str | Path) -> LoadedModel:
    """Load the model at a path that the tuned model at another path names as its base."""
    return load_any(path, allow_missing=_WITHOUT_POOLER, base_of=tuned)


def find_base(base: Base, checkpoint: str | Path) -> dict[str, Tree]:
    """Load the frozen arrays of the base model of a checkpoint; see `run.find_base`."""
    return run.find_base(base, checkpoint, load_base)


def _read(
    reader: Reader,
    folder: Path,
    heads: Iterable[str],
    allow_missing: Iterable[str],
    base_of: str | Path | None,
    **options: Any,
) -> LoadedModel:
    """Read a folder on this machine."""
    if reader.needs_base:
        if base_of is not None:
            raise run.tuned_base(folder, base_of)
        options['load_base'] = functools.partial(load_base, tuned=folder)
    model: LoadedModel = lazy_table.load(reader.load)(folder, heads, allow_missing, **options)
    return model


def _check_not_a_part(folder: Path) -> None:
    """Raise UserError for a folder with a part of a model, of another kind, or with models."""
    found = [name for name in lazy_table.load(_WEIGHT_FILES) if (folder / name).is_file()]
    if found:
        raise UserError(f'{folder} has {found[0]}, but no config.json')
    if kind := wrong_paths.describe(folder):
        raise UserError(f'{folder} is {kind}, which has no model; name a run or a model')
    indices = sorted(path.name for path in folder.glob('*.index'))
    if indices:
        raise UserError(
            f'{folder} has {indices[0]}, but no bert_config.json; of the checkpoints of '
            'TensorFlow, only those of google-research/bert are supported'
        )
    inside = {path.parent.name for path in folder.glob('*/*config.json')}
    if inside:
        raise UserError(
            f'{folder} has no model, but has folders with one: {", ".join(sorted(inside))}'
        )
