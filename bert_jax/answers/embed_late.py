"""Vectors of the tokens of texts, for late interaction."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bert_jax.answers.base import Question
from bert_jax.answers.input_rows import InputRow, texts_of
from bert_jax.answers.output_files import VectorFile, Vectors
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.storage import paths

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedLate(Question):
    """Vectors of tokens, written to a file of NumPy."""

    summary = 'vectors of the tokens of texts (problem late_interaction)'
    writes = (
        'a NumPy .npz: `embeddings` [vectors, E] and `offsets` [texts + 1], the first vector of '
        'each text'
    )

    model: str = flag(MODEL_HELP)
    tuned: str = ''
    output: str = flag('file to write, .npz')
    prompt_name: str = flag(
        'what the texts are: query or document', 'document', choices=('query', 'document')
    )

    def check(self) -> None:
        if not self.output.endswith('.npz'):
            raise UserError(f'--output={self.output}: embed_late writes NumPy files; use .npz')
        if paths.is_stream(self.output):
            raise UserError(f'--output={self.output} is a pipe or a device; set a file')
        super().check()

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[Vectors]:
        """Yield the vectors of the tokens of each text."""
        for vectors in model.embed_late(texts_of(rows), self.prompt_name):
            yield Vectors(vectors)

    def output_file(self) -> VectorFile:
        return VectorFile(is_grouped=True)
