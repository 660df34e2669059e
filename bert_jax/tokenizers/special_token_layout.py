"""Special tokens and token types around one text or two."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.special_tokens import CLS_TYPE


class LaidOutSequence(NamedTuple):
    """A sequence with its special tokens.

    Attributes:
        ids: int32 [N].
        token_type_ids: int32 [N].
        starts: Index of the first token of each text.
        cls_position: Index of [CLS].
    """

    ids: np.ndarray
    token_type_ids: np.ndarray
    starts: tuple[int, ...]
    cls_position: int = 0


class SpecialTokenLayout:
    """The layout of one text or two with their special tokens.

    [CLS] A [SEP] and [CLS] A [SEP] B [SEP] with token types 0 and 1 (BERT, ALBERT, DeBERTa); or,
    for a model without token types whose tokenizer has <s>, <s> A </s> and <s> A </s> </s> B </s>
    (RoBERTa, XLM-R); or, for a tokenizer with [CLS] last, A [SEP] [CLS] and A [SEP] B [SEP] [CLS]
    with token types 0, 1 and, for [CLS], 2 (XLNet). A tokenizer whose texts start without a special
    token has A </s> and A </s> B </s> (T5) or, with a language behind </s>, A </s> [en] and
    A B </s> [en] (mBART). A tokenizer that puts no token around a text (GPT-2) has END A END and
    END A END B END with END = <|endoftext|>; or A and A B, as transformers reads them, if
    `is_plain`.

    Attributes:
        tokenizer: The tokenizer of the texts.
        max_length: Longest sequence in tokens, special tokens included.
        is_plain: Whether texts have no special tokens around them.
        has_types: Whether the model has token types that tell texts apart.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        type_vocab_size: int,
        *,
        is_published: bool = False,
    ):
        """Prepare a layout.

        Args:
            tokenizer, max_length: See the class.
            type_vocab_size: Number of token types.
            is_published: Whether the model was fine-tuned with rows of transformers.
        """
        self.tokenizer, self.max_length = tokenizer, max_length
        self.is_plain = is_published and tokenizer.adds_nothing
        self.has_types = type_vocab_size > 1
        self._start = [tokenizer.cls_id] if tokenizer.text_start and not self.is_plain else []
        self._end = [] if self.is_plain else [tokenizer.sep_id, *tokenizer.suffix_ids]
        is_roberta = tokenizer.vocab[tokenizer.first_id] == '<s>' and not self.has_types
        has_none = bool(tokenizer.suffix_ids) or self.is_plain
        self._num_separators = 0 if has_none else 2 if is_roberta else 1

    def max_text_tokens(self, num_texts: int) -> int:
        """Return the number of text tokens that fit into a sequence of this many texts."""
        around = len(self._start) + len(self._end) + self.tokenizer.is_cls_last
        return self.max_length - around - (num_texts - 1) * self._num_separators

    def lay_out(self, *texts: np.ndarray) -> LaidOutSequence:
        """Return the sequence of one text or two, given as token ids."""
        ids, starts = [*self._start], []
        types = [0] * len(ids)
        for number, text in enumerate(texts):
            separators = [self.tokenizer.sep_id] * (self._num_separators if number else 0)
            starts.append(len(ids) + len(separators))
            ids += [*separators, *text]
            types += [max(number - 1, 0) * self.has_types] * len(separators)
            types += [number * self.has_types] * len(text)
        end = self._end if ids or self._end else [self.tokenizer.sep_id]  # no row is empty
        ids += end
        types += [max(len(texts) - 1, 0) * self.has_types] * len(end)
        cls_position = 0
        if self.tokenizer.is_cls_last:
            cls_position = len(ids)
            ids.append(self.tokenizer.cls_id)
            types.append(CLS_TYPE * self.has_types)
        arrays = np.array(ids, np.int32), np.array(types, np.int32)
        return LaidOutSequence(*arrays, tuple(starts), cls_position)


def truncate_longest_first(texts: Sequence[np.ndarray], max_tokens: int) -> list[np.ndarray]:
    """Truncate texts at their ends, always the longest by one token, until all fit together.

    After google-research/bert, run_classifier.py, _truncate_seq_pair.
    """
    lengths = [len(text) for text in texts]
    while sum(lengths) > max_tokens:
        longest = max(range(len(texts)), key=lambda number: (lengths[number], number))
        lengths[longest] -= 1
    return [text[:length] for text, length in zip(texts, lengths, strict=True)]
