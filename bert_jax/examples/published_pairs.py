"""Sentence pairs drawn as in create_pretraining_data.py of the original BERT and of ALBERT."""

import functools
import threading

import numpy as np

from bert_jax import sampling
from bert_jax.examples.sentence_pairs import Chunks, PairSource
from bert_jax.examples.text_example_source import DRAW, LABEL, ORDER, REDRAW, TARGET, RowSettings

PASSES = 10  # different passes over the text (dupe_factor); epoch e repeats pass e mod 10


class PublishedPairs(PairSource):
    """Sentence pairs as in the original code; see `PairSource`.

    A pass over the text cuts each document into chunks one after the other. If the end of a chunk
    is replaced by a random segment, the next chunk starts with the sentences that were replaced, so
    every sentence is in A or a true B once. The target length is drawn for each document. Labels
    are independent coin flips, and chunks of one sentence always get label 1, so more than half of
    the labels are 1. The random document is drawn up to ten times until it is not the document of
    A.

    With `swapped`, pairs are for sentence-order prediction, as in the code of ALBERT: with label 1
    the segments are swapped, except that chunks of one sentence get a random segment.

    An epoch is a pass in random order. The lengths of earlier passes determine where it starts and
    are computed when needed (some µs and 8 bytes of memory per example). With `fixed_lengths`, all
    epochs are the first pass.

    Source: create_instances_from_document.
    """

    def __init__(
        self,
        settings: RowSettings,
        short_sequence_probability: float = 0.1,
        swapped: bool = False,
        fixed_lengths: bool = False,
    ):
        """Open the source; raise UserError if random segments need more documents."""
        super().__init__(settings, short_sequence_probability, swapped, fixed_lengths)
        self._pass = functools.lru_cache(maxsize=2)(self._first_sentences)
        self._lock = threading.Lock()  # of the reading threads
        self._ends: list[int] = []  # examples up to the end of each pass known so far
        self.num_examples = len(self._pass(0))

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return the examples with these numbers; see `TextExampleSource.chunk_examples`."""
        epoch_B, position_B, size_B = self._locate(number_B)
        order_B = sampling.fold(self.keys[ORDER], epoch_B)
        chunk_B = sampling.permute(position_B, size_B, order_B)
        pass_B = epoch_B % PASSES
        first_B = np.empty_like(chunk_B)
        for number in np.unique(pass_B).tolist():
            is_in_pass_B = pass_B == number
            first_B[is_in_pass_B] = self._pass(number)[chunk_B[is_in_pass_B]]
        return self._examples(number_B, pass_B, first_B)

    def chunk_examples(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Return examples made of chunks of the first pass."""
        return self._examples(number_B, np.zeros_like(chunk_B), self._pass(0)[chunk_B])

    def lengths(self, chunk_N: np.ndarray) -> np.ndarray:
        if not self._fixed_lengths:
            return np.full(len(chunk_N), self.sequence_length)
        first_N = self._pass(0)[chunk_N]
        return self._chunks(np.zeros_like(first_N), self._documents(first_N), first_N).target + 3

    def _locate(self, number_B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The epoch of each example, its position in the epoch, and the examples of the epoch."""
        with self._lock:
            while len(self._ends) < PASSES and not (self._ends and self._ends[-1] > number_B.max()):
                before = self._ends[-1] if self._ends else 0
                self._ends.append(before + len(self._pass(len(self._ends))))
        edge_P = np.array([0, *self._ends])
        cycle_B, number_B = np.divmod(number_B, edge_P[-1])
        pass_B = edge_P.searchsorted(number_B, side='right') - 1
        size_B = edge_P[pass_B + 1] - edge_P[pass_B]
        return cycle_B * PASSES + pass_B, number_B - edge_P[pass_B], size_B

    def _first_sentences(self, number: int) -> np.ndarray:
        """The first sentence of each chunk of a pass, int64 [chunks].

        Walks through all documents at once, a chunk of each at a time.
        """
        document_D = np.arange(self.text.num_documents)
        first_D, first_sentences = self.text.first_sentence[:-1], []
        while document_D.size:
            first_sentences.append(first_D)
            chunks = self._chunks(np.full_like(first_D, number), document_D, first_D)
            next_D = np.where(chunks.is_random, chunks.middle, chunks.last)
            is_open_D = next_D < self.text.first_sentence[document_D + 1]
            document_D, first_D = document_D[is_open_D], next_D[is_open_D]
        return np.concatenate(first_sentences)

    def _chunks(self, pass_B: np.ndarray, document_B: np.ndarray, first_B: np.ndarray) -> Chunks:
        """The chunks of passes that start with these sentences."""
        bits = sampling.random_bits(sampling.fold(self.keys[TARGET], pass_B), document_B, lanes=2)
        target_B = self._targets(*bits)
        if self._fixed_lengths:
            target_B = self._at_most_document(target_B, document_B)
        last_B = self._fill(document_B, first_B, self.text.sentence_start(first_B), target_B)
        key_B = sampling.fold(self.keys[LABEL], pass_B)
        split, coin = sampling.random_bits(key_B, first_B, lanes=2)
        count_B = last_B - first_B
        middle_B = first_B + 1 + sampling.integers(split, np.maximum(count_B - 1, 1))
        label_B = (count_B == 1) | (coin >> 63 == 1)
        is_random_B = (count_B == 1) if self._swapped else label_B
        return Chunks(document_B, first_B, middle_B, last_B, target_B, label_B, is_random_B)

    def _examples(
        self, number_B: np.ndarray, pass_B: np.ndarray, first_B: np.ndarray
    ) -> dict[str, np.ndarray]:
        chunks = self._chunks(pass_B, self._documents(first_B), first_B)
        bits_4B = sampling.random_bits(self.keys[DRAW], number_B, lanes=4)
        return self._pairs(number_B, chunks, bits_4B)

    def _documents(self, sentence_N: np.ndarray) -> np.ndarray:
        return self.text.first_sentence.searchsorted(sentence_N, side='right') - 1

    def _partners(
        self, number_R: np.ndarray, document_R: np.ndarray, bits_R: np.ndarray
    ) -> np.ndarray:
        bits = sampling.random_bits(self.keys[REDRAW], number_R, lanes=10)
        draws = sampling.integers(bits, self.text.num_documents)
        other_R: np.ndarray = draws[0]
        for draw_R in draws[1:]:
            other_R = np.where(other_R == document_R, draw_R, other_R)
        return other_R
