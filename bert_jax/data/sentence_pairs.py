"""Sentence pairs for next-sentence and sentence-order prediction."""

import numpy as np

from bert_jax.data import sampling
from bert_jax.data.text_example_source import (
    DRAW,
    LABEL,
    REDRAW,
    TARGET,
    RowSettings,
    TextExampleSource,
)
from bert_jax.errors import UserError


class SentencePairs(TextExampleSource):
    """Sentence pairs, as in create_pretraining_data.py of the original BERT.

    A chunk takes sentences until it reaches its target length or the document ends. The target is
    all that a row holds or, with probability `short_sequence_probability`, uniform from 2 upwards.
    Segment A is the first sentences of the chunk, at least one and not all. Segment B is the rest
    (label 0) or consists of sentences from a random other document (label 1). A pair that is too
    long loses tokens of the longer segment, each from a random end.

    By default, exactly one of the examples 2k and 2k + 1 has label 1, so batches of even size are
    balanced. A chunk of one sentence is extended by a neighboring sentence, and documents of one
    sentence only serve as segment B (see `statistics`). With `faithful_negatives`, as in the
    original: labels are independent coin flips, chunks of one sentence always get label 1 (more
    than half of the labels are then 1), and the random document is drawn up to ten times until it
    differs from that of A.

    With `swapped`, pairs are for sentence-order prediction, as in create_pretraining_data.py of
    ALBERT: B always follows A in the text, and with label 1 the two are swapped.

    With `fixed_lengths`, for packing, the target of a chunk is the same in every epoch and at most
    the length of the document, and pairs are truncated to it.
    """

    num_segments = 2

    def __init__(
        self,
        settings: RowSettings,
        short_sequence_probability: float = 0.1,
        faithful_negatives: bool = False,
        swapped: bool = False,
        fixed_lengths: bool = False,
    ):
        """Open the source; raise UserError if no pair can be made of the split."""
        if swapped and faithful_negatives:
            raise UserError(
                'faithful_negatives is about random segments, but ordered pairs have none: unset it'
            )
        super().__init__(settings)
        self._short_probability = short_sequence_probability
        self._faithful, self._swapped = faithful_negatives, swapped
        self._fixed_lengths = fixed_lengths
        documents = self._text.num_documents
        if documents < 2 and not swapped:
            raise UserError(
                f'this split of the corpus has {documents} document(s), but random next sentences '
                'come from other documents: separate the text into more documents, hold out more '
                'of them, or train without next-sentence prediction'
            )
        sentence_D = np.diff(self._text.first_sentence)
        self._count_chunks(sentence_D >= (1 if faithful_negatives else 2))
        if not self.num_examples:
            raise UserError(
                f'none of the {documents} documents has two sentences, so no sentence pair can be '
                'made: separate the text into longer documents, or train without predicting '
                'sentence pairs'
            )

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks, see `TextExampleSource.chunk_examples`.

        The label is next_sentence_label (1 = random), with `swapped` sentence_order_label
        (1 = swapped), int32 [B].
        """
        draws = sampling.random_bits(self._keys[DRAW], number_B, lanes=8)
        short, length, split, coin, partner, place, front_a, front_b = draws
        document_B, anchor_B = self._anchors(number_B, chunk_B)
        target_B = self._targets(short, length)
        if self._fixed_lengths:
            target_B = self._fixed_targets(document_B, chunk_B)
        limit_B = target_B if self._fixed_lengths else self._budget
        first_B, last_B = self._sentences(document_B, anchor_B, target_B)
        count_B = last_B - first_B
        middle_B = first_B + 1 + sampling.integers(split, np.maximum(count_B - 1, 1))
        label_B = self._labels(number_B, count_B, coin)
        edge_3B = self._text.sentence_start(np.concatenate([first_B, middle_B, last_B]))
        start_a, start_b, stop_b = edge_3B.reshape(3, -1)
        length_a, length_b = start_b - start_a, stop_b - start_b
        random_R = np.flatnonzero(label_B & (not self._swapped))
        other_R = self._partners(number_B[random_R], document_B[random_R], partner[random_R])
        wanted_R = (target_B - length_a)[random_R]
        start_b[random_R], length_b[random_R] = self._excerpt(other_R, place[random_R], wanted_R)
        kept_a, kept_b = truncated_lengths(length_a, length_b, limit_B)
        start_a += sampling.fair_coins(front_a, length_a - kept_a)
        start_b += sampling.fair_coins(front_b, length_b - kept_b)
        start_2B, kept_2B = np.stack([start_a, start_b]), np.stack([kept_a, kept_b])
        if self._swapped:
            start_2B, kept_2B = (np.where(label_B, x[::-1], x) for x in (start_2B, kept_2B))
        name = 'sentence_order_label' if self._swapped else 'next_sentence_label'
        batch = self._segment_rows(number_B, start_2B, kept_2B)
        return batch | {name: label_B.astype(np.int32)}

    def lengths(self) -> np.ndarray:
        if not self._fixed_lengths:
            return np.full(self.num_examples, self.sequence_length)
        document_N = np.repeat(np.arange(self._text.num_documents), np.diff(self._first_chunk))
        return self._fixed_targets(document_N, np.arange(self.num_examples)) + 3

    def _targets(self, short_B: np.ndarray, length_B: np.ndarray) -> np.ndarray:
        """The target lengths of chunks in tokens, from random bits."""
        return np.where(
            sampling.uniform(short_B) < self._short_probability,
            2 + sampling.integers(length_B, self._budget - 1),
            self._budget,
        )

    def _fixed_targets(self, document_B: np.ndarray, chunk_B: np.ndarray) -> np.ndarray:
        """The target lengths with `fixed_lengths`."""
        bits = sampling.random_bits(self._keys[TARGET], chunk_B, lanes=2)
        first_token = self._text.first_token
        tokens_B = first_token[document_B + 1] - first_token[document_B]
        return np.minimum(self._targets(*bits), np.maximum(tokens_B, 2))

    def _sentences(
        self, document_B: np.ndarray, anchor_B: np.ndarray, target_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First and end (exclusive) sentence of the chunks that start at the anchors."""
        text = self._text
        begin_B, end_B = text.first_sentence[document_B], text.first_sentence[document_B + 1]
        first_B = np.minimum(text.sentence_from(anchor_B), end_B - 1)
        last_B = self._fill(document_B, first_B, text.sentence_start(first_B), target_B)
        if not self._faithful:
            last_B += (last_B - first_B == 1) & (last_B < end_B)
            first_B -= (last_B - first_B == 1) & (first_B > begin_B)
        return first_B, last_B

    def _fill(
        self, document_B: np.ndarray, first_B: np.ndarray, start_B: np.ndarray, target_B: np.ndarray
    ) -> np.ndarray:
        """End (exclusive) of the sentences, from first_B on, that reach the target length."""
        text = self._text
        stop_B = np.minimum(start_B + target_B, text.first_token[document_B + 1])
        return np.maximum(text.sentence_from(stop_B), first_B + 1)

    def _labels(self, number_B: np.ndarray, count_B: np.ndarray, coin: np.ndarray) -> np.ndarray:
        if self._faithful:
            return (coin >> 63 == 1) | (count_B == 1)
        order_B = sampling.fold(self._keys[LABEL], number_B // 2) >> 63
        return (number_B & 1) ^ order_B.astype(np.int64)

    def _partners(
        self, number_R: np.ndarray, document_R: np.ndarray, bits_R: np.ndarray
    ) -> np.ndarray:
        """The documents of the random segments."""
        documents = self._text.num_documents
        if not self._faithful:
            other_R = sampling.integers(bits_R, documents - 1)
            return other_R + (other_R >= document_R)
        bits = sampling.random_bits(self._keys[REDRAW], number_R, lanes=10)
        draws = sampling.integers(bits, documents)
        other_R = draws[0]
        for draw_R in draws[1:]:
            other_R = np.where(other_R == document_R, draw_R, other_R)
        return other_R

    def _excerpt(
        self, document_R: np.ndarray, bits_R: np.ndarray, wanted_R: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """First token and length of random segments: sentences that reach the wanted length."""
        text = self._text
        begin_R, end_R = text.first_sentence[document_R], text.first_sentence[document_R + 1]
        first_R = begin_R + sampling.integers(bits_R, end_R - begin_R)
        start_R = text.sentence_start(first_R)
        last_R = self._fill(document_R, first_R, start_R, wanted_R)
        return start_R, text.sentence_start(last_R) - start_R


def truncated_lengths(
    length_a: np.ndarray, length_b: np.ndarray, budget: int | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths that truncate_seq_pair of the original BERT leaves of two segments.

    While both together exceed the budget, the longer one loses a token; B if they are equal.
    """
    kept_a = np.minimum(length_a, np.maximum(budget - length_b, -(-budget // 2)))
    return kept_a, np.minimum(length_b, budget - kept_a)
