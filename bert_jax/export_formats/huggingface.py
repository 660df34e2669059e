"""Hugging Face folders with samples and a loader that runs them with transformers."""

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import files
from bert_jax.export_formats import computation, folder, samples
from bert_jax.export_formats.base import Export
from bert_jax.interop import huggingface_export
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.storage.path import Path
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout

_RUNTIME = ('torch', 'transformers>=5')


class WrittenHuggingFace(NamedTuple):
    """A written Hugging Face folder.

    Attributes:
        model: the model as transformers reads it.
        report: how the model was checked.
        lines: a line for everything that was dropped or newly initialized.
    """

    model: LoadedModel
    report: str
    lines: list[str]


def write(model: LoadedModel, path: Path, overwrite: bool = False) -> WrittenHuggingFace:
    """Write a folder for from_pretrained and, for a model with a tokenizer, a loader with samples.

    The loader is run if transformers and torch are installed. With `overwrite`, a folder at `path`
    is replaced.

    Raises:
        UserError: as in `interop.huggingface_export.save`, or transformers computes other values.
    """
    with files.new_folder(path, overwrite=overwrite) as new_folder:
        published, lines = huggingface_export.write(model, new_folder)
        report = 'logits compared'
        if published.tokenizer is not None:
            folder.write_loader(_export(published), 'huggingface', _RUNTIME, new_folder, {})
            if can_run_loader():
                report = folder.run_loader(new_folder)
    return WrittenHuggingFace(published, report, lines)


def can_run_loader() -> bool:
    """Whether the packages of the loader are installed."""
    return all(importlib.util.find_spec(name) for name in ('torch', 'transformers'))


def _export(model: LoadedModel) -> Export:
    assert model.tokenizer is not None
    architecture = model.architecture
    layout = SpecialTokenLayout(
        model.tokenizer, architecture.max_length, architecture.type_vocab_size
    )
    rows = samples.rows_of_texts(layout)
    computed = computation.of_published_class(model)

    def inputs_of(texts: Sequence[str]) -> dict[str, np.ndarray]:
        batch = samples.rows_of_texts(layout, texts=texts).batch
        return {name: np.asarray(batch[name], np.int32) for name in computed.inputs}

    inputs = inputs_of(samples.TEXTS)
    outputs = jax.device_get(jax.jit(computed.function)(computed.params, inputs))
    expected = {
        name: samples.at_tokens(array, inputs) if name in computed.per_token else array
        for name, array in outputs.items()
    }
    task, length = ', '.join(model.heads) or 'states', architecture.max_length
    return Export(model, task, computed, inputs, expected, rows.texts, length, '', inputs_of)
