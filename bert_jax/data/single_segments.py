"""Rows of contiguous text from one document."""

import numpy as np

from bert_jax.data.text_example_source import TextExampleSource


class SingleSegments(TextExampleSource):
    """One segment of contiguous text per row, for training without sentence pairs.

    Every row is full, even if this cuts a sentence; the last row of a document ends with it. Only
    documents that fit into one row (see `statistics`) leave padding.
    """

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks; there are no labels."""
        document_B, anchor_B = self._anchors(number_B, chunk_B)
        begin_B = self._text.first_token[document_B]
        end_B = self._text.first_token[document_B + 1]
        start_B = np.minimum(anchor_B, np.maximum(begin_B, end_B - self._budget))
        length_B = np.minimum(end_B - start_B, self._budget)
        return self._segment_rows(number_B, start_B[None], length_B[None])

    def lengths(self, chunk_N: np.ndarray) -> np.ndarray:
        document_N, first_token = self._chunk_documents(chunk_N), self._text.first_token
        return np.minimum(first_token[document_N + 1] - first_token[document_N], self._budget) + 2
