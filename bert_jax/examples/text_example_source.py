"""Base of the sources that take examples from the text of a corpus."""

import abc
from typing import ClassVar, NamedTuple

import numpy as np

from bert_jax import sampling
from bert_jax.corpus.corpus import Split, check_ids
from bert_jax.corpus.corpus_text import CorpusText, running_total
from bert_jax.errors import UserError
from bert_jax.examples.example_source import ExampleSource
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_tokens import CLS_TYPE

# Random streams: each purpose draws from its own stream under the same seed.
ORDER, SHIFT, LABEL, DRAW, REDRAW, TARGET = _STREAMS = range(6)


class RowSettings(NamedTuple):
    """Settings of a source: the text and the shape of its rows.

    Attributes:
        split: Split of a corpus, or its part in one language.
        tokenizer: Tokenizer of the corpus.
        sequence_length: T, tokens of a row: at least 3, or 5 with two segments.
        batch_size: Rows of a global batch.
        seed: Seed of all random draws.
        mark_sentences: Whether batches have sentence_start, int32 [B, T]: 1 for the first token of
            each sentence.
        language_id: Value of the array `language`, int32 [B], of the batches; None: they have none.
    """

    split: Split
    tokenizer: Tokenizer
    sequence_length: int
    batch_size: int
    seed: int
    mark_sentences: bool = False
    language_id: int | None = None


