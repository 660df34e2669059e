"""Loads models from runs, checkpoints, and folders of Hugging Face, original BERT and fairseq."""

import dataclasses
import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from flax import traverse_util

from bert_jax import files, objectives, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import (
    fairseq_folder,
    huggingface,
    peft_folder,
    pretrained,
    sentence_modules,
    tf1_folder,
    tuned,
    weights,
)
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models import tuning
from bert_jax.models.architecture import Architecture
from bert_jax.models.heads import published_heads
from bert_jax.models.parameters import unstack_layers
from bert_jax.objectives.generator import DELTAS, SHARING, GeneratorOptions, generator_architecture
from bert_jax.storage import paths, trust, wrong_paths
from bert_jax.storage.path import Path
from bert_jax.tokenizers import Tokenizer
from bert_jax.training import checkpoint_files, checkpoints, workdir
from bert_jax.types import JsonView, Params, Tree


def load_any(
    path: str | Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    base_of: str | Path | None = None,
    leave_out: str = '',
) -> Pretrained:
    """Load the model at a path.

    Args:
        path: folder of a run, one of its checkpoints, a Hugging Face folder, a folder of peft, a
            folder of google-research/bert or fairseq or one of the checkpoints in it, or a name of
            the Hugging Face Hub (storage/hub.py).
        heads, allow_missing: see `huggingface.load`.
        base_of: the tuned model that names this model as its base, which must not be tuned itself.
        leave_out: weights of a Hugging Face folder to leave out (see `huggingface.load`).

    Raises:
        UserError: the path does not hold a model, or the model is damaged or not supported.
    """
    path = wrong_paths.model_name(path)
    folder = paths.path(path)
    if tf1_folder.is_checkpoint(folder):
        parent = paths.fetch(folder.parent)
        return tf1_folder.load(parent, heads, allow_missing, folder.name)
    if fairseq_folder.is_checkpoint(folder):
        parent = paths.fetch(folder.parent)
        return fairseq_folder.load(parent, heads, allow_missing, folder.name)
    _check_exists(folder)
    # A run has both config.json and checkpoints; a Hugging Face folder has no checkpoints.
    has_checkpoints = (folder / 'checkpoints').is_dir()
    runs = sorted(checkpoint.parent.name for checkpoint in folder.glob('*/checkpoints'))
    is_run = has_checkpoints or runs or checkpoint_files.steps(folder)
    copy = paths.local(folder) if is_run else paths.fetch(folder)
    if peft_folder.is_folder(copy):
        if base_of is not None:
            raise _tuned_base(copy, base_of)
        base = load_any(peft_folder.base_path(copy), (), ('^encoder/pooler/',), copy)
        return peft_folder.read(copy, base)
    if workdir.is_run(folder) and not has_checkpoints and not runs:
        raise UserError(f'{folder} is a run without a checkpoint: rerun its command to train it')
    names = ('config.json', 'modules.json')
    if any((copy / name).is_file() for name in names) and not has_checkpoints:
        return huggingface.load(copy, heads, allow_missing, leave_out)
    if leave_out:
        raise UserError(f'{folder} is not a Hugging Face folder: no weights can be left out')
    if tf1_folder.is_folder(copy):
        return tf1_folder.load(copy, heads, allow_missing)
    if fairseq_folder.checkpoints(copy):
        return fairseq_folder.load(copy, heads, allow_missing)
    if runs and not has_checkpoints:
        raise UserError(f'{folder} holds {_describe_runs(folder, runs)}')
    if not has_checkpoints and not checkpoint_files.steps(folder):
        _check_not_a_part(folder)
    return load_checkpoint(folder, heads, allow_missing, base_of=base_of)


def _check_exists(folder: Path) -> None:
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


def _check_not_a_part(folder: Path) -> None:
    """Raise UserError for a folder with a part of a model, of another kind, or with models."""
    found = [name for name in weights.FILES if (folder / name).is_file()]
    if found:
        raise UserError(f'{folder} has {found[0]}, but no config.json')
    if kind := wrong_paths.describe(folder):
        raise UserError(f'{folder} is {kind}, which has no model; name a run or a model')
    indices = sorted(path.name for path in folder.glob('*.index'))
    if indices:
        raise UserError(
            f'{folder} has {indices[0]}, but no {tf1_folder.CONFIG}; of the checkpoints of '
            'TensorFlow, only those of google-research/bert are supported'
        )
    inside = {path.parent.name for path in folder.glob('*/*config.json')}
    if inside:
        raise UserError(
            f'{folder} has no model, but has folders with one: {", ".join(sorted(inside))}'
        )


def _tuned_base(folder: Path, base_of: str | Path) -> UserError:
    """The error for a base model that needs another base model, which might be itself."""
    return UserError(
        f'{base_of} was tuned from {folder}, which itself holds only tuned parameters; export that '
        'model with --merge and name the exported folder'
    )


def _describe_runs(folder: Path, runs: list[str]) -> str:
    """List the runs of a sweep for an error message, or name the best run once all are finished."""
    results = files.read_json(folder / 'results.json', default={})
    if results.get('best_run') in runs:
        best = folder / results['best_run']
        return f'{len(runs)} runs; the best by {results["metric"]} is {best}: choose that folder'
    return f'several runs; choose one of them: {", ".join(runs)}'


