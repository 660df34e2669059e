"""CoNLL-U as the input and the output of a parser in predict.py."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from bert_jax.errors import UserError, warn
from bert_jax.labels import dependencies
from bert_jax.labels.formats import FORMATS
from bert_jax.labels.records import InvalidRecord
from bert_jax.text import text_files
from bert_jax.types import JsonObject

Sentence = Sequence[str]  # lines


def has_suffix(path: str) -> bool:
    """Whether the name of a file, maybe compressed, is that of CoNLL-U."""
    suffix = os.path.splitext(text_files.uncompressed_name(path))[1].lower()
    return suffix in FORMATS['conllu'].suffixes


def input_lines(path: str, sentences: Iterable[Sentence]) -> Iterator[str]:
    """Yield the input of `Predictor.parse` for each sentence, as a line of JSON.

    Raises:
        UserError: a sentence is not CoNLL-U.
    """
    counts = Counter[str]()
    for number, sentence in enumerate(sentences, 1):
        try:
            yield json.dumps(dependencies.as_input(sentence, counts))
        except InvalidRecord as error:
            raise UserError(f'{path}, sentence {number}: {error}') from None
    if replaced := counts['multiword_tokens_replaced_by_their_words']:
        warn(f'{replaced:,} multiword tokens were replaced by their words')


def write(
    file: BinaryIO, records: Iterable[JsonObject], sentences: Sequence[Sentence] | None
) -> None:
    """Write the trees of records.

    Args:
        sentences: of the input, whose other lines and columns are kept; None for other input.
    """
    for sentence, record in zip(sentences or itertools.repeat(None), records, strict=False):
        lines = (
            dependencies.new_sentence(record)
            if sentence is None
            else dependencies.with_tree(sentence, record)
        )
        file.write(('\n'.join(lines) + '\n\n').encode())
