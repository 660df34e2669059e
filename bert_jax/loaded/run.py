"""Loads a model from a run of this project or from one of its checkpoints."""

import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
from flax import traverse_util

from bert_jax import files, lazy_table, schema, tree_paths
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays, checkpoint_files, loaded_model, tuned
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Base, RunRecord
from bert_jax.models.architecture import Architecture
from bert_jax.models.heads import published_heads
from bert_jax.models.parameters import unstack_layers
from bert_jax.storage import paths, trust, wrong_paths
from bert_jax.storage.path import Path
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Params, Tree

# Loads the model at a path, which the tuned model at another path names as its base.
BaseLoader: TypeAlias = Callable[[str, str | Path], LoadedModel]
_STACKS = ('encoder', 'decoder')
_STACKED = re.compile('^(encoder|decoder)/layers/')
# Only models of replaced-token detection and of vectors need these.
_GENERATOR = 'bert_jax.objectives.generator'
_MODULES_OF_RUN = 'bert_jax.loaded.sentence_modules:of_run'
_OF_VECTORS = ('embedding', 'sparse_embedding', 'late_interaction')


def load(
    path: str | Path,
    heads: Iterable[str],
    allow_missing: Iterable[str],
    *,
    load_base: BaseLoader,
    base_of: str | Path | None = None,
    generator: bool = False,
    average: int = 0,
) -> LoadedModel:
    """Load a checkpoint; of a run, the best checkpoint or else the newest.

    Args:
        heads: names of published heads; those that the checkpoint lacks are newly initialized.
        allow_missing: regular expressions for the names of parameters that may be missing.
        load_base: loads the model that a tuned model was tuned from.
        base_of: the tuned model that names this one as its base, which must not be tuned itself.
        generator: load the generator of replaced-token detection instead of the discriminator.
        average: load the mean of so many of the newest checkpoints of a run; 0: one checkpoint.

    Raises:
        UserError: there is no checkpoint, it is damaged or lacks parameters, or its base model is
            missing or another one.
    """
    check_exists(paths.path(path))
    if average:
        restored = checkpoint_arrays.load_mean_params(path, average, _check_shapes)
    else:
        restored = checkpoint_arrays.load_params(path, _check_shapes)
    record = RunRecord.from_json(restored.metadata, f'{path}: metadata.json')
    architecture, params = record.architecture, _unstacked(restored.state)
    if record.base is not None:
        if base_of is not None:
            raise tuned_base(paths.path(path), base_of)
        arrays = {**find_base(record.base, path, load_base), **tree_paths.flatten(params)}
        params = traverse_util.unflatten_dict(arrays, sep='/')
    if generator:
        architecture, params = _generator(record, params)
    other_parts = {part: params[part] for part in sorted(params) if not loaded_model.is_part(part)}
    if 'generator' in params:
        params = lazy_table.load(f'{_GENERATOR}:deployed')(params)
    params = {part: leaves for part, leaves in params.items() if part not in other_parts}
    params, new = _complete(params, architecture, heads, allow_missing, path)
    modules = None
    if record.task in _OF_VECTORS:
        modules = lazy_table.load(_MODULES_OF_RUN)(record, other_parts)
    return LoadedModel(
        record.family,
        architecture,
        params,
        Tokenizer(record.tokenizer),
        record.labels,
        newly_initialized=new,
        other_parts=other_parts,
        usage=record,
        base=record.base,
        step=restored.step,
        card=_card(paths.path(path)),
        problem_type=record.problem_type or None,
        activation_fn=loaded_model.torch_activation(record.kept.get('activation')),
        is_causal=record.is_causal,
        is_generative=record.is_generative,
        writes=record.is_generative,
        sentence_modules=modules,
        learned_end=record.task != 'pretraining' or not record.is_causal,
        has_prefix=record.has_prefix,
    )


def _unstacked(params: Params) -> Params:
    stacks = [part for part in _STACKS if 'layers' in params.get(part, {})]
    return {**params, **{part: unstack_layers(params[part]) for part in stacks}}


def _complete(
    params: Params,
    architecture: Architecture,
    heads: Iterable[str],
    allow_missing: Iterable[str],
    path: str | Path,
) -> tuple[dict[str, Tree], tuple[str, ...]]:
    """Return all parameters of a model with these heads, and the names of those that are new.

    Raises:
        UserError: a parameter has no place, or one is missing that may not be.
    """
    arrays = tree_paths.flatten(params)
    shapes = {name: array.shape for name, array in arrays.items()}
    _check_layers(shapes, architecture, path)
    heads = published_heads({*heads, *params})
    num_labels = _num_labels(shapes)
    expected = loaded_model.abstract_leaves(architecture, heads, num_labels)
    left_over = sorted(arrays.keys() - expected.keys())
    if left_over:
        raise UserError(f'{path}: no place for {loaded_model.enumerate_names(left_over)}')
    missing = {name: name for name in expected if name not in arrays}
    loaded_model.check_missing(missing, allow_missing, path)
    return loaded_model.fill(arrays, architecture, heads, num_labels)


def _generator(record: RunRecord, params: Params) -> tuple[Architecture, Params]:
    """Return the architecture and the parameters of the generator."""
    if 'generator' not in params:
        raise UserError('the checkpoint has no generator: the model was not trained with rtd')
    kind = lazy_table.load(f'{_GENERATOR}:GeneratorOptions')
    options = schema.read(kind, record.section('rtd'), f'{record.source}: config.rtd')
    found: tuple[Architecture, Params]
    found = lazy_table.load(f'{_GENERATOR}:deployed_generator')(
        record.architecture, options, params
    )
    return found


