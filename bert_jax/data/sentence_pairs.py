"""Examples cut out of a corpus while training: sentence pairs, or single segments.

Example number n = step · batch_size + row is a pure function of (seed, n): epoch n // num_examples,
chunk number permute(n % num_examples), and hashed draws for everything else (`packing` takes the
chunks of an epoch in another order). An epoch's list of
chunks exists only as a running count per document (24 bytes of memory per document); sentences and
tokens are read from the memory-mapped shards.
"""

import itertools

import numpy as np

from bert_jax.data import sampling
from bert_jax.data.example_source import Examples
from bert_jax.errors import UserError

# Purposes of random draws: each names a stream of its own under the same seed.
_ORDER, _CUT, _LABEL, _DRAW, _REDRAW, _TARGET = range(6)
_PURPOSES = 6


class Text:
    """The shards of a split read as one text, its documents, sentences and tokens numbered through.

    first_sentence, first_token: int64 [documents + 1], where each document starts (and ends).
    """

    def __init__(self, split):
        shards = split.shards
        self._tokens = [np.asarray(shard.tokens) for shard in shards]
        self._sentences = [np.asarray(shard.sentences) for shard in shards]
        self._token_base = _running_total([len(tokens) for tokens in self._tokens])
        self._sentence_base = _running_total([len(starts) - 1 for starts in self._sentences])
        sentence, token = [], []
        for number, shard in enumerate(shards):
            documents = np.asarray(shard.documents)[:-1]
            sentence.append(documents + self._sentence_base[number])
            token.append(self._sentences[number][documents] + self._token_base[number])
        self.first_sentence = np.concatenate([*sentence, self._sentence_base[-1:]])
        self.first_token = np.concatenate([*token, self._token_base[-1:]])

    @property
    def num_documents(self) -> int:
        return len(self.first_token) - 1

    def sentence_start(self, sentence_N: np.ndarray) -> np.ndarray:
        """The first token of sentences, int64 [N]; one past the last sentence gives the end."""
        return self._by_shard(
            self._sentence_base,
            sentence_N,
            lambda shard, local: self._sentences[shard].take(local) + self._token_base[shard],
        )

    def sentence_from(self, token_N: np.ndarray) -> np.ndarray:
        """The first sentence that starts at a token or after it, int64 [N]."""
        return self._by_shard(
            self._token_base,
            token_N,
            lambda shard, local: (
                self._sentences[shard].searchsorted(local) + self._sentence_base[shard]
            ),
        )

    def copy(self, output: np.ndarray, place_S, start_S, length_S):
        """Copies S runs of tokens into the flat array `output`, each to its place."""
        order_S = np.argsort(start_S)
        start_S, length_S, place_S = start_S[order_S], length_S[order_S], place_S[order_S]
        run_S = _running_total(length_S)
        flat_N = np.arange(run_S[-1])
        source_N = np.repeat(start_S - run_S[:-1], length_S)
        source_N += flat_N
        place_N = np.repeat(place_S - run_S[:-1], length_S)
        place_N += flat_N
        token_N = np.empty(len(flat_N), output.dtype)
        for shard, low, high in _parts(start_S, self._token_base):
            part = slice(run_S[low], run_S[high])
            token_N[part] = self._tokens[shard].take(source_N[part] - self._token_base[shard])
        output[place_N] = token_N

    def _by_shard(self, base, value_N, function):
        order_N = np.argsort(value_N)
        ordered_N = value_N[order_N]
        result_N = np.empty_like(ordered_N)
        for shard, low, high in _parts(ordered_N, base):
            result_N[order_N[low:high]] = function(shard, ordered_N[low:high] - base[shard])
        return result_N


