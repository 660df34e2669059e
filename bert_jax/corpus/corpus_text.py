"""Random access to the text of a split: documents, sentences and tokens by global index."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from bert_jax.corpus.corpus import Split


class CorpusText:
    """The shards of a split as one text, whose documents, sentences and tokens are numbered.

    Attributes:
        first_sentence: int64 [documents + 1], first sentence of each document, then the total.
        first_token: int64 [documents + 1], first token of each document, then the total.
    """

    def __init__(self, split: Split):
        shards = split.shards
        self._files = [shard.files for shard in shards]
        self._tokens = [shard.tokens.view(np.ndarray) for shard in shards]
        self._sentences = [shard.sentences.view(np.ndarray) for shard in shards]
        self._token_base = running_total([len(tokens) for tokens in self._tokens])
        self._sentence_base = running_total([len(starts) - 1 for starts in self._sentences])
        first_sentences, first_tokens = [], []
        for number, shard in enumerate(shards):
            documents = np.asarray(shard.documents)[:-1]
            first_sentences.append(documents + self._sentence_base[number])
            first_tokens.append(self._sentences[number][documents] + self._token_base[number])
        self.first_sentence = np.concatenate([*first_sentences, self._sentence_base[-1:]])
        self.first_token = np.concatenate([*first_tokens, self._token_base[-1:]])

    @property
    def num_documents(self) -> int:
        return len(self.first_token) - 1

    def sentence_start(self, sentence_N: np.ndarray) -> np.ndarray:
        """Return the first token of each sentence, int64 [N]; past the last, the token count."""
        return self._by_shard(
            self._sentence_base,
            sentence_N,
            lambda shard, local: self._sentences[shard].take(local) + self._token_base[shard],
        )

    def sentence_from(self, token_N: np.ndarray) -> np.ndarray:
        """Return the first sentence that starts at or after each token, int64 [N]."""
        return self._by_shard(
            self._token_base,
            token_N,
            lambda shard, local: (
                self._sentences[shard].searchsorted(local) + self._sentence_base[shard]
            ),
        )

    def copy(
        self, output: np.ndarray, target_R: np.ndarray, start_R: np.ndarray, length_R: np.ndarray
    ) -> None:
        """Copy R runs of tokens into a flat array.

        Args:
            output: The array, updated in place.
            target_R: Where each run goes in `output`.
            start_R: First token of each run.
            length_R: Tokens of each run.
        """
        order_R = np.argsort(start_R)
        start_R, length_R, target_R = start_R[order_R], length_R[order_R], target_R[order_R]
        total_R = running_total(length_R)
        flat_X = np.arange(total_R[-1])
        source_X = np.repeat(start_R - total_R[:-1], length_R)
        source_X += flat_X
        target_X = np.repeat(target_R - total_R[:-1], length_R)
        target_X += flat_X
        token_X = np.empty(len(flat_X), output.dtype)
        for shard, low, high in _shard_ranges(start_R, self._token_base):
            self._check_unchanged(shard)
            part = slice(total_R[low], total_R[high])
            token_X[part] = self._tokens[shard].take(source_X[part] - self._token_base[shard])
        output[target_X] = token_X

    def _by_shard(
        self,
        base: np.ndarray,
        index_N: np.ndarray,
        function: Callable[[int, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Apply function(shard, local indices) to the global indices of each shard."""
        order_N = np.argsort(index_N)
        sorted_N = index_N[order_N]
        result_N = np.empty_like(sorted_N)
        for shard, low, high in _shard_ranges(sorted_N, base):
            self._check_unchanged(shard)
            result_N[order_N[low:high]] = function(shard, sorted_N[low:high] - base[shard])
        return result_N

    def _check_unchanged(self, shard: int) -> None:
        """Raise UserError if a file of a shard has changed since the shard was opened."""
        for file in self._files[shard]:
            file.check()


def running_total(count_N: np.ndarray | list[int]) -> np.ndarray:
    """Return the sums of the first 0, 1, …, N counts: int64 [N + 1]."""
    return np.concatenate([[0], np.cumsum(count_N, dtype=np.int64)])


def _shard_ranges(sorted_N: np.ndarray, base_S: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield (shard, low, high): the entries low … high − 1 of `sorted_N` lie in this shard."""
    edges = [0, *sorted_N.searchsorted(base_S[1:-1]), len(sorted_N)]
    for shard, (low, high) in enumerate(itertools.pairwise(edges)):
        if low < high:
            yield shard, low, high
