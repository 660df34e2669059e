"""Rows of whole sentences (Liu et al. 2019, arXiv 1907.11692, section 4.2)."""

import numpy as np

from bert_jax.examples.text_example_source import RowSettings, TextExampleSource


class FullSentences(TextExampleSource):
    """As many whole consecutive sentences as fit into a row, without next-sentence prediction.

    By default FULL-SENTENCES: rows cross document boundaries, with a separator between documents.
    With `within_documents`, DOC-SENTENCES: rows do not cross them.

    The sentences of a row are fixed, as in RoBERTa; epochs differ in the order of the rows. A
    sentence longer than a row is cut into rows. No row spans two shards of the corpus. Uses 8 bytes
    of memory per row and, during construction, about 60 bytes per sentence of one shard.
    """

    def __init__(self, settings: RowSettings, within_documents: bool = False):
        super().__init__(settings)
        edges, self._sentences_cut, base = [np.zeros(1, np.int64)], 0, 0
        for shard in settings.split.shards:
            sentence_S1, document_D1 = np.asarray(shard.sentences), np.asarray(shard.documents)
            edge_N1, num_cut = row_edges(sentence_S1, document_D1, self.budget, within_documents)
            edges.append(edge_N1[1:] + base)
            self._sentences_cut += num_cut
            base += int(sentence_S1[-1])
        self._edge_N1 = np.concatenate(edges)
        self.num_examples = len(self._edge_N1) - 1

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks; token_type_ids is 0, and there are no labels."""
        first_B, stop_B = self._edge_N1[chunk_B], self._edge_N1[chunk_B + 1]
        document_B, more_B = self._documents_started(first_B, stop_B)
        # One run of tokens for each document in a row, row after row.
        end_B = np.cumsum(more_B + 1)
        row_R = np.repeat(np.arange(len(chunk_B)), more_B + 1)
        nth_R = np.arange(len(row_R)) - (end_B - more_B - 1)[row_R]
        start_R = self.text.first_token[np.maximum(document_B[row_R] + nth_R - 1, 0)]
        start_R = np.where(nth_R == 0, first_B[row_R], start_R)
        length_R = np.append(start_R[1:], stop_B[-1])
        length_R[end_B - 1] = stop_B
        length_R -= start_R
        separator_R = row_R * self.sequence_length + start_R + length_R - first_B[row_R] + nth_R + 1
        return self.make_rows(
            number_B, stop_B - first_B + more_B + 2, separator_R, start_R, length_R
        )

    def lengths(self, chunk_N: np.ndarray) -> np.ndarray:
        first_N, stop_N = self._edge_N1[chunk_N], self._edge_N1[chunk_N + 1]
        return np.asarray(stop_N - first_N + self._documents_started(first_N, stop_N)[1] + 2)

    def _documents_started(
        self, first_N: np.ndarray, stop_N: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next document after each row's first token, and how many start in the row."""
        first_token = self.text.first_token
        document_N = first_token.searchsorted(first_N, side='right')
        return document_N, first_token.searchsorted(stop_N) - document_N

    def statistics(self) -> dict[str, int]:
        """Return counts for the log; sentences_cut counts sentences longer than a row."""
        return {
            'documents': self.text.num_documents,
            'sentences_cut': self._sentences_cut,
            'examples_per_epoch': self.num_examples,
            'tokens_per_epoch': self.tokens_per_epoch,
        }


def row_edges(
    sentence_S1: np.ndarray, document_D1: np.ndarray, budget: int, within_documents: bool
) -> tuple[np.ndarray, int]:
    """Divide the tokens of a shard into rows of whole sentences.

    For all sentences at once, finds where a row that starts with the sentence would end. These
    links form chains; the rows are the chain from the first sentence, followed in log₂ N passes.

    Args:
        sentence_S1: int64, first token of each sentence, and the number of tokens.
        document_D1: int64, first sentence of each document, and the number of sentences.
        budget: Tokens and separators between documents that fit into a row.
        within_documents: Whether rows end at document boundaries.

    Returns:
        The first token of each row, and the number of tokens, int64 [N + 1]; and the number of
        sentences that are longer than a row and were cut.
    """
    length_S = np.diff(sentence_S1)
    pieces_S = -(-length_S // budget)
    before_S = np.cumsum(pieces_S) - pieces_S
    nth_P = np.arange(pieces_S.sum()) - np.repeat(before_S, pieces_S)
    first_P = np.repeat(sentence_S1[:-1], pieces_S) + budget * nth_P
    stop_P = np.append(first_P[1:], sentence_S1[-1])
    begin_D = sentence_S1[document_D1[:-1]]
    document_P = begin_D.searchsorted(first_P, side='right') - 1
    # Adding document numbers to positions counts the separators toward the budget of a row.
    next_P = (stop_P + document_P).searchsorted(first_P + document_P + budget, side='right')
    if within_documents:
        last_D = np.append(first_P.searchsorted(begin_D[1:]), len(first_P))
        next_P = np.minimum(next_P, last_D[document_P])
    token_P1 = np.append(first_P, sentence_S1[-1])
    return token_P1[_chain(next_P)], int((pieces_S > 1).sum())


def _chain(next_P: np.ndarray) -> np.ndarray:
    """Return 0, next[0], next[next[0]], …, len(next), where next[p] > p."""
    end = len(next_P)
    jump_P1 = np.append(next_P, end)  # follows 2^k links
    reached_N = np.zeros(1, np.int64)
    while reached_N[-1] < end:
        reached_N = np.concatenate([reached_N, jump_P1[reached_N]])
        jump_P1 = jump_P1[jump_P1]
    return reached_N[: reached_N.searchsorted(end) + 1]
