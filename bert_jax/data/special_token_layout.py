"""One text or two as a model wants them: between special tokens, in types."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.tokenizers import Tokenizer


class Framed(NamedTuple):
    """ids, token_type_ids: int32 [n], special tokens included; starts: where each text begins."""

    ids: np.ndarray
    token_type_ids: np.ndarray
    starts: tuple[int, ...]


class Framing:
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP] with types 0 and 1 (BERT, ALBERT, DeBERTa), or, for
    models without types whose text starts with <s>, <s> A </s> </s> B </s> (RoBERTa, XLM-R).

    Attributes:
      max_length: tokens of a sequence, special ones included.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int, type_vocab_size: int):
        self.tokenizer, self.max_length = tokenizer, max_length
        self._types = type_vocab_size > 1
        roberta = tokenizer.vocab[tokenizer.cls_id] == '<s>' and not self._types
        self._between = (tokenizer.sep_id,) * (2 if roberta else 1)

    def room(self, num_texts: int) -> int:
        """Tokens left for the texts of a sequence."""
        return self.max_length - 2 - (num_texts - 1) * len(self._between)

    def frame(self, *parts: np.ndarray) -> Framed:
        """The sequence of one or two texts given by their ids."""
        ids, types, starts = [self.tokenizer.cls_id], [0], []
        for number, part in enumerate(parts):
            if number:
                ids += self._between[1:]
                types += [0] * len(self._between[1:])
            starts.append(len(ids))
            ids += [*part, self.tokenizer.sep_id]
            types += [number if self._types else 0] * (len(part) + 1)
        return Framed(np.array(ids, np.int32), np.array(types, np.int32), tuple(starts))


def shorten(parts: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """The parts cut at their ends, always the longest by one, until they fit together
    (google-research/bert, run_classifier.py, _truncate_seq_pair)."""
    lengths = [len(part) for part in parts]
    while sum(lengths) > room:
        longest = max(range(len(parts)), key=lambda number: (lengths[number], number))
        lengths[longest] -= 1
    return [part[:length] for part, length in zip(parts, lengths, strict=True)]
