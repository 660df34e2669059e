"""Trains tokenizers on texts."""

import json
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bert_jax import errors
from bert_jax.lazy_table import LazyTable
from bert_jax.storage.names import is_number
from bert_jax.tokenizers import decoder_tokens, special_tokens
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
_MOST_SENTINELS = decoder_tokens.MOST_SENTINELS
_LANGUAGES = re.compile('[a-z]{2,3}(-[a-z]+)?(,[a-z]{2,3}(-[a-z]+)?)*')
_ANY_TEXT = ('aa aa',)  # a vocabulary is large enough for this text if it is for any
_STRIPS_ACCENTS = ('wordpiece',)  # kinds whose trainers have an argument `strip_accents`


class Specification(NamedTuple):
    """What kind of tokenizer to train: 'unigram:32000:sentinels=100:languages=cy,en:cls=no'.

    Attributes:
        kind: Name in TRAINERS.
        size: Size of the vocabulary, without the tokens of the following options.
        sentinels: How many sentinels <extra_id_0>, …, which stand for spans (T5).
        languages: Codes of languages, which get the tokens [cy], [en], … (mBART).
        starts_texts: Whether a text starts with a special token; not with cls=no (T5, mBART).
    """

    kind: str
    size: int
    sentinels: int = 0
    languages: tuple[str, ...] = ()
    starts_texts: bool = True

    @property
    def extends(self) -> bool:
        """Whether an option changes the trained tokenizer."""
        return bool(self.sentinels or self.languages or not self.starts_texts)


_OPTIONS = ('sentinels', 'languages', 'cls')


def parse_specification(spec: str) -> Specification:
    """Parse the text after 'train:'; raise UserError if it is malformed."""
    kind, *rest = spec.split(':')
    if kind not in TRAINERS:
        raise errors.unknown('tokenizer kind', kind, TRAINERS)
    size, *options = rest or ['']
    smallest = len(special_tokens.BERT)
    if not is_number(size) or int(size) <= smallest:
        raise errors.UserError(
            f'tokenizer {spec!r}: the vocabulary size must be a whole number above '
            f'{smallest}, as in {kind}:8000'
        )
    found = Specification(kind, int(size))
    for option in options:
        name, _, value = option.partition('=')
        if name not in _OPTIONS:
            raise errors.unknown(f'option of the tokenizer {spec!r}', name, _OPTIONS)
        if name == 'sentinels' and is_number(value) and 0 < int(value) <= _MOST_SENTINELS:
            found = found._replace(sentinels=int(value))
        elif name == 'languages' and _LANGUAGES.fullmatch(value):
            found = found._replace(languages=tuple(dict.fromkeys(value.split(','))))
        elif name == 'cls' and value in ('yes', 'no'):
            found = found._replace(starts_texts=value == 'yes')
        else:
            raise errors.UserError(
                f'tokenizer {spec!r}: {option!r} is not valid; write sentinels=N with N from 1 to '
                f'{_MOST_SENTINELS:,}, languages=cy,en or cls=no'
            )
    return found


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
        spec: Kind and size, such as 'wordpiece:8000', and options (`Specification`); see `TRAINERS`
            for the kinds.
        texts: The texts; all are kept in memory, see `training_text.sample`.
        lowercase: Whether the tokenizer lowercases.
        strip_accents: Whether it strips accents and vowel signs; None: a WordPiece tokenizer that
            lowercases does, as in BERT, with a warning where this makes many words equal.

    Raises:
        UserError: The kind is unknown, the size is invalid, or the texts have no words.
    """
    wanted = parse_specification(spec)
    kind = wanted.kind
    if strip_accents:
        check_accents(kind)
    from bert_jax.tokenizers import accents, long_runs

    paragraphs = [encodable(part) for text in texts for part in text.split('\n\n')]
    if words := long_runs.LONGEST_WORDS.get(kind):
        cuts = long_runs.Cuts(words)
        paragraphs = [piece for paragraph in paragraphs for piece in cuts.cut(paragraph)]
        if cuts.number:
            errors.warn(cuts.describe())
    options = {'strip_accents': strip_accents} if kind in _STRIPS_ACCENTS else {}
    settings = TRAINERS[kind](wanted.size, paragraphs, lowercase, **options)
    if wanted.extends:
        further = (wanted.sentinels, wanted.languages, wanted.starts_texts)
        settings = decoder_tokens.extend(settings, *further)
    trained = Tokenizer(json.dumps(settings))
    if trained.strip_accents and strip_accents is None:
        accents.warn(paragraphs)
    return trained
