"""Texts as rows of a model's input: tokenizing, windows, and running functions on the rows."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.inference import batching
from bert_jax.inference.batching import TokenizedText
from bert_jax.metrics.scored_rows import RowMaker, ScoredRow, add_special
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.sliding_windows import Window, make_windows
from bert_jax.tokenizers.special_tokens import CLS_TYPE
from bert_jax.types import Batch, Tree

Text = TypeVar('Text')


class TextRows:
    """Tokenizes texts, splits them into windows, and runs functions on the rows.

    Attributes:
        size: tokens of a window, without [CLS] and [SEP].
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        overlap: float,
        batch_tokens: int,
        advance: Callable[[int], object],
        counts: Counter[str],
        concurrent_batches: int = batching.CONCURRENT_BATCHES,
    ) -> None:
        """Prepare windows of `max_length` tokens.

        Args:
            tokenizer, max_length, overlap, batch_tokens, advance: as for `bert_jax.load`.
            counts: counts the texts that are truncated, split into windows, or mostly unknown.
            concurrent_batches: batches that are computed at the same time.
        """
        self.size = max_length - 2
        self._tokenizer, self._batch_tokens, self._advance = tokenizer, batch_tokens, advance
        self._overlap = min(int(overlap * self.size), self.size - 1)
        self._counts, self._concurrent_batches = counts, concurrent_batches

    def encode(self, texts: Sequence[str], long_texts: str | None = None) -> list[np.ndarray]:
        """Return the token ids of each text, truncated if `long_texts` is 'truncate'."""
        if long_texts not in (None, 'windows', 'truncate'):
            raise unknown('treatment of long texts', long_texts, ('windows', 'truncate'))
        flat_ids, lengths = self._tokenizer.encode_ids(check_texts(texts), special=True)
        encoded = np.split(flat_ids, np.cumsum(lengths))[:-1]
        self.count(encoded, long_texts or 'windows')
        return [ids[: self.size] for ids in encoded] if long_texts == 'truncate' else encoded

    def count(self, encoded: Sequence[np.ndarray], long_texts: str) -> None:
        """Count the texts that do not fit into one window, and those that are mostly [UNK]."""
        action = 'split into windows of' if long_texts == 'windows' else 'truncated to'
        number = sum(len(ids) > self.size for ids in encoded)
        self._counts[f'texts {action} {self.size + 2} tokens'] += number
        shares = [np.mean(self._tokenizer.is_unknown(ids)) for ids in encoded if len(ids)]
        self._counts['texts with more than half of their tokens unknown to the vocabulary'] += sum(
            bool(share > 0.5) for share in shares
        )

    def run(
        self, function: Callable[[Batch], Tree], rows: Iterable[Iterable[TokenizedText]]
    ) -> list[list[tuple[TokenizedText, Tree]]]:
        """Run a function on the rows of every text; return each row with its result."""
        rows_of_texts = [list(text_rows) for text_rows in rows]
        results = batching.run(
            function,
            list(itertools.chain.from_iterable(rows_of_texts)),
            batch_tokens=self._batch_tokens,
            max_length=self.size + 2,
            pad_id=self._tokenizer.pad_id,
            advance=self._advance,
            last_type=CLS_TYPE if self._tokenizer.is_cls_last else 0,
            concurrent_batches=self._concurrent_batches,
        )
        remaining = iter(results)
        return [[(row, next(remaining)) for row in text_rows] for text_rows in rows_of_texts]

    def windows(
        self, ids: np.ndarray, split_points: Sequence[int] | None = None
    ) -> Iterator[tuple[Window, np.ndarray]]:
        """Split a text into windows; token i is at `text_start` + i − window.start of a row.

        Args:
            ids: the tokens of the text.
            split_points: where windows may start and stop; see `make_windows`.
        """
        for window in make_windows(len(ids), self.size, self._overlap, split_points):
            yield window, add_special(self._tokenizer, ids[window.start : window.stop])

    def of_masks(self, ids: np.ndarray) -> Iterator[TokenizedText]:
        """Rows with `positions`: the positions of each [MASK] whose prediction the row gives."""
        start = self._tokenizer.text_start
        for window, row in self.windows(ids):
            masks = np.flatnonzero(ids[window.first : window.last] == self._tokenizer.mask_id)
            if len(masks):
                yield TokenizedText(row, {'positions': masks + window.first + start - window.start})

    def of_spans(
        self, ids: np.ndarray, tokens: str = 'all', split_points: Sequence[int] | None = None
    ) -> Iterator[TokenizedText]:
        """Rows with `span`: the first and last + 1 of the positions whose states the row gives.

        Args:
            ids: the tokens of the text.
            tokens: which of them (`Pooling.tokens`).
            split_points: see `windows`.
        """
        before = self._tokenizer.text_start
        for window, row in self.windows(ids, split_points):
            # Tokens before the text belong to the first window, those after the text to the last.
            first = window.first + before * (window.first > 0) - window.start
            after = (2 - before) * (window.last == len(ids))
            last = window.last + before + after - window.start
            is_last = tokens == 'last' or self._tokenizer.is_cls_last
            place = len(row) - 1 if is_last else 0
            span = (first, last) if tokens == 'all' else (place, place + 1)
            yield TokenizedText(row, {'span': np.array(span)})

    def of_tokens(self, ids: np.ndarray, maker: RowMaker) -> Iterator[ScoredRow]:
        """Rows that score every token of a text."""
        for window, row in self.windows(ids):
            tokens = np.arange(window.first, window.last) + self._tokenizer.text_start
            tokens -= window.start
            yield from maker.rows(row, tokens)

    def token(self, index: int) -> str:
        """Return the token of an id."""
        vocab = self._tokenizer.vocab
        # An embedding may have more rows than the vocabulary has tokens.
        return vocab[index] if index < len(vocab) else f'[{index}]'


def check_list(texts: Sequence[Text]) -> Sequence[Text]:
    """Return a list of texts or other inputs; raise UserError for a single one."""
    if isinstance(texts, str | Mapping):
        raise UserError(f'expected a list of texts, not {texts!r:.40}; put it in [ ]')
    return texts


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return a list of strings; raise UserError for anything else."""
    checked = list(check_list(texts))
    for number, text in enumerate(checked, 1):
        if not isinstance(text, str):
            raise UserError(f'text {number} is {text!r:.40}, not a string')
    return checked
