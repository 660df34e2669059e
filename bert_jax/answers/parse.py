"""Dependency trees, of sentences in any format and of CoNLL-U, which keeps its other columns."""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bert_jax.answers import input_rows
from bert_jax.answers.finetuned import LIKE_RUN, WORDS, OfWords
from bert_jax.answers.input_rows import InputRow
from bert_jax.errors import UserError, warn
from bert_jax.labels import dependencies
from bert_jax.labels.formats import FORMATS
from bert_jax.labels.records import InvalidRecord
from bert_jax.text import text_files

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parse(OfWords):
    """The dependency tree of each sentence."""

    summary = 'dependency trees (problem parsing)'
    reads = f'{WORDS}; or a .conllu file'
    writes = (
        f'{LIKE_RUN}; an --output named .conllu is CoNLL-U: the sentences of the input with HEAD '
        'and DEPREL'
    )

    def check(self) -> None:
        super().check()
        if self.tuned and _is_conllu(self.output):
            raise UserError('--tuned writes JSON records; end --output in .jsonl')

    def read(self, model: 'Predictor') -> Iterator[InputRow]:
        is_conllu = self.input_format == 'auto' and _is_conllu(self.input)
        return read_conllu(self.input, self.encoding) if is_conllu else super().read(model)

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[Any]:
        """See `Question.answer`; for CoNLL-U, yield the lines of each sentence."""
        rows = list(rows)
        for row, record in zip(rows, super().answer(model, rows), strict=True):
            if not _is_conllu(self.output):
                yield record
            elif row.source:
                yield dependencies.with_tree(row.source, record)
            else:
                yield dependencies.new_sentence(record)

    def to_text(self, record: Any) -> str:
        return '\n'.join(record) + '\n\n' if _is_conllu(self.output) else super().to_text(record)


def _is_conllu(path: str) -> bool:
    """Whether the name of a file, maybe compressed, is that of CoNLL-U."""
    suffix = os.path.splitext(text_files.uncompressed_name(path))[1].lower()
    return suffix in FORMATS['conllu'].suffixes


def read_conllu(path: str, encoding: str) -> Iterator[InputRow]:
    """Yield the sentences of a CoNLL-U file.

    Raises:
        UserError: the file cannot be read, or a sentence is not CoNLL-U.
    """
    sentences: Iterable[list[str]] = dependencies.split_sentences(
        input_rows.read_lines(path, encoding)
    )
    counts = Counter[str]()
    for number, sentence in enumerate(sentences, 1):
        try:
            values = {'id': f'input {number}'} | dependencies.as_input(sentence, counts)
        except InvalidRecord as error:
            raise UserError(f'{path}, sentence {number}: {error}') from None
        yield InputRow(f'{path}, sentence {number}', values, sentence)
    if replaced := counts['multiword_tokens_replaced_by_their_words']:
        warn(f'{replaced:,} multiword tokens were replaced by their words')
