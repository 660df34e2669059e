"""Writes a page that computes: a model in one HTML file, for any browser, without a network.

    python -m bert_jax.page --model=runs/tiny --output=tiny.html

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. See docs/page.md.
"""

import argparse
import pathlib
from collections.abc import Sequence

from bert_jax import errors, progress
from bert_jax.flag_parser import FlagParser
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import outputs, paths

_DESCRIPTION = """\
Write a model as one HTML file that runs in a browser, without a network. It shows masked tokens,
log-odds of two fillings, attention of every head, neighbors of a word in context, senses of a word,
and predictions of a fine-tuned model."""


def make(flags: argparse.Namespace) -> None:
    """Write the page that the parsed command line asks for, and print what was written."""
    from bert_jax.interop import loading
    from bert_jax.page import bundle, contents

    output = paths.on_disk(flags.output)
    outputs.check_file(output, flags.overwrite)
    texts = contents.read_texts(flags.texts) if flags.texts else None
    if flags.generator:
        model = loading.load_checkpoint(flags.model, generator=True)
    else:
        model = loading.load_any(flags.model, allow_missing=('^encoder/pooler/',))
    name = flags.name or pathlib.Path(flags.model).resolve().name
    page = contents.describe(
        model, name, dtype=flags.dtype, texts=texts, text=flags.text, word=flags.word
    )
    size = bundle.write(page, output, flags.overwrite)
    progress.say(f'{output}: {size / 1e6:.1f} MB, {flags.dtype}')
    for note in page.notes:
        progress.say(f'  {note}')
    if bundle.link_from_card(output, pathlib.Path(flags.model)):
        progress.say(f'  linked from {pathlib.Path(flags.model) / "README.md"}')


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    parser = FlagParser('python -m bert_jax.page', description=_DESCRIPTION)
    add = parser.add_argument
    add('--model', required=True, help=MODEL_HELP)
    add('--output', required=True, help='HTML file to write; must not exist yet')
    add('--overwrite', action='store_true', help='replace an existing file')
    add(
        '--dtype',
        default='float16',
        help='dtype of the weights in the file: float16 (default), float32, or int8 with a scale '
        'for each row; the page computes in float32',
    )
    add(
        '--texts',
        help='file of texts, one a line, for the neighbors and senses of a word; LABEL<tab>TEXT '
        'colors a text by its label (default: 26 examples)',
    )
    add('--word', help='word of the texts whose senses are shown first')
    add('--text', help='text that is shown first')
    add(
        '--generator',
        action='store_true',
        help='for a run with the objective rtd: the generator instead of the discriminator',
    )
    add('--name', help='title of the page (default: name of the folder of the model)')
    make(parser.parse(argv))


if __name__ == '__main__':
    main()
