"""Divides long files into documents, so that the asked share of the text can be held out.

A file is a document, and whole documents are held out. If files that are longer than that share
are a good part of a language, they are divided at blank lines into documents of about an eighth of
the share. A few of them among many short files stay whole: they are not held out, see
`held_out_share`.
"""

from collections.abc import Sequence

from bert_jax import progress
from bert_jax.text.sources import Source, open_source
from bert_jax.text.sources.files import TextSource

PARTS = 8  # documents that make up the asked share
LEAST_CHARACTERS = 2_000  # of a document: a few rows of training
GOOD_PART = 0.25  # of the text of a language


def divide_long_files(sources: Sequence[Source], fraction: float) -> list[Source]:
    """Return the sources, those with a file that is too long opened with `longest`.

    Args:
        sources: The sources, with their files listed.
        fraction: Share of the text to hold out.
    """
    sizes: dict[str, int] = {}
    for source in sources:
        if not source.is_training_only:
            sizes[source.language] = sizes.get(source.language, 0) + (source.size() or 0)
    return [_divide(source, sizes.get(source.language, 0), fraction) for source in sources]


def _divide(source: Source, total: int, fraction: float) -> Source:
    """Return the source, divided if long files are a good part of the `total` bytes."""
    if not isinstance(source, TextSource) or not source.may_be_divided:
        return source
    longest = int(fraction * total / PARTS)
    long = {path: size for path, size in source.file_sizes().items() if size > fraction * total}
    if sum(long.values()) <= GOOD_PART * total or longest < LEAST_CHARACTERS:
        return source
    if all(map(source.has_articles, long)):
        return source
    number = len(long)
    progress.say(
        f'{source.spec}: {number:,} file(s) are longer than the share to hold out: divided at '
        f'blank lines into documents of about {longest:,} characters, of which some are held out; '
        'whole files are with ;held_out_by=file'
    )
    return open_source(f'{source.spec};longest={longest}')
