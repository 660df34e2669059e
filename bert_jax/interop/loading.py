"""One function for every kind of model that can be had from a path."""

import pathlib
from collections.abc import Iterable

import numpy as np

from bert_jax import tree_paths
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.interop import bert_tf1, huggingface, pretrained, replaced_tokens
from bert_jax.interop.pretrained import HEADS, Pretrained
from bert_jax.models.architecture import Architecture
from bert_jax.models.parameters import unstack_layers
from bert_jax.training import checkpoints


def load_any(
    path: str | pathlib.Path, heads: Iterable[str] = (), allow_missing: Iterable[str] = ()
) -> Pretrained:
    """The model at a path: a run's folder, one of its checkpoints, a Hugging Face folder or a
    folder with google-research/bert's bert_model.ckpt.

    heads, allow_missing: see `huggingface.load`. Raises UserError if there is none, or for what is
    wrong with it.
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise UserError(f'{folder} is no folder of a model')
    if _is_hugging_face(folder):
        return huggingface.load(folder, heads, allow_missing)
    if (folder / bert_tf1.CONFIG).is_file():
        return bert_tf1.load(folder, heads, allow_missing)
    return load_checkpoint(folder, heads, allow_missing)


def load_checkpoint(
    path: str | pathlib.Path,
    heads: Iterable[str] = (),
    allow_missing: Iterable[str] = (),
    generator: bool = False,
) -> Pretrained:
    """The model of a checkpoint of our own, or of the newest good one of a run.

    heads, allow_missing: see `huggingface.load`. generator: that of replaced-token detection, and
    not the discriminator.
    """
    restored = checkpoints.load(path, 'params')
    metadata = restored.metadata
    tokenizer = Tokenizer.from_json(metadata['tokenizer'])
    architecture = architecture_from(metadata['architecture'])
    params = dict(restored.state['params'])
    if generator:
        sizes = metadata['config']['rtd']
        architecture, params = replaced_tokens.generator(architecture, sizes, params)
    others = sorted(params.keys() - {'encoder', *HEADS})
    params = replaced_tokens.discriminator(params)
    params = {part: leaves for part, leaves in params.items() if part not in others}
    if 'layers' in params['encoder']:
        params['encoder'] = unstack_layers(params['encoder'])

    found = {name: np.asarray(leaf) for name, leaf in tree_paths.flatten(params).items()}
    heads = tuple(name for name in HEADS if name in {*heads, *params})
    num_labels = pretrained.num_labels(params)
    boxed = pretrained.abstract(architecture, heads, num_labels)
    expected = tree_paths.flatten(boxed, pretrained.is_boxed)
    left_over = sorted(found.keys() - expected.keys())
    if left_over:
        raise UserError(f'{path}: there is no place for {pretrained.some(left_over)}')
    missing = {name: name for name in expected if name not in found}
    pretrained.check_missing(missing, allow_missing, path)
    params, fresh = pretrained.fill(found, architecture, heads, num_labels)
    about = {'step': restored.step, **metadata}
    return Pretrained(
        metadata['family'],
        architecture,
        params,
        tokenizer,
        tuple(metadata.get('labels', ())),
        fresh,
        tuple(others),
        about,
    )


def architecture_from(fields: dict) -> Architecture:
    """From what a checkpoint's metadata say; JSON has no tuples."""
    return Architecture(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
    )


def _is_hugging_face(folder: pathlib.Path) -> bool:
    """A run's folder has a config.json too, and its checkpoints beside it."""
    return (folder / 'config.json').is_file() and not (folder / 'checkpoints').is_dir()
