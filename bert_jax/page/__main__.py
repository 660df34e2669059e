"""Writes a page that computes: a model in one HTML file, for any browser, without a network.

    python -m bert_jax.page --model=runs/tiny --output=tiny.html

--model is the folder of a run, one of its checkpoints, a Hugging Face folder, or a folder with the
bert_model.ckpt of google-research/bert. See docs/page.md.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

from bert_jax import errors, flag_parser, progress
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import outputs, paths

_DESCRIPTION = """\
Write a model as one HTML file that runs in a browser, without a network. It shows masked tokens,
log-odds of two fillings, attention of every head, neighbors of a word in context, senses of a word,
and predictions of a fine-tuned model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageRequest:
    """The flags of this command."""

    model: str = flag(MODEL_HELP)
    output: str = flag('HTML file to write; must not exist yet')
    overwrite: bool = flag('replace an existing file', False)
    dtype: str = flag(
        'dtype of the weights in the file: float16, float32, or int8 with a scale for each row; '
        'the page computes in float32',
        'float16',
    )
    input: str | None = flag(
        'file of texts, one a line, for the neighbors and senses of a word; LABEL<tab>TEXT colors '
        'a text by its label (default: 26 examples)',
        None,
    )
    word: str | None = flag('word of the texts whose senses are shown first', None)
    text: str | None = flag('text that is shown first', None)
    generator: bool = flag(
        'for a run with the objective rtd: the generator instead of the discriminator', False
    )
    name: str | None = flag('title of the page (default: name of the folder of the model)', None)


def make(request: PageRequest) -> None:
    """Write the page of a request, and print what was written."""
    from bert_jax.interop import loading
    from bert_jax.page import bundle, contents

    output = paths.on_disk(request.output)
    outputs.check_file(output, request.overwrite)
    texts = contents.read_texts(request.input) if request.input else None
    if request.generator:
        model = loading.load_checkpoint(request.model, generator=True)
    else:
        model = loading.load_any(request.model, allow_missing=('^encoder/pooler/',))
    name = request.name or pathlib.Path(request.model).resolve().name
    page = contents.describe(
        model, name, dtype=request.dtype, texts=texts, text=request.text, word=request.word
    )
    size = bundle.write(page, output, request.overwrite)
    progress.say(f'{output}: {size / 1e6:.1f} MB, {request.dtype}')
    for note in page.notes:
        progress.say(f'  {note}')
    if bundle.link_from_card(output, pathlib.Path(request.model)):
        progress.say(f'  linked from {pathlib.Path(request.model) / "README.md"}')


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    make(flag_parser.parse(PageRequest, argv, 'python -m bert_jax.page', _DESCRIPTION))


if __name__ == '__main__':
    main()
