"""Rows of contiguous text from one document, in one segment or two."""

import numpy as np

from bert_jax import sampling
from bert_jax.examples.text_example_source import DRAW, LABEL, TextExampleSource

_ONE_SEGMENT = 0.1  # share of the rows of SplitSegments with only one segment


class SingleSegments(TextExampleSource):
    """One segment of contiguous text per row, for training without sentence pairs.

    Every row is full, even if this cuts a sentence; the last row of a document ends with the
    document. Only documents that fit into one row (see `statistics`) leave padding.
    """

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks; there are no labels."""
        start_B, length_B = self._chunk_runs(number_B, chunk_B)
        return self.make_segment_rows(number_B, start_B[None], length_B[None])

    def _chunk_runs(
        self, number_B: np.ndarray, chunk_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first token of the text of each example, and its number of tokens."""
        document_B, anchor_B = self.find_anchors(number_B, chunk_B)
        begin_B = self.text.first_token[document_B]
        end_B = self.text.first_token[document_B + 1]
        start_B = np.minimum(anchor_B, np.maximum(begin_B, end_B - self.budget))
        return start_B, np.minimum(end_B - start_B, self.budget)

    def lengths(self, chunk_N: np.ndarray) -> np.ndarray:
        document_N, first_token = self.find_documents(chunk_N), self.text.first_token
        num_special = self.num_segments + 1
        tokens_N = first_token[document_N + 1] - first_token[document_N]
        return np.asarray(np.minimum(tokens_N, self.budget) + num_special)


class SplitSegments(SingleSegments):
    """Contiguous text in two segments in 90 % of the rows (ELECTRA, Clark et al. 2020).

    The first segment has the sentences that fit into half of a row, at least one; the sentence in
    the middle of the row belongs to it in half of the rows. The second segment has the rest, if
    any.

    Source: google-research/electra, build_pretraining_dataset.py. There, a row takes sentences
    until it is full and drops the tokens that exceed it; here, rows are chunks of a document.
    """

    num_segments = 2

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks; there are no labels."""
        start_B, length_B = self._chunk_runs(number_B, chunk_B)
        first_B = self._first_lengths(number_B, start_B)
        is_single_B = sampling.uniform(sampling.fold(self.keys[LABEL], number_B)) < _ONE_SEGMENT
        has_second_B = ~is_single_B & (first_B < length_B) & (length_B >= self.budget // 2)
        first_B = np.where(has_second_B, first_B, length_B)
        second = np.flatnonzero(has_second_B)
        separator_B = np.arange(len(number_B)) * self.sequence_length + first_B + 1
        rest_S = (length_B - first_B)[second]
        batch = self.make_rows(
            number_B,
            length_B + 2 + has_second_B,
            np.concatenate([separator_B, separator_B[second] + rest_S + 1]),
            np.concatenate([start_B, (start_B + first_B)[second]]),
            np.concatenate([first_B, rest_S]),
        )
        is_second_BT = np.arange(self.sequence_length) > first_B[:, None] + 1
        batch['token_type_ids'] += is_second_BT * batch['attention_mask']
        return batch

    def _first_lengths(self, number_B: np.ndarray, start_B: np.ndarray) -> np.ndarray:
        """The number of tokens of the first segment, which may exceed the example's length."""
        middle_B = np.minimum(start_B + self.budget // 2, self.text.first_token[-1])
        sentence_B = self.text.sentence_from(middle_B)
        before_B = self.text.sentence_start(np.maximum(sentence_B - 1, 0))
        after_B = self.text.sentence_start(sentence_B)
        takes_middle_B = sampling.uniform(sampling.fold(self.keys[DRAW], number_B)) < 0.5
        end_B = np.where((before_B > start_B) & ~takes_middle_B, before_B, after_B)
        return np.asarray(end_B - start_B)
