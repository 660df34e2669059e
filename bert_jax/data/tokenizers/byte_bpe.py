"""Byte-level BPE, as in GPT-2 and RoBERTa: merges of bytes, written as letters; Ġ is the space."""

import json
import pathlib
from collections.abc import Sequence

import tokenizers

from bert_jax import errors
from bert_jax.data.tokenizers import special_tokens

SPACE = 'Ġ'


def train(size: int, texts: list[str], lowercase: bool) -> dict:
    """The settings of a trained tokenizer; every text starts a word, as after a space."""
    smallest = len(special_tokens.ROBERTA) + 256
    if size < smallest:
        raise errors.UserError(
            f'a vocabulary of {size} is too small: the special tokens and bytes are {smallest}'
        )
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    _dress(backend, lowercase, add_prefix_space=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(special_tokens.ROBERTA),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(map(special_tokens.broken, texts), trainer)
    trained = json.loads(backend.to_str())['model']
    if not trained['merges']:
        raise errors.UserError('a tokenizer cannot be trained on a text without a word')
    return settings(trained['vocab'], trained['merges'], lowercase, add_prefix_space=True)


def settings(
    vocab: dict[str, int],
    merges: Sequence[Sequence[str]],
    lowercase: bool = False,
    add_prefix_space: bool = False,
) -> dict:
    """The library's JSON, as a dictionary. Special tokens the vocabulary lacks (GPT-2's has none
    to mask or pad with) get ids after its last."""
    vocab = dict(vocab)
    for name in special_tokens.complete(vocab):
        vocab[name] = max(vocab.values()) + 1
    ids = special_tokens.find(vocab)
    names = {index: token for token, index in vocab.items()}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocab, merges=[tuple(merge) for merge in merges])
    )
    _dress(backend, lowercase, add_prefix_space)
    special_tokens.add(backend, [names[index] for index in sorted(ids.values())])
    cls, sep = ((names[ids[role]], ids[role]) for role in ('cls', 'sep'))
    if cls[0] == '<s>':
        backend.post_processor = tokenizers.processors.RobertaProcessing(
            sep, cls, trim_offsets=True, add_prefix_space=add_prefix_space
        )
    else:
        backend.post_processor = special_tokens.frame(vocab)
    return json.loads(backend.to_str())


def _dress(backend: tokenizers.Tokenizer, lowercase: bool, add_prefix_space: bool):
    if lowercase:
        backend.normalizer = tokenizers.normalizers.Lowercase()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = tokenizers.decoders.ByteLevel()


def read(vocab: pathlib.Path, merges: pathlib.Path) -> tuple[dict[str, int], list[list[str]]]:
    """What a vocab.json and its merges.txt hold. Raises UserError if they are no such files."""
    try:
        ids = json.loads(vocab.read_text(encoding='utf-8'))
    except json.JSONDecodeError as error:
        raise errors.UserError(f'no valid JSON: {error}') from None
    if not isinstance(ids, dict) or not all(isinstance(i, int) for i in ids.values()):
        raise errors.UserError('no vocabulary: not a JSON object from tokens to ids')
    pairs = []
    for number, line in enumerate(merges.read_text(encoding='utf-8').split('\n')):
        if line.startswith('#version') or not line:
            continue
        pairs.append(line.removesuffix('\r').split(' '))
        if len(pairs[-1]) != 2 or not {*pairs[-1], ''.join(pairs[-1])} <= ids.keys():
            raise errors.UserError(
                f'{merges.name}, line {number + 1}: {line!r} is no pair of tokens in {vocab.name}'
            )
    return ids, pairs
