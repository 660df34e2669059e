"""Exports a trained model to a folder that another library opens.

    python -m bert_jax.export --model=runs/tiny --output=exported/tiny
    python -m bert_jax.export --model=runs/tiny --output=exported/tiny --format=onnx

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. A run with the objective rtd has two models: the
discriminator is exported by default, the generator with --generator.
"""

from collections.abc import Sequence
from typing import Any

from bert_jax import errors, lazy_table, progress
from bert_jax.flag_parser import FlagParser
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import outputs, paths

# What the formats are written by, imported when used.
_WRITE_PUBLISHED = 'bert_jax.export_formats.huggingface:write'
_WRITE_OTHER = 'bert_jax.export_formats.folder:write'
_OTHER_FORMATS = 'bert_jax.export_formats:FORMATS'
# Files that show that a folder is an earlier export.
_MARKERS = {'huggingface': 'model.safetensors', 'peft': 'adapter_config.json'}
_DESCRIPTION = """\
Export a trained model to a folder for transformers (config.json, model.safetensors, the tokenizer,
a model card, and a loader with samples) or, with --format, for another library (docs/export.md).
Before the folder gets its name, it is read back and must compute the same outputs."""


def export(
    model: str,
    output: str,
    generator: bool = False,
    merge: bool = False,
    format: str = 'huggingface',
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Export a model and print what was written.

    Args:
        model: path of a run, a checkpoint or a folder with a published model.
        output: folder to create.
        generator: export the generator of replaced-token detection instead of the discriminator.
        merge: merge the parameters of parameter-efficient tuning into the base model.
        format: 'huggingface'; 'peft', which exports only the added parameters and the head; or a
            key of `export_formats.FORMATS`.
        overwrite: replace the folder of an earlier export.
        options: options of the other formats; see `export_formats.folder.write`.

    Raises:
        UserError: the model cannot be read, or `output` exists and may not be replaced.
    """
    from bert_jax.interop import loading, peft_export, tuned

    outputs.check_folder(output, overwrite, [_MARKERS.get(format, 'load.py')])
    is_published = format in ('huggingface', 'peft')
    if is_published and options:
        raise errors.UserError(f'--{next(iter(options))} is not an option of --format={format}')
    if generator:
        loaded = loading.load_checkpoint(model, generator=True)
    else:
        loaded = loading.load_any(model, (), () if is_published else ('^encoder/pooler/',))
    if not is_published:
        _export_other(loaded, model, output, format, overwrite, options)
        return
    if format == 'peft':
        base = loaded.metadata.get('base')
        base = loading.find_base(base, model) if base else {}
        peft_export.write(loaded, base, paths.path(output), overwrite)
        progress.say(f'{output}: the added parameters and the head, for peft')
        return
    if merge:
        if loaded.architecture.tuning is None:
            raise errors.UserError(f'{model} is not a tuned model; leave --merge out')
        loaded = tuned.merge(loaded)
    _export_published(loaded, output, overwrite)


def _integers(text: str) -> tuple[int, ...]:
    """Parse an option such as 16,64."""
    try:
        return tuple(map(int, text.split(',')))
    except ValueError:
        raise errors.UserError(f'--lengths={text}: write whole numbers, such as 32,128') from None


def _export_published(loaded: Any, output: str, overwrite: bool) -> None:
    """Export to a folder for transformers and print a summary."""
    from bert_jax.interop.huggingface import num_parameters

    written = lazy_table.load(_WRITE_PUBLISHED)(loaded, paths.path(output), overwrite)
    parameters = f'{num_parameters(written.model):,} parameters'
    heads = ', '.join(written.model.heads) or 'no head'
    progress.say(f'{output}: {parameters}, {heads}; {written.report}')
    for name in loaded.newly_initialized:
        errors.warn(f'{name} was in no file and is newly initialized')
    for line in written.lines:
        progress.say(f'  {line}')
    for name in loaded.other_parts:
        reason = 'Hugging Face has no class with such a part'
        if name == 'generator':
            reason = 'export it separately with --generator'
        errors.warn(f'{name} is dropped: {reason}')


def _export_other(
    loaded: Any, model: str, output: str, format: str, overwrite: bool, options: Any
) -> None:
    """Export to one of `export_formats.FORMATS` and print a summary."""
    path = paths.path(output)
    written = lazy_table.load(_WRITE_OTHER)(
        loaded, model, path, format, overwrite=overwrite, **options
    )
    size = paths.total_bytes(path)
    progress.say(f'{output}: {format}, task {written.task}, {size / 1e6:.1f} MB; {written.report}')
    for line in written.lines:
        progress.say(f'  {line}')
    progress.say(f'  use it: pip install -r {path}/requirements.txt; python {path}/load.py')


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    parser = FlagParser('python -m bert_jax.export', description=_DESCRIPTION)
    add = parser.add_argument
    add('--model', required=True, help=MODEL_HELP)
    add('--output', required=True, help='folder to create')
    add('--overwrite', action='store_true', help=outputs.HELP)
    add(
        '--generator',
        action='store_true',
        help='for a run with the objective rtd: export the generator instead of the discriminator',
    )
    add(
        '--merge',
        action='store_true',
        help='for a run with transfer.method lora, ia3 or bitfit: merge the tuned parameters into '
        'the base model',
    )
    add(
        '--format',
        choices=('huggingface', 'peft', *lazy_table.load(_OTHER_FORMATS)),
        default='huggingface',
        help='peft: only the head and the parameters added by transfer.method lora or ia3, for '
        'PeftModel.from_pretrained; others: docs/export.md (default: %(default)s)',
    )
    others = parser.add_argument_group('options of formats other than huggingface and peft')
    others.add_argument(
        '--task',
        help='a task of bert_jax.predict (default: the task of a fine-tuned model; fill_mask for a '
        'model with this head; else embed)',
    )
    others.add_argument(
        '--normalize',
        action='store_true',
        default=None,
        help='embed: divide vectors by their norms, as most sentence-transformers models do',
    )
    others.add_argument('--dtype', help='tflite: float32 (default), or int8 for matrices')
    others.add_argument(
        '--lengths',
        type=_integers,
        help='tflite: lengths to which texts are padded, besides the longest (default: 32,128)',
    )
    flags = vars(parser.parse(argv))
    export(**{name: value for name, value in flags.items() if value is not None})


if __name__ == '__main__':
    main()
