"""Byte-level BPE, as in GPT-2 and RoBERTa. Bytes are written as characters; Ġ is the space."""

import json
import pathlib
from collections.abc import Mapping, Sequence

import tokenizers

from bert_jax import errors, limits
from bert_jax.files import parse_json, read_text
from bert_jax.tokenizers import special_tokens
from bert_jax.types import JsonObject

# Printable bytes are written as themselves, the others as characters from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE}
_BYTES |= {chr(256 + number): byte for number, byte in enumerate(_OTHER_BYTES)}


def train(size: int, texts: list[str], lowercase: bool) -> JsonObject:
    """Train a tokenizer and return its settings; every text starts with a word boundary."""
    smallest = len(special_tokens.ROBERTA) + 256
    if size < smallest:
        raise errors.UserError(
            f'a vocabulary of {size} is too small: special tokens and bytes alone are {smallest}'
        )
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    _add_steps(backend, lowercase, add_prefix_space=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(special_tokens.ROBERTA),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    from bert_jax.tokenizers import training_progress

    trainer.progress_format = 'json'
    with training_progress.shown(f'merging {size:,} tokens', training_progress.parse_merges):
        backend.train_from_iterator(map(special_tokens.separate_literals, texts), trainer)
    trained = json.loads(backend.to_str())['model']
    if not trained['merges']:
        raise errors.UserError('the training text of the tokenizer has no words')
    return settings(trained['vocab'], trained['merges'], lowercase, add_prefix_space=True)


def settings(
    vocab: dict[str, int],
    merges: Sequence[Sequence[str]],
    lowercase: bool = False,
    add_prefix_space: bool = False,
    names: Mapping[str, str] | None = None,
    adds_roles: bool = True,
) -> JsonObject:
    """Return the settings of a tokenizer, the contents of a tokenizer.json.

    Args:
        vocab: Id of each token.
        merges: Pairs of tokens to merge, in order.
        lowercase: Whether text is lowercased.
        add_prefix_space: Whether a space is inserted before each text.
        names: Role → name of its special token, for tokens without a published name.
        adds_roles: Whether roles that have no token get one, with an id after the last. GPT-2 has
            neither mask nor padding.
    """
    names = special_tokens.names(vocab, names or {}) if adds_roles else dict(names or {})
    vocab = special_tokens.extend(vocab, names)
    model = tokenizers.models.BPE(vocab=vocab, merges=[(first, second) for first, second in merges])
    backend = tokenizers.Tokenizer(model)
    _add_steps(backend, lowercase, add_prefix_space)
    special_tokens.add(backend, sorted(set(names.values()), key=vocab.__getitem__))
    if 'cls' not in names:
        backend.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    elif names['cls'] == '<s>':
        sep, cls = ((names[role], vocab[names[role]]) for role in ('sep', 'cls'))
        backend.post_processor = tokenizers.processors.RobertaProcessing(
            sep, cls, trim_offsets=True, add_prefix_space=add_prefix_space
        )
    else:
        backend.post_processor = special_tokens.template(names, vocab)
    return special_tokens.contents(backend)


def _add_steps(backend: tokenizers.Tokenizer, lowercase: bool, add_prefix_space: bool) -> None:
    if lowercase:
        backend.normalizer = tokenizers.normalizers.Lowercase()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = tokenizers.decoders.ByteLevel()


def read(vocab: pathlib.Path, merges: pathlib.Path) -> tuple[dict[str, int], list[list[str]]]:
    """Read the vocabulary and merges of a vocab.json and its merges.txt.

    Raises:
        UserError: The files are not valid JSON or do not belong together.
    """
    try:
        ids = parse_json(read_text(vocab, 'utf-8-sig', limit=limits.LARGE_FILE))
    except ValueError as error:
        raise errors.UserError(f'not valid JSON: {error}') from None
    if not isinstance(ids, dict) or not all(isinstance(i, int) for i in ids.values()):
        raise errors.UserError('not a vocabulary: expected a JSON object from tokens to ids')
    lines = read_text(merges, 'utf-8-sig', limit=limits.LARGE_FILE).split('\n')
    pairs = []
    for number, line in enumerate(lines):
        if line.startswith('#version') or not line:
            continue
        pairs.append(line.removesuffix('\r').split(' '))
        if len(pairs[-1]) != 2 or not {*pairs[-1], ''.join(pairs[-1])} <= ids.keys():
            raise errors.UserError(
                f'{merges.name}, line {number + 1}: {line!r} is not a pair of {vocab.name}'
            )
    return ids, pairs


def to_bytes(token: str) -> bytes | None:
    """Return the bytes of a token; None if it has characters that stand for no byte."""
    return bytes(map(_BYTES.__getitem__, token)) if {*token} <= _BYTES.keys() else None


def decode(token: str) -> str | None:
    """Return the text of a token; None if it has other characters or part of a character."""
    raw = to_bytes(token)
    try:
        return None if raw is None else raw.decode('utf-8')
    except UnicodeDecodeError:
        return None
