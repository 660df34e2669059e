"""Trains tokenizers on texts."""

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any

from bert_jax import errors
from bert_jax.data.tokenizers import byte_bpe, sentence_piece, special_tokens, wordpiece
from bert_jax.data.tokenizers.cached_encoding import encodable
from bert_jax.data.tokenizers.tokenizer import Tokenizer

# Kind → trainer: (size, texts, lowercase) → settings, the contents of a tokenizer.json.
TRAINERS: dict[str, Callable[[int, list[str], bool], dict[str, Any]]] = {
    'wordpiece': wordpiece.train,
    'bytebpe': byte_bpe.train,
    'unigram': functools.partial(sentence_piece.train, 'unigram'),
    'sentencepiece-bpe': functools.partial(sentence_piece.train, 'bpe'),
}


def train(spec: str, texts: Iterable[str], lowercase: bool = True) -> Tokenizer:
    """Train a tokenizer, deterministically.

    Args:
        spec: Kind and size, such as 'wordpiece:8000'; see `TRAINERS` for the kinds.
        texts: The texts; all are kept in memory, see `training_text.sample`.
        lowercase: Whether the tokenizer lowercases.

    Raises:
        UserError: The kind is unknown, the size is invalid, or the texts have no words.
    """
    kind, _, size = spec.partition(':')
    if kind not in TRAINERS:
        raise errors.unknown('tokenizer kind', kind, TRAINERS)
    smallest = len(special_tokens.BERT)
    if not size.isdecimal() or int(size) <= smallest:
        raise errors.UserError(
            f'tokenizer {spec!r}: the vocabulary size must be a whole number above '
            f'{smallest}, as in {kind}:8000'
        )
    paragraphs = [encodable(part) for text in texts for part in text.split('\n\n')]
    return Tokenizer(json.dumps(TRAINERS[kind](int(size), paragraphs, lowercase)))
