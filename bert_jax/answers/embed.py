"""Vectors of texts, words and spans."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.answers.base import VectorFlags, Windows
from bert_jax.answers.input_rows import TEXT, Fields, InputRow, texts_of
from bert_jax.answers.output_files import VectorFile, Vectors
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.labels import word_spans
from bert_jax.storage import paths

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor

_OF_TEXTS = ('long_texts', 'prompt_name', 'dimensions')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(VectorFlags, Windows):
    """Vectors, written to a file of NumPy."""

    summary = 'vectors of texts, words or spans of characters'
    reads = (
        'a text a line; with --unit=word also {"words": ["...", ...]}; with --unit=span '
        '{"text": "...", "spans": [[start, end], ...]}, in characters'
    )
    writes = (
        'a NumPy .npz: `embeddings` [texts, D]; with --pooling=tokens [tokens, D] and `offsets` '
        '[texts + 1], the first token of each text; with --unit=word or span [words, D], `offsets` '
        'and `spans` [words, 2], the characters of each'
    )

    model: str = flag(MODEL_HELP)
    tuned: str = ''
    output: str = flag('file to write, .npz')
    unit: str = flag(
        'a vector for each text, word or span of characters',
        'text',
        choices=('text', 'word', 'span'),
    )
    pooling: str | None = flag(
        'mean, mean_sqrt_len_tokens or max of all tokens, cls ([CLS]), lasttoken, or tokens (a '
        'vector each); default: mean, or the pooling, dense layers and normalization of a '
        'sentence-transformers folder; for words and spans: mean (default), sum or first of their '
        'subwords',
        None,
    )
    layer: str = flag(
        'layer number, 0 for the embeddings, negative from the last; or last, sum_last_4, '
        'mean_last_4, concat_last_4, lstm_1, … (the LSTM of a fine-tuned head), or all (a vector '
        'of each layer of the encoder)',
        'last',
    )
    prompt_name: str | None = flag(
        'prompt of the model to put before texts, such as query or document (default: as the model '
        'says; document for a run with prompts)',
        None,
    )
    words: str | None = flag(
        'with --unit=word: split text into words at whitespace (default), or also at punctuation, '
        'or into characters',
        None,
        choices=tuple(word_spans.SPLITTERS),
    )

    def check(self) -> None:
        for name in _OF_TEXTS:
            if self.unit != 'text' and getattr(self, name):
                raise UserError(f'--{name} is not an option of --unit={self.unit}')
        if self.words and self.unit != 'word':
            raise UserError('--words of embed needs --unit=word')
        if not self.output.endswith('.npz'):
            raise UserError(f'--output={self.output}: embed writes NumPy files; end it in .npz')
        if paths.is_stream(self.output):
            raise UserError(f'--output={self.output} is a pipe or a device; set a file')
        super().check()

    def read(self, model: 'Predictor') -> Iterator[InputRow]:
        return self._read(model, TEXT if self.unit == 'text' else Fields(('text',)))

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[Vectors]:
        """Yield the vectors of each text, or of its words, as many texts at a time as fit."""
        if self.unit == 'text':
            for vectors in model.embed(
                texts_of(rows),
                self.pooling,
                self.layer,
                self.long_texts,
                self.prompt_name,
                self.dimensions,
            ):
                yield Vectors(vectors)
            return
        from bert_jax.inference import streams, word_states  # imports JAX

        located = [word_states.locate_record(row.values, self.unit, self.words) for row in rows]
        pooling = self.pooling or 'mean'
        found = streams.stream_words(model, located, pooling, self.layer)
        for vectors, (_, spans) in zip(found, located, strict=True):
            yield Vectors(vectors, np.array(spans, np.int64).reshape(-1, 2))

    def output_file(self) -> VectorFile:
        return VectorFile(is_grouped=self.unit != 'text' or self.pooling == 'tokens')
