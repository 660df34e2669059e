"""Loads models from runs, checkpoints, Hugging Face folders and original BERT folders."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util

from bert_jax import objectives, tree_paths
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.interop import (
    conversion,
    families,
    huggingface,
    peft_folder,
    pretrained,
    tuned,
    weights,
)
from bert_jax.interop.pretrained import HEADS, Pretrained
from bert_jax.models import tuning
from bert_jax.models.architecture import Architecture
from bert_jax.models.parameters import unstack_layers
from bert_jax.objectives.generator import DELTAS, SHARING, GeneratorOptions, generator_architecture
from bert_jax.storage import paths
from bert_jax.training import checkpoint_files, checkpoints
from bert_jax.types import Params

_TF1_CONFIG, _TF1_CHECKPOINT = 'bert_config.json', 'bert_model.ckpt'


def load_any(
    path: str | pathlib.Path, heads: Iterable[str] = (), allow_missing: Iterable[str] = ()
) -> Pretrained:
    """Load the model at a path.

    Args:
        path: a run's folder, one of its checkpoints, a Hugging Face folder, a folder of peft, or a
            folder with the bert_model.ckpt of google-research/bert.
        heads, allow_missing: see `huggingface.load`.

    Raises:
        UserError: the path does not hold a model, or the model is damaged or not supported.
    """
    folder = paths.path(path)
    if not folder.is_dir():
        raise UserError(f'{folder} is not a folder of a model')
    # The folder of a run has a config.json too, next to its checkpoints.
    has_checkpoints = (folder / 'checkpoints').is_dir()
    runs = sorted(checkpoint.parent.name for checkpoint in folder.glob('*/checkpoints'))
    if not has_checkpoints and not runs and not checkpoint_files.steps(folder):
        folder = paths.fetch(folder)
    if peft_folder.is_folder(folder):
        base = load_any(peft_folder.base_path(folder), (), ('^encoder/pooler/',))
        return peft_folder.read(folder, base)
    names = ('config.json', 'modules.json')
    if any((folder / name).is_file() for name in names) and not has_checkpoints:
        return huggingface.load(folder, heads, allow_missing)
    if (folder / _TF1_CONFIG).is_file():
        return _load_tf1(folder, heads, allow_missing)
    if runs and not has_checkpoints:
        raise UserError(f'{folder} holds {_describe_runs(folder, runs)}')
    return load_checkpoint(folder, heads, allow_missing)


def _describe_runs(folder: pathlib.Path, runs: list[str]) -> str:
    """The runs of a sweep for an error message, and the best of them once all are finished."""
    results = folder / 'results.json'
    if results.is_file():
        found = json.loads(results.read_text(encoding='utf-8'))
        if found.get('best_run') in runs:
            best = folder / found['best_run']
            return f'{len(runs)} runs; the best by {found["metric"]} is {best}: choose that folder'
    return f'several runs; choose one of them: {", ".join(runs)}'


def load_checkpoint(
    path: str | pathlib.Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    generator: bool = False,
) -> Pretrained:
    """Load a checkpoint of bert_jax, or the best one of a run (the newest if none is best).

    Args:
        heads, allow_missing: see `huggingface.load`.
        generator: load the generator of replaced-token detection instead of the discriminator.
    """
    restored = checkpoints.load(path, 'params')
    metadata = restored.metadata
    fields = dict(metadata['architecture'])
    method = fields.pop('tuning', None)
    architecture = Architecture.from_json(fields)
    params = _unstacked(restored.state['params'])
    if method is not None:
        architecture = dataclasses.replace(architecture, tuning=tuning.from_json(method))
    if metadata.get('base'):
        arrays = {**find_base(metadata['base'], path), **tree_paths.flatten(params)}
        params = traverse_util.unflatten_dict(arrays, sep='/')
    if generator:
        architecture, params = _generator(architecture, metadata['config']['rtd'], params)
    other_parts = {part: params[part] for part in sorted(params.keys() - {'encoder', *HEADS})}
    params = _discriminator(params)
    params = {part: leaves for part, leaves in params.items() if part not in other_parts}
    found = tree_paths.flatten(params)
    heads = tuple(name for name in HEADS if name in {*heads, *params})
    num_labels = pretrained.num_labels(params)
    boxed = pretrained.abstract(architecture, heads, num_labels)
    expected = tree_paths.flatten(boxed, pretrained.is_boxed)
    left_over = sorted(found.keys() - expected.keys())
    if left_over:
        raise UserError(f'{path}: no place for {pretrained.enumerate_names(left_over)}')
    missing = {name: name for name in expected if name not in found}
    pretrained.check_missing(missing, allow_missing, path)
    params, new = pretrained.fill(found, architecture, heads, num_labels)
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
        is_causal=objectives.is_causal(metadata.get('config', {}).get('objectives', {})),
    )


@functools.lru_cache(maxsize=1)  # several tuned models in a process share the arrays of their base
def _load_base(path: str, sha256: str) -> dict[str, Any]:
    """The arrays of the encoder that was tuned, on the device, by name from 'encoder' on.

    Raises:
        UserError: the model at `path` is another one.
    """
    encoder = load_any(path, allow_missing=('^encoder/pooler/',)).params['encoder']
    found = tuned.digest(encoder)
    if found != sha256:
        raise UserError(
            f'{path} is not the model that was tuned: its sha256 is {found[:12]}…, not '
            f'{sha256[:12]}…; restore that model there'
        )
    return jax.tree.map(jnp.asarray, tree_paths.flatten({'encoder': encoder}))


def find_base(base: Mapping[str, str], checkpoint: str | pathlib.Path) -> dict[str, Any]:
    """`_load_base` of what `tuned.describe_base` returned, for `checkpoint`."""
    for path in (base['path'], base['absolute_path']):
        if paths.path(path).is_dir():
            return _load_base(path, base['sha256'])
    raise UserError(
        f'{checkpoint} holds only what tuning added to {base["path"]}, which is not there; restore '
        f'that folder (or a link to it) as {base["absolute_path"]}'
    )


def _unstacked(params: Params) -> dict[str, Any]:
    """Parameters whose encoder has separate layers."""
    if 'layers' not in params.get('encoder', {}):
        return dict(params)
    return {**params, 'encoder': unstack_layers(params['encoder'])}


def _card(run: pathlib.Path) -> str:
    """The card of a finished run; '' for one of its checkpoints, which it may not describe."""
    path = run / 'README.md'
    return path.read_text(encoding='utf-8') if path.is_file() else ''


def _load_tf1(
    folder: pathlib.Path, heads: Iterable[str], allow_missing: Iterable[str]
) -> Pretrained:
    """Load a folder of google-research/bert: bert_config.json, bert_model.ckpt.*, vocab.txt.

    'gelu' is read as the exact GELU, as transformers runs these weights.
    """
    family = families.by_model_type('bert')
    try:
        config = json.loads((folder / _TF1_CONFIG).read_text(encoding='utf-8'))
        architecture = family.read_config(config)
    except (ValueError, UserError) as error:
        raise UserError(f'{folder / _TF1_CONFIG}: {error}') from None
    tokenizer = huggingface.load_tokenizer(folder, architecture)
    state = weights.read_tf1(folder / _TF1_CHECKPOINT)
    params, new = conversion.from_state_dict(
        family, architecture, state, folder, heads, allow_missing
    )
    return Pretrained('bert', architecture, params, tokenizer, newly_initialized=new)


def _discriminator(params: Params) -> dict[str, Any]:
    """Parameters without the generator, with the token embeddings that the discriminator reads.

    Separated embeddings are the generator's plus a learned difference.
    """
    kept = {part: leaves for part, leaves in params.items() if part != 'generator'}
    embeddings = dict(params['encoder']['embeddings'])
    for part, delta in DELTAS.items():
        if delta in params.get('generator', {}):
            embeddings[part] = embeddings[part] + params['generator'][delta]
    return kept | {'encoder': params['encoder'] | {'embeddings': embeddings}}


def _generator(
    architecture: Architecture, generation: Mapping[str, Any], params: Params
) -> tuple[Architecture, dict[str, Any]]:
    """Architecture and parameters of the generator, an encoder with the head `mlm`.

    Args:
        generation: `rtd` of the run's config.
    """
    if 'generator' not in params:
        raise UserError('the checkpoint has no generator: the model was not trained with rtd')
    own, options = params['generator'], GeneratorOptions(**generation)
    names = SHARING[options.sharing].shared
    shared = {name: p for name, p in params['encoder']['embeddings'].items() if name in names}
    encoder = own['encoder'] | {'embeddings': own['encoder'].get('embeddings', {}) | shared}
    smaller = generator_architecture(architecture, options)
    return smaller, {'encoder': encoder, 'mlm': {'head': own['head']}}
