"""Training a vocabulary on a stream of texts in one language or a mixture of languages."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert_jax import errors
from bert_jax.data import languages
from bert_jax.data.tokenizers import byte_bpe, sentence_piece, special_tokens, wordpiece
from bert_jax.data.tokenizers.tokenizer import Tokenizer, encodable

TRAINING_CHARACTERS = 2**26  # by default, longer texts are sampled evenly down to this length

# Kind → trainer: (size, texts, lowercase) → settings, the contents of a tokenizer.json.
TRAINERS: dict[str, Callable[[int, list[str], bool], dict[str, Any]]] = {
    'wordpiece': wordpiece.train,
    'bytebpe': byte_bpe.train,
    'unigram': functools.partial(sentence_piece.train, 'unigram'),
    'sentencepiece-bpe': functools.partial(sentence_piece.train, 'bpe'),
}


def train(
    spec: str, texts: Iterable[str], lowercase: bool = True, characters: int = TRAINING_CHARACTERS
) -> Tokenizer:
    """Train a tokenizer on a stream of texts; deterministic.

    Args:
        spec: Kind and size, such as 'wordpiece:8000'; see `TRAINERS` for the kinds.
        texts: The texts.
        lowercase: Whether the tokenizer lowercases.
        characters: Evenly spaced paragraphs of about this length are taken from a longer stream.

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
    sample = [encodable(text) for text in sample_paragraphs(texts, characters)]
    return Tokenizer(json.dumps(TRAINERS[kind](int(size), sample, lowercase)))


def mixture(
    texts: Mapping[str, Callable[[], Iterator[str]]], alpha: float, limit: int = TRAINING_CHARACTERS
) -> Iterator[str]:
    """Yield lines in which languages have the shares q_i ∝ p_i^alpha, p_i by characters.

    A language whose share is less than its text is represented by evenly spaced lines; one whose
    share is more is repeated.

    Args:
        texts: For each language, a function that streams its texts. It is called at least twice.
        alpha: Exponent, 0 ≤ alpha ≤ 1.
        limit: Maximum number of characters; the total of the texts if that is less.
    """
    amounts = {language: sum(map(len, stream())) for language, stream in texts.items()}
    total = min(sum(amounts.values()), limit)
    shares = languages.shares(list(amounts.values()), alpha)
    for (language, stream), share in zip(texts.items(), shares, strict=True):
        repeats, rest = divmod(share * total, amounts[language])
        for _ in range(int(repeats)):
            yield from stream()
        yield from _share_of(stream(), rest / amounts[language])


def _share_of(texts: Iterable[str], share: float) -> Iterator[str]:
    """Yield evenly spaced lines that contain a share of all characters."""
    seen = taken = 0
    for text in texts:
        for line in text.split('\n'):
            seen += len(line) + 1
            if taken + len(line) / 2 < share * seen:
                taken += len(line) + 1
                yield line


def sample_paragraphs(texts: Iterable[str], limit: int) -> list[str]:
    """Return evenly spaced paragraphs of a stream, about `limit` characters at most."""
    kept: list[str] = []
    characters, stride, index = 0, 1, 0
    for text in texts:
        for paragraph in text.split('\n\n'):
            if index % stride == 0:
                kept.append(paragraph)
                characters += len(paragraph)
                if characters > limit and len(kept) > 1:
                    kept = kept[::2]
                    characters = sum(map(len, kept))
                    stride *= 2
            index += 1
    return kept
