"""The folder of an exported model: tokenizer, samples, loader, and the files of a format."""

import dataclasses
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import export_formats, files
from bert_jax.data.special_token_layout import SpecialTokenLayout
from bert_jax.errors import UserError
from bert_jax.export_formats import computation, samples
from bert_jax.export_formats.base import Export, Format
from bert_jax.inference import finetuned
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface, tuned
from bert_jax.interop.pretrained import Pretrained
from bert_jax.interop.sentence_modules import Normalize, SentenceModules

LOADERS = pathlib.Path(__file__).parent / 'loaders'
_TOLERANCE = 1e-5  # of fp32, relative to the largest expected value if that is above 1


class Written(NamedTuple):
    """What was written.

    Attributes:
        task: what the model computes.
        report: what the loader printed about the samples.
        lines: what users of the folder should know.
    """

    task: str
    report: str
    lines: tuple[str, ...]


def write(
    model: Pretrained,
    name: str,
    path: pathlib.Path,
    format_name: str,
    task: str | None = None,
    normalize: bool = False,
    **options: Any,
) -> Written:
    """Write the folder of a format, run its loader, and give the folder its name.

    Args:
        model: as loaded by interop/loading.py.
        name: of the model, for messages.
        path: the folder.
        format_name: a key of FORMATS.
        task: a task of `Predictor`; None: that of a fine-tuned model, or else 'fill_mask' if the
            model has its head, or else 'embed'.
        normalize: divide the vectors of texts by their norms.
        options: of the format.

    Returns:
        What to report.

    Raises:
        UserError: a package is missing, the model cannot do the task, the format cannot express the
            model, the folder exists, or the written model computes other values.
    """
    kind = export_formats.load(format_name)
    for option in options.keys() - {*kind.options}:
        raise UserError(f'--{option} is not an option of --format={format_name}')
    _check_packages(format_name, kind)
    if normalize:
        model = _normalized(model, name)
    predictor = Predictor(model, name=name)
    if task is None:
        task = kind.only_task or predictor.tasks[-1 if finetuned.problem_kind(model) else 0]
    predictor.require(task)
    if kind.only_task not in (None, task):
        raise UserError(f'--format={format_name} has only the task {kind.only_task}, not {task}')
    if normalize and task != 'embed':
        raise UserError(f'--normalize is an option of --task=embed, not of {task}')
    if task in ('prompt', 'pseudo_likelihood'):
        raise UserError(f'{task} is not one pass of a network; export with --task=fill_mask')
    if method := model.architecture.tuning:
        model = tuned.merge(model) if method.can_merge else model
    with files.new_folder(path) as folder:
        export = _export(model, predictor, task, kind, options)
        result = kind.write(export, folder)
        huggingface.write_tokenizer(predictor.tokenizer, model.architecture, folder)
        write_loader(export, format_name, kind.runtime, folder, result.signature)
        report = run_loader(folder)
    return Written(task, report, result.lines)


def _check_packages(format_name: str, kind: Format) -> None:
    for package, requirement in kind.requires.items():
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f'--format={format_name} needs {package}, which is not installed: '
                f'pip install {requirement}'
            )


def _normalized(model: Pretrained, name: str) -> Pretrained:
    modules = model.sentence_modules or SentenceModules()
    if any(isinstance(layer, Normalize) for layer in modules.layers):
        raise UserError(f'{name} normalizes its vectors already; leave --normalize out')
    modules = dataclasses.replace(modules, layers=(*modules.layers, Normalize()))
    return dataclasses.replace(model, sentence_modules=modules)


def _export(
    model: Pretrained, predictor: Predictor, task: str, kind: Format, options: Mapping[str, Any]
) -> Export:
    """Collect what a format writes; `predictor` has the model before it was merged."""
    tokenizer, architecture = predictor.tokenizer, model.architecture
    modules = model.sentence_modules or SentenceModules()
    if task in ('embed', 'fill_mask'):
        length = architecture.max_length
        if task == 'embed':
            length = min(length, modules.max_length or length)
        layout = SpecialTokenLayout(tokenizer, length, architecture.type_vocab_size)
        mask = f' {tokenizer.vocab[tokenizer.mask_id]}' * (task == 'fill_mask')
        prompt = modules.prompt * (task == 'embed')
        rows = samples.rows_of_texts(layout, mask, prompt)
        expected = samples.expected_of_task(model, predictor, task, rows)
        if task == 'embed':
            function = computation.of_embedding(model, modules, kind.has_erf)
        else:
            function = computation.of_masked_tokens(model, kind.has_erf)
    else:
        problem = predictor.problem
        rows = samples.rows_of_problem(problem, model.metadata.get('texts'))
        expected = samples.expected_of_problem(model, problem, rows)
        function = computation.of_problem(model, problem, rows.batch, kind.has_erf)
        length, prompt = problem.layout.max_length, ''
    arrays = {name: np.asarray(rows.batch[name], np.int32) for name in function.inputs}
    return Export(model, task, function, arrays, expected, rows.texts, length, prompt, options)


def write_loader(
    export: Export,
    format_name: str,
    runtime: Sequence[str],
    folder: pathlib.Path,
    further: Mapping[str, Any],
) -> None:
    """Write samples.npz, signature.json, and the loader with its requirements.

    Args:
        runtime: pip requirements of the loader, besides NumPy and tokenizers.
        further: more keys of signature.json.
    """
    model, inputs = export.model, export.computation.describe_inputs()
    assert model.tokenizer is not None
    expected = {f'expected_{name}': array for name, array in export.expected.items()}
    np.savez_compressed(folder / 'samples.npz', **dict(export.inputs), **expected)  # type: ignore[arg-type]
    signature = {
        'format': format_name,
        'task': export.task,
        'inputs': inputs,
        'outputs': _describe_outputs(export),
        'labels': model.labels,
        'max_length': export.max_length,
        'pad_token': model.tokenizer.vocab[model.tokenizer.pad_id],
        'pad_id': model.tokenizer.pad_id,
        'prompt': export.prompt,
        'texts': export.texts,
        'tolerance': _TOLERANCE,
    }
    files.write_json(folder / 'signature.json', signature | dict(further))
    shutil.copy(LOADERS / 'load.py', folder / 'load.py')
    shutil.copy(LOADERS / f'{format_name}.py', folder / 'runtime.py')
    packages = ''.join(f'{name}\n' for name in ('numpy', 'tokenizers', *runtime))
    (folder / 'requirements.txt').write_text(packages, encoding='utf-8')


def _describe_outputs(export: Export) -> dict[str, str]:
    """Output → its dtype and shape."""
    found = {}
    for name, array in sorted(export.expected.items()):
        is_per_token = name in export.computation.per_token
        axes = ['batch', *['tokens'] * is_per_token, *array.shape[1 + is_per_token :]]
        found[name] = f'float32 [{", ".join(map(str, axes))}]'
    return found


def run_loader(folder: pathlib.Path) -> str:
    """Run the folder as its users will, in a process without bert_jax; return what it printed.

    Raises:
        UserError: the loader fails, or finds other values than those of the samples.
    """
    environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    environment |= {'JAX_PLATFORMS': 'cpu', 'CUDA_VISIBLE_DEVICES': '', 'TF_CPP_MIN_LOG_LEVEL': '3'}
    command = [sys.executable, str(folder / 'load.py')]
    done = subprocess.run(command, env=environment, capture_output=True, encoding='utf-8')
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise UserError(
            f'not exported: the loader of the folder fails: {lines[-1] if lines else ""}'
        )
    shutil.rmtree(folder / '__pycache__', ignore_errors=True)
    return done.stdout.strip()