class TextExampleSource(ExampleSource):
    """Base of the sources that take examples from a split of a corpus.

    A document of n tokens is divided into ceil(n / budget) chunks, where the budget is the number
    of tokens of a row without its special tokens. An epoch has one example per chunk, in an order
    that is permuted for every epoch. The chunks of an epoch exist only as a running count per
    document (24 bytes of memory per document); text is read from the memory-mapped shards.

    Attributes:
        num_segments: Segments of a row, each with [SEP].
        sequence_length: T, tokens of a row.
        pad_id: Token id of padding.
        text: The documents, sentences and tokens of the split.
        budget: Tokens of a row without its special tokens.
        keys: Keys of the random streams (ORDER, …), for the functions of sampling.py.
        first_chunk: int64 [documents + 1], first chunk of each document, then the total.
        tokens_per_epoch: Tokens of all documents with a chunk.
    """

    num_segments: ClassVar[int] = 1

    def __init__(self, settings: RowSettings):
        """Open the source; raise UserError if rows are too short or the split has no text."""
        self.batch_size, self.sequence_length = settings.batch_size, settings.sequence_length
        smallest = 2 * self.num_segments + 1
        if self.sequence_length < smallest:
            raise UserError(
                f'the sequence length is {self.sequence_length}, but {self.num_segments} '
                f'segment(s) with special tokens need at least {smallest}'
            )
        self.pad_id = settings.tokenizer.pad_id
        self._tokenizer, self._mark_sentences = settings.tokenizer, settings.mark_sentences
        self._language_id = settings.language_id
        self.text = CorpusText(settings.split)
        self.budget = self.sequence_length - self.num_segments - 1
        self.keys = [sampling.key(settings.seed, stream) for stream in _STREAMS]
        token_D = np.diff(self.text.first_token)
        chunk_D = np.where(self.usable_documents(), -(-token_D // self.budget), 0)
        self.first_chunk = running_total(chunk_D)
        self.tokens_per_epoch = int(token_D[chunk_D > 0].sum())
        self.num_examples = int(self.first_chunk[-1])
        if not token_D.sum():
            raise UserError('the corpus is empty: no example can be made of it')

    @abc.abstractmethod
    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks.

        Args:
            number_B: int64 [B], numbers of the examples, the counters of their random draws.
            chunk_B: int64 [B], chunks of an epoch.

        Returns:
            input_ids, token_type_ids, attention_mask: int32 [B, T], with [CLS] first; `examples`
            moves it to the end if the tokenizer wants it there.
            example_index: int32 [B], number modulo 2^31.
            Labels of the source: int32 [B].
        """

    @abc.abstractmethod
    def lengths(self, chunk_N: np.ndarray) -> np.ndarray:
        """Return the maximum length of each chunk's examples over all epochs: int64 [N].

        Lengths are in tokens and include special tokens.

        Args:
            chunk_N: int64 [N], chunks of an epoch, ascending.
        """

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return the examples with these numbers; see `chunk_examples`."""
        epoch_B, position_B = np.divmod(number_B, self.num_examples)
        order_B = sampling.fold(self.keys[ORDER], epoch_B)
        chunk_B = sampling.permute(position_B, self.num_examples, order_B)
        batch = self.chunk_examples(number_B, chunk_B)
        return _with_cls_last(batch, self.pad_id) if self._tokenizer.is_cls_last else batch

    def statistics(self) -> dict[str, int]:
        """Return counts for the log; tokens_per_epoch does not include special tokens."""
        text = self.text
        return {
            'documents': text.num_documents,
            'single_sentence_documents': int((np.diff(text.first_sentence) == 1).sum()),
            'documents_within_one_sequence': int((np.diff(text.first_token) <= self.budget).sum()),
            'examples_per_epoch': self.num_examples,
            'tokens_per_epoch': self.tokens_per_epoch,
        }

    def usable_documents(self) -> np.ndarray | bool:
        """Return which documents are divided into chunks, bool [documents]; True: all."""
        return True

    def find_documents(self, chunk_N: np.ndarray) -> np.ndarray:
        """Return the document of each chunk."""
        return self.first_chunk.searchsorted(chunk_N, side='right') - 1

    def find_anchors(
        self, number_B: np.ndarray, chunk_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the document of each example, and the token at which its chunk starts.

        Chunk 0 starts with the document. Chunk j starts j · budget tokens later, minus a shift that
        is drawn for every epoch and document so that chunk boundaries differ between epochs. The
        shift is at most the capacity of the chunks minus the length of the document, so the chunks
        still cover the document.
        """
        epoch_B = number_B // self.num_examples
        document_B = self.find_documents(chunk_B)
        first_B, end_B = self.first_chunk[document_B], self.first_chunk[document_B + 1]
        start_B, stop_B = self.text.first_token[document_B], self.text.first_token[document_B + 1]
        slack_B = (end_B - first_B) * self.budget - (stop_B - start_B)
        bits_B = sampling.fold(self.keys[SHIFT], epoch_B, document_B)
        shift_B = sampling.integers(bits_B, slack_B + 1)
        nth_B = chunk_B - first_B
        return document_B, start_B + np.maximum(nth_B * self.budget - shift_B, 0)

    def make_segment_rows(
        self, number_B: np.ndarray, start_SB: np.ndarray, length_SB: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Make rows [CLS] segment [SEP] (segment [SEP] …) [PAD] … of S segments with types 0, 1, …

        Args:
            number_B: Numbers of the examples.
            start_SB: First token of each segment in the text.
            length_SB: Tokens of each segment.
        """
        end_SB = np.cumsum(length_SB + 1, axis=0)
        separator_SB = np.arange(len(number_B)) * self.sequence_length + end_SB
        runs = separator_SB.ravel(), start_SB.ravel(), length_SB.ravel()
        batch = self.make_rows(number_B, end_SB[-1] + 1, *runs)
        position_T = np.arange(self.sequence_length, dtype=np.int32)
        for end_B in end_SB[:-1]:
            batch['token_type_ids'] += position_T > end_B.astype(np.int32)[:, None]
        batch['token_type_ids'] *= batch['attention_mask']
        return batch

    def make_rows(
        self,
        number_B: np.ndarray,
        size_B: np.ndarray,
        separator_R: np.ndarray,
        start_R: np.ndarray,
        length_R: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Make rows that start with [CLS] and consist of runs of tokens, each followed by [SEP].

        Args:
            number_B: Numbers of the examples.
            size_B: Tokens of each row without padding.
            separator_R: Index of each run's [SEP] in the flattened batch.
            start_R: First token of each run in the text.
            length_R: Tokens of each run.
        """
        num_rows, tokenizer = len(number_B), self._tokenizer
        position_T = np.arange(self.sequence_length, dtype=np.int32)
        attention_BT = (position_T < size_B.astype(np.int32)[:, None]).astype(np.int32)
        flat_X = np.full(num_rows * self.sequence_length, self.pad_id, np.int32)
        flat_X[np.arange(num_rows) * self.sequence_length] = tokenizer.first_id
        flat_X[separator_R] = tokenizer.sep_id
        runs = separator_R - length_R, start_R, length_R
        self.text.copy(flat_X, *runs)
        check_ids(flat_X, tokenizer.vocab_size, 'the text of the corpus')
        marks: dict[str, np.ndarray] = {}
        if self._mark_sentences:
            starts_X = self._sentence_starts(len(flat_X), *runs)
            marks['sentence_start'] = starts_X.reshape(num_rows, -1)
        if self._language_id is not None:
            marks['language'] = np.full(num_rows, self._language_id, np.int32)
        return marks | {
            'input_ids': flat_X.reshape(num_rows, self.sequence_length),
            'token_type_ids': np.zeros_like(attention_BT),
            'attention_mask': attention_BT,
            'example_index': (number_B % 2**31).astype(np.int32),
        }

    def _sentence_starts(
        self, size: int, target_R: np.ndarray, start_R: np.ndarray, length_R: np.ndarray
    ) -> np.ndarray:
        """Mark the first tokens of sentences in runs of tokens, copied to their targets.

        Returns int32 [size], which is 1 at these tokens.
        """
        first_R = self.text.sentence_from(start_R)
        count_R = self.text.sentence_from(start_R + length_R) - first_R
        total_R = running_total(count_R)
        sentence_X = np.arange(total_R[-1]) + np.repeat(first_R - total_R[:-1], count_R)
        token_X = self.text.sentence_start(sentence_X)
        starts = np.zeros(size, np.int32)
        starts[token_X + np.repeat(target_R - start_R, count_R)] = 1
        return starts


def _with_cls_last(batch: dict[str, np.ndarray], pad_id: int) -> dict[str, np.ndarray]:
    """Turn rows [CLS] A [SEP] B [SEP] into A [SEP] B [SEP] [CLS], where [CLS] has the type 2."""
    row_B, last_B = np.arange(len(batch['input_ids'])), batch['attention_mask'].sum(1) - 1
    moved = dict(batch)
    for name, padding in (('input_ids', pad_id), ('token_type_ids', 0), ('sentence_start', 0)):
        if name in batch:
            values_BT = np.roll(batch[name], -1, axis=1)
            values_BT[:, -1] = padding
            is_type = name == 'token_type_ids'
            values_BT[row_B, last_B] = CLS_TYPE if is_type else batch[name][:, 0]
            moved[name] = values_BT
    return moved