class TextExamples(Examples):
    """What all examples cut out of a text share: their order, the cuts of documents, and how
    segments are put into rows. An epoch has one example of every chunk.

    A source has, beside `examples`,
        cut(number_B, chunk_B): examples of these numbers made of these chunks of an epoch.
        lengths(): int64 [num_examples], the most tokens, special ones included, that the example
            of each chunk has in any epoch.

    Attributes:
      sequence_length: T, tokens of a row.
      pad_id: the id of padding.
    """

    def __init__(
        self, split, tokenizer, sequence_length, batch_size, seed, num_special, mark_sentences
    ):
        self.batch_size = batch_size
        self._mark_sentences = mark_sentences
        self._text = Text(split)
        self._tokenizer = tokenizer
        self.pad_id = tokenizer.pad_id
        self.sequence_length = sequence_length
        self._budget = sequence_length - num_special
        self._keys = [sampling.key(seed, purpose) for purpose in range(_PURPOSES)]

    def _count(self, usable_D):
        """Cuts every usable document of n tokens into ceil(n / budget) chunks."""
        token_D = np.diff(self._text.first_token)
        chunk_D = np.where(usable_D, -(-token_D // self._budget), 0)
        self._first_chunk = _running_total(chunk_D)
        self._tokens_per_epoch = int(token_D[chunk_D > 0].sum())
        self.num_examples = int(self._first_chunk[-1])

    def statistics(self) -> dict[str, int]:
        """Counts for the log. tokens_per_epoch: text tokens that the chunks of an epoch cover."""
        text = self._text
        return {
            'documents': text.num_documents,
            'single_sentence_documents': int((np.diff(text.first_sentence) == 1).sum()),
            'documents_within_one_sequence': int((np.diff(text.first_token) <= self._budget).sum()),
            'examples_per_epoch': self.num_examples,
            'tokens_per_epoch': self._tokens_per_epoch,
        }

    def examples(self, number_B: np.ndarray) -> dict[str, np.ndarray]:
        """The examples of these numbers, see `cut`."""
        epoch_B, position_B = np.divmod(number_B, self.num_examples)
        order_B = sampling.fold(self._keys[_ORDER], epoch_B)
        return self.cut(number_B, sampling.permute(position_B, self.num_examples, order_B))

    def _anchors(self, number_B, chunk_B):
        """The document of each example, and the token from which its chunk is to start.

        Chunk 0 starts with the document; chunk j starts j · budget tokens later, less a shift drawn
        per epoch and document, so that every epoch cuts elsewhere. The shift is at most the slack
        (what the chunks could hold beyond the document's tokens), so that they miss nothing.
        """
        epoch_B = number_B // self.num_examples
        document_B = self._first_chunk.searchsorted(chunk_B, side='right') - 1
        first_B, end_B = self._first_chunk[document_B], self._first_chunk[document_B + 1]
        start_B, stop_B = self._text.first_token[document_B], self._text.first_token[document_B + 1]
        slack_B = (end_B - first_B) * self._budget - (stop_B - start_B)
        cut_B = sampling.fold(self._keys[_CUT], epoch_B, document_B)
        shift_B = sampling.integers(cut_B, slack_B + 1)
        nth_B = chunk_B - first_B
        return document_B, start_B + np.maximum(nth_B * self._budget - shift_B, 0)

    def _assemble(self, number_B, start_SB, length_SB):
        """[CLS] segment [SEP] (segment [SEP] …) [PAD] … from S runs of tokens a row, each with a
        type of its own."""
        end_SB = np.cumsum(length_SB + 1, axis=0)
        sep_SB = np.arange(len(number_B)) * self.sequence_length + end_SB
        runs = sep_SB.ravel(), start_SB.ravel(), length_SB.ravel()
        batch = self._filled(number_B, end_SB[-1] + 1, *runs)
        position_T = np.arange(self.sequence_length, dtype=np.int32)
        for end_B in end_SB[:-1]:
            batch['token_type_ids'] += position_T > end_B.astype(np.int32)[:, None]
        batch['token_type_ids'] *= batch['attention_mask']
        return batch

    def _filled(self, number_B, size_B, sep_R, start_R, length_R):
        """Rows of a batch, of these sizes, from runs of tokens: each ends at the [SEP] at place
        sep_R of the flat batch. All of type 0."""
        num_rows, token = len(number_B), self._tokenizer
        position_T = np.arange(self.sequence_length, dtype=np.int32)
        attention_BT = (position_T < size_B.astype(np.int32)[:, None]).astype(np.int32)
        flat_N = np.full(num_rows * self.sequence_length, self.pad_id, np.int32)
        flat_N[np.arange(num_rows) * self.sequence_length] = token.cls_id
        flat_N[sep_R] = token.sep_id
        runs = sep_R - length_R, start_R, length_R
        self._text.copy(flat_N, *runs)
        marks = {}
        if self._mark_sentences:
            starts_N = self._sentence_starts(len(flat_N), *runs)
            marks['sentence_start'] = starts_N.reshape(num_rows, -1)
        return marks | {
            'input_ids': flat_N.reshape(num_rows, self.sequence_length),
            'token_type_ids': np.zeros_like(attention_BT),
            'attention_mask': attention_BT,
            'example_index': (number_B % 2**31).astype(np.int32),
        }

    def _sentence_starts(self, size, place_S, start_S, length_S):
        """int32 [size], 1 where one of S runs of tokens, each put to its place, has the first token
        of a sentence."""
        first_S = self._text.sentence_from(start_S)
        count_S = self._text.sentence_from(start_S + length_S) - first_S
        run_S = _running_total(count_S)
        sentence_N = np.arange(run_S[-1]) + np.repeat(first_S - run_S[:-1], count_S)
        token_N = self._text.sentence_start(sentence_N)
        starts = np.zeros(size, np.int32)
        starts[token_N + np.repeat(place_S - start_S, count_S)] = 1
        return starts


class SentencePairs(TextExamples):
    """Pairs for next-sentence prediction, as create_pretraining_data.py of the original BERT.

    A chunk takes sentences until it holds the target length (all a row can, or with
    `short_sequence_probability` uniform from 2 up), or the document ends. A is its first sentences,
    at least one and not all. B is the rest (label 0), or sentences from another document (label 1).
    Whatever is too long is cut from the longer of the two, at either end.

    By default exactly one of the examples 2k and 2k + 1 has label 1, so every even batch is
    balanced; a chunk of one sentence takes a neighbor, and documents of one sentence serve only as
    B (see `statistics`). With `faithful_negatives` as in the original: labels are independent
    coins, chunks of one sentence always get label 1 (so that negatives exceed one half), and ten
    draws are made to find another document than A's, the last of which counts whatever it is.

    With `swapped` for sentence-order prediction, as in create_pretraining_data.py of ALBERT: B
    always follows A in the text, and with label 1 the two change places.

    With `fixed_lengths`, for packing, the target belongs to the chunk and is the same in every
    epoch; it is at most what the document has, and what is longer is cut to the target.
    """

    def __init__(
        self,
        split,
        tokenizer,
        sequence_length: int,
        batch_size: int,
        seed: int,
        short_sequence_probability: float = 0.1,
        faithful_negatives: bool = False,
        swapped: bool = False,
        mark_sentences: bool = False,
        fixed_lengths: bool = False,
    ):
        if sequence_length < 5:
            raise UserError(f'sequence length {sequence_length}: a sentence pair needs at least 5')
        if swapped and faithful_negatives:
            raise UserError('faithful_negatives are random partners; ordered pairs have none')
        super().__init__(split, tokenizer, sequence_length, batch_size, seed, 3, mark_sentences)
        self._short_probability = short_sequence_probability
        self._faithful = faithful_negatives
        self._swapped = swapped
        self._fixed_lengths = fixed_lengths
        documents = self._text.num_documents
        if documents < 2 and not swapped:
            raise UserError(
                f'this split of the corpus has {documents} document(s), but a random next sentence '
                'comes from another document: separate the text into more documents, hold out more '
                'of them, or train without next-sentence prediction'
            )
        sentence_D = np.diff(self._text.first_sentence)
        self._count(sentence_D >= (1 if faithful_negatives else 2))
        if not self.num_examples:
            raise UserError(
                f'none of the {documents} documents has two sentences, so no sentence pair can be '
                'made: separate the text into longer documents, or train without predicting '
                'sentence pairs'
            )

    def cut(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Examples of these numbers and chunks: input_ids, token_type_ids, attention_mask int32
        [B, T], example_index (number modulo 2^31) and next_sentence_label (1 = random), with
        `swapped` instead sentence_order_label (1 = swapped), int32 [B]."""
        draws = sampling.random_bits(self._keys[_DRAW], number_B, lanes=8)
        short, length, split, coin, partner, place, front_a, front_b = draws
        document_B, anchor_B = self._anchors(number_B, chunk_B)
        if self._fixed_lengths:
            limit_B = target_B = self._fixed_targets(document_B, chunk_B)
        else:
            limit_B, target_B = self._budget, self._targets(short, length)
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
        name = 'next_sentence_label'
        if self._swapped:
            name = 'sentence_order_label'
            start_2B, kept_2B = (np.where(label_B, x[::-1], x) for x in (start_2B, kept_2B))
        batch = self._assemble(number_B, start_2B, kept_2B)
        return batch | {name: label_B.astype(np.int32)}

    def lengths(self) -> np.ndarray:
        chunk_N = np.arange(self.num_examples)
        if not self._fixed_lengths:
            return np.full(self.num_examples, self.sequence_length)
        document_N = np.repeat(np.arange(self._text.num_documents), np.diff(self._first_chunk))
        return self._fixed_targets(document_N, chunk_N) + 3

    def _targets(self, short_B, length_B):
        """How many tokens chunks are to have, from random bits."""
        return np.where(
            sampling.uniform(short_B) < self._short_probability,
            2 + sampling.integers(length_B, self._budget - 1),
            self._budget,
        )

    def _fixed_targets(self, document_B, chunk_B):
        bits = sampling.random_bits(self._keys[_TARGET], chunk_B, lanes=2)
        first_token = self._text.first_token
        tokens_B = first_token[document_B + 1] - first_token[document_B]
        return np.minimum(self._targets(*bits), np.maximum(tokens_B, 2))

    def _sentences(self, document_B, anchor_B, target_B):
        """First and one past the last sentence of the chunks that start at the anchors."""
        text = self._text
        begin_B, end_B = text.first_sentence[document_B], text.first_sentence[document_B + 1]
        first_B = np.minimum(text.sentence_from(anchor_B), end_B - 1)
        last_B = self._fill(document_B, first_B, text.sentence_start(first_B), target_B)
        if not self._faithful:
            last_B += (last_B - first_B == 1) & (last_B < end_B)
            first_B -= (last_B - first_B == 1) & (first_B > begin_B)
        return first_B, last_B

    def _fill(self, document_B, first_B, start_B, target_B):
        """One past the last sentence needed for a target length from sentence first_B on."""
        text = self._text
        stop_B = np.minimum(start_B + target_B, text.first_token[document_B + 1])
        return np.maximum(text.sentence_from(stop_B), first_B + 1)

    def _labels(self, number_B, count_B, coin):
        if self._faithful:
            return (coin >> 63 == 1) | (count_B == 1)
        order_B = sampling.fold(self._keys[_LABEL], number_B // 2) >> 63
        return (number_B & 1) ^ order_B.astype(np.int64)

    def _partners(self, number_R, document_R, bits_R):
        """The documents that random segments come from."""
        documents = self._text.num_documents
        if not self._faithful:
            other_R = sampling.integers(bits_R, documents - 1)
            return other_R + (other_R >= document_R)
        bits = sampling.random_bits(self._keys[_REDRAW], number_R, lanes=10)
        draws = sampling.integers(bits, documents)
        other_R = draws[0]
        for draw_R in draws[1:]:
            other_R = np.where(other_R == document_R, draw_R, other_R)
        return other_R

    def _excerpt(self, document_R, bits_R, wanted_R):
        """Start and length of text from a uniform sentence on: at least one, to a wanted length."""
        text = self._text
        begin_R, end_R = text.first_sentence[document_R], text.first_sentence[document_R + 1]
        first_R = begin_R + sampling.integers(bits_R, end_R - begin_R)
        start_R = text.sentence_start(first_R)
        last_R = self._fill(document_R, first_R, start_R, wanted_R)
        return start_R, text.sentence_start(last_R) - start_R


class SingleSegments(TextExamples):
    """Contiguous text of one document a row, for training without next-sentence prediction.

    Every row is full, whatever sentences that cuts; the last of a document ends with it. Only
    documents within one sequence (see `statistics`) leave padding.
    """

    def __init__(
        self,
        split,
        tokenizer,
        sequence_length: int,
        batch_size: int,
        seed: int,
        mark_sentences: bool = False,
    ):
        if sequence_length < 3:
            raise UserError(f'sequence length {sequence_length}: a segment needs at least 3')
        super().__init__(split, tokenizer, sequence_length, batch_size, seed, 2, mark_sentences)
        self._count(True)
        if not self.num_examples:
            raise UserError('the corpus is empty: no example can be cut from it')

    def cut(self, number_B: np.ndarray, chunk_B: np.ndarray) -> dict[str, np.ndarray]:
        """Examples of these numbers and chunks: input_ids, token_type_ids, attention_mask int32
        [B, T] and example_index (number modulo 2^31) int32 [B]."""
        document_B, anchor_B = self._anchors(number_B, chunk_B)
        begin_B = self._text.first_token[document_B]
        end_B = self._text.first_token[document_B + 1]
        start_B = np.minimum(anchor_B, np.maximum(begin_B, end_B - self._budget))
        length_B = np.minimum(end_B - start_B, self._budget)
        return self._assemble(number_B, start_B[None], length_B[None])

    def lengths(self) -> np.ndarray:
        tokens_D = np.minimum(np.diff(self._text.first_token), self._budget)
        return np.repeat(tokens_D + 2, np.diff(self._first_chunk))


def truncated_lengths(length_a, length_b, budget: int):
    """What truncate_seq_pair of the original BERT leaves of two segments: while both together
    exceed the budget, a token goes from the longer one, or from B when they are equal."""
    kept_a = np.minimum(length_a, np.maximum(budget - length_b, -(-budget // 2)))
    return kept_a, np.minimum(length_b, budget - kept_a)


def _running_total(count_N) -> np.ndarray:
    """int64 [N + 1], starting with 0."""
    return np.concatenate([[0], np.cumsum(count_N, dtype=np.int64)])


def _parts(ordered_N, base_S):
    """(shard, low, high) for every shard that ordered numbers fall into."""
    edge_S = [0, *ordered_N.searchsorted(base_S[1:-1]), len(ordered_N)]
    for shard, (low, high) in enumerate(itertools.pairwise(edge_S)):
        if low < high:
            yield shard, low, high
