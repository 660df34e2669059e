"""A trained model → a folder that transformers opens.

    python -m bert_jax.export --model=runs/tiny --output=exported/tiny

--model is a run's folder, one of its checkpoints, or a folder of published weights. Of a run with
rtd the discriminator is exported, with --generator the generator.
"""

import argparse

from bert_jax import errors


def export(model: str, output: str, generator: bool = False):
    """Writes the model at one path to another, and says what it wrote.

    generator: that of a checkpoint of replaced-token detection, and not the discriminator.

    Raises UserError for a model that cannot be read or a folder that is there already.
    """
    from bert_jax.interop import card, huggingface, loading

    if generator:
        loaded = loading.load_checkpoint(model, generator=True)
    else:
        loaded = loading.load_any(model)
    huggingface.save(loaded, output)
    heads = ', '.join(loaded.heads) or 'no head'
    print(f'{output}: {card.num_parameters(loaded):,} parameters, {heads}; logits compared')
    for name in loaded.fresh:
        print(f'  {name} was in no file and is as initialized')
    for name in huggingface.left_out(loaded):
        print(f'  {name} is left out: no head uses it')
    for name in loaded.others:
        reason = 'no published model has such a part'
        if name == 'generator':
            reason = 'a model of its own, exported with --generator'
        print(f'  {name} is left out: {reason}')


@errors.exit_cleanly
def main():
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.export',
        description='A trained model → a folder that transformers opens.',
    )
    parser.add_argument('--model', required=True, help='folder of a run, checkpoint or weights')
    parser.add_argument('--output', required=True, help='folder to make')
    parser.add_argument('--generator', action='store_true', help='instead of the discriminator')
    flags = parser.parse_args()
    export(flags.model, flags.output, flags.generator)


if __name__ == '__main__':
    main()
