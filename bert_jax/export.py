"""Exports a trained model to a folder that transformers opens with from_pretrained.

    python -m bert_jax.export --model=runs/tiny --output=exported/tiny

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. --output must not exist yet. A run with the objective rtd
has two models: the discriminator is exported by default, the generator with --generator.
"""

import argparse
from collections.abc import Sequence

from bert_jax import errors

FORMATS = ('huggingface', 'peft')
_DESCRIPTION = """\
Export a trained model to a folder that transformers opens with from_pretrained: config.json,
model.safetensors, the tokenizer, and a model card. The folder is read back and must compute the
same logits before it gets its name."""


def export(
    model: str,
    output: str,
    generator: bool = False,
    merge: bool = False,
    format: str = 'huggingface',
) -> None:
    """Export a model and print what was written.

    Args:
        model: path of a run, a checkpoint or a folder with a published model.
        output: folder to create.
        generator: export the generator of replaced-token detection instead of the discriminator.
        merge: merge what parameter-efficient tuning added with the model that was tuned.
        format: 'huggingface', or 'peft' for the added parameters alone (FORMATS).

    Raises:
        UserError: the model cannot be read, or `output` exists.
    """
    from bert_jax.interop import huggingface, loading, peft_folder, tuned

    if generator:
        loaded = loading.load_checkpoint(model, generator=True)
    else:
        loaded = loading.load_any(model)
    if format == 'peft':
        base = loading.find_base(loaded.metadata.get('base') or {}, model)
        peft_folder.write(loaded, base, output)
        print(f'{output}: the added parameters and the head, for peft')
        return
    if merge:
        if loaded.architecture.tuning is None:
            raise errors.UserError(f'{model} is not a tuned model; leave --merge out')
        loaded = tuned.merge(loaded)
    published, lines = huggingface.save(loaded, output)
    parameters = f'{huggingface.num_parameters(published):,} parameters'
    heads = ', '.join(published.heads) or 'no head'
    print(f'{output}: {parameters}, {heads}; logits compared')
    for name in loaded.newly_initialized:
        print(f'  {name} was in no file and is newly initialized')
    for line in lines:
        print(f'  {line}')
    for name in loaded.other_parts:
        reason = 'Hugging Face has no class with such a part'
        if name == 'generator':
            reason = 'export it separately with --generator'
        print(f'  {name} is dropped: {reason}')


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    parser = argparse.ArgumentParser(prog='python -m bert_jax.export', description=_DESCRIPTION)
    add = parser.add_argument
    add(
        '--model',
        required=True,
        help='folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with '
        'bert_config.json and bert_model.ckpt',
    )
    add('--output', required=True, help='folder to create; must not exist yet')
    add(
        '--generator',
        action='store_true',
        help='for a run with the objective rtd: export the generator instead of the discriminator',
    )
    add(
        '--merge',
        action='store_true',
        help='for a run with transfer.method lora, ia3 or bitfit: merge what was tuned with the '
        'model that was tuned',
    )
    add(
        '--format',
        choices=FORMATS,
        default='huggingface',
        help='peft: only what transfer.method lora or ia3 added and the head, for '
        'PeftModel.from_pretrained (default: %(default)s)',
    )
    flags = parser.parse_args(argv)
    export(flags.model, flags.output, flags.generator, flags.merge, flags.format)


if __name__ == '__main__':
    main()
