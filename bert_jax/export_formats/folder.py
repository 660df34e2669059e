"""The folder of an exported model: tokenizer, samples, loader, and the files of a format."""

import dataclasses
import functools
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import export_formats, files, rounding, tensorflow_import
from bert_jax.errors import UserError, warn
from bert_jax.export_formats import computation, samples
from bert_jax.export_formats.base import NO_OPTIONS, Export, FormatOptions
from bert_jax.export_formats.computation import Computation
from bert_jax.inference import problem_kinds
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface_config
from bert_jax.loaded import tuned
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.sentence_modules import Normalize, SentenceModules
from bert_jax.storage.path import Path
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import JsonObject, Params

LOADERS = pathlib.Path(__file__).parent / 'loaders'
_SENSITIVE = 0.001  # share of the largest output by which rounding may change it without a warning


class WrittenFolder(NamedTuple):
    """A written folder.

    Attributes:
        task: the task that the model computes.
        report: the loader's report on the samples.
        lines: notes for users of the folder.
    """

    task: str
    report: str
    lines: tuple[str, ...]


def write(
    model: LoadedModel,
    name: str,
    path: Path,
    format_name: str,
    task: str | None = None,
    normalize: bool = False,
    overwrite: bool = False,
    options: FormatOptions = NO_OPTIONS,
) -> WrittenFolder:
    """Write the folder of a format, run its loader, and give the folder its name.

    Args:
        model: as loaded by interop/loading.py.
        name: name of the model for messages.
        path: folder to create.
        format_name: a key of FORMATS.
        task: a task of `Predictor`; None: the task of a fine-tuned model, else 'fill_mask' if the
            model has its head, else 'embed'.
        normalize: divide the vectors of texts by their norms.
        overwrite: replace a folder at `path`.
        options: of the format.

    Raises:
        UserError: a package is missing, the model cannot do the task, the format cannot express the
            model, the folder exists, or the written model computes other values.
    """
    exporter = export_formats.FORMATS[format_name]()
    if exporter.needs_tensorflow:
        tensorflow_import.require(f'--format={format_name}')
    for package, requirement in exporter.requires.items():
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f'--format={format_name} needs {package}, which is not installed: '
                f'pip install {requirement}'
            )
    if normalize:
        model = _normalized(model, name)
    predictor = Predictor(model, name=name)
    if task is None:
        task = exporter.only_task or predictor.tasks[-1 if problem_kinds.problem_kind(model) else 0]
    predictor.require(task)
    if task == 'embed' and predictor.is_late:
        raise UserError(
            f'{name} makes a vector for each token: --format=huggingface writes a folder for '
            'MultiVectorEncoder of sentence-transformers; of a run, other formats export '
            '--task=embed_late'
        )
    if exporter.only_task not in (None, task):
        raise UserError(
            f'--format={format_name} has only the task {exporter.only_task}, not {task}'
        )
    if normalize and task != 'embed':
        raise UserError(f'--normalize is an option of --task=embed, not of {task}')
    if not predictor.tokenizer.starts_texts:
        raise UserError(
            f'--format={format_name}: the tokenizer of {name} puts no tokens around a text, as '
            "GPT-2's; such models are exported with --format=huggingface only"
        )
    if task in ('prompt', 'pseudo_likelihood', 'generate'):
        raise UserError(f'{task} is not one pass of a network; export with --task=fill_mask')
    if model.architecture.tuning is not None and model.architecture.tuning.can_merge:
        model = tuned.merge(model)
    with files.new_folder(path, 'load.py', overwrite) as folder:
        longest = min([model.architecture.max_length, *options.shape[1:2]])
        export = _export(model, predictor, task, exporter.has_erf, longest)
        huggingface_config.write_tokenizer(predictor.tokenizer, model.architecture, folder)
        result = exporter.write(export._replace(options=options), folder)
        arguments = (exporter.runtime, folder, result.signature, exporter.input_dtype)
        write_loader(export, format_name, *arguments)
        report = run_loader(folder)
    return WrittenFolder(task, report, result.lines)


def _normalized(model: LoadedModel, name: str) -> LoadedModel:
    modules = model.sentence_modules or SentenceModules()
    if any(isinstance(layer, Normalize) for layer in modules.layers):
        raise UserError(f'{name} already normalizes its vectors; leave --normalize out')
    modules = dataclasses.replace(modules, layers=(*modules.layers, Normalize()))
    return dataclasses.replace(model, sentence_modules=modules)