def load_checkpoint(
    path: str | Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    generator: bool = False,
    base_of: str | Path | None = None,
    average: int = 0,
) -> Pretrained:
    """Load a checkpoint of bert_jax; of a run, the best checkpoint or else the newest.

    Args:
        heads, allow_missing, base_of: see `load_any`.
        generator: load the generator of replaced-token detection instead of the discriminator.
        average: load the mean of so many of the newest checkpoints of a run; 0: one checkpoint.
    """
    _check_exists(paths.path(path))
    if average:
        restored = checkpoints.load_mean_params(path, average)
    else:
        restored = checkpoints.load_params(path)
    metadata = restored.metadata
    fields = dict(metadata['architecture'])
    method = fields.pop('tuning', None)
    architecture = Architecture.from_json(fields)
    params: Params = dict(restored.state)
    stacks = [part for part in ('encoder', 'decoder') if 'layers' in params.get(part, {})]
    params = {**params, **{part: unstack_layers(params[part]) for part in stacks}}
    if method is not None:
        architecture = dataclasses.replace(architecture, tuning=tuning.from_json(method))
    if metadata.get('base'):
        if base_of is not None:
            raise _tuned_base(paths.path(path), base_of)
        arrays = {**find_base(metadata['base'], path), **tree_paths.flatten(params)}
        params = traverse_util.unflatten_dict(arrays, sep='/')
    if generator:
        architecture, params = _generator(architecture, metadata['config']['rtd'], params)
    other_parts = {part: params[part] for part in sorted(params) if not pretrained.is_part(part)}
    params = _discriminator(params)
    params = {part: leaves for part, leaves in params.items() if part not in other_parts}
    arrays = tree_paths.flatten(params)
    heads = published_heads({*heads, *params})
    weights = metadata.get('config', {}).get('objectives', {})
    num_labels = pretrained.num_labels(params)
    expected = pretrained.abstract_leaves(architecture, heads, num_labels)
    left_over = sorted(arrays.keys() - expected.keys())
    if left_over:
        raise UserError(f'{path}: no place for {pretrained.enumerate_names(left_over)}')
    missing = {name: name for name in expected if name not in arrays}
    pretrained.check_missing(missing, allow_missing, path)
    params, new = pretrained.fill(arrays, architecture, heads, num_labels)
    return Pretrained(
        metadata['family'],
        architecture,
        params,
        Tokenizer(metadata['tokenizer']),
        tuple(metadata.get('labels', ())),
        newly_initialized=new,
        other_parts=other_parts,
        metadata={'step': restored.step, **metadata},
        card=_card(paths.path(path)),
        problem_type=metadata.get('problem_type') or None,
        activation_fn=pretrained.torch_activation(metadata.get('kept', {}).get('activation')),
        is_causal=metadata['is_causal'],
        is_generative=metadata['is_generative'],
        writes=metadata['is_generative'],
        sentence_modules=sentence_modules.of_run(metadata),
        learned_end=not objectives.is_causal(weights),
        has_prefix=metadata['has_prefix'],
    )


@functools.lru_cache(maxsize=1)  # tuned models in one process share the arrays of their base model
def _load_base(path: str, parts: tuple[str, ...], sha256: str) -> dict[str, Tree]:
    """The frozen arrays of a base model, on the device, by name ('encoder/…').

    Raises:
        UserError: the model at `path` has another digest.
    """
    model = load_any(path, allow_missing=('^encoder/pooler/',), base_of=path)
    params = {part: model.params[part] for part in parts if part in model.params}
    digest = tuned.digest(params)
    if digest != sha256:
        raise UserError(
            f'{path} is not the model that was tuned: its sha256 is {digest[:12]}…, not '
            f'{sha256[:12]}…; restore the base model there'
        )
    flat: dict[str, Tree] = jax.tree.map(jnp.asarray, tree_paths.flatten(params))
    return flat


def find_base(base: JsonView, checkpoint: str | Path) -> dict[str, Tree]:
    """Load the frozen arrays of the base model that `tuned.describe_base` described.

    Raises:
        UserError: no folder at either path, a path in a bucket that the user did not name, or a
            folder with another model.
    """
    for key in ('path', 'absolute_path'):
        path = base[key]
        if trust.path_in(paths.path(checkpoint), f'the {key} of its base model', path).is_dir():
            return _load_base(path, tuple(base['parts']), base['sha256'])
    raise UserError(
        f'{checkpoint} holds only the parameters that tuning added to {base["path"]}, which does '
        f'not exist; restore that folder (or a link to it) as {base["absolute_path"]}'
    )


def _card(run: Path) -> str:
    """Model card of a finished run; '' for a single checkpoint, which the card may not describe."""
    path = run / 'README.md'
    return path.read_text(encoding='utf-8') if path.is_file() else ''


def _discriminator(params: Params) -> dict[str, Tree]:
    """Drop the generator, and compute the token embeddings that the discriminator reads.

    Separated embeddings are the generator's embeddings plus a learned difference.
    """
    embeddings = dict(params['encoder']['embeddings'])
    for part, delta in DELTAS.items():
        if delta in params.get('generator', {}):
            embeddings[part] = embeddings[part] + params['generator'][delta]
    encoder = params['encoder'] | {'embeddings': embeddings}
    parts = {part: leaves for part, leaves in params.items() if part != 'generator'}
    return parts | {'encoder': encoder}


def _generator(
    architecture: Architecture, rtd_config: JsonView, params: Params
) -> tuple[Architecture, dict[str, Tree]]:
    """Architecture and parameters of the generator: an encoder with the head `mlm`."""
    if 'generator' not in params:
        raise UserError('the checkpoint has no generator: the model was not trained with rtd')
    generator, options = params['generator'], GeneratorOptions(**rtd_config)
    embeddings = generator['encoder'].get('embeddings', {}) | {
        name: array
        for name, array in params['encoder']['embeddings'].items()
        if name in SHARING[options.sharing].shared
    }
    encoder = generator['encoder'] | {'embeddings': embeddings}
    return generator_architecture(architecture, options), {
        'encoder': encoder,
        'mlm': {'head': generator['head']},
    }
