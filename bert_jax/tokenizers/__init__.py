"""WordPiece, byte-level BPE and SentencePiece tokenizers with the interface `Tokenizer`."""

from bert_jax.tokenizers.loading import has_tokenizer, load
from bert_jax.tokenizers.special_tokens import BERT as SPECIAL_TOKENS
from bert_jax.tokenizers.tokenizer import Encodings, Tokenizer
from bert_jax.tokenizers.training import (
    TRAINING_CHARACTERS,
    check_accents,
    check_trainable,
    train,
)

__all__ = [
    'SPECIAL_TOKENS',
    'TRAINING_CHARACTERS',
    'Encodings',
    'Tokenizer',
    'check_accents',
    'check_trainable',
    'has_tokenizer',
    'load',
    'train',
]