def _export(
    model: LoadedModel, predictor: Predictor, task: str, has_erf: bool, longest: int
) -> Export:
    """Collect what a format writes.

    Args:
        predictor: has the model before merging.
        longest: number of tokens that the format can hold.
    """
    tokenizer, architecture = predictor.tokenizer, model.architecture
    modules = model.sentence_modules or SentenceModules()
    if task in ('embed', 'fill_mask'):
        length = longest
        if task == 'embed':
            length = min(length, modules.max_length or length)
        layout = SpecialTokenLayout(tokenizer, length, architecture.type_vocab_size)
        mask = f' {tokenizer.vocab[tokenizer.mask_id]}' if task == 'fill_mask' else ''
        prompt = modules.prompt * (task == 'embed')
        make_rows = functools.partial(samples.rows_of_texts, layout, mask, prompt)
        rows = make_rows()
        expected = samples.expected_of_task(model, predictor, task, rows)
        if task == 'embed':
            computed = computation.of_embedding(model, modules, has_erf)
        else:
            computed = computation.of_masked_tokens(model, has_erf)
    else:
        problem = predictor.problem
        length = min(problem.setup.layout.max_length, longest)
        make_rows = functools.partial(samples.rows_of_problem, problem, model.usage.texts, length)
        rows = make_rows()
        expected = samples.expected_of_problem(model, problem, rows)
        computed = computation.of_problem(model, problem, rows.batch, has_erf)
        prompt = ''

    def inputs_of(texts: Sequence[str]) -> dict[str, np.ndarray]:
        return _inputs(computed, make_rows(texts=texts).batch)

    inputs = _inputs(computed, rows.batch)
    return Export(model, task, computed, inputs, expected, rows.texts, length, prompt, inputs_of)


def _inputs(computed: Computation, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.asarray(batch[name], np.int32) for name in computed.inputs}


def write_loader(
    export: Export,
    format_name: str,
    runtime: Sequence[str],
    folder: pathlib.Path,
    signature: JsonObject,
    input_dtype: str = 'int32',
) -> None:
    """Write samples.npz, signature.json, and the loader with its requirements.

    Args:
        runtime: pip requirements of the loader, besides NumPy and tokenizers.
        signature: further keys of signature.json.
        input_dtype: of the inputs.
    """
    tokenizer = export.model.tokenizer
    assert tokenizer is not None
    expected = {f'expected_{name}': array for name, array in export.expected.items()}
    np.savez_compressed(folder / 'samples.npz', **dict(export.inputs), **expected)  # type: ignore[arg-type]
    common = {
        'format': format_name,
        'task': export.task,
        'inputs': export.computation.describe_inputs(input_dtype),
        'outputs': _describe_outputs(export),
        'labels': export.model.labels,
        'max_length': export.max_length,
        'pad_token': tokenizer.vocab[tokenizer.pad_id],
        'pad_id': tokenizer.pad_id,
        'unicode_form': 'NFC' if tokenizer.has_rules else None,
        'prompt': export.prompt,
        'texts': export.texts,
        'tolerance': _tolerances(export),
    }
    files.write_json(folder / 'signature.json', common | dict(signature))
    shutil.copy(LOADERS / 'load.py', folder / 'load.py')
    shutil.copy(LOADERS / f'{format_name}.py', folder / 'runtime.py')
    packages = ''.join(f'{name}\n' for name in ('numpy', 'tokenizers', *runtime))
    (folder / 'requirements.txt').write_text(packages, encoding='utf-8')


def _tolerances(export: Export) -> dict[str, float]:
    """Output → the largest difference from `expected` that rounding explains."""
    computed = export.computation
    function = jax.jit(computed.function)

    def compute(params: Params) -> dict[str, np.ndarray]:
        outputs = jax.device_get(function(params, export.inputs))
        return {
            name: samples.at_tokens(array, export.inputs) if name in computed.per_token else array
            for name, array in outputs.items()
        }

    longest_sum = export.model.architecture.longest_sum
    allowed = rounding.tolerances(compute, computed.params, longest_sum)
    for name, limit in allowed.items():
        largest = float(np.nanmax(np.abs(export.expected[name])))
        if limit > _SENSITIVE * largest:
            warn(
                f'{name} of this model depends on rounding: another program or machine may differ '
                f'by {limit:.2g}, where the largest value is {largest:.2g}'
            )
    return allowed


def _describe_outputs(export: Export) -> dict[str, str]:
    """Output → its dtype and shape."""
    outputs = {}
    for name, array in sorted(export.expected.items()):
        is_per_token = name in export.computation.per_token
        axes = ['batch', *['tokens'] * is_per_token, *array.shape[1 + is_per_token :]]
        outputs[name] = f'float32 [{", ".join(map(str, axes))}]'
    return outputs


def run_loader(folder: pathlib.Path) -> str:
    """Run the folder as its users will, in a process without bert_jax; return its output.

    Raises:
        UserError: the loader fails, or computes other values than the samples have.
    """
    environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    environment |= {'JAX_PLATFORMS': 'cpu', 'CUDA_VISIBLE_DEVICES': '', 'TF_CPP_MIN_LOG_LEVEL': '3'}
    command = [sys.executable, str(folder / 'load.py')]
    process = subprocess.run(command, env=environment, capture_output=True, encoding='utf-8')
    if process.returncode:
        lines = (process.stdout + process.stderr).strip().splitlines()
        raise UserError(
            f'not exported: the loader of the folder fails: {lines[-1] if lines else ""}'
        )
    shutil.rmtree(folder / '__pycache__', ignore_errors=True)
    return process.stdout.strip()
