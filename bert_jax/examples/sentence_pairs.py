"""Sentence pairs for next-sentence and sentence-order prediction."""

import abc
from typing import NamedTuple

import numpy as np

from bert_jax import sampling
from bert_jax.errors import UserError
from bert_jax.examples.example_source import ranges
from bert_jax.examples.text_example_source import (
    DRAW,
    LABEL,
    TARGET,
    RowSettings,
    TextExampleSource,
)

_BLOCKS, _BLOCK = 20, 250  # runs of chunks from which the coverage of an epoch is estimated


class Chunks(NamedTuple):
    """Chunks of text and how they become pairs; arrays [B].

    Attributes:
        document: Document of the chunk.
        first: First sentence of the chunk and of segment A.
        middle: First sentence of segment B.
        last: End of the chunk's sentences, exclusive.
        target: Target length in tokens.
        label: Label of the pair: 1 for a random segment B or, in ordered pairs, swapped segments.
        is_random: Whether segment B is random.
    """

    document: np.ndarray
    first: np.ndarray
    middle: np.ndarray
    last: np.ndarray
    target: np.ndarray
    label: np.ndarray
    is_random: np.ndarray


class PairSource(TextExampleSource):
    """Base of the sources of sentence pairs.

    A chunk takes sentences until it reaches its target length or the document ends. The target is
    the budget of a row or, with probability `short_sequence_probability`, uniform from 2 to the
    budget. Segment A is the first sentences of the chunk. Segment B is the rest (label 0) or
    sentences from a random document (label 1). A pair that is too long loses tokens of the longer
    segment, each from a random end.

    With `fixed_lengths`, for packing, the target of a chunk is the same in every epoch and at most
    the length of the document, and pairs are truncated to it.
    """

    num_segments = 2

    def __init__(
        self,
        settings: RowSettings,
        short_sequence_probability: float = 0.1,
        swapped: bool = False,
        fixed_lengths: bool = False,
    ):
        """Open the source; raise UserError if random segments need more documents.

        Args:
            settings: The text and the shape of rows.
            short_sequence_probability: Share of chunks with a shorter target length.
            swapped: Whether label 1 means swapped segments, for sentence-order prediction.
            fixed_lengths: See `PairSource`.
        """
        super().__init__(settings)
        self._short_probability = short_sequence_probability
        self._swapped, self._fixed_lengths = swapped, fixed_lengths
        self.label_name = 'sentence_order_label' if swapped else 'next_sentence_label'
        if not swapped:
            self._check_documents()
        if not self.num_examples:
            raise UserError(
                f'none of the {self.text.num_documents} documents has two sentences, so no '
                'sentence pair can be made: separate the text into longer documents, or train '
                'without predicting sentence pairs'
            )

    @abc.abstractmethod
    def _partners(
        self, number_R: np.ndarray, document_R: np.ndarray, bits_R: np.ndarray
    ) -> np.ndarray:
        """Draw documents of random segments B for examples whose A is from these documents."""

    def _check_documents(self) -> None:
        """Raise UserError if there are no other documents for random segments."""
        documents = self.text.num_documents
        if documents < 2:
            raise UserError(
                f'this split of the corpus has {documents} document(s), but random next sentences '
                'come from other documents: give each language at least four documents, two for '
                "each split, or set data.segments='single' and objectives.nsp=0"
            )

    def _pairs(
        self, number_B: np.ndarray, chunks: Chunks, bits_4B: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Examples of chunks."""
        start_2B, kept_2B = self._segments(number_B, chunks, bits_4B)
        if self._swapped:
            is_swapped_B = (chunks.label == 1) & ~chunks.is_random
            start_2B = np.where(is_swapped_B, start_2B[::-1], start_2B)
            kept_2B = np.where(is_swapped_B, kept_2B[::-1], kept_2B)
        batch = self.make_segment_rows(number_B, start_2B, kept_2B)
        return batch | {self.label_name: chunks.label.astype(np.int32)}

    def _segments(
        self, number_B: np.ndarray, chunks: Chunks, bits_4B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First token and length of segments A and B after truncation, each int64 [2, B]."""
        partner, place, front_a, front_b = bits_4B
        edge_3B = self.text.sentence_start(
            np.concatenate([chunks.first, chunks.middle, chunks.last])
        )
        start_a, start_b, stop_b = edge_3B.reshape(3, -1)
        length_a, length_b = start_b - start_a, stop_b - start_b
        random_R = np.flatnonzero(chunks.is_random)
        other_R = self._partners(number_B[random_R], chunks.document[random_R], partner[random_R])
        wanted_R = (chunks.target - length_a)[random_R]
        start_b[random_R], length_b[random_R] = self._excerpt(other_R, place[random_R], wanted_R)
        limit_B = chunks.target if self._fixed_lengths else self.budget
        kept_a, kept_b = truncated_lengths(length_a, length_b, limit_B)
        start_a += sampling.fair_coins(front_a, length_a - kept_a)
        start_b += sampling.fair_coins(front_b, length_b - kept_b)
        return np.stack([start_a, start_b]), np.stack([kept_a, kept_b])

    def _targets(self, short_B: np.ndarray, length_B: np.ndarray) -> np.ndarray:
        """Draw the target lengths of chunks in tokens, from random bits."""
        return np.where(
            sampling.uniform(short_B) < self._short_probability,
            2 + sampling.integers(length_B, self.budget - 1),
            self.budget,
        )

    def _at_most_document(self, target_B: np.ndarray, document_B: np.ndarray) -> np.ndarray:
        """Limit target lengths to the number of tokens of the documents."""
        first_token = self.text.first_token
        tokens_B = first_token[document_B + 1] - first_token[document_B]
        return np.asarray(np.minimum(target_B, np.maximum(tokens_B, 2)))

    def _fill(
        self, document_B: np.ndarray, first_B: np.ndarray, start_B: np.ndarray, target_B: np.ndarray
    ) -> np.ndarray:
        """End (exclusive) of the sentences, starting with first_B, that reach the target length."""
        text = self.text
        stop_B = np.minimum(start_B + target_B, text.first_token[document_B + 1])
        return np.asarray(np.maximum(text.sentence_from(stop_B), first_B + 1))

    def _excerpt(
        self, document_R: np.ndarray, bits_R: np.ndarray, wanted_R: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First token and length of random segments: sentences that reach the wanted length."""
        text = self.text
        begin_R, end_R = text.first_sentence[document_R], text.first_sentence[document_R + 1]
        first_R = begin_R + sampling.integers(bits_R, end_R - begin_R)
        start_R = text.sentence_start(first_R)
        last_R = self._fill(document_R, first_R, start_R, wanted_R)
        return start_R, text.sentence_start(last_R) - start_R


class SentencePairs(PairSource):
    """Sentence pairs, as in BERT but with balanced labels; see `PairSource`.

    Exactly one of the examples 2k and 2k + 1 has label 1, so batches of even size are balanced. A
    chunk of one sentence is extended by a neighboring sentence, and documents with a single
    sentence are left out, except as random segments (see `statistics`). The random document is
    never the document of A.

    Random segments and truncation omit about a quarter of the text from an epoch. Chunks differ
    between epochs, so several epochs have all of the text. See also `PublishedPairs`.

    With `swapped`, pairs are for sentence-order prediction, as in create_pretraining_data.py of
    ALBERT: B always follows A in the text, and with label 1 the two are swapped.
    """

    def usable_documents(self) -> np.ndarray:
        is_usable_D: np.ndarray = np.diff(self.text.first_sentence) >= 2
        return is_usable_D

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks, see `TextExampleSource.chunk_examples`.

        The label is next_sentence_label (1 = random) or, with `swapped`, sentence_order_label
        (1 = swapped): int32 [B].
        """
        return self._pairs(number_B, *self._chunks(number_B, chunk_B))

    def lengths(self, chunk_N: np.ndarray) -> np.ndarray:
        if not self._fixed_lengths:
            return np.full(len(chunk_N), self.sequence_length)
        return self._fixed_targets(self.find_documents(chunk_N), chunk_N) + 3

    def statistics(self) -> dict[str, int]:
        """Return counts for the log; tokens_per_epoch is estimated, without random segments.

        documents_left_out and tokens_left_out are those of documents of one sentence.
        """
        token_D = np.diff(self.text.first_token)
        is_left_out_D = np.diff(self.first_chunk) == 0
        return super().statistics() | {
            'tokens_per_epoch': self._covered_tokens(),
            'documents_left_out': int(is_left_out_D.sum()),
            'tokens_left_out': int(token_D[is_left_out_D].sum()),
            'tokens': int(token_D.sum()),
        }

    def _covered_tokens(self) -> int:
        """Number of tokens that are in A or a true B at least once in the first epoch."""
        size = min(_BLOCK, self.num_examples)
        blocks = min(_BLOCKS, self.num_examples // size)
        first_N = np.linspace(0, self.num_examples - size, blocks).astype(np.int64)
        number_B = (first_N[:, None] + np.arange(size)).ravel()
        chunks, bits_4B = self._chunks(number_B, number_B)
        start_2B, kept_2B = self._segments(number_B, chunks, bits_4B)
        kept_2B[1, chunks.is_random] = 0
        token_X = np.repeat(start_2B.ravel(), kept_2B.ravel()) + ranges(kept_2B.ravel())
        estimate = len(np.unique(token_X)) / len(number_B) * self.num_examples
        return min(round(estimate), self.tokens_per_epoch)

    def _chunks(self, number_B: np.ndarray, chunk_B: np.ndarray) -> tuple[Chunks, np.ndarray]:
        """The chunks of examples, and random bits for `_segments`, uint64 [4, B]."""
        draws = sampling.random_bits(self.keys[DRAW], number_B, lanes=8)
        short, length, split = draws[:3]
        document_B, anchor_B = self.find_anchors(number_B, chunk_B)
        target_B = self._targets(short, length)
        if self._fixed_lengths:
            target_B = self._fixed_targets(document_B, chunk_B)
        first_B, last_B = self._sentences(document_B, anchor_B, target_B)
        middle_B = first_B + 1 + sampling.integers(split, np.maximum(last_B - first_B - 1, 1))
        label_B = self._labels(number_B)
        is_random_B = (label_B == 1) & (not self._swapped)
        chunks = Chunks(document_B, first_B, middle_B, last_B, target_B, label_B, is_random_B)
        return chunks, draws[4:]

    def _fixed_targets(self, document_B: np.ndarray, chunk_B: np.ndarray) -> np.ndarray:
        """The target lengths with `fixed_lengths`."""
        bits = sampling.random_bits(self.keys[TARGET], chunk_B, lanes=2)
        return self._at_most_document(self._targets(*bits), document_B)

    def _sentences(
        self, document_B: np.ndarray, anchor_B: np.ndarray, target_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First and end (exclusive) sentence of the chunks that start at the anchors."""
        text = self.text
        begin_B, end_B = text.first_sentence[document_B], text.first_sentence[document_B + 1]
        first_B = np.minimum(text.sentence_from(anchor_B), end_B - 1)
        last_B = self._fill(document_B, first_B, text.sentence_start(first_B), target_B)
        last_B += (last_B - first_B == 1) & (last_B < end_B)
        first_B -= (last_B - first_B == 1) & (first_B > begin_B)
        return first_B, last_B

    def _labels(self, number_B: np.ndarray) -> np.ndarray:
        order_B = sampling.fold(self.keys[LABEL], number_B // 2) >> 63
        return (number_B & 1) ^ order_B.astype(np.int64)

    def _partners(
        self, number_R: np.ndarray, document_R: np.ndarray, bits_R: np.ndarray
    ) -> np.ndarray:
        other_R = sampling.integers(bits_R, self.text.num_documents - 1)
        return other_R + (other_R >= document_R)


def truncated_lengths(
    length_a: np.ndarray, length_b: np.ndarray, budget: int | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of two segments after truncate_seq_pair of the original BERT.

    While both together exceed the budget, the longer segment loses a token; B if they are equal.
    """
    kept_a = np.minimum(length_a, np.maximum(budget - length_b, -(-budget // 2)))
    return kept_a, np.minimum(length_b, budget - kept_a)
