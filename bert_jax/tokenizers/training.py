"""Trains tokenizers on texts."""

import json
from collections.abc import Callable, Iterable

from bert_jax import errors
from bert_jax.lazy_table import LazyTable
from bert_jax.tokenizers import special_tokens
from bert_jax.tokenizers.backend import encodable
from bert_jax.tokenizers.tokenizer import Tokenizer
from bert_jax.types import JsonObject

# Kind → trainer: (size, texts, lowercase) → settings, the contents of a tokenizer.json.
Trainer = Callable[..., JsonObject]
TRAINERS: LazyTable[Trainer] = LazyTable(
    {
        'wordpiece': 'bert_jax.tokenizers.wordpiece:train',
        'bytebpe': 'bert_jax.tokenizers.byte_bpe:train',
        'unigram': 'bert_jax.tokenizers.sentence_piece:train_unigram',
        'xlnet': 'bert_jax.tokenizers.sentence_piece:train_xlnet',
        'sentencepiece-bpe': 'bert_jax.tokenizers.sentence_piece:train_bpe',
    }
)
_ANY_TEXT = ('aa aa',)  # a vocabulary is large enough for this text if it is for any
_STRIPS_ACCENTS = ('wordpiece',)  # kinds whose trainers have an argument `strip_accents`


def check_accents(kind: str) -> None:
    """Raise UserError if a trained tokenizer of this kind cannot strip accents."""
    if kind not in _STRIPS_ACCENTS:
        raise errors.UserError(
            f'strip_accents is True, but a trained {kind} vocabulary keeps accents; leave '
            'strip_accents out, or train wordpiece'
        )


def check_trainable(spec: str, lowercase: bool = True, strip_accents: bool | None = None) -> None:
    """Raise UserError if no text can give a tokenizer with these settings; see `train`."""
    train(spec, _ANY_TEXT, lowercase, strip_accents)


def train(
    spec: str, texts: Iterable[str], lowercase: bool = True, strip_accents: bool | None = None
) -> Tokenizer:
    """Train a tokenizer, deterministically.

    Args:
        spec: Kind and size, such as 'wordpiece:8000'; see `TRAINERS` for the kinds.
        texts: The texts; all are kept in memory, see `training_text.sample`.
        lowercase: Whether the tokenizer lowercases.
        strip_accents: Whether it strips accents and vowel signs; None: a WordPiece tokenizer that
            lowercases does, as in BERT, with a warning where this makes many words equal.

    Raises:
        UserError: The kind is unknown, the size is invalid, or the texts have no words.
    """
    kind, _, size = spec.partition(':')
    if kind not in TRAINERS:
        raise errors.unknown('tokenizer kind', kind, TRAINERS)
    if strip_accents:
        check_accents(kind)
    smallest = len(special_tokens.BERT)
    if not size.isdecimal() or int(size) <= smallest:
        raise errors.UserError(
            f'tokenizer {spec!r}: the vocabulary size must be a whole number above '
            f'{smallest}, as in {kind}:8000'
        )
    from bert_jax.tokenizers import accents, long_runs

    paragraphs = [encodable(part) for text in texts for part in text.split('\n\n')]
    if words := long_runs.LONGEST_WORDS.get(kind):
        cuts = long_runs.Cuts(words)
        paragraphs = [piece for paragraph in paragraphs for piece in cuts.cut(paragraph)]
        if cuts.number:
            errors.warn(cuts.describe())
    options = {'strip_accents': strip_accents} if kind in _STRIPS_ACCENTS else {}
    trained = Tokenizer(json.dumps(TRAINERS[kind](int(size), paragraphs, lowercase, **options)))
    if trained.strip_accents and strip_accents is None:
        accents.warn(paragraphs)
    return trained
