"""Answers (a verbalizer): the words that stand for each class at [MASK]."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError, join_first
from bert_jax.tokenizers import Tokenizer


class PromptAnswer(NamedTuple):
    """A word or phrase that stands for a class.

    Attributes:
        label: the class.
        word: the answer as it was written.
        pieces: the ids of its subwords, int32 [k].
    """

    label: str
    word: str
    pieces: np.ndarray


class Answers:
    """The answers of all classes.

    Attributes:
        all: the A answers, grouped by class in the order of `labels`.
        lengths: the distinct numbers of pieces, increasing.
        length_A: number of pieces of each answer, int64 [A].
        pieces_AK: token ids, int32 [A, K], padded with 0; K is the largest number of pieces.
        is_piece_AK: bool [A, K].
        share_CA: fp32 [C, A]: 1 / number of answers of the class for its answers, else 0.
    """

    def __init__(
        self, specs: Sequence[str], labels: Sequence[str], tokenizer: Tokenizer, is_spaced: bool
    ) -> None:
        """Tokenize the answers.

        Args:
            specs: 'LABEL=WORD|WORD …', or a word that is its own label; (): the labels.
            labels: class names in the order of their numbers.
            tokenizer: the tokenizer of the model.
            is_spaced: whether a byte-level BPE encodes answers with a space before them.

        Raises:
            UserError: a label without an answer, an unknown label, an answer with unknown
                characters, or two answers with the same tokens.
        """
        if not labels:
            raise UserError('there are no answers; give them as LABEL=WORD or LABEL=WORD|WORD')
        words = parse(specs or labels)
        if missing := [label for label in labels if label not in words]:
            raise UserError(
                f'there is no answer for the class {missing[0]!r}, only for {join_first(words)}; '
                'give answers as LABEL=WORD'
            )
        if extra := [label for label in words if label not in labels]:
            raise UserError(f'answers for {extra[0]!r}, but the classes are {join_first(labels)}')
        self.all = [
            PromptAnswer(label, word, _pieces(word, label, tokenizer, is_spaced))
            for label in labels
            for word in words[label]
        ]
        _check_distinct(self.all, tokenizer)
        self.length_A = np.array([len(answer.pieces) for answer in self.all])
        self.lengths = sorted(set(self.length_A.tolist()))
        self.is_piece_AK = np.arange(self.lengths[-1]) < self.length_A[:, None]
        self.pieces_AK = np.zeros(self.is_piece_AK.shape, np.int32)
        self.pieces_AK[self.is_piece_AK] = np.concatenate([answer.pieces for answer in self.all])
        label_A = np.array([answer.label for answer in self.all])
        is_of_class_CA = np.array(labels)[:, None] == label_A
        self.share_CA = (is_of_class_CA / is_of_class_CA.sum(1, keepdims=True)).astype(np.float32)


def parse(specs: Sequence[str]) -> dict[str, list[str]]:
    """Return label → words for 'LABEL=WORD|WORD' or 'WORD'. Raises UserError for an empty word."""
    words_by_label: dict[str, list[str]] = {}
    for spec in specs:
        label, equals, right = spec.partition('=')
        words = [word.strip() for word in (right if equals else label).split('|')]
        if not label or not all(words) or label in words_by_label:
            raise UserError(
                f'the answer {spec!r} has no label, an empty word, or a label that already has '
                'answers; give answers as LABEL=WORD or LABEL=WORD|WORD'
            )
        words_by_label[label] = words
    return words_by_label


def _pieces(word: str, label: str, tokenizer: Tokenizer, is_spaced: bool) -> np.ndarray:
    prefix = tokenizer.sentence_prefix if is_spaced else ''
    (ids,) = tokenizer.encode_batch([prefix + word], special=True).ids
    if not len(ids) or tokenizer.is_unknown(ids).any():
        raise UserError(
            f'the answer {word!r} of {label!r} has characters that the tokenizer does not know; '
            'choose another word'
        )
    return ids


def _check_distinct(answers: Sequence[PromptAnswer], tokenizer: Tokenizer) -> None:
    for first, second in itertools.combinations(answers, 2):
        if np.array_equal(first.pieces, second.pieces):
            tokens = ' '.join(tokenizer.vocab[index] for index in first.pieces)
            raise UserError(
                f'the answers {first.word!r} of {first.label!r} and {second.word!r} of '
                f'{second.label!r} are the same tokens ({tokens}); choose other words'
            )
