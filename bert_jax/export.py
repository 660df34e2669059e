"""Exports a trained model to a folder that another library opens.

    python -m bert_jax.export --model=runs/tiny --output=exported/tiny
    python -m bert_jax.export --model=runs/tiny --output=exported/tiny --format=onnx

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. A run with the objective rtd has two models: the
discriminator is exported by default, the generator with --generator.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_jax import errors, flag_parser, lazy_table, progress
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import hub, outputs, paths

# What the formats are written by, imported when used.
_WRITE_PUBLISHED = 'bert_jax.export_formats.huggingface:write'
_WRITE_OTHER = 'bert_jax.export_formats.folder:write'
_OPTIONS = 'bert_jax.export_formats.base:FormatOptions'
_FORMATS = tuple(lazy_table.load('bert_jax.export_formats:FORMATS'))
# Files that show that a folder is an earlier export.
_MARKERS = {'huggingface': 'model.safetensors', 'peft': 'adapter_config.json'}
_DESCRIPTION = """\
Export a trained model to a folder for transformers (config.json, model.safetensors, the tokenizer,
a model card, and a loader with samples) or, with --format, for another library (docs/export.md).
Before the folder gets its name, it is read back and must compute the same outputs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The flags of this command."""

    model: str = flag(MODEL_HELP)
    output: str = flag('folder to create')
    overwrite: bool = flag(outputs.HELP, False)
    push: str = flag(
        'ORG/NAME: also upload the folder to the Hugging Face Hub as a commit of this model, '
        'which is created if necessary (HF_TOKEN)',
        '',
    )
    generator: bool = flag(
        'for a run with the objective rtd: export the generator instead of the discriminator', False
    )
    average: int = flag(
        'for a run: the mean of the parameters of so many of its newest checkpoints (of their '
        'moving averages, with optimizer.ema); 0: the best or the newest checkpoint',
        0,
        '[0, inf)',
    )
    leave_out: str = flag(
        'for a Hugging Face folder with parts that bert_jax does not have: regular expression for '
        'the names of the weights to leave out',
        '',
    )
    merge: bool = flag(
        'for a run with transfer.method lora, ia3 or bitfit: merge the tuned parameters into the '
        'base model',
        False,
        only=('format', ('huggingface',)),
    )
    format: str = flag(
        'for transformers; peft: only the head and the parameters added by transfer.method lora or '
        f'ia3, for PeftModel.from_pretrained; {", ".join(_FORMATS)}: docs/export.md',
        'huggingface',
        choices=('huggingface', 'peft', *_FORMATS),
    )
    task: str | None = flag(
        'other formats: a task of bert_jax.predict (default: the task of a fine-tuned model; '
        'fill_mask for a model with this head; else embed)',
        None,
        only=('format', _FORMATS),
    )
    normalize: bool = flag(
        'other formats, embed: divide vectors by their norms, as most sentence-transformers models '
        'do',
        False,
        only=('format', _FORMATS),
    )
    dtype: str = flag('float32, or int8 for matrices', 'float32', only=('format', ('tflite',)))
    lengths: tuple[int, ...] = flag(
        'lengths to which texts are padded, besides the longest, such as 16,64 (default: 32,128)',
        (),
        '[1, inf)',
        only=('format', ('tflite',)),
    )
    variants: tuple[str, ...] = flag(
        'further files: int8 (model_quantized.onnx), float16 (model_fp16.onnx), or both with a '
        'comma; prints what they change',
        (),
        only=('format', ('onnx',)),
    )
    sentences: str = flag(
        'file with a text on each line, for which variants are compared (default: sentences of '
        'bert_jax)',
        '',
        only=('format', ('onnx',)),
    )
    shape: tuple[int, ...] = flag(
        'fixed number of texts and of tokens, such as 1,128, for compilers without symbolic '
        'shapes; also writes model.mlirbc',
        (),
        '[1, inf)',
        only=('format', ('stablehlo',)),
    )


def export(request: Request) -> None:
    """Export a model and print what was written.

    Raises:
        UserError: the model cannot be read, or `output` exists and may not be replaced.
    """
    from bert_jax.interop import loading, peft_export
    from bert_jax.loaded import tuned

    output, overwrite = request.output, request.overwrite
    outputs.check_folder(output, overwrite, [_MARKERS.get(request.format, 'load.py')])
    if request.push:
        hub.check_can_push(request.push)
    if request.generator and request.leave_out:
        raise errors.UserError('--leave_out is for Hugging Face folders, which have no generator')
    if request.average and request.leave_out:
        raise errors.UserError('--leave_out is for Hugging Face folders, which have no checkpoints')
    unused = ('^encoder/pooler/',) if request.format in _FORMATS else ()
    if request.generator or request.average:
        loaded = loading.load_checkpoint(
            request.model,
            (),
            () if request.generator else unused,
            generator=request.generator,
            average=request.average,
        )
    else:
        loaded = loading.load_any(request.model, (), unused, leave_out=request.leave_out)
    if request.format != 'huggingface' and loaded.architecture.decoder is not None:
        raise errors.UserError(
            f'--format={request.format} cannot hold a model with a decoder yet; leave --format out '
            'for a folder that transformers opens'
        )
    if request.format in _FORMATS:
        _export_other(loaded, request)
        return
    if request.format == 'peft':
        base = loading.find_base(loaded.base, request.model) if loaded.base else {}
        peft_export.write(loaded, base, paths.path(output), overwrite)
        progress.say(f'{output}: the added parameters and the head, for peft')
        return
    if request.merge:
        if loaded.architecture.tuning is None:
            raise errors.UserError(f'{request.model} is not a tuned model; leave --merge out')
        loaded = tuned.merge(loaded)
    _export_published(loaded, output, overwrite)


def _export_published(loaded: Any, output: str, overwrite: bool) -> None:
    """Export to a folder for transformers and print a summary."""
    from bert_jax.loaded.loaded_model import num_parameters
    from bert_jax.models.heads import without_module

    written = lazy_table.load(_WRITE_PUBLISHED)(loaded, paths.path(output), overwrite)
    parameters = f'{num_parameters(written.model):,} parameters'
    heads = ', '.join(written.model.heads) or 'no head'
    progress.say(f'{output}: {parameters}, {heads}; {written.report}')
    for name in loaded.newly_initialized:
        errors.warn(f'{name} was in no file and is newly initialized')
    for line in written.lines:
        progress.say(f'  {line}')
    for name in without_module(loaded.other_parts):
        reason = 'Hugging Face has no class with such a part'
        if name == 'generator':
            reason = 'export it separately with --generator'
        errors.warn(f'{name} is dropped: {reason}')


def _export_other(loaded: Any, request: Request) -> None:
    """Export to one of `export_formats.FORMATS` and print a summary."""
    path, output = paths.path(request.output), request.output
    written = lazy_table.load(_WRITE_OTHER)(
        loaded,
        request.model,
        path,
        request.format,
        task=request.task,
        normalize=request.normalize,
        overwrite=request.overwrite,
        options=lazy_table.load(_OPTIONS)(
            lengths=request.lengths,
            dtype=request.dtype,
            variants=request.variants,
            texts=_lines(request.sentences),
            shape=request.shape,
        ),
    )
    size = paths.total_bytes(path)
    progress.say(
        f'{output}: {request.format}, task {written.task}, {size / 1e6:.1f} MB; {written.report}'
    )
    for line in written.lines:
        progress.say(f'  {line}')
    progress.say(f'  use it: pip install -r {path}/requirements.txt; python {path}/load.py')


def _lines(name: str) -> tuple[str, ...]:
    """The lines of a text file that are not blank; () without a name."""
    if not name:
        return ()
    try:
        text = paths.fetch(name).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UserError(f'--sentences={name} cannot be read: {error}') from error
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise errors.UserError(f'--sentences={name} has no text')
    return lines


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    request = flag_parser.parse(Request, argv, 'python -m bert_jax.export', _DESCRIPTION)
    export(request)
    if request.push:
        folder = paths.fetch(request.output)
        progress.say(f'pushed: {hub.push(folder, request.push)}')


if __name__ == '__main__':
    main()