def _check_shapes(folder: pathlib.Path) -> None:
    """Compare the arrays that a checkpoint describes with its architecture, before any is read.

    Raises:
        UserError: the record or the description is not valid, or a shape is another one.
    """
    record = RunRecord.from_json(
        checkpoint_files.read_metadata(folder), checkpoint_files.metadata_path(folder)
    )
    if record.base is not None:  # most arrays are those of the base model
        return
    shapes = {
        name.removeprefix('params/'): shape
        for name, shape in checkpoint_files.shapes(folder).items()
        if name.startswith('params/')
    }
    architecture = record.architecture
    _check_layers(shapes, architecture, folder)
    present = {name.partition('/')[0] for name in shapes}
    heads = published_heads(present)
    expected = loaded_model.abstract_leaves(architecture, heads, _num_labels(shapes))
    for name, shape in shapes.items():
        ours, is_stacked = _STACKED.subn(r'\1/layers_0/', name)
        if ours not in expected:
            continue
        wanted = shape[:1] * is_stacked + expected[ours].value.shape
        if shape != wanted:
            raise UserError(
                f'checkpoint {folder} is damaged: {name} is {[*shape]} in arrays.json, but '
                f'{[*wanted]} by the architecture in metadata.json'
            )


def _num_labels(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the number of classes of the head with classes; 2 without such a head."""
    present = {name.partition('/')[0] for name in shapes}
    heads = loaded_model.label_heads(present)
    outputs = [shapes.get(f'{head}/head/output/kernel', ())[-1:] for head in heads]
    return next((sizes[0] for sizes in outputs if sizes), 2)


def _check_layers(
    shapes: Mapping[str, tuple[int, ...]], architecture: Architecture, source: object
) -> None:
    """Raise UserError unless there are arrays of as many layers as the architecture has.

    A model of a thousand layers is traced for minutes, and a file says so in four characters. A
    kind of encoder that a recipe adds need not have layers.
    """
    stacks = {'encoder': architecture}
    if architecture.decoder is not None:
        stacks['decoder'] = architecture.of_decoder
    for part, one in stacks.items():
        expected = max(one.layer_numbers) + 1
        names = [name for name in shapes if name.startswith(f'{part}/layers')]
        stacked = {shapes[name][:1] for name in names if name.startswith(f'{part}/layers/')}
        separate = len({name.split('/')[1] for name in names})
        found = sum(max(stacked)) if stacked else separate
        if found and found != expected:
            raise UserError(
                f'{source} is damaged: it has arrays of {found:,} layers of the {part}, but its '
                f'architecture has {expected:,}'
            )


def find_base(base: Base, checkpoint: str | Path, load_base: BaseLoader) -> dict[str, Tree]:
    """Load the frozen arrays of the base model that `tuned.describe_base` described.

    Raises:
        UserError: no folder at either path, a path in a bucket that the user did not name, or a
            folder with another model.
    """
    for key in ('path', 'absolute_path'):
        path = getattr(base, key)
        if trust.path_in(paths.path(checkpoint), f'the {key} of its base model', path).is_dir():
            return _load_base(load_base, path, base.parts, base.sha256)
    raise UserError(
        f'{checkpoint} holds only the parameters that tuning added to {base.path}, which does '
        f'not exist; restore that folder (or a link to it) as {base.absolute_path}'
    )


@functools.lru_cache(maxsize=1)  # tuned models in one process share the arrays of their base model
def _load_base(
    load_base: BaseLoader, path: str, parts: tuple[str, ...], sha256: str
) -> dict[str, Tree]:
    """The frozen arrays of a base model, on the device, by name ('encoder/…').

    Raises:
        UserError: the model at `path` has another digest.
    """
    model = load_base(path, path)
    params = {part: model.params[part] for part in parts if part in model.params}
    digest = tuned.digest(params)
    if digest != sha256:
        raise UserError(
            f'{path} is not the model that was tuned: its sha256 is {digest[:12]}…, not '
            f'{sha256[:12]}…; restore the base model there'
        )
    flat: dict[str, Tree] = jax.tree.map(jnp.asarray, tree_paths.flatten(params))
    return flat


def tuned_base(folder: Path, base_of: str | Path) -> UserError:
    """Return the error for a base model that needs another base model, which might be itself."""
    return UserError(
        f'{base_of} was tuned from {folder}, which itself holds only tuned parameters; export that '
        'model with --merge and name the exported folder'
    )


def describe_runs(folder: Path, runs: list[str]) -> str:
    """List the runs of a sweep for an error message, or name the best run once all are finished."""
    results = files.read_json(folder / 'results.json', default={})
    if results.get('best_run') in runs:
        best = folder / results['best_run']
        return (
            f'{len(runs)} runs; the best by {results.get("metric")} is {best}: choose that folder'
        )
    return f'several runs; choose one of them: {", ".join(runs)}'


def check_exists(folder: Path) -> None:
    """Raise UserError unless a path is a folder."""
    if folder.is_dir():
        return
    if folder.exists():
        raise UserError(f'{folder} is a file: models are read from folders, so name its folder')
    if similar := wrong_paths.suggest(folder, is_folder=True):
        raise UserError(f'no folder {str(folder)!r}{similar}')
    raise UserError(
        f'no folder {str(folder)!r}: models are read from folders, or from the Hugging Face Hub '
        'as ORG/NAME; for a machine without a network: `hf download ORG/NAME --local-dir FOLDER`'
    )


def _card(run: Path) -> str:
    """Model card of a finished run; '' for a single checkpoint, which the card may not describe."""
    path = run / 'README.md'
    return files.read_text(path) if path.is_file() else ''
