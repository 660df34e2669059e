"""Rows of whole sentences (Liu et al. 2019, arXiv 1907.11692, section 4.2)."""

import numpy as np

from bert_jax.data.sentence_pairs import TextExamples
from bert_jax.errors import UserError


class FullSentences(TextExamples):
    """As many whole sentences in the order of the text as a row holds, without next-sentence
    prediction: FULL-SENTENCES, which go on over the ends of documents, with a separator between
    the texts of two; or, `within_documents`, DOC-SENTENCES, which do not.

    Which sentences a row has is fixed, as in RoBERTa; epochs differ in the order of the rows. A
    sentence that is longer than a row is cut into rows. No row spans two shards of the corpus.
    Uses 8 bytes of memory a row, and while it starts about 60 bytes a sentence of one shard.
    """

    def __init__(
        self,
        split,
        tokenizer,
        sequence_length: int,
        batch_size: int,
        seed: int,
        within_documents: bool = False,
        mark_sentences: bool = False,
    ):
        if sequence_length < 3:
            raise UserError(f'sequence length {sequence_length}: a sentence needs at least 3')
        super().__init__(split, tokenizer, sequence_length, batch_size, seed, 2, mark_sentences)
        edges, self._sentences_cut, base = [np.zeros(1, np.int64)], 0, 0
        for shard in split.shards:
            sentence_S1 = np.asarray(shard.sentences)
            edge_N1, cut = row_edges(
                sentence_S1, np.asarray(shard.documents), self._budget, within_documents
            )
            edges.append(edge_N1[1:] + base)
            self._sentences_cut += cut
            base += int(sentence_S1[-1])
        self._edge_N1 = np.concatenate(edges)
        self._tokens_per_epoch = base
        self.num_examples = len(self._edge_N1) - 1
        if not self.num_examples:
            raise UserError('the corpus is empty: no example can be cut from it')

    def cut(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Examples of these numbers and chunks: input_ids, token_type_ids (all 0), attention_mask
        int32 [B, T] and example_index (number modulo 2^31) int32 [B]."""
        first_B, stop_B = self._edge_N1[chunk_B], self._edge_N1[chunk_B + 1]
        document_B, more_B = self._documents_begun(first_B, stop_B)
        # A run of tokens for each document of a row, row after row.
        end_B = np.cumsum(more_B + 1)
        row_R = np.repeat(np.arange(len(chunk_B)), more_B + 1)
        nth_R = np.arange(len(row_R)) - (end_B - more_B - 1)[row_R]
        start_R = self._text.first_token[np.maximum(document_B[row_R] + nth_R - 1, 0)]
        start_R = np.where(nth_R == 0, first_B[row_R], start_R)
        length_R = np.append(start_R[1:], stop_B[-1])
        length_R[end_B - 1] = stop_B
        length_R -= start_R
        sep_R = row_R * self.sequence_length + start_R + length_R - first_B[row_R] + nth_R + 1
        return self._filled(number_B, stop_B - first_B + more_B + 2, sep_R, start_R, length_R)

    def lengths(self) -> np.ndarray:
        first_N, stop_N = self._edge_N1[:-1], self._edge_N1[1:]
        return stop_N - first_N + self._documents_begun(first_N, stop_N)[1] + 2

    def _documents_begun(self, first_N, stop_N):
        """The first document that begins after a row's first token, and how many begin in it
        after that."""
        first_token = self._text.first_token
        document_N = first_token.searchsorted(first_N, side='right')
        return document_N, first_token.searchsorted(stop_N) - document_N

    def statistics(self) -> dict[str, int]:
        """Counts for the log. sentences_cut: those longer than a row."""
        return {
            'documents': self._text.num_documents,
            'sentences_cut': self._sentences_cut,
            'examples_per_epoch': self.num_examples,
            'tokens_per_epoch': self._tokens_per_epoch,
        }


def row_edges(sentence_S1, document_D1, budget: int, within_documents: bool):
    """(the tokens of a shard at which rows begin, and its end, int64 [N + 1]; how many sentences
    were cut).

    sentence_S1: int64, first token of each sentence, then the number of tokens.
    document_D1: int64, first sentence of each document, then the number of sentences.
    budget: tokens and separators between documents that a row holds.

    For every sentence it is looked up at once where a row that begins with it would end; doubling
    the part of the way that is known follows these links in log₂ N passes.
    """
    length_S = np.diff(sentence_S1)
    pieces_S = -(-length_S // budget)
    before_S = np.cumsum(pieces_S) - pieces_S
    nth_P = np.arange(pieces_S.sum()) - np.repeat(before_S, pieces_S)
    first_P = np.repeat(sentence_S1[:-1], pieces_S) + budget * nth_P
    stop_P = np.append(first_P[1:], sentence_S1[-1])
    begin_D = sentence_S1[document_D1[:-1]]
    document_P = begin_D.searchsorted(first_P, side='right') - 1
    # With the separators counted, a row from piece p takes those up to budget + this number of p.
    next_P = (stop_P + document_P).searchsorted(first_P + document_P + budget, side='right')
    if within_documents:
        last_D = np.append(first_P.searchsorted(begin_D[1:]), len(first_P))
        next_P = np.minimum(next_P, last_D[document_P])
    token_P1 = np.append(first_P, sentence_S1[-1])
    return token_P1[_chain(next_P)], int((pieces_S > 1).sum())


def _chain(next_P: np.ndarray) -> np.ndarray:
    """0, next[0], next[next[0]], … to len(next); every next lies further on."""
    end = len(next_P)
    jump_P1 = np.append(next_P, end)  # 2^k links at once
    reached_N = np.zeros(1, np.int64)
    while reached_N[-1] < end:
        reached_N = np.concatenate([reached_N, jump_P1[reached_N]])
        jump_P1 = jump_P1[jump_P1]
    return reached_N[: reached_N.searchsorted(end) + 1]
