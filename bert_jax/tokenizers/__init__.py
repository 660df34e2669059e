"""WordPiece, byte-level BPE and SentencePiece tokenizers with the interface `Tokenizer`.

Loading published files and training are imported when they are used.
"""

from typing import TYPE_CHECKING, Any

from bert_jax import lazy_table
from bert_jax.tokenizers.special_tokens import BERT as SPECIAL_TOKENS
from bert_jax.tokenizers.tokenizer import Encodings, Tokenizer

if TYPE_CHECKING:
    from bert_jax.tokenizers.loading import has_tokenizer, load
    from bert_jax.tokenizers.training import check_accents, check_trainable, train

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

TRAINING_CHARACTERS = 2**26  # from longer texts, lines of about this total length are drawn

_LAZY = {
    'check_accents': 'bert_jax.tokenizers.training:check_accents',
    'check_trainable': 'bert_jax.tokenizers.training:check_trainable',
    'has_tokenizer': 'bert_jax.tokenizers.loading:has_tokenizer',
    'load': 'bert_jax.tokenizers.loading:load',
    'train': 'bert_jax.tokenizers.training:train',
}


def __getattr__(name: str) -> Any:
    """Import a function when it is used; its type is that of the import for type checkers."""
    if name not in _LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return lazy_table.load(_LAZY[name])
